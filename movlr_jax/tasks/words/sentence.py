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
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.measure import Goal, Measure, Stance, Subject, rail_term, upright_terms
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
    stay on its feet. stances: the feet on which it stands in each phase in which it does not travel. unread: words
    that were not read, if it was read in part.
    """

    description: str
    of: Subject
    phases: tuple[tuple[Clause, ...], ...] = ()
    balance: bool = True
    lowest: float = FALLEN  # share of the start height below which a body that balances counts as fallen
    stances: tuple[Stance | None, ...] = ()
    unread: tuple[str, ...] = ()
    problem: str = ""
    decides: bool = True  # False: the task has measures of its own, which say more

    @property
    def clauses(self) -> list[Clause]:
        return [clause for phase in self.phases for clause in phase]

    def named(self) -> Iterator[tuple[int, str, Measure]]:
        """Yield the phase of each clause, the name of its measure and the measure."""
        for i, phase in enumerate(self.phases):
            for clause in phase:
                yield i, f"{_NUMBERS[i]}{clause.measure.metric}", clause.measure

    @property
    def asks(self) -> bool:
        """Whether anything was read that can be measured."""
        return bool(self.phases)

    @property
    def moves(self) -> bool:
        return any(clause.row is not c.stay for clause in self.clauses)

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
        return [part for _, _, measure in self.named() for part in measure.parts]

    @property
    def travel(self) -> Clause | None:
        """The first travel, whose velocity is a goal of the task."""
        return next((clause for clause in self.clauses if clause.row is c.travel), None)

    @property
    def aside(self) -> np.ndarray | None:
        """The direction [3] to the left of a travel without an end, if nothing else of the sentence is at a place."""
        placed = [cl for cl in self.clauses if "place" in (cl.measure.changes, cl.measure.kind)]
        if len(placed) != 1 or placed[0] != self.travel or placed[0]["distance"] is not None or placed[0]["turns"]:
            return None
        return np.cross(self.of.up, placed[0]["way"])

    @property
    def seconds(self) -> float:
        """How long an episode of it takes about, s."""
        return sum(_seconds(phase) for phase in self.phases) + 0.5

    def text(self) -> str:
        """Return the reading in one line."""
        phases = (", ".join(clause.measure.text for clause in phase) for phase in self.phases)
        return ", ".join([", then ".join(phases) or "stand still", *["upright"] * self.balance])

    def table(self) -> list[tuple[str, str, str, str]]:
        """Return (order, clause, measure, what counts as a success) of every clause."""
        rows = [(str(i + 1), m.text, name, m.goal.text(m.metric)) for i, name, m in self.named()]
        low = f"above {100 * self.lowest:.0f} % of its height, tilted less than 60°"
        return rows + [("all", "upright", "upright_fraction", low)] * self.balance

    def success(self) -> str:
        """Return what counts as a success, in words."""
        measures = ([clause.measure for clause in phase] for phase in self.phases)
        said = ["; ".join(f"{m.text} ({m.goal.text(m.metric)})" for m in of) for of in measures]
        return "; then ".join(said) + "; upright" * self.balance

    # An episode.

    def measure(self, read: Readout, fell: bool = False) -> Metrics:
        """Measure how an episode [T] does what is asked. A phase counts after the one before is done.

        Motion after a fall does not count: what should be held is no better than at the beginning.
        fell: Whether the episode ends in a fall that the task itself has noticed.
        """
        time, metrics, done = np.asarray(read.time, float), Metrics(), 0
        stood, last = self._stood(read, time) if self.balance else (Metrics(), len(time) - 1)
        fell = fell or bool(stood.get("fell"))
        moments, begin = _moments(read), 0
        for i, phase in enumerate(self.phases):
            measures, now = [clause.measure for clause in phase], time[begin : last + 1]
            curves = [_curve(m, moments[begin : last + 1], now) for m in measures]
            first, end, reached = 0, len(now) - 1, False
            for i_took in (j for j, m in enumerate(measures) if m.metric == "took_s"):
                curves[i_took] = _took(measures, curves, now)
            if c.lasts in {clause.row for clause in phase}:
                first, end = _hold(measures, curves, now)
            if i < len(self.phases) - 1:
                reached, end = _done(measures, curves, now)
            for m, curve in zip(measures, curves, strict=True):
                held = slice(first if m.counts == "held" else 0, end + 1)
                value = float(m.so_far(curve)[end]) if reached else _value(m, curve[held], now[held], fell)
                metrics[f"{_NUMBERS[i]}{m.metric}"] = value
            end += begin
            if i == 0 and "progress_m_s" in metrics:
                metrics["distance_m"] = metrics["progress_m_s"] * float(time[end] - time[0])
                metrics["progress_m_s"] *= _share(time, end) if fell else 1.0
            done += reached
            begin = end if reached else last
        return metrics | ({"parts_done": float(done)} if len(self.phases) > 1 else {}) | stood

    def fallen(self, now: Readout, first: Readout) -> np.ndarray:
        """Return whether [..., T] the body is low or tilted at steps [..., T] of episodes that begin with `first`."""
        name = self.of.name
        high, height = np.asarray(first.height(name)), np.asarray(now.height(name))
        up, upright = first.upright.rot(name)[..., 2, :], now.upright.rot(name)[..., 2, :]
        level = np.einsum("...tj,...j->...t", upright, up)  # cosine of the tilt from the start
        return (height < self.lowest * high[..., None]) | (level < _TILTED)

    def _stood(self, read: Readout, time: np.ndarray) -> tuple[Metrics, int]:
        """Return the measures of balance and the last step before the body has fallen."""
        down = np.flatnonzero(self.fallen(read, read.initial))
        last = int(down[0]) if len(down) else len(time) - 1
        stood = {"upright_fraction": _share(time, last), "fell": float(last < len(time) - 1)}
        return stood | ({"time_to_fall_s": float(time[last] - time[0])} if stood["fell"] else {}), last

    def achieved(self, metrics: Metrics) -> bool:
        """Return whether an episode with these measures does all that was read."""
        if metrics.get("fell", 0.0) or metrics.get("upright_fraction", 1.0) < 1.0:
            return False
        if metrics.get("parts_done", len(self.phases) - 1) < len(self.phases) - 1:
            return False
        return all(name in metrics and not m.goal.short(metrics[name]) for _, name, m in self.named())

    def score(self, metrics: Metrics) -> float:
        """Return how near an episode is: 0 for each clause that is done, less for a miss; more while upright."""
        score = 10.0 * metrics.get("upright_fraction", 0.0) + _BONUS * metrics.get("parts_done", 0.0)
        return score + sum(m.goal.score(metrics[name]) for _, name, m in self.named() if name in metrics)

    def needs(self, metrics: Metrics) -> list[Need]:
        """Return what an episode lacks, the most general first."""
        needs, upright = list[Need](), metrics.get("upright_fraction", 1.0)
        if upright < 1.0:
            fallen = f"it falls after {upright:.0%} of the episode"
            needs = [Need(fallen, kind) for kind in ("height", "upright")]
        missed = ((m, metrics[n]) for _, n, m in self.named() if n in metrics and m.goal.short(metrics[n]))
        return needs + [Need(m.asked(value, "{}: {}, not {}"), m.kind) for m, value in missed]

    def asked(self, metrics: Metrics) -> str:
        """Return what was asked and measured, a fall first."""
        fell = metrics.get("time_to_fall_s")
        said = [] if fell is None else [f"fell at {quantity(fell, 'time_to_fall_s')}"]
        measured = ((m, metrics[n]) for _, n, m in self.named() if n in metrics and m.goal != Goal())
        return "; ".join(said + [m.asked(value) for m, value in measured])

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
            ends = begins + _seconds(phase)
            progress, only, more = self._progress(phase), gate, i < len(self.phases) - 1
            if not progress and more:
                only = f"{gate or '1.0'} * (state.time <= {ends:.3g})"
            own = [cl for cl in phase if cl.row is not c.takes or not i]  # no program knows how a later phase began
            gates = ["" if cl.row is c.stay and self._stays(cl, i) else only for cl in own]
            terms += [_gated(term, when, _NUMBERS[i]) for cl, when in zip(own, gates, strict=True)
                      for term in cl.measure.terms]  # fmt: skip
            if self.stances and (stance := self.stances[i]):
                terms += [_gated(term, only, _NUMBERS[i]) for term in stance.terms(self.of.up)]
            if more:
                gate = f"1.0 * {progress or f'(state.time > {ends:.3g})'}"  # which had to begin after the one before
                if progress:
                    kind = self.phases[i + 1][0].measure.kind
                    terms.append(Term(f"{_NUMBERS[i + 1]}part", kind, _BONUS, gate))
            begins = ends
        return terms + self._balance_terms() + self._rail_terms()

    def _stays(self, stay: Clause, phase: int) -> bool:
        """Return whether a body that stays in place in a phase should do so in those before it, too."""
        before = {clause.measure.changes for of in self.phases[:phase] for clause in of} & {"place", "height"}
        return stay["at"] is not None and not any(stay["at"]) and not before

    def _progress(self, phase: Sequence[Clause]) -> str:
        """Return the expression of whether a phase is done, empty if the state alone does not tell."""
        changed = [clause.measure.changes for clause in self.clauses]
        bounds = [clause.measure.bound for clause in phase]
        if None in bounds or any(changed.count(clause.measure.changes) > 1 for clause in phase):
            return ""
        return " * ".join(filter(None, bounds))

    def _balance_terms(self) -> list[Term]:
        if not self.balance:
            return []
        changed = {(m.changes, m.kind) for _, _, m in self.named()}
        turns = any(changes == "heading" for changes, _ in changed)
        terms = upright_terms(self.of, turns, not changed & {("height", "down"), ("height", "height")})
        return terms if all(changes != c.LEAN for changes, _ in changed) else terms[:-1]  # its tilt is asked

    def _rail_terms(self) -> list[Term]:
        """Return that a body which is not asked to travel does not run to the end of its rail."""
        changed = {m.changes for _, _, m in self.named()}
        if changed & {"place", "height", self.of.name}:
            return []
        return [rail_term(joint, half) for joint, half in self.of.rails if joint not in changed]

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
        first = self.phases[0] if self.phases else ()
        others = tuple(clause for clause in first if clause.row not in (c.travel, c.stay))
        if speed == 0.0:
            return replace(self, phases=((*others, c.clause(self.of, c.stay)),), stances=(), unread=(), problem="")
        way = tuple(float(v) / speed for v in velocity)
        word = f"along ({', '.join(f'{v:.2g}' for v in way)})"
        travel = c.clause(self.of, c.travel, way=way, speed=speed, word=word, exact=True, turns=False, leads=True)
        return replace(self, phases=((travel, *others),), stances=(), unread=(), problem="")


def _seconds(phase: Sequence[Clause]) -> float:
    return max(clause.measure.seconds for clause in phase)


def _share(time: np.ndarray, end: int) -> float:
    return float((time[end] - time[0]) / max(time[-1] - time[0], 1e-6))


def _moments(read: Readout) -> list[Moment]:
    steps = jax.tree.map(np.asarray, read._step)
    return [Moment(read.layout, jax.tree.map(lambda x, t=t: x[t], steps)) for t in range(len(steps.time))]


def _curve(measure: Measure, moments: Sequence[Moment], time: np.ndarray) -> np.ndarray:
    """Return a measure at each step of a phase [T]."""
    expression = compile(measure.quantity, "clause", "eval")
    states = (Moment(m._layout, m._step, moments[0]) for m in moments)
    values = [float(eval(expression, {"jnp": np, "state": state})) for state in states]
    return measure.curve(np.array(values), time)


def _hold(measures: Sequence[Measure], curves: list[np.ndarray], time: np.ndarray) -> tuple[int, int]:
    """Return the first and last step of the longest time in which what should be held is so; write it to its curve.

    All of the phase if nothing of it is held, or nothing ever so.
    """
    of = [m.satisfied(curve) for m, curve in zip(measures, curves, strict=True) if m.counts in ("held", "worst")]
    held, steps = np.all(of, axis=0) if of else np.ones(len(time), bool), np.arange(len(time))
    first = np.minimum(np.maximum.accumulate(np.where(held, -1, steps)) + 1, steps)  # step after the last break
    (at,) = (i for i, m in enumerate(measures) if m.metric == "lasted_s")
    curves[at] = np.where(held, time - time[first], 0.0)
    end = int(curves[at].argmax())
    return (int(first[end]), end) if held.any() else (0, len(time) - 1)


def _took(measures: Sequence[Measure], curves: Sequence[np.ndarray], time: np.ndarray) -> np.ndarray:
    """Return when all other measures are first satisfied, or the end of the phase, at each of its steps."""
    of = [m.satisfied(at) for m, at in zip(measures, curves, strict=True) if m.metric not in ("took_s", "lasted_s")]
    ok = np.all(of, axis=0)
    return np.full(len(time), time[int(ok.argmax()) if ok.any() else -1] - time[0])


def _done(measures: Sequence[Measure], curves: Sequence[np.ndarray], time: np.ndarray) -> tuple[bool, int]:
    """Return whether a phase is done, and the step at which it is, or the last one.

    It goes on after its first success while it gets nearer to what is asked, or farther than needed, by more than the
    tolerance per second: what is left of it does not count in the next phase.
    """
    ok = np.all([m.satisfied(curve) for m, curve in zip(measures, curves, strict=True)], axis=0)
    if not ok.any():
        return False, len(time) - 1
    end, rest = int(np.argmax(ok)), np.sum([m.rest(curve) for m, curve in zip(measures, curves, strict=True)], axis=0)
    while end < len(time) - 1 and ok[end + 1] and rest[end] - rest[end + 1] > time[end + 1] - time[end]:
        end += 1
    return True, end


def _value(measure: Measure, curve: np.ndarray, time: np.ndarray, fell: bool) -> float:
    """Return the value of a phase that ends with the episode; after a fall, it is that of its beginning or worse."""
    value = measure.value(curve, time)
    if fell and (measure.counts in ("held", "returned") or measure.kind == "part"):
        return max(value, float(curve[0]), key=measure.goal.short)
    return value


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

    None if neither is known, as where words of the sentence were not read, or the task has measures of its own.
    """
    if "success" in metrics:
        return metrics["success"]
    return float(sentence.achieved(metrics)) if sentence is not None and sentence.tells else None
