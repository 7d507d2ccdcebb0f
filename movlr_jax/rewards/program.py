"""Reward programs, and the scorer that runs K of them over finished rollouts.

r = w . r (MoVLR): a program has named terms and their weights. Terms are compiled code; weights are data, so a change
of weights compiles nothing.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax._util.machine import cores
from movlr_jax.rewards.cost import Cost
from movlr_jax.rewards.reads import reads_of
from movlr_jax.rewards.state import STEP_SIZES, Layout, State
from movlr_jax.types import Array, Step

RewardFn = Callable[[State, Array], Mapping[str, Array]]
_HUGE = 1e30
_COMPILERS = 8  # threads at most
DEADLINE_S = 60.0  # time allowed for one program to compile, and to score one batch if its cost is not known
_SHORTEST_S = 5.0  # minimum time allowed to score one batch
# times the estimated cost of a batch, allowed if that is longer: machines may be slower, and shared
_SLACK = 10.0
_LOOK_S = 1.0  # interval between checks whether a program is done


@dataclass(frozen=True)
class RewardProgram:
    """A vetted reward: total = sum of weights[k] * terms[k] over one control step."""

    source: str
    description: str
    weights: Mapping[str, float]
    reward: RewardFn
    structure: str  # hash of the source without its weights: equal structures compile once
    cost: Cost = field(default_factory=Cost)
    document: bytes = field(default=b"", repr=False)  # its checked operations, as `sandbox.codec` writes them

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(self.weights)


@dataclass(frozen=True)
class Scores:
    """Scores of K x N rollouts of T steps under K programs; one entry per candidate."""

    totals: np.ndarray  # [K, N, T]
    terms: Sequence[Mapping[str, np.ndarray]]  # per candidate: term -> [N, T], unweighted
    nonfinite: Sequence[Mapping[str, int]]  # per candidate: term -> values that were replaced


def structure_hash(canonical: str) -> str:
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def bounded(xp: Any, values: Array, weights: Array) -> Array:
    """Return which values of terms are finite, and so small that no weighted total overflows float32."""
    return xp.abs(values) < _HUGE / xp.maximum(xp.abs(weights), 1.0)  # false for nan


def guard(xp: Any, values: Array, weights: Array) -> tuple[Array, Array]:
    """Replace non-finite entries of terms [F, N, T] by the worst finite entry of their term. Also returns counts [F].

    The worst entry lowers the total most: the smallest if the weight is positive, else the largest. Values that are
    not `bounded` count as non-finite. xp: NumPy or jax.numpy.
    """
    finite = bounded(xp, values, weights[:, None, None])
    if xp is np and finite.all():
        return values, np.zeros(len(values), int)
    least = xp.where(finite, values, xp.inf).min(axis=(1, 2))
    largest = xp.where(finite, values, -xp.inf).max(axis=(1, 2))
    worst = xp.where(weights >= 0, least, largest)
    worst = xp.where(xp.isfinite(worst), worst, 0.0)  # no finite value: all rows get the same value
    return xp.where(finite, values, worst[:, None, None]), (~finite).sum(axis=(1, 2))


def _total(xp: Any, weights: Array, terms: Array) -> tuple[Array, Array, Array]:
    """Return (total [N, T], guarded terms, counts [F] of replaced values) of a candidate with `terms` [F, N, T]."""
    values, counts = guard(xp, terms, weights)
    return (weights[:, None, None] * values).sum(axis=0), values, counts


class _Work:
    """A call in a thread of `pool`; its deadline counts from the time when the call begins."""

    def __init__(self, pool: ThreadPoolExecutor, call: Callable[..., Any], *arguments: Any):
        self._begun = threading.Event()
        self._future = pool.submit(self._run, call, arguments)

    def _run(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self._begun.set()
        return call(*arguments)

    def result(self, deadline_s: float) -> Any:
        """Return the result of the call. Raises TimeoutError; the call then continues in its thread.

        Time during which this process is stopped, for example by Ctrl-Z, does not count.
        """
        waited = 0.0
        while waited < deadline_s:
            begun, look = self._begun.is_set(), min(_LOOK_S, deadline_s - waited)
            try:
                return self._future.result(look)
            except TimeoutError:
                waited += look if begun else 0.0
        raise TimeoutError


class Scorer:
    """Compiles reward programs separately and runs K of them over their rows of [K, N, T] states.

    Each program is compiled to the same machine code alone or among others, so its scores are bitwise the same.
    Compiled programs are cached: programs that differ only in their weights compile once per shape. `traces`
    counts compilations. A program that exceeds the deadline scores 0 from then on, and `late` holds the reason.
    """

    def __init__(self, layout: Layout, goals: Mapping[str, Array], deadline_s: float = DEADLINE_S):
        self._layout, self.goals = layout, {k: jnp.asarray(v, jnp.float32) for k, v in goals.items()}
        self._compiled: dict[tuple[str, Any], _Work] = {}
        self._shapes: dict[Any, Any] = {}  # shapes of all states scored so far: hashable -> ShapeDtypeStructs
        self._compilers = ThreadPoolExecutor(min(cores(), _COMPILERS), "rewards")
        self._runners = ThreadPoolExecutor(_COMPILERS, "scores")
        self._deadline_s = deadline_s
        self._reads: dict[str, np.ndarray] = {}  # structure -> the sensor values that the program reads
        self.late: dict[str, str] = {}  # structure -> why the program is no longer scored
        self.traces = 0

        @jax.jit
        def total(weights: Array, terms: Array) -> Any:
            return _total(jnp, weights, terms)

        self._total = total

    def close(self) -> None:
        """Stop the threads, those that compile when they are done; the object cannot be used afterwards."""
        for pool in (self._compilers, self._runners):
            pool.shutdown(wait=False, cancel_futures=True)

    def __call__(self, programs: Sequence[RewardProgram], steps: Step, actions: Array, initial: Step) -> Scores:
        """Score steps [K, N, T, ...], actions [K, N, T, nu], initial [K, N, ...] (start of the episode)."""
        apart = _apart_on_device if isinstance(actions, jax.Array) else _apart
        states = apart((steps, actions, initial), len(programs))
        totals, terms, nonfinite = jax.device_get(self.on_device(programs, states))
        return Scores(
            totals=np.stack(totals),
            terms=[dict(zip(p.terms, t, strict=True)) for p, t in zip(programs, terms, strict=True)],
            nonfinite=[
                {k: int(c) for k, c in zip(p.terms, n, strict=True)} for p, n in zip(programs, nonfinite, strict=True)
            ],
        )

    def on_device(
        self, programs: Sequence[RewardProgram], each: Sequence[tuple[Step, Array, Step]]
    ) -> tuple[list[jax.Array], list[Any], list[Any]]:
        """Return (totals, terms, counts of non-finite values), each a list of K, on the device that computed them.

        each: for every program its steps [N, T, ...], actions [N, T, nu] and starts of the episodes [N, ...].
        """
        leaves, tree = jax.tree.flatten(each[0])
        known = (tree, *[(x.shape, x.dtype, _sharding(x)) for x in leaves])
        if known not in self._shapes:
            self._shapes[known] = jax.tree.map(_shape, each[0])
        begun = [self._compile(program, known) for program in programs]
        n, t = self._shapes[known][1].shape[:2]
        compiled = [
            self._within(p, work, n * t, "compiled", self._deadline_s)
            for p, work in zip(programs, begun, strict=True)
        ]
        allowed_s = self._allowed_s(programs, n * t)
        scoring = [
            call and _Work(self._runners, self._scored, call, _weights(program), *states)
            for call, program, states in zip(compiled, programs, each, strict=True)
        ]
        results = [
            self._within(p, work, n * t, "scored", allowed_s) or _nothing(p, states[1].shape[:2])
            for p, work, states in zip(programs, scoring, each, strict=True)
        ]
        totals, terms, counts = (list(r) for r in zip(*results, strict=True))
        return totals, terms, counts

    def _scored(
        self, call: Callable[..., Any], weights: np.ndarray, steps: Step, actions: Array, initial: Step
    ) -> Any:
        """Return the results of `_total`: NumPy arrays if the states are, so that nothing more is compiled."""
        terms = call(steps, actions, initial, self.goals)
        if isinstance(actions, jax.Array):
            return jax.block_until_ready(self._total(weights, terms))
        return _total(np, weights, np.asarray(terms))

    def _allowed_s(self, programs: Sequence[RewardProgram], states: int) -> float:
        """Return the time allowed to score `states` states with programs that share the cores, s."""
        expected_s = [program.cost.seconds(states) for program in programs]
        shortest_s = min(_SHORTEST_S, self._deadline_s) if all(expected_s) else self._deadline_s
        return max(shortest_s, _SLACK * sum(expected_s))

    def _within(self, program: RewardProgram, work: _Work | None, states: int, what: str, deadline_s: float) -> Any:
        """Return the result of `work`, None if it exceeds the deadline or the program did so before."""
        if work is None or program.structure in self.late:
            return None
        try:
            return work.result(deadline_s)
        except TimeoutError:
            self.late[program.structure] = (
                f"the program was not {what} for {states:,} states after {deadline_s:g} s; use shorter loops or "
                "smaller arrays"
            )
            return None

    def reads(self, programs: Sequence[RewardProgram]) -> np.ndarray:
        """Return [ns] bool, the sensor values that any of `programs` reads at a step."""
        for program in programs:
            if program.structure not in self._reads:
                self._reads[program.structure] = _reads(self._layout, program, self.goals)
        return np.any([self._reads[program.structure] for program in programs], axis=0)

    def prepare(self, programs: Sequence[RewardProgram]) -> None:
        """Start compiling `programs` in the background, for all shapes of states scored so far."""
        for shapes in self._shapes:
            for program in programs:
                self._compile(program, shapes)

    def _compile(self, program: RewardProgram, shapes: Any) -> _Work | None:
        """Return the running or finished compilation, None if the program exceeded a deadline before."""
        key = (program.structure, shapes)
        if key not in self._compiled and program.structure not in self.late:
            self.traces += 1
            states = self._shapes[shapes]
            n, t = states[1].shape[:2]
            score = partial(_score, self._layout, program.terms, program.reward, program.cost.at_once(n * t))
            self._compiled[key] = _Work(self._compilers, _compiled, score, states, self.goals)
        return self._compiled.get(key)


def _score(
    layout: Layout,
    names: Sequence[str],
    reward: RewardFn,
    at_once: int,
    steps: Step,
    actions: Array,
    initial: Step,
    goals: Mapping[str, Array],
) -> Array:
    """Return the terms [F, N, T] of one candidate, computed `at_once` states at a time."""

    def instant(step: Step, action: Array, start: Step) -> list[Array]:
        terms = reward(State(layout, step, goals, start), action)
        return [jnp.asarray(terms[name], jnp.float32) for name in names]

    def numbered(i: Array) -> list[Array]:
        of = lambda x: x[i // t, i % t]  # noqa: E731
        return instant(jax.tree.map(of, steps), of(actions), jax.tree.map(lambda x: x[i // t], initial))

    n, t = actions.shape[:2]
    if n * t <= at_once:
        over_time = jax.vmap(instant, in_axes=(0, 0, None))
        return jnp.stack(jax.vmap(over_time)(steps, actions, initial))
    # the last chunk is padded with the last state
    states = jnp.minimum(jnp.arange(-(-n * t // at_once) * at_once), n * t - 1)
    terms = jnp.stack(jax.lax.map(numbered, states, batch_size=at_once))
    return terms[:, : n * t].reshape(len(names), n, t)


def _reads(layout: Layout, program: RewardProgram, goals: Mapping[str, Array]) -> np.ndarray:
    """Return [ns] bool, the sensor values that a program reads at a step, apart from those of the start."""
    shape: Any = lambda *n: jax.ShapeDtypeStruct(n, jnp.float32)  # noqa: E731
    step = Step(time=shape(), **{name: shape(layout.sizes[size]) for name, size in STEP_SIZES.items()})

    def terms(step: Step, initial: Step, action: Array) -> Any:
        return program.reward(State(layout, step, goals, initial), action)

    return reads_of(terms, step, step, shape(layout.sizes["nu"])).sensors


def _compiled(score: Callable[..., Any], states: Any, goals: Any) -> Callable[..., Any]:
    return jax.jit(score, compiler_options=compiler_options()).lower(*states, goals).compile()


def _nothing(program: RewardProgram, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return zeros in the form of `_total`, so that the program prefers no state to another."""
    number = len(program.terms)
    return np.zeros(shape, np.float32), np.zeros((number, *shape), np.float32), np.zeros(number, np.int32)


def compiler_options() -> dict[str, Any]:
    """Return options with which XLA compiles a reward program in the least time; its code may be a little slower."""
    if jax.default_backend() != "cpu":
        return {"xla_backend_optimization_level": 1}
    options: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
    if jax.__version_info__ < (0, 11):  # later versions cannot switch it for one program
        options["xla_cpu_use_fusion_emitters"] = False
    return options


def _weights(program: RewardProgram) -> np.ndarray:
    return np.array([program.weights[term] for term in program.terms], np.float32)


def _apart(tree: Any, k: int) -> list[Any]:
    """Split every [K, ...] in `tree` into its K entries; for NumPy arrays these are views."""
    return [jax.tree.map(lambda x, i=i: x[i], tree) for i in range(k)]


_apart_on_device = jax.jit(_apart, static_argnums=1)


def _shape(x: Array) -> jax.ShapeDtypeStruct:
    """Return the shape, sharding and dtype of `x`; the dtype is the one that JAX converts it to."""
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype), sharding=_sharding(x))


def _sharding(x: Array) -> Any:
    return x.sharding if isinstance(x, jax.Array) else None
