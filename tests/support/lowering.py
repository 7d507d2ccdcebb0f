"""Records the JAX programs of a replan or a training, and lowers them for CUDA and TPU on a machine with neither."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
from jax import export

from movlr_jax.physics import mjx
from movlr_jax.physics.agreement import Agreement

PLATFORMS = ("cuda", "tpu")
KERNEL = "__gpu$xla.gpu.triton"  # a kernel of Pallas
# Calls that XLA knows on these platforms: random numbers, sorting, LU, Cholesky and their substitutions, and arrays
# without content, which JAX 0.11 makes for the results of a scan.
KNOWN_CALLS = re.compile(
    r"cu_threefry2x32_ffi|cu(solver|blas)_\w+|LuDecomposition|cu_lu_pivots_to_permutation|mhlo\.topk|Sharding"
    r"|AllocateBuffer"
)


class Program(NamedTuple):
    """A jitted function, and its module for the arguments of a call: StableHLO, or what else `read` returns."""

    name: str
    text: str


@dataclass
class Recorder:
    """Programs in the order of their first calls. None of them is compiled or run: their results are zeros."""

    read: Callable[..., str]
    programs: list[Program] = field(default_factory=list)
    seen: set[Any] = field(default_factory=set)

    def add(self, jitted: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        shapes = jax.tree.map(_shape, (arguments, named))
        leaves, tree = jax.tree.flatten(shapes)
        known = (jitted, tree, *map(repr, leaves))
        if known not in self.seen:
            self.seen.add(known)
            name = f"{jitted.__module__}.{jitted.__qualname__}"
            positional, keywords = shapes
            self.programs.append(Program(name, self.read(jitted, *positional, **keywords)))
        return jax.tree.map(_zeros, jitted.eval_shape(*arguments, **named))


class Recorded:
    """What `jax.jit` returns while programs are recorded; also what lowering and compiling it return."""

    def __init__(self, recorder: Recorder, jitted: Any):
        self._recorder, self._jitted = recorder, jitted

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((arguments, named))):
            return self._jitted(*arguments, **named)  # a part of a larger program
        return self._recorder.add(self._jitted, arguments, named)

    def lower(self, *arguments: Any, **named: Any) -> Recorded:
        return self

    def compile(self, compiler_options: Any = None) -> Recorded:
        return self

    def memory_analysis(self) -> None:
        return None


def stablehlo(jitted: Any, *arguments: Any, **named: Any) -> str:
    """Return the modules of `jitted`, lowered for one platform after the other.

    Together, each platform would have to lower the kernels that only one of them runs.
    """
    checks = [export.DisabledSafetyCheck.custom_call(KERNEL)]
    each = (export.export(jitted, platforms=[platform], disabled_checks=checks) for platform in PLATFORMS)
    with _device():
        return "\n".join(lower(*arguments, **named).mlir_module() for lower in each)


def _device() -> AbstractContextManager[object]:
    """Name the device for which JAX 0.11 lowers kernels of Pallas; versions before do not ask."""
    if jax.__version_info__ < (0, 11):
        return nullcontext()
    kind = jax.sharding.AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=kind))


@contextmanager
def recording(read: Callable[..., str] = stablehlo) -> Iterator[Recorder]:
    """Record the programs that are created by `jax.jit` in this context, as on a machine with an accelerator.

    read(jitted, *arguments, **named) returns the text of a program.
    """
    recorder, jit, precision = Recorder(read), jax.jit, jax.config.jax_default_matmul_precision

    def recorded(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        if function is None:
            return lambda function: recorded(function, **options)
        options.pop("compiler_options", None)
        return Recorded(recorder, jit(function, **options))

    on_gpu = mock.patch.object(jax, "default_backend", return_value="gpu")
    # nothing runs, so an engine cannot be compared with C MuJoCo
    agreed = mock.patch.object(mjx, "compared", return_value=Agreement(0.0))
    try:
        with on_gpu, agreed, mock.patch.object(jax, "jit", recorded):
            yield recorder
    finally:
        jax.config.update("jax_default_matmul_precision", precision)


def faults(text: str) -> list[str]:
    """Return what keeps a StableHLO module from running, as a whole, on an accelerator."""
    calls = set(re.findall(r"custom_call @([\w.$<>-]+)", text))
    found = [f"call of {name}" for name in sorted(calls - {KERNEL}) if not KNOWN_CALLS.fullmatch(name)]
    found += ["double precision"] * bool(re.search(r"tensor<(?:\d+x)*(?:f64|complex<f64>)>", text))
    found += ["dynamic shape"] * ("tensor<?" in text)
    low = [line for line in text.splitlines() if "stablehlo.dot_general" in line and "HIGHEST" not in line]
    return found + ["matrix product in low precision"] * bool(low)


def _shape(x: Any) -> Any:
    if not hasattr(x, "shape"):
        return x  # static
    dtype = x.dtype if isinstance(x, jax.Array) else jax.dtypes.canonicalize_dtype(x.dtype)
    return jax.ShapeDtypeStruct(x.shape, dtype)


def _zeros(x: jax.ShapeDtypeStruct) -> jax.Array:
    if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jnp.zeros(x.shape, x.dtype)
    return jnp.broadcast_to(jax.random.key(0), x.shape)
