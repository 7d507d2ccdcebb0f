"""A sentence that was read: its phases, and what it says about an episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import jax
import mujoco
import numpy as np

from movlr_jax._util.quantities import quantity, summary
from movlr_jax.rewards.state import Layout
from movlr_jax.rewards.term import Term
from movlr_jax.tasks.needs import Need
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.words.clauses import (
    Clause,
    Goal,
    Stay,
    Stepping,
    Subject,
    Travel,
    Turn,
    Waved,
    upright_terms,
)
from movlr_jax.tasks.words.parts import Part
from movlr_jax.types import Step

Metrics = dict[str, float]
FALLEN = 0.6  # share of the start height; an upright body that gets lower counts as fallen
_TILTED = 0.5  # cosine of a tilt from the start that counts as a fall: 60 degrees
_NUMBERS = ("", "second_", "third_", "fourth_", "fifth_", "sixth_")
MOST_PHASES = len(_NUMBERS)
_BONUS = 20.0  # weight of having done a phase, more than the errors of the next one cost


class Moment(Readout):
    """One step of an episode, whose beginning is that of a phase."""

    __slots__ = ("_begin",)

    def __init__(self, layout: Layout, step: Step, begin: Moment | None = None):
        super().__init__(layout, step)
        self._begin = begin or self

    @property
    def initial(self) -> Moment:
        return self._begin

    @property
    def time(self) -> np.ndarray:
        return np.asarray(self._step.time - self._begin._step.time)

    def rot(self, body: str) -> np.ndarray:
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, np.asarray(self.quat(body), float))
        return matrix.reshape(3, 3)


@dataclass(frozen=True)
class Sentence:
    """What the words of a description ask of a body.

    phases: clauses that hold together; a phase begins when the one before is done. balance: whether the body should
    stay on its feet. unread: words that were not read, if it was read in part.
    """

    description: str
    of: Subject
    phases: tuple[tuple[Clause, ...], ...] = ()
    balance: bool = True
    lowest: float = FALLEN  # share of the start height below which a body that balances counts as fallen
    unread: tuple[str, ...] = ()
    problem: str = ""
    decides: bool = True  # False: the task has measures of its own, which say more

    @property
    def clauses(self) -> list[Clause]:
        return [clause for phase in self.phases for clause in phase]

    @property
    def subject(self) -> str:
        return self.of.name

    @property
    def asks(self) -> bool:
        """Whether anything was read that can be measured."""
        return bool(self.phases)

    @property
    def moves(self) -> bool:
        return any(not isinstance(clause, Stay) for clause in self.clauses)

    @property
    def whole(self) -> bool:
        """Whether all of it was read, so that an episode can succeed."""
        return self.asks and not self.unread

    @property
    def tells(self) -> bool:
        """Whether the result of an episode is what it says."""
        return self.whole and self.decides

    @property
    def parts(self) -> list[Part]:
        return [part for clause in self.clauses for part in clause.parts]

    @property
    def travel(self) -> Travel | None:
        """The first travel, whose velocity is a goal of the task."""
        return next((clause for clause in self.clauses if isinstance(clause, Travel)), None)

    @property
    def seconds(self) -> float:
        """How long an episode of it takes about, s."""
        return sum(max(clause.seconds for clause in phase) for phase in self.phases) + 0.5

    def text(self) -> str:
        """Return the reading in one line."""
        said = ", then ".join(", ".join(clause.text() for clause in phase) for phase in self.phases)
        return ", ".join([said or "stand still", *["upright"] * self.balance])

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return (order, clause, measure, what counts as a success) of every clause."""
        rows = [
            (str(i + 1), clause.text(), name, clause.goal.text(clause.metric))
            for i, name, clause in self.named()
        ]
        if self.balance:
            low = f"above {100 * self.lowest:.0f} % of its height, tilted less than 60°"
            rows.append(("all", "upright", "upright_fraction", low))
        return rows

    def success(self) -> str:
        """Return what counts as a success, in words."""
        rows = ("; then " if i else "; " for i, *_ in self.named())
        said = [
            f"{join}{c.text()} ({c.goal.text(c.metric)})"
            for join, (_, _, c) in zip(rows, self.named(), strict=True)
        ]
        return "".join([*said, "; upright" * self.balance]).removeprefix("; ")

    def named(self) -> Iterator[tuple[int, str, Clause]]:
        """Yield the phase of each clause, the name of its measure and the clause."""
        for i, phase in enumerate(self.phases):
            for clause in phase:
                yield i, f"{_NUMBERS[i]}{clause.metric}", clause

    # An episode.

    def measure(self, read: Readout, fell: bool = False) -> Metrics:
        """Measure how an episode [T] does what is asked. A phase counts after the one before is done.

        Motion after a fall does not count: what should be held is no better than at the beginning.
        fell: Whether the episode ends in a fall that the task itself has noticed.
        """
        time = np.asarray(read.time, float)
        last, metrics, stood = len(time) - 1, Metrics(), Metrics()
        if self.balance:
            last = self._upright_until(read)
            seconds = max(float(time[-1] - time[0]), 1e-6)
            stood["upright_fraction"] = float(time[last] - time[0]) / seconds
            fallen = last < len(time) - 1
            stood |= {"fell": 1.0, "time_to_fall_s": float(time[last] - time[0])} if fallen else {"fell": 0.0}
            fell |= fallen
        moments, begin, done = _moments(read), 0, 0
        for i, phase in enumerate(self.phases):
            end, reached = last, False
            curves = [self._curve(clause, moments, time, begin, end) for clause in phase]
            if i < len(self.phases) - 1:
                ok = np.all(
                    [_satisfied(clause, curve) for clause, curve in zip(phase, curves, strict=True)], axis=0
                )
                reached = bool(ok.any())
                end = begin + int(np.argmax(ok)) if reached else last
            for clause, curve in zip(phase, curves, strict=True):
                name = f"{_NUMBERS[i]}{clause.metric}"
                metrics[name] = self._value(
                    clause, curve[: end - begin + 1], time[begin : end + 1], reached, fell
                )
                if isinstance(clause, Travel) and name == "progress_m_s":
                    share = (time[end] - time[begin]) / max(time[-1] - time[begin], 1e-6) if fell else 1.0
                    metrics["distance_m"] = metrics[name] * float(time[end] - time[begin])
                    metrics[name] *= float(share)
            done += reached
            begin = end if reached else last
        if len(self.phases) > 1:
            metrics["parts_done"] = float(done)
        return metrics | stood

    def _upright_until(self, read: Readout) -> int:
        """Return the last step before the body has fallen."""
        height, rot = np.asarray(read.height(self.of.name)), read.upright.rot(self.of.name)
        level = np.einsum("tij,ij->ti", rot, rot[0])[:, 2]  # cosine of the tilt from the start
        down = np.flatnonzero((height < self.lowest * height[0]) | (level < _TILTED))
        return int(down[0]) if len(down) else len(height) - 1

    @staticmethod
    def _curve(
        clause: Clause, moments: Sequence[Moment], time: np.ndarray, begin: int, end: int
    ) -> np.ndarray:
        expression, first = compile(clause.quantity, "clause", "eval"), moments[begin]
        values = [
            float(eval(expression, {"jnp": np, "state": Moment(m._layout, m._step, first)}))
            for m in moments[begin : end + 1]
        ]
        return clause.curve(np.array(values), time[begin : end + 1])

    @staticmethod
    def _value(clause: Clause, curve: np.ndarray, time: np.ndarray, reached: bool, fell: bool) -> float:
        if reached:
            return float(curve[-1])
        value = clause.value(curve, time)
        if fell and (
            clause.counts == "held" or isinstance(clause, Waved | Stepping)
        ):  # no better than at the beginning
            value = max(value, float(curve[0]), key=clause.goal.short)
        return value

    def achieved(self, metrics: Metrics) -> bool:
        """Return whether an episode with these measures does all that was read."""
        if metrics.get("fell", 0.0) or metrics.get("upright_fraction", 1.0) < 1.0:
            return False
        if metrics.get("parts_done", len(self.phases) - 1) < len(self.phases) - 1:
            return False
        return all(name in metrics and not c.goal.short(metrics[name]) for _, name, c in self.named())

    def score(self, metrics: Metrics) -> float:
        """Return how near an episode is: 0 for each clause that is done, less for a miss; more while upright."""
        score = 10.0 * metrics.get("upright_fraction", 0.0) + _BONUS * metrics.get("parts_done", 0.0)
        return score + sum(c.goal.score(metrics[name]) for _, name, c in self.named() if name in metrics)

    def needs(self, metrics: Metrics) -> list[Need]:
        """Return what an episode lacks, the most general first."""
        needs = []
        if metrics.get("upright_fraction", 1.0) < 1.0:
            fallen = f"it falls after {metrics['upright_fraction']:.0%} of the episode"
            needs += [Need(fallen, kind) for kind in ("height", "upright")]
        rows = ((c, c.lacks(metrics[name])) for _, name, c in self.named() if name in metrics)
        return needs + [Need(lacks, clause.kind) for clause, lacks in rows if lacks]

    def asked(self, metrics: Metrics) -> str:
        """Return what was asked and measured, a fall first."""
        fell = metrics.get("time_to_fall_s")
        said = [] if fell is None else [f"fell at {quantity(fell, 'time_to_fall_s')}"]
        rows = ((c, metrics[name]) for _, name, c in self.named() if name in metrics and c.goal != Goal())
        return "; ".join(said + [clause.said(value) for clause, value in rows])

    def verdict(self, metrics: Metrics) -> str:
        """Return what was asked, what was measured and whether it was achieved, a fall first."""
        done = metrics["success"] if "success" in metrics else self.achieved(metrics)
        return f"{self.asked(metrics)}; {'achieved' if done else 'not achieved'}"

    # Rewards.

    def terms(self) -> list[Term]:
        """Return the terms of all clauses, the most useful first; those of a later phase count after the one before.

        Whether a phase is done is read from the state where no later phase undoes it, else from the time.
        """
        terms, gate, begins = list[Term](), "", 0.0
        for i, phase in enumerate(self.phases):
            ends = begins + max(clause.seconds for clause in phase)
            progress, only = self._progress(phase), gate
            if not progress and i < len(self.phases) - 1:
                before = f"(state.time <= {ends:.3g})"
                only = f"{gate} * {before}" if gate else f"1.0 * {before}"
            own = [term for clause in phase for term in clause.terms()]
            terms += [_gated(term, only, _NUMBERS[i]) for term in own]
            if i < len(self.phases) - 1:
                done = progress or f"(state.time > {ends:.3g})"
                gate = f"1.0 * {done}"  # which had to begin after the one before
                if progress:
                    kind = self.phases[i + 1][0].kind
                    terms.append(Term(f"{_NUMBERS[i + 1]}part", kind, _BONUS, gate))
            begins = ends
        return terms + self._balance_terms()

    def _progress(self, phase: Sequence[Clause]) -> str:
        """Return the expression of whether a phase is done, empty if the state alone does not tell."""
        tags = [clause.touches for clause in self.clauses]
        if any(
            c.fold == "sum" or not c.touches or tags.count(c.touches) > 1 or isinstance(c, Waved)
            for c in phase
        ):
            return ""
        if any(isinstance(c, Turn) and c.angle and c.angle > 2.5 for c in phase):
            return ""
        bounds = []
        for clause in phase:
            goal = clause.goal
            if clause.metric.endswith("_m_s") or clause.counts in ("worst", "largest"):
                return ""
            if np.isfinite(goal.low):  # more than enough has passed it
                bounds.append(f"({clause.quantity} >= {goal.low:.4g})")
            elif np.isfinite(goal.high):
                bounds.append(f"({clause.quantity} <= {goal.high:.4g})")
        return " * ".join(bounds)

    def _balance_terms(self) -> list[Term]:
        if not self.balance:
            return []
        turns = any(c.touches == "heading" for c in self.clauses)
        keeps = not any(c.touches == "height" and c.kind in ("down", "height") for c in self.clauses)
        return upright_terms(self.of, turns, keeps)

    def first_terms(self) -> list[Term]:
        """Return the terms of an initial program: the best of each kind for the body, the best of each part."""
        found: dict[tuple[str, str], Term] = {}
        for term in self.terms():
            phase = next((number for number in _NUMBERS[1:] if term.name.startswith(number)), "")
            alone = term.kind in ("part", "place", "joint", "hold") or term.name == f"{phase}part"
            if term.kind != "straight" and not term.name.endswith("_near"):
                found.setdefault((phase, term.name if alone else term.kind), term)
        return list(found.values())

    def with_velocity(self, velocity: Sequence[float]) -> Sentence:
        """Return the sentence with the `velocity` [3] m/s that the task sets explicitly."""
        speed = float(np.linalg.norm(velocity))
        others = tuple(c for c in (self.phases[0] if self.phases else ()) if not isinstance(c, Travel | Stay))
        if speed == 0.0:
            return replace(self, phases=((*others, Stay(self.of)),), unread=(), problem="")
        way = tuple(float(v) / speed for v in velocity)
        word = f"along ({', '.join(f'{c:.2g}' for c in way)})"
        travel = Travel(self.of, way, speed, word, exact=True, leads=True)
        return replace(self, phases=((travel, *others),), unread=(), problem="")


def _moments(read: Readout) -> list[Moment]:
    steps = jax.tree.map(np.asarray, read._step)
    return [Moment(read.layout, jax.tree.map(lambda x, t=t: x[t], steps)) for t in range(len(steps.time))]


def _satisfied(clause: Clause, curve: np.ndarray) -> np.ndarray:
    """Return at which steps of a curve [T] a clause is satisfied, so that the next phase may begin."""
    if clause.counts == "worst":
        curve = (
            np.maximum.accumulate(curve) if np.isfinite(clause.goal.high) else np.minimum.accumulate(curve)
        )
    if clause.counts == "largest":
        curve = np.maximum.accumulate(curve)
    return np.array([not clause.goal.short(float(v)) for v in curve])


def _gated(term: Term, gate: str, prefix: str) -> Term:
    expression = f"{gate} * ({term.expression})" if gate else term.expression
    return replace(term, name=f"{prefix}{term.name}", expression=expression)


def verdict(sentence: Sentence | None, metrics: Metrics) -> str:
    """Return what an episode came to in one line: the verdict of its sentence, or else its measures."""
    if sentence is None or not sentence.tells or not any(name in metrics for _, name, _ in sentence.named()):
        return summary(metrics)
    return sentence.verdict(metrics)


def achieved(sentence: Sentence | None, metrics: Metrics) -> float | None:
    """Return the success of an episode: its measure, or else 1 if it does all that the sentence asks for, or 0.

    None if neither is known, as where words of the sentence were not read.
    """
    if "success" in metrics:
        return metrics["success"]
    return float(sentence.achieved(metrics)) if sentence is not None and sentence.whole else None
