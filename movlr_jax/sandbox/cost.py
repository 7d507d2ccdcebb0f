"""Estimate of the time and live memory that a checked graph needs at run time, by a cost model of XLA on a CPU.

The constants are measured: each operation in a loop over 512 numbers of 64 states, compiled like rewards (`Scorer`),
on one core of a 2-core x86_64 machine with JAX 0.10.2. The target accuracy is a factor of five.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, prod

from jax.core import ShapedArray as Shape

from movlr_jax.rewards.cost import CHUNK_BYTES, FEWEST, Cost
from movlr_jax.sandbox.codec import at_line
from movlr_jax.sandbox.graph import Atom, Equation, Graph, shape_of

# Limits for scoring, s on one core: for a batch, and per state; the larger total applies.
BATCH_S, STATE_S = 2.0, 1e-4
STATE_BYTES = CHUNK_BYTES // FEWEST
SLOWER = 10.0  # times its estimate: what a program may take when it is measured
_TURN_S, _OPERATION_S = 1e-7, 5e-8  # s, overhead per loop iteration and per operation in it
# s per number that a loop carries from one iteration to the next, and if there are few, which stay in the cache
_COPY_S, _FEW_COPY_S, _FEW = 1e-9, 2e-10, 16
# Seconds per number, of the numbers that take longest (huge, tiny, denormal, infinite, NaN, mixed). Measured: add,
# mul, div, select, slice up to 4 ns; exp, log, tanh, sin, gather 4 to 12; pow, scatter, asin, acos, atan, atan2,
# log1p, expm1, cosh, argmax 9 to 27; sinh, asinh, acosh, atanh up to 49; sort of 512 numbers 228, cumsum
# of 512 numbers 55, and both grow with the logarithm of their count. Only rem depends much on its numbers: 4 ns for
# similar ones, 200 for those furthest apart, since it subtracts bit by bit; that of integers 3.
_CHEAP_S = 2e-9
_REMAINDER_S = 2e-7
_NUMBER_S = {
    **dict.fromkeys(
        ("exp", "exp2", "log", "log2", "logistic", "tanh", "sin", "cos", "tan", "sqrt", "rsqrt", "cbrt", "rem",
         "reduce_prod", "gather"),
        1e-8,
    ),
    **dict.fromkeys(
        ("asin", "acos", "atan", "atan2", "cosh", "log1p", "expm1", "argmax", "argmin", "erf", "pow", "scatter",
         "scatter-add", "scatter-mul", "scatter-min", "scatter-max"),
        2.5e-8,
    ),
    **dict.fromkeys(("sinh", "asinh", "acosh", "atanh", "erfc"), 5e-8),
}  # fmt: skip
_SORTED_S = {  # s per number and per doubling of their count
    "sort": 2e-8,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), 6e-9),
    "cumlogsumexp": 1e-7,
}
# The cost of these depends on their outputs, not on their inputs.
_READ_PARTS = ("slice", "dynamic_slice", "gather", "split")
_PASSES = 3  # over a loop's body, to find the values that differ between states


@dataclass(frozen=True)
class Measured:
    """The cost of a graph, and the lines of the program with the most time and memory (0: unknown)."""

    cost: Cost
    slowest: int = 0
    largest: int = 0


def measure(
    graph: Graph, inputs: Sequence[Shape], outside: int = 0, differ: Sequence[bool] | None = None
) -> Measured:
    """Return the cost of one run of `graph`. The caller keeps the first `outside` inputs alive.

    `differ` says which inputs differ between states, by default all. vmap computes what does not, such as a loop
    counter, once for all states.
    """
    differs = _differing(graph, [True] * len(inputs) if differ is None else differ)
    shapes = [*inputs, *(Shape(c.shape, c.dtype) for c in graph.consts)]
    free = set(range(outside)) | set(range(len(inputs), len(shapes)))  # constants are the same for all states
    last = {a: len(graph.equations) for a in graph.out if isinstance(a, int)}
    for i in reversed(range(len(graph.equations))):
        for a in graph.equations[i].operands:
            if isinstance(a, int):
                last.setdefault(a, i)
    ends: dict[int, list[int]] = {}
    for value, i in last.items():
        ends.setdefault(i, []).append(value)
    live = peak = sum(_bytes(shapes[v]) for v in last if v < len(inputs) and v not in free)
    call_s = state_s = longest = 0.0
    slowest = largest = 0
    for i, equation in enumerate(graph.equations):
        given = [shape_of(a, shapes) for a in equation.operands]
        new = range(len(shapes), len(shapes) + len(equation.results))
        shapes += equation.results
        live += sum(_bytes(s) for s in equation.results)
        cost = _equation(equation, given, [_differs(a, differs) for a in equation.operands])
        if not any(differs[v] for v in new):
            fused = not equation.graphs and _number_s(equation, given) == _CHEAP_S
            cost = Cost((0.0 if fused else cost.call_s) + cost.state_s, 0.0, cost.state_bytes)
        call_s, state_s = call_s + cost.call_s, state_s + cost.state_s
        if live + cost.state_bytes > peak:
            peak, largest = live + cost.state_bytes, equation.line
        if cost.seconds(FEWEST) > longest:
            longest, slowest = cost.seconds(FEWEST), equation.line
        unused = [v for v in new if v not in last]
        live -= sum(_bytes(shapes[v]) for v in (*ends.get(i, ()), *unused) if v not in free)
    return Measured(Cost(call_s, state_s, peak), slowest, largest)


def refusal(measured: Measured, states: int) -> str | None:
    """Return why a program is too expensive for a batch of `states` states, None if it is not."""
    cost, most = measured.cost, max(BATCH_S, states * STATE_S)
    if cost.state_bytes > STATE_BYTES:
        return (
            f"{at_line(measured.largest)}the program holds about {_size(cost.state_bytes)} of values at once for one "
            f"state, {_size(cost.state_bytes * states)} for the {states:,} states of one batch of this run; "
            f"the limit is {_size(STATE_BYTES)} per state, use smaller arrays"
        )
    if cost.seconds(states) > most:
        return (
            f"{at_line(measured.slowest)}the program takes about {cost.seconds(states):,.1f} s to compute for the "
            f"{states:,} states of one batch of this run; the limit is {most:,.1f} s, use shorter loops or smaller "
            "arrays"
        )
    return None


def slower(measured: Measured, cpu_s: float, states: int, batch: int) -> str | None:
    """Return why a program that took `cpu_s` for `states` states is refused, None if it is not.

    Its limit is that of `refusal`, if it also took much longer than its estimate; machines differ in speed.
    """
    expected_s, batch_s = measured.cost.seconds(states), cpu_s * batch / max(states, 1)
    most = max(BATCH_S, batch * STATE_S)
    if cpu_s <= SLOWER * expected_s or batch_s <= most:
        return None
    return (
        f"{at_line(measured.slowest)}the program took {_seconds(cpu_s)} for {states:,} states, but "
        f"{_seconds(expected_s)} were estimated; for the {batch:,} states of one batch of this run it would take "
        f"{_seconds(batch_s)} and the limit is {most:,.1f} s, use simpler operations or smaller arrays"
    )


def _seconds(value: float) -> str:
    return f"{value:,.1f} s" if value >= 0.1 else f"{value:.2g} s"


def _differing(graph: Graph, inputs: Sequence[bool]) -> list[bool]:
    """Return for each value of `graph` whether it may differ between states."""
    differs = [*inputs, *(False for _ in graph.consts)]
    for equation in graph.equations:
        given = [_differs(a, differs) for a in equation.operands]
        if equation.primitive == "scan":
            differs += _through_loop(equation, given)[1]
        else:
            differs += [any(given)] * len(equation.results)
    return differs


def _through_loop(equation: Equation, given: list[bool]) -> tuple[list[bool], list[bool]]:
    """Return for each input of a loop's body, and for each result of the loop, whether it may differ."""
    first, (body,) = equation.params["num_consts"], equation.graphs
    end = first + equation.params["num_carry"]
    for _ in range(_PASSES):
        values = _differing(body, given)
        out = [_differs(a, values) for a in body.out]
        carried = [before or after for before, after in zip(given[first:end], out, strict=False)]
        if carried == given[first:end]:
            return given, out
        given = [*given[:first], *carried, *given[end:]]
    return [True] * len(given), [True] * len(equation.results)


def _equation(equation: Equation, given: list[Shape], differ: list[bool]) -> Cost:
    """Return the cost of one operation; its bytes do not include its inputs and outputs."""
    if equation.primitive == "cond":  # vmap over states computes all branches
        inner = [measure(g, given[1:], len(given) - 1, differ[1:]).cost for g in equation.graphs]
        calls, states = sum(c.call_s for c in inner), sum(c.state_s for c in inner)
        return Cost(calls, states, max(c.state_bytes for c in inner))
    if equation.primitive == "scan":
        p, (body,) = equation.params, equation.graphs
        first, length = p["num_consts"], p["length"]
        carried = given[first : first + p["num_carry"]]
        parts = [Shape(s.shape[1:], s.dtype) for s in given[first + p["num_carry"] :]]
        differ, out = _through_loop(equation, differ)
        inner = measure(body, [*given[:first], *carried, *parts], first, differ).cost
        stacked = [Shape(s.shape[1:], s.dtype) for s in equation.results[p["num_carry"] :]]
        moved = zip((*carried, *parts, *stacked), (*differ[first:], *out[p["num_carry"] :]), strict=True)
        copied = sum(prod(s.shape) for s, differs in moved if differs)
        return Cost(
            _OPERATION_S + length * (_TURN_S + inner.call_s),
            length * (inner.state_s + copied * (_COPY_S if copied > _FEW else _FEW_COPY_S)),
            inner.state_bytes,
        )
    return Cost(_OPERATION_S, _numbers(equation, given) * _number_s(equation, given))


def _numbers(equation: Equation, given: list[Shape]) -> int:
    """Return how many numbers an operation computes or reads."""
    sizes = [prod(s.shape) for s in equation.results]
    if equation.primitive == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return max(sizes) * prod(given[0].shape[i] for i in contracted)
    if equation.primitive == "sort":
        return sum(sizes)
    if equation.primitive not in _READ_PARTS:
        sizes += [prod(s.shape) for s in given]
    return max(sizes, default=1)


def _number_s(equation: Equation, given: list[Shape]) -> float:
    primitive = equation.primitive
    if primitive == "rem" and given[0].dtype == "float32":
        return _REMAINDER_S
    if primitive == "integer_pow":  # squared and multiplied for each bit
        return _CHEAP_S * max(1.0, equation.params["y"].bit_length() / 3)
    if primitive in _SORTED_S:
        return _SORTED_S[primitive] * max(1.0, log2(max(prod(given[0].shape), 1)))
    return _NUMBER_S.get(primitive, _CHEAP_S)


def _differs(atom: Atom, differs: Sequence[bool]) -> bool:
    return isinstance(atom, int) and differs[atom]


def _bytes(shape: Shape) -> int:
    return prod(shape.shape) * shape.dtype.itemsize


def _size(count: int) -> str:
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):,.1f} MiB"
