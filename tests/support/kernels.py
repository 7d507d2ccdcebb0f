"""Compiles programs for a GPU on a machine without one, and counts the kernels that they launch."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

H200 = Path(__file__).parent.parent / "data" / "h200.txtpb"
# operations that are no kernel of their own
_FREE = {
    "after-all",
    "bitcast",
    "constant",
    "copy-done",
    "fusion-done",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
}


# Without a GPU there is no autotuning, and some untuned tiles of the Triton emitter do not compile.
_OPTIONS = {"xla_gpu_enable_triton_gemm": False}


class Loop(NamedTuple):
    """A loop of a compiled program."""

    depth: int  # 0: not inside another loop
    trips: int  # 1 if not known
    kernels: int  # of one trip, with the loops inside


class Count(NamedTuple):
    """The kernels that one run of a compiled program launches."""

    kernels: int
    loops: list[Loop]  # inner loops before outer ones


def device() -> NamedSharding:
    """Return a sharding for one H200 that need not be there. Skips the test if XLA's CUDA compiler is missing."""
    try:
        found = topologies.get_topology_desc(
            platform="cuda", target_config=H200.read_text(), topology="1x1x1"
        )
    except Exception as error:  # errors of plugins have no common type
        pytest.skip(
            f"XLA's compiler for CUDA is not installed ({type(error).__name__}); pip install jax-cuda12-plugin "
            "jax-cuda12-pjrt nvidia-cuda-nvcc-cu12, in the version of jax, and set JAX_PLATFORMS=cpu"
        )
    return NamedSharding(Mesh(np.array(found.devices), ("x",)), PartitionSpec())


def compiler(where: NamedSharding, options: Mapping[str, Any] | None = None) -> Callable[..., str]:
    """Return a function (jitted, *arguments, **named) -> HLO text that compiles for `where`."""

    def compiled(jitted: Any, *arguments: Any, **named: Any) -> str:
        def placed(x: Any) -> Any:
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where) if hasattr(x, "shape") else x

        with jax.sharding.use_abstract_mesh(where.mesh.abstract_mesh):  # says to Pallas which device it is
            lowered = jitted.lower(*jax.tree.map(placed, arguments), **named)
        return lowered.compile(_OPTIONS | dict(options or {})).as_text()

    return compiled


def memory_of_calls(where: NamedSharding, target: str) -> Callable[..., str]:
    """Return a function (jitted, *arguments) -> kinds of memory that calls of the FFI target read or write.

    One line for each kind, as XLA names it: `parameter`, `constant`, `preallocated-temp`, `maybe-live-out` ...
    """

    def found(jitted: Any, *arguments: Any, **named: Any) -> str:
        with tempfile.TemporaryDirectory() as folder:
            dump = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
            compiler(where, dump)(jitted, *arguments, **named)
            (values,) = (path.read_text() for path in Path(folder).glob("*gpu*assignment-values.txt"))
            (blocks,) = (path.read_text() for path in Path(folder).glob("*gpu*buffer-assignment.txt"))
        used = {
            number
            for number, name, uses in re.findall(r"^<(\d+) (\S+).*\n((?: .*\n)*)", values, re.M)
            if name.startswith(f"{target}.") or re.search(rf"^  {target}\.\d+, operand", uses, re.M)
        }
        kinds = set[str]()
        for head, inside in re.findall(r"^allocation \d+: (.*)\n((?: .*\n)*)", blocks, re.M):
            if used & set(re.findall(r"^ value: <(\d+) ", inside, re.M)):
                kinds.add(re.search(r"[a-z]+-[a-z-]+|parameter|constant", head).group(0))
        return "\n".join(sorted(kinds))

    return found


def count(text: str) -> Count:
    """Count the kernels of a compiled program from its HLO text."""
    bodies, entry, loops = _computations(text), "", list[Loop]()
    entry = next(re.finditer(r"^ENTRY %?([\w.-]+)", text, re.M)).group(1)

    def of(name: str, depth: int) -> int:
        total = 0
        for line in bodies[name]:
            op = _operation(line)
            if op in _FREE or re.search(r"= \w+\[(?:\d+,)*0(?:,\d+)*\]", line):  # arrays without entries
                continue
            if op == "while":
                inner = of(_named("body", line), depth + 1)
                trips = re.search(r'known_trip_count[^}]*"n":"(\d+)"', line)
                loops.append(Loop(depth, int(trips.group(1)) if trips else 1, inner))
                total += loops[-1].trips * inner
            elif op == "conditional":
                names = re.findall(r"%([\w.-]+)", line.partition("branch_computations=")[2].partition("}")[0])
                total += 1 + max((of(each, depth) for each in names), default=0)
            elif op in ("call", "async-start"):
                total += of(_named("to_apply|calls", line), depth)
            else:
                total += 1
        return total

    return Count(of(entry, 0), loops)


def _computations(text: str) -> dict[str, list[str]]:
    """Return the instructions of each computation by its name."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in text.splitlines():
        head = re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*->.*\{\s*$", line)
        if head:
            lines = found.setdefault(head.group(1), [])
        elif line.startswith("}"):
            lines = None
        elif lines is not None and " = " in line:
            lines.append(line)
    return found


def _operation(line: str) -> str:
    found = re.search(r"\s([a-z][a-z0-9-]*)\(", line.partition(" = ")[2])
    return found.group(1) if found else ""


def _named(what: str, line: str) -> str:
    found = re.search(rf"(?:{what})=%?([\w.-]+)", line)
    assert found, line
    return found.group(1)
