"""Compiled programs over the rows of a batch: compiled once per shape and distributed over all local devices.

Also estimates of the memory that a batch needs, and of what is free.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

GIB = 2**30
Say = Callable[[str], object]
_SPARE = 1.5  # a batch may be padded up to this factor to reuse a compiled program
_SHARE = 0.7  # of the free memory for a batch: XLA's own needs are not known in advance
_COPIES = 3  # copies of a simulation's data that a step holds at once: before, after, and intermediate values
_ROWS, _WHOLE = PartitionSpec("rows"), PartitionSpec()


class Programs:
    """Runs functions of (constants, *inputs), whose inputs and outputs have the rows as leading axis.

    constants(rows): the arguments that all rows share, given the number of rows per device.
    """

    def __init__(self, name: str, constants: Callable[[int], Any], say: Say):
        self._name, self._constants, self._say = name, constants, say
        self._compiled: dict[Any, dict[int, Callable[..., Any]]] = {}
        self._copies: dict[int, Any] = {}
        devices = jax.local_devices()
        self.devices, self._first = len(devices), devices[0]
        self._mesh = Mesh(np.array(devices), ("rows",)) if len(devices) > 1 else None
        self.traces: Counter[str] = Counter()
        self.compile_s: dict[str, float] = {}  # program -> time of tracing and compiling, s

    def run(
        self,
        what: str,
        function: Callable[..., Any],
        inputs: Any,
        rows: int,
        *,
        of: Any = None,
        common: tuple[Any, ...] = (),
        per_row: int = 1,
        rows_axis: int = 0,
    ) -> Any:
        """Run `function(constants, *common, *inputs)` for `inputs` [rows, ...]; (what, of) identify the function.

        A batch may be padded to the size of a compiled program, and to a multiple of the number of devices. `common`
        is copied to every device; a row contains `per_row` simulations. `rows_axis` is the axis of the rows in the
        outputs.
        """
        shapes = tuple((np.shape(x)[1:], str(x.dtype)) for x in jax.tree.leaves(inputs))
        sizes = self._compiled.setdefault((what, of, jax.tree.structure(inputs), shapes), {})
        whole = -(-rows // self.devices) * self.devices
        padded = min((n for n in sizes if rows <= n <= _SPARE * rows), default=whole)
        inputs = self._placed(jax.tree.map(partial(_pad, rows=padded), inputs), _ROWS)
        count = padded * per_row
        if count not in self._copies:
            self._copies[count] = self._placed(self._constants(count // self.devices), _WHOLE)
        common = (self._copies[count], *self._placed(common, _WHOLE))
        if padded not in sizes:
            sizes[padded] = self._compile(f"{what}, {padded} rows", function, common, inputs, rows_axis)
        outputs = sizes[padded](*common, *inputs)
        if padded == rows:
            return outputs
        return jax.tree.map(lambda x: jax.lax.slice_in_dim(x, 0, rows, axis=rows_axis), outputs)

    def collect(self, x: Any) -> Any:
        """Move `x` to the first device if it is distributed over several."""
        return x if self._mesh is None else jax.device_put(x, self._first)

    def clear(self) -> None:
        self._compiled.clear()
        self._copies.clear()

    def _placed(self, tree: Any, spec: PartitionSpec) -> Any:
        if self._mesh is None:
            return jax.tree.map(jnp.asarray, tree)
        return jax.device_put(tree, NamedSharding(self._mesh, spec))

    def _compile(
        self, what: str, function: Callable[..., Any], common: tuple[Any, ...], inputs: Any, rows_axis: int
    ) -> Any:
        def traced(*arguments: Any) -> Any:
            self.traces[what] += 1
            return function(*arguments)

        self._say(f"  {self._name}: compiling the {what}")
        begun, spread = time.monotonic(), traced
        if self._mesh is not None:
            specs = (*[_WHOLE] * len(common), *[_ROWS] * len(inputs))
            out = PartitionSpec(*[None] * rows_axis, "rows")
            spread = jax.shard_map(traced, mesh=self._mesh, in_specs=specs, out_specs=out, check_vma=False)
        compiled = jax.jit(spread).lower(*common, *inputs).compile()
        self.compile_s[what] = time.monotonic() - begun
        used = compiled.memory_analysis()
        size = f", {used.temp_size_in_bytes / GIB:.2f} GiB of temporary memory" if used else ""
        self._say(f"  {self._name}: compiled the {what} in {self.compile_s[what]:.1f} s{size}")
        return compiled


def _pad(x: Any, rows: int) -> Any:
    """Pad `x` [B, ...] to `rows` rows by repeating its last row."""
    missing = rows - len(x)
    if not missing:
        return x
    xp = jnp if isinstance(x, jax.Array) else np
    return xp.concatenate([x, xp.repeat(x[-1:], missing, axis=0)])


def free_memory(device: Any) -> int:
    """Return the bytes that a batch may use on a JAX device; for a CPU device, its share of the free memory."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(_SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(_SHARE * pages / len(jax.local_devices()))


def row_bytes(model: mujoco.MjModel, template: object, steps: int) -> int:
    """Return the bytes of one row of a rollout of `steps` control steps: its trajectory and the simulation data."""
    recorded = 1 + model.nq + model.nv + model.na + model.nsensordata + 2 * model.nu
    number = np.dtype(np.float32).itemsize
    data = sum(x.nbytes for x in jax.tree.leaves(template) if hasattr(x, "nbytes"))
    return recorded * number * (steps + 2) + _COPIES * data


def out_of_memory(error: Exception) -> bool:
    """Return whether an error of JAX says that a device has not enough memory."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
