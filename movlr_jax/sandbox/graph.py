"""Reader of the untrusted document of a traced reward; it builds a JAX function from it.

Every operation, parameter, shape and type is checked against `primitives.TABLE` and against budgets before
anything is built; sizes are computed here, not taken from the document. It raises only ProgramError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray as Shape

from movlr_jax.errors import ProgramError
from movlr_jax.sandbox.codec import VERSION, at_line, refusal
from movlr_jax.sandbox.primitives import DTYPES, SCAN, TABLE, BadValue, apply, known, shapes

MAX_DOCUMENT = 4 << 20  # bytes
MAX_EQUATIONS = 1500
MAX_ELEMENTS = 4096  # of one intermediate value
MAX_TURNS = 1024  # of one loop
MAX_WORK = 4_000_000  # elements computed per step, over all iterations of loops
MAX_CONSTANTS = 1 << 18  # bytes
MAX_RANK = 8
MAX_DEPTH = 6  # of nested loops and branches
MAX_OPERANDS = 4096

Atom = int | np.ndarray  # a value by number, or a literal


@dataclass(frozen=True)
class Equation:
    """One operation: its primitive, operands and results, and the line of the program it comes from (0: unknown)."""

    primitive: str
    operands: tuple[Atom, ...]
    params: dict[str, Any]
    graphs: tuple[Graph, ...]
    results: tuple[Shape, ...]
    line: int


@dataclass(frozen=True)
class Graph:
    """Equations in order. Values are numbered: inputs, constants, then the results of each equation."""

    inputs: int
    consts: tuple[np.ndarray, ...]
    equations: tuple[Equation, ...]
    out: tuple[Atom, ...]


def read(text: bytes | str, terms: Sequence[str], inputs: Sequence[Shape]) -> Graph:
    """Return the checked graph of a document; terms and inputs are known from elsewhere. Raises ProgramError."""
    if len(text) > MAX_DOCUMENT:
        raise ProgramError(
            f"the traced program is larger than {MAX_DOCUMENT >> 20} MiB; use loops and helpers less often"
        )
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    main = _fields(document, "version", "terms", "main")["main"]
    if document["version"] != VERSION or document["terms"] != list(terms):
        raise _malformed("its version or its terms are different from those expected")
    reader = _Reader()
    graph, outs = reader.graph(main, list(inputs), 1, 0)
    if len(outs) != len(terms):
        raise _malformed(f"{len(outs)} values for {len(terms)} terms")
    for term, out in zip(terms, outs, strict=True):
        if out.shape != () or out.dtype != np.float32:
            raise _malformed(f"term {term!r} is {out.dtype.name}{list(out.shape)}, expected one float32")
    return graph


def shape_of(atom: Atom, avals: Sequence[Shape]) -> Shape:
    """Return the shape and type of a value, given those of the numbered values."""
    return avals[atom] if isinstance(atom, int) else Shape(atom.shape, atom.dtype)


def run(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Return the values of a checked graph; works on arrays and under jit, vmap, grad and scan."""
    env: list[Any] = [*inputs, *graph.consts]

    def value(atom: Atom) -> Any:
        return env[atom] if isinstance(atom, int) else atom

    for equation in graph.equations:
        operands = [value(a) for a in equation.operands]
        if equation.primitive == "scan":
            env += _scan(equation, operands)
        elif equation.primitive == "cond":
            branches = [lambda *xs, g=g: tuple(run(g, xs)) for g in equation.graphs]
            env += jax.lax.switch(operands[0], branches, *operands[1:])
        else:
            env += apply(equation.primitive, operands, equation.params)
    return [jnp.asarray(value(a)) for a in graph.out]


def _scan(equation: Equation, operands: list[Any]) -> list[Any]:
    p, (body,) = equation.params, equation.graphs
    first, last = p["num_consts"], p["num_consts"] + p["num_carry"]
    consts = operands[:first]

    def turn(carry: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        outs = run(body, [*consts, *carry, *x])
        return tuple(outs[: p["num_carry"]]), tuple(outs[p["num_carry"] :])

    carry = tuple(jnp.asarray(v) for v in operands[first:last])
    carry, stacked = jax.lax.scan(turn, carry, tuple(operands[last:]), p["length"], p["reverse"])
    return [*carry, *stacked]


def _needed(graph: Graph) -> Graph:
    """Return the graph without equations that no result depends on. An element of a stack is what was stacked.

    So `state.rot(body)[2, 2]` computes one entry of the matrix, not nine.
    """
    first = graph.inputs + len(graph.consts)
    equations: list[Equation] = []
    places: list[int] = []  # of the equation of each result
    same: dict[int, Atom] = {}

    def found(atom: Atom) -> Atom:
        return same.get(atom, atom) if isinstance(atom, int) else atom

    def place(atom: Atom) -> int | None:
        return places[atom - first] if isinstance(atom, int) and atom >= first else None

    for checked in graph.equations:
        equation = replace(checked, operands=tuple(found(a) for a in checked.operands))
        element = _element(equation, lambda a: None if (i := place(a)) is None else equations[i])
        if element is not None:
            same[first + len(places)] = element
        places += [len(equations)] * len(equation.results)
        equations.append(equation)
    out = tuple(found(a) for a in graph.out)
    needed, open_ends = set[int](), list(out)
    while open_ends:
        i = place(open_ends.pop())
        if i is not None and i not in needed:
            needed.add(i)
            open_ends += equations[i].operands
    kept = (first + j for j, i in enumerate(places) if i in needed)
    numbers = {old: new for new, old in enumerate((*range(first), *kept))}

    def renumbered(atoms: Sequence[Atom]) -> tuple[Atom, ...]:
        return tuple(numbers[a] if isinstance(a, int) else a for a in atoms)

    rest = tuple(replace(equations[i], operands=renumbered(equations[i].operands)) for i in sorted(needed))
    return Graph(graph.inputs, graph.consts, rest, renumbered(out))


def _element(equation: Equation, maker: Callable[[Atom], Equation | None]) -> Atom | None:
    """Return the value that an equation selects from stacks of stacks, None if it does something else."""
    cut = maker(equation.operands[0]) if equation.primitive == "squeeze" else None
    if cut is None or cut.primitive != "slice" or cut.params["strides"] is not None:
        return None
    value, starts = cut.operands[0], list(cut.params["start_indices"])
    if len(equation.params["dimensions"]) != len(starts):
        return None
    while starts:
        stack = maker(value)
        if stack is None or stack.primitive != "stack":
            return None
        value = stack.operands[starts.pop(stack.params["axis"])]
    return value


def _malformed(detail: str) -> ProgramError:
    return ProgramError(f"the description of the traced program is malformed: {detail}")


def _fields(value: Any, *names: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(names):
        raise _malformed(f"expected an object of {', '.join(names)}")
    return value


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise _malformed("a list is missing or too long")
    return value


def _count(value: Any, most: int = 1 << 31) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _malformed("an integer is missing or out of range")
    return value


class _Reader:
    """Reads graphs and adds up their equations, work and constants."""

    def __init__(self) -> None:
        self.equations, self.work, self.bytes = 0, 0, 0

    def graph(self, data: Any, inputs: list[Shape], turns: int, depth: int) -> tuple[Graph, list[Shape]]:
        """Return a graph with inputs of these shapes, run `turns` times per step, and the shapes of its results."""
        if depth > MAX_DEPTH:
            raise ProgramError(f"loops and branches are nested more than {MAX_DEPTH} deep; flatten them")
        data = _fields(data, "in", "consts", "eqns", "out")
        if _count(data["in"]) != len(inputs):
            raise _malformed(f"{data['in']} inputs, expected {len(inputs)}")
        consts = tuple(self.constant(c) for c in _list(data["consts"], MAX_OPERANDS))
        avals = inputs + [Shape(c.shape, c.dtype) for c in consts]
        equations = []
        for item in _list(data["eqns"], MAX_DOCUMENT):
            equation, results = self.equation(item, avals, turns, depth)
            equations.append(equation)
            avals += results
        out = tuple(self.atom(a, avals) for a in _list(data["out"], MAX_OPERANDS))
        graph = Graph(len(inputs), consts, tuple(equations), out)
        return _needed(graph), [shape_of(a, avals) for a in out]

    def equation(self, item: Any, avals: list[Shape], turns: int, depth: int) -> tuple[Equation, list[Shape]]:
        required = ("p", "i", "n", "a", "l")
        item = _fields(item, *required, *(["g"] if isinstance(item, dict) and "g" in item else []))
        name, line = item["p"], _count(item["l"], 100_000)
        where = at_line(line)
        self.equations += 1
        if self.equations > MAX_EQUATIONS:
            raise ProgramError(
                f"{where}the program has more than {MAX_EQUATIONS} operations after Python loops are unrolled; use "
                "arrays or jax.lax.fori_loop"
            )
        operands = tuple(self.atom(a, avals) for a in _list(item["i"], MAX_OPERANDS))
        if not isinstance(name, str) or len(name) > 64:
            raise _malformed("an operation has no name")
        before = self.work
        given = [shape_of(a, avals) for a in operands]
        graphs: tuple[Graph, ...] = ()
        if name == "scan":
            params = self.params(item["a"], SCAN, name)
            graphs, results = self.scan(item, params, given, turns, depth, where)
        elif name == "cond":
            params = self.params(item["a"], {}, name)
            graphs, results = self.cond(item, given, turns, depth)
        elif "g" in item:
            raise _malformed(f"{name!r} has inner graphs")
        elif name in TABLE and name in known():
            params = self.params(item["a"], TABLE[name], name)
            try:
                results = shapes(name, given, params)
            except Exception as error:  # a rule of JAX may raise anything on invalid parameters
                detail = (str(error).splitlines() or [""])[0][:120]
                raise _malformed(f"{where}{name!r} cannot be applied to its operands: {detail}") from None
        else:
            raise ProgramError(refusal(name if name.isprintable() else "?", line))
        if _count(item["n"], MAX_OPERANDS) != len(results):
            raise _malformed(f"{name!r} returns {len(results)} values, not {item['n']}")
        for result in results:
            self.size(result, where)
        most = max((prod(s.shape) for s in (*results, *given)), default=1)
        if name == "dot_general":  # its work exceeds the size of its inputs and outputs
            most = prod(given[0].shape) * prod(given[1].shape)
        self.work += turns * max(most, 1) if not graphs else 0
        if self.work > MAX_WORK and before <= MAX_WORK:
            raise ProgramError(
                f"{where}the program computes more than {MAX_WORK:,} numbers per step, counting all iterations of "
                "loops; use shorter loops or smaller arrays"
            )
        return Equation(name, operands, params, graphs, tuple(results), line), results

    def scan(
        self, item: Any, p: dict[str, Any], given: list[Shape], turns: int, depth: int, where: str
    ) -> tuple[tuple[Graph, ...], list[Shape]]:
        length, first, last = p["length"], p["num_consts"], p["num_consts"] + p["num_carry"]
        if not 0 <= length <= MAX_TURNS:
            raise ProgramError(
                f"{where}a loop has {length:,} iterations, the limit is {MAX_TURNS:,}; a reward should need only a "
                "few operations per step"
            )
        if min(first, p["num_carry"]) < 0 or last > len(given):
            raise _malformed("a loop has more constants and carried values than operands")
        over = given[last:]
        if any(not s.shape or s.shape[0] != length for s in over):
            raise _malformed("a loop over arrays of a different length")
        inputs = given[:last] + [Shape(s.shape[1:], s.dtype) for s in over]
        (body,) = _list(item.get("g"), 1) or [None]
        graph, outs = self.graph(body, inputs, turns * max(length, 1), depth + 1)
        carried = p["num_carry"]
        if len(outs) < carried or any(
            (a.shape, a.dtype) != (b.shape, b.dtype) for a, b in zip(given[first:last], outs, strict=False)
        ):
            raise _malformed("the values that a loop carries change in shape or type")
        stacked = [Shape((length, *s.shape), s.dtype) for s in outs[carried:]]
        return (graph,), outs[:carried] + stacked

    def cond(self, item: Any, given: list[Shape], turns: int, depth: int) -> tuple[tuple[Graph, ...], list[Shape]]:
        if not given or given[0].shape != () or given[0].dtype != np.int32:
            raise _malformed("a branch without an index")
        branches = [self.graph(g, given[1:], turns, depth + 1) for g in _list(item.get("g"), 64)]
        kinds = {tuple((s.shape, s.dtype.name) for s in outs) for _, outs in branches}
        if len(kinds) != 1:
            raise _malformed("branches return values of different shapes or types")
        return tuple(g for g, _ in branches), branches[0][1]

    def params(self, data: Any, kinds: dict[str, Any], name: str) -> dict[str, Any]:
        if not isinstance(data, dict) or not set(data) <= set(kinds):
            raise _malformed(f"invalid parameters of {name!r}")
        try:
            values = {key: kinds[key].decode(value) for key, value in data.items()}
        except (BadValue, TypeError, ValueError):
            raise _malformed(f"an invalid parameter of {name!r}") from None
        if kinds is SCAN and set(values) != set(kinds):
            raise _malformed(f"invalid parameters of {name!r}")
        return values

    def atom(self, data: Any, avals: list[Shape]) -> Atom:
        if isinstance(data, int) and not isinstance(data, bool):
            if not 0 <= data < len(avals):
                raise _malformed("an operand that is not defined yet")
            return data
        if not isinstance(data, list) or len(data) != 2:
            raise _malformed("an invalid operand")
        return self.constant([data[0], [], data[1]])

    def constant(self, data: Any) -> np.ndarray:
        if not isinstance(data, list) or len(data) != 3 or data[0] not in DTYPES:
            raise _malformed("an invalid constant")
        dtype, shape = np.dtype(data[0]), tuple(_count(n) for n in _list(data[1], MAX_RANK))
        if prod(shape) > MAX_ELEMENTS:
            raise ProgramError(
                f"the program contains a constant array of {prod(shape):,} numbers; the limit is {MAX_ELEMENTS:,}"
            )
        size = prod(shape) * dtype.itemsize
        self.bytes += size
        if self.bytes > MAX_CONSTANTS:
            raise ProgramError(
                f"the program contains more than {MAX_CONSTANTS >> 10} KiB of constants; compute or remove them"
            )
        if not isinstance(data[2], str) or len(data[2]) != 2 * size:
            raise _malformed("a constant of the wrong size")
        try:
            raw = bytes.fromhex(data[2])
        except ValueError:
            raise _malformed("a constant that is not hexadecimal") from None
        if len(raw) != size or (dtype == np.bool_ and raw.strip(b"\0\1")):
            raise _malformed("a constant of the wrong size")
        return np.frombuffer(raw, dtype).reshape(shape)

    def size(self, aval: Shape, where: str) -> None:
        if np.dtype(aval.dtype).name not in DTYPES:
            raise ProgramError(f"{where}{aval.dtype} values; only float32, int32 and bool are supported")
        if len(aval.shape) > MAX_RANK or prod(aval.shape) > MAX_ELEMENTS:
            shape = "x".join(str(n) for n in aval.shape[:MAX_RANK])
            raise ProgramError(
                f"{where}an array of {shape} has {prod(aval.shape):,} numbers; the limit is {MAX_ELEMENTS:,} in "
                f"{MAX_RANK} dimensions, reduce it or make it smaller"
            )
