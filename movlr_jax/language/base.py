"""The record of a candidate, and the protocols of those who write, judge and criticise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from movlr_jax.storage.events import numbers
from movlr_jax.storage.inside import is_inside
from movlr_jax.storage.layout import candidate_name
from movlr_jax.tasks.base import Task


@dataclass(frozen=True)
class Evaluation:
    """One candidate: its program and the motion it led to, or why it failed. Written to and read from `run.db`."""

    generation: int
    candidate: int
    source: str
    reason: str | None = None  # why it failed; None if it ran
    stage: str | None = None  # stage at which it failed
    weights: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # term -> mean, curve, nonfinite
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # curves of the motion
    curve_time: Sequence[float] = ()  # s, time axis of the curves in `terms` and `series`
    timing: Mapping[str, float] = field(default_factory=dict)
    learning: Mapping[str, Any] = field(default_factory=dict)  # training curves, if a policy was trained
    seed: int | None = None  # of its trial: start state, noise and training
    stem: str = ""  # path of the files of its trial, without the ending, in the run directory
    faults: Mapping[str, str] = field(
        default_factory=dict
    )  # degenerate pattern -> sentence; see `Task.faults`
    gait: Mapping[str, Any] = field(default_factory=dict)  # `GaitAnalysis.record`; empty if it does not walk
    description: Mapping[str, Any] = field(
        default_factory=dict
    )  # what a describing critic sees in its motion
    film: Path | None = None
    parent: str | None = None  # name of the candidate it was written from
    states: bytes | None = field(default=None, repr=False)  # the episode as npz, until it is in its file

    @property
    def name(self) -> str:
        return candidate_name(self.generation, self.candidate)

    @property
    def failed(self) -> bool:
        return self.reason is not None

    def record(self) -> dict[str, Any]:
        """Return the data of the event that records a candidate without a film and before it is described."""
        data = asdict(self)
        del data["states"], data["description"]
        return {"name": self.name, **data, "film": None}

    @classmethod
    def read(
        cls, generation: int, candidate: int, data: Mapping[str, Any], root: Path = Path()
    ) -> Evaluation:
        """Build the evaluation that `data` records. `data` fits the schema, but any field may be missing or null.

        root: folder that the path of the film is relative to. Null numbers become NaN.
        """

        def named(key: str) -> Mapping[str, Any]:
            return data.get(key) or {}

        return cls(
            # from the key of the event, not from its data: the name is used in links
            generation=generation,
            candidate=candidate,
            source=data.get("source") or "",
            reason=data.get("reason"),
            stage=data.get("stage"),
            weights=_floats(named("weights")),
            metrics=_floats(named("metrics")),
            terms={name: term or {} for name, term in named("terms").items()},
            series={name: numbers(values) for name, values in named("series").items()},
            curve_time=numbers(data.get("curve_time")),
            timing=_floats(named("timing")),
            learning=named("learning"),
            seed=data.get("seed"),
            stem=data.get("stem") or "",
            faults=named("faults"),
            gait=named("gait"),
            film=root / data["film"] if data.get("film") and is_inside(data["film"]) else None,
            parent=data.get("parent"),
        )


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    return dict(zip(values, numbers(list(values.values())), strict=True))


@dataclass(frozen=True)
class Preference:
    """A judge's answer to `which of these two is better?`, the first or the second shown."""

    winner: Literal[
        "first", "second", "tie", "none"
    ]  # none: nobody knows, which is no tie and does not count
    reason: str
    overruled: str = ""  # what the judge had said, where a gate of the task knew better
    answered: bool = True  # whether the judge said anything that can be read


@dataclass(frozen=True)
class TermAdvice:
    """One change a critic asks for."""

    action: Literal["add", "strengthen", "weaken", "reshape", "remove"]
    term: str
    reason: str
    weight: float | None = None


@dataclass(frozen=True)
class Critique:
    """A critic's view of the best motion so far."""

    success: bool
    problems: Sequence[str]  # general first, details after
    advice: Sequence[TermAdvice] = ()
    author: str = ""  # which critic, by its true name
    said: str = ""  # the feedback in the words of a method that has its own
    observation: str = ""  # what the body does, in order of time
    alignment: float | None = None  # how well the motion matches the task, 0 to 1; None: no model says


@dataclass(frozen=True)
class Loss:
    """A program of the last generation that was not chosen, and why."""

    candidate: Evaluation
    reason: str


@dataclass(frozen=True)
class ProposalRequest:
    """All that a proposer may know when it writes the next programs."""

    generation: int
    task: Task
    parent: Evaluation | None
    critique: Critique | None
    history: Sequence[Evaluation]
    seed: int
    vet: Callable[[str], str | None] | None = None  # why a program cannot be used; None: it can
    losses: Sequence[Loss] = ()
    weights: tuple[float, float] | None = None  # range that `vet` requires of every weight; None: any
    looks_ahead_s: float | None = None  # how far the optimiser plans; None: it learns over whole episodes
    control_s: float | None = None  # duration of a control step


class Proposer(Protocol):
    @property
    def name(self) -> str: ...

    def propose(self, request: ProposalRequest, n: int) -> list[str]: ...


@runtime_checkable
class AnnotatingProposer(Proposer, Protocol):
    """A proposer that says something about each program that it wrote."""

    @property
    def notes(self) -> Sequence[str]:
        """One note for each program of the last call of `propose`."""
        ...


class Judge(Protocol):
    @property
    def name(self) -> str: ...

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference: ...


@runtime_checkable
class BatchJudge(Judge, Protocol):
    """A judge that answers many comparisons at once, as one over a network does."""

    def compare_all(
        self, task: Task, pairs: Sequence[tuple[Evaluation, Evaluation]], samples: Sequence[int]
    ) -> list[Preference]:
        """Return one preference per pair. `samples`: how often each pair was shown before."""
        ...


class Critic(Protocol):
    @property
    def name(self) -> str: ...

    def criticise(self, task: Task, best: Evaluation) -> Critique: ...


@runtime_checkable
class DescribingCritic(Critic, Protocol):
    """A critic that describes every motion of a generation."""

    def describe(self, task: Task, candidates: Sequence[Evaluation]) -> list[dict[str, Any]]:
        """Return one description per candidate, as `storage.events.Description`."""
        ...
