"""The parts of a search, and the wall time of its sessions."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from movlr_jax._util.progress import Reporter
from movlr_jax.config.schema import Config
from movlr_jax.control.base import Optimizer
from movlr_jax.evolution.journal import Journal
from movlr_jax.evolution.pairwise import BOTH_ORDERS, Presentation, RankingProgress
from movlr_jax.evolution.scripted.metrics import MetricsJudge
from movlr_jax.evolution.scripted.proposer import ScriptedProposer
from movlr_jax.evolution.workers.base import Workers
from movlr_jax.language.base import Critic, Judge, Proposer
from movlr_jax.sandbox.vet import Sandbox, Verdict
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task
from movlr_jax.tracking.base import Tracker, Unsent

if TYPE_CHECKING:
    from movlr_jax.language.clients.client import ModelClient


Watch = Callable[[int, RankingProgress], None]


def unwatched(generation: int, progress: RankingProgress) -> None:
    """For judges that need not see how far the ranking of a generation is."""


@dataclass(frozen=True)
class Clock:
    """Records the wall time of this session of a search, and adds it to that of the sessions before."""

    archive: Archive
    session: int
    before_s: float
    started: float

    @classmethod
    def of(cls, archive: Archive, started: float) -> Clock:
        """Return the clock of a session that began at `started`, as `time.monotonic` gives it."""
        earlier = [event.data["wall_s"] for event in archive.events("session")]
        return cls(archive, len(earlier), sum(earlier), started)

    def record(self) -> float:
        """Record the time so far. Return that of all sessions, s."""
        here = time.monotonic() - self.started
        self.archive.record("session", {"wall_s": here}, self.session)
        return self.before_s + here


@dataclass(frozen=True)
class Roles:
    """Proposer, judge and critic of a search."""

    proposer: Proposer
    judge: Judge
    critic: Critic
    models_used: str  # names of the language and vision models, or that none is used
    clients: tuple[ModelClient, ...] = ()  # of the models, closed at the end
    showing: Presentation = BOTH_ORDERS  # of pairs to the judge
    watch: Watch = unwatched  # shows how far a ranking is

    @property
    def note(self) -> str:
        """Names of the proposer and the judge, for the caption of every film."""
        return ", ".join(name.split(" (")[0] for name in (self.proposer.name, self.judge.name))


@dataclass
class SearchContext:
    """The parts of a search.

    Each is built once, but for `optimizer` and `workers`, which `resize` replaces together with their settings.
    """

    config: Config
    task: Task
    optimizer: Optimizer
    roles: Roles
    sandbox: Sandbox
    archive: Archive
    clock: Clock
    reporter: Reporter
    films: bool
    workers: Workers  # who evaluates the candidates
    tracker: Tracker | None = None  # where the course of the search is shown too
    # plan with another number of samples, and whether to keep it; None: the number is given
    resize: Callable[[int, bool], None] | None = None
    journal: Journal = field(init=False)
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # see `vet.vet_one`
    unsent: Unsent = field(default_factory=Unsent)  # what the tracker lacks

    def __post_init__(self) -> None:
        self.journal = Journal(self.archive)

    def close(self) -> None:
        """Close the sandbox, the workers and the model clients."""
        self.sandbox.close()
        self.workers.close()
        for client in self.roles.clients:
            client.close()

    @property
    def scored(self) -> bool:
        """Whether the scores of the task order the programs. Otherwise a judge compares motions of one trial."""
        return isinstance(self.roles.judge, MetricsJudge)

    @property
    def weights(self) -> tuple[float, float] | None:
        """Range of the weights of new programs; None for any. The scripted proposer has bounds of its own."""
        return None if isinstance(self.roles.proposer, ScriptedProposer) else self.config.method.weights
