"""Parts of a search, and the record of its stages: a recorded stage never runs again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from movlr_jax._util.progress import Reporter
from movlr_jax.config.schema import Config
from movlr_jax.control.base import Optimizer
from movlr_jax.evolution.ranking import BOTH_ORDERS, Showing
from movlr_jax.evolution.scripted.proposer import ScriptedProposer
from movlr_jax.evolution.standing import Standing
from movlr_jax.evolution.workers.base import Workers
from movlr_jax.language.base import Critic, Judge, Proposer
from movlr_jax.sandbox.vet import Sandbox, Verdict
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task
from movlr_jax.tracking.base import Shown, Tracker

if TYPE_CHECKING:
    from movlr_jax.language.clients.client import ModelClient


Watch = Callable[[int, Standing], None]


def unwatched(generation: int, standing: Standing) -> None:
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
        ended = archive.get("finished") or {}  # a run without sessions is from an earlier version
        return cls(archive, len(earlier), sum(earlier) if earlier else ended.get("wall_s", 0.0), started)

    def record(self) -> float:
        """Record the time so far. Return that of all sessions, s."""
        here = time.monotonic() - self.started
        self.archive.record("session", {"wall_s": here}, self.session)
        return self.before_s + here


@dataclass
class SearchContext:
    """Parts of a search. Each is built once."""

    config: Config
    task: Task
    optimizer: Optimizer
    proposer: Proposer
    judge: Judge
    critic: Critic
    sandbox: Sandbox
    archive: Archive
    clock: Clock
    reporter: Reporter
    films: bool
    models_used: str  # names of the language and vision models, or that none is used
    workers: Workers  # who evaluates the candidates
    tracker: Tracker | None = None  # where the course of the search is shown too
    tracking: bool = False  # whether the tracker has begun
    unsent: list[Shown] = field(default_factory=list)  # generations that the tracker lacks
    clients: Sequence[ModelClient] = ()  # clients of the models, closed at the end
    showing: Showing = BOTH_ORDERS  # of pairs to the judge
    watch: Watch = unwatched  # shows how far a ranking is
    # plan with another number of samples, and whether to keep it; None: the number is given
    resize: Callable[[int, bool], None] | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # of the current generation, by source
    seconds: dict[str, float] = field(default_factory=dict)  # of the current generation, by stage

    def close(self) -> None:
        """Close the sandbox, the workers and the model clients."""
        self.sandbox.close()
        self.workers.close()
        for client in self.clients:
            client.close()

    @property
    def weights(self) -> tuple[float, float] | None:
        """Range of the weights of new programs; None for any. The scripted proposer has bounds of its own."""
        return None if isinstance(self.proposer, ScriptedProposer) else self.config.method.weights

    @property
    def note(self) -> str:
        """Names of the proposer and the judge, for the caption of every film."""
        return ", ".join(name.split(" (")[0] for name in (self.proposer.name, self.judge.name))


def once(
    context: SearchContext, kind: str, g: int, stage: str, work: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return the recorded result of a stage. If there is none, run `work` and record its result."""
    data = context.archive.get(kind, g)
    if data is None:
        with timed(context, stage):
            data = work()
        context.archive.record(kind, data, g)
    return data


@contextlib.contextmanager
def timed(context: SearchContext, stage: str) -> Iterator[None]:
    """Add the wall time of a block to the timing of the generation, less that of the stages inside it."""
    started, before = time.monotonic(), sum(context.seconds.values())
    yield
    inside = sum(context.seconds.values()) - before
    context.seconds[stage] = context.seconds.get(stage, 0.0) + time.monotonic() - started - inside
