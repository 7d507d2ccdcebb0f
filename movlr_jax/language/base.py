"""The protocols of those who write, judge and criticise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from movlr_jax.records import Critique, Evaluation, Preference, TermAdvice, Trial
from movlr_jax.tasks.base import Task

__all__ = [
    "AnnotatingProposer", "BatchJudge", "Critic", "Critique", "DescribingCritic", "Evaluation", "Judge", "Loss",
    "Preference", "ProposalRequest", "Proposer", "TermAdvice",
]  # fmt: skip


@dataclass(frozen=True)
class Loss:
    """A program that was tried and not chosen, why, and what its writer said of it."""

    candidate: Evaluation
    reason: str
    note: str = ""


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
    result: str = ""  # what the trials of the parent came to; of the first program, before the first generation
    trials: Sequence[Trial] = ()  # those of them that ran, the poorest first
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
