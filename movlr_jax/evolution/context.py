"""What a search is made of, and how its stages are recorded: a stage that is in the record is never done again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from movlr_jax.config.schema import Config
from movlr_jax.control.base import Optimizer
from movlr_jax.language.base import Critic, Evaluation, Judge, Proposer
from movlr_jax.progress import Reporter
from movlr_jax.sandbox.vet import Sandbox, Verdict
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task

if TYPE_CHECKING:
    from movlr_jax.language.clients.client import ModelClient


@dataclass
class SearchContext:
    """What a search is made of, each built once."""

    config: Config
    task: Task
    optimizer: Optimizer
    proposer: Proposer
    judge: Judge
    critic: Critic
    sandbox: Sandbox
    archive: Archive
    reporter: Reporter
    films: bool
    models_used: str  # language and vision models, or that there are none
    clients: Sequence[ModelClient] = ()  # where models are spoken to
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # of the generation at hand, by source
    seconds: dict[str, float] = field(default_factory=dict)  # of the generation at hand, by stage

    def close(self) -> None:
        """Ends the sandbox and the connections to models."""
        self.sandbox.close()
        for client in self.clients:
            client.close()

    @property
    def note(self) -> str:
        """What every film says of who wrote and who judged."""
        return ", ".join(name.split(" (")[0] for name in (self.proposer.name, self.judge.name))


def once(
    context: SearchContext, kind: str, g: int, stage: str, work: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The recorded result of a stage, or that of `work`, recorded."""
    data = context.archive.get(kind, g)
    if data is None:
        with timed(context, stage):
            data = work()
        context.archive.record(kind, data, g)
    return data


@contextlib.contextmanager
def timed(context: SearchContext, stage: str) -> Iterator[None]:
    """Adds the seconds of a block to the generation's timing."""
    begun = time.monotonic()
    yield
    context.seconds[stage] = context.seconds.get(stage, 0.0) + time.monotonic() - begun


def evaluation_of(data: dict[str, Any], root: Path) -> Evaluation:
    """A recorded candidate of the run in `root`."""
    return Evaluation(
        generation=data["generation"],
        candidate=data["candidate"],
        source=data["source"],
        reason=data["reason"],
        weights=data["weights"],
        metrics=data["metrics"],
        terms=data["terms"],
        film=root / data["film"] if data["film"] else None,
        parent=data["parent"],
    )
