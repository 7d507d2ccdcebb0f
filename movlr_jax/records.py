"""The records of a search: what `run.db` holds, what the report shows, and what Python gets.

Each record is frozen and says its facts once. `storage.events` checks them, writes them as JSON and reads them back.
A field that is added needs a default, with which records of earlier versions are read. The format has a version,
which `storage.archive` keeps in `run.db`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

from movlr_jax._util.intervals import rate_interval
from movlr_jax._util.quantities import measures

_ENDED = {"fell": "fell", "terminated": "were ended by the environment"}
Winner = Literal["first", "second", "tie", "none"]  # none: no answer; not counted


def candidate_name(generation: int, candidate: int) -> str:
    """Return the name of a candidate in every log, report and caption, as `g01k03`."""
    return f"g{generation:02d}k{candidate:02d}"


@dataclass(frozen=True)
class Program:
    """A reward program as it was written: candidate `candidate` of generation `generation`, both from 0."""

    generation: int
    candidate: int
    source: str = ""
    parent: str | None = None  # name of the candidate it was written from
    weights: Mapping[str, float] = field(default_factory=dict)  # empty where vetting rejected it

    @property
    def name(self) -> str:
        return candidate_name(self.generation, self.candidate)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One episode of a program: a start state and a stream of noise, or why there is no episode."""

    seed: int | None = None  # of the start state, the noise and a training
    reason: str | None = None  # why it failed; None if it ran
    stage: str | None = None  # at which it failed
    metrics: Mapping[str, float] = field(default_factory=dict)
    # term -> mean, weighted_mean, curve, and counts of non-finite values
    terms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # curves of the motion
    curve_time: Sequence[float] = ()  # s, time axis of the curves in `terms` and `series`
    timing: Mapping[str, float] = field(default_factory=dict)
    learning: Mapping[str, Any] = field(default_factory=dict)  # training curves, if a policy was trained
    # degenerate pattern -> sentence; see `Task.scoring.faults`
    faults: Mapping[str, str] = field(default_factory=dict)
    gait: Mapping[str, Any] = field(default_factory=dict)  # `GaitAnalysis.record`; empty if it does not walk
    stem: str = ""  # path of its files in the run directory, without the ending
    states: bytes | None = field(default=None, repr=False)  # the episode as npz, until it is in its file

    @property
    def failed(self) -> bool:
        return self.reason is not None


@dataclass(frozen=True)
class Evaluation(Trial, Program):
    """A candidate: a program with the trial that stands for it."""

    film: Path | None = None
    description: Mapping[str, Any] = field(default_factory=dict)  # of its motion, by a describing critic

    @classmethod
    def of(cls, program: Program, trial: Trial) -> Self:
        """Return a program with one of its trials."""
        names = (*Program.__dataclass_fields__, *Trial.__dataclass_fields__)
        return cls(**{name: getattr(program if name in _OF_PROGRAM else trial, name) for name in names})


_OF_PROGRAM = frozenset(Program.__dataclass_fields__)


@dataclass(frozen=True)
class FinalTraining(Evaluation):
    """The champion after its final training."""

    env_steps: float = 0.0


@dataclass(frozen=True)
class Proposal:
    """The programs of a generation as they were written."""

    sources: Sequence[str] = ()
    parents: Sequence[str | None] = ()
    notes: Sequence[str | None] = ()  # of the proposer about each; may be fewer

    def programs(self, generation: int) -> list[Program]:
        pairs = zip(self.sources, self.parents, strict=True)
        return [Program(generation, k, source, parent) for k, (source, parent) in enumerate(pairs)]


@dataclass(frozen=True)
class Preference:
    """A judge's answer to `which of these two is better?`, the first or the second shown."""

    winner: Winner
    reason: str
    overruled: str = ""  # what the judge had answered, where a gate of the task decided otherwise
    answered: bool = True  # whether the answer of the judge can be read

    def __post_init__(self) -> None:
        if self.winner not in get_args(Winner):
            raise ValueError(f"winner={self.winner!r}: expected {', '.join(get_args(Winner))}")


@dataclass(frozen=True)
class Comparison(Preference):
    """One answer of the judge, and what it was about."""

    first: str = ""  # name of the candidate that was shown first
    second: str = ""
    trial: int | None = None  # seed of the trial of both motions

    @classmethod
    def of(cls, first: str, second: str, answer: Preference, trial: int | None = None) -> Comparison:
        return cls(answer.winner, answer.reason, answer.overruled, answer.answered, first, second, trial)

    @property
    def decided(self) -> bool:
        """Whether it has a result; a tie is a result."""
        return self.winner != "none"

    @property
    def preferred(self) -> str | None:
        """Name of the winner; None for a tie and for no answer."""
        return {"first": self.first, "second": self.second}.get(self.winner)


@dataclass(frozen=True)
class Ranking:
    """The ranking of a generation. A number is None if no answer of the judge determines it."""

    names: Sequence[str] = ()  # of all programs so far
    strengths: Sequence[float | None] = ()
    deviation: Sequence[float | None] = ()  # posterior standard deviation
    p_best: Sequence[float | None] = ()  # probability that each is the best
    noise: float | None = None  # standard deviation of the difference of two equal programs in one trial
    # share of the pairs with different winners in the two orders; None: the judge answered nothing
    flip_rate: float | None = None
    best: str = ""  # the champion
    rival: str | None = None  # its best challenger, or the champion itself if it is new
    p_better: float | None = None  # probability that the rival is better than the champion before
    comparisons: Sequence[Comparison] = ()

    @property
    def unanswered(self) -> int:
        """Number of comparisons that the judge did not answer, including those that a gate decided."""
        return sum(not c.answered for c in self.comparisons)


@dataclass(frozen=True)
class VotedRanking(Ranking):
    """The ranking of all candidates by the votes of people on a finished run."""

    agreement: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TermAdvice:
    """One change that a critic asks for."""

    action: str  # add, strengthen, weaken, reshape or remove
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
class Claim:
    """What the trials of one program came to."""

    n: int = 0
    successes: int | None = None  # None: the task has no success
    failed: int = 0  # trials that failed to run
    metrics: Mapping[str, float] = field(default_factory=dict)  # means over the trials that ran
    said: str = ""  # what the words of the task asked for and what was measured; empty: the metrics say it
    # 95 % intervals of the means of returns of environments, by their names
    between: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the success rate."""
        return rate_interval(self.successes or 0, self.n)

    def record(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        counts = {"n": self.n, "failed": self.failed}
        if self.successes is None:
            return counts
        return {**counts, "successes": self.successes, "interval": list(self.interval)}

    def text(self, interval: bool = False) -> str:
        """Return it in words, as in "7 of 8 succeed (53-98 %), 1.4 cm off"."""
        low, high = self.interval
        between = f" ({100 * low:.0f}-{100 * high:.0f} %)" if interval else ""
        one = "succeeds" if self.successes else "does not succeed"
        some = one if self.n == 1 and not interval else f"{self.successes} of {self.n} succeed{between}"
        rate = [] if self.successes is None else [some]
        failed = [f"{self.failed} of {self.n} failed"] if self.failed else []
        told = [*self._some_ended(), *measures(self.metrics, self.between if interval else {})]
        measured = [self.said] if self.said else told
        return ", ".join([*rate, *measured, *failed]) or f"{self.n} ran"

    def _some_ended(self) -> list[str]:
        """Return in how many trials, but not in all, the motion ended early."""
        ran = self.n - self.failed
        counts = {words: round(ran * self.metrics.get(name, 0.0)) for name, words in _ENDED.items()}
        return [f"{count} of {ran} {words}" for words, count in counts.items() if 0 < count < ran]


@dataclass(frozen=True)
class Confirmation:
    """What the champion, the first and the hand-written program came to in trials that no choice has seen."""

    champion: str = ""
    first: str = ""
    claims: Mapping[str, Claim] = field(default_factory=dict)  # by the name of the program
    # probability by all trials that the champion is better than the first program; None: not known
    p_better: float | None = None
    improved: bool = False  # whether a better program than the first was found
    text: str = ""  # the claims in one line
    verdict: str = ""  # whether a better program than the first was found, without a full stop


@dataclass(frozen=True)
class Generation:
    """One generation of a search. Stages that have not happened are None or empty."""

    index: int
    proposal: Proposal | None = None
    candidates: Sequence[Evaluation] = ()
    ranking: Ranking | None = None
    critique: Critique | None = None
    timing: Mapping[str, float] = field(default_factory=dict)  # stage -> s

    @property
    def best(self) -> str | None:
        """Name of the champion after this generation, once it is ranked."""
        return self.ranking.best or None if self.ranking else None

    @property
    def final(self) -> bool:
        """Whether it is the last contest, of programs of earlier generations."""
        return self.ranking is not None and self.proposal is None and not self.candidates

    @property
    def title(self) -> str:
        return "Final" if self.final else f"Generation {self.index}"
