"""Records of a search, and the protocols of those who write, judge and criticise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from movlr_jax.storage.layout import candidate_name
from movlr_jax.tasks.base import Task


@dataclass(frozen=True)
class Evaluation:
    """One candidate after its turn: what it was, what it did, or why it could do nothing."""

    generation: int
    candidate: int
    source: str
    reason: str | None = None  # why it failed; None when it ran
    weights: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    terms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # term -> mean, curve, nonfinite
    film: Path | None = None
    parent: str | None = None  # name of the candidate it was written from

    @property
    def name(self) -> str:
        return candidate_name(self.generation, self.candidate)

    @property
    def failed(self) -> bool:
        return self.reason is not None


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

    action: Literal["add", "strengthen", "weaken", "remove"]
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
