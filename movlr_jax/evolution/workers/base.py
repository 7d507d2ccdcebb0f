"""Who evaluates K programs: this process, or workers that each take a part of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from movlr_jax.control.base import Optimizer
from movlr_jax.evolution.evaluation import evaluate
from movlr_jax.records import Trial
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks import Task
from movlr_jax.types import Progress


class Workers(Protocol):
    """K verdicts in, exactly K lists of trials out, in the same order."""

    @property
    def steps_done(self) -> int:
        """Number of simulation steps so far, over all workers."""
        ...

    def evaluate(
        self,
        verdicts: Sequence[Verdict],
        seeds: Sequence[int],
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> list[list[Trial]]:
        """Run a trial of every verdict with every seed; see `evaluation.evaluate`."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class ThisProcess:
    """Evaluates all programs in one batch in this process."""

    optimizer: Optimizer
    task: Task

    @property
    def steps_done(self) -> int:
        return self.optimizer.steps_done

    def evaluate(
        self,
        verdicts: Sequence[Verdict],
        seeds: Sequence[int],
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> list[list[Trial]]:
        return evaluate(self.optimizer, self.task, verdicts, seeds, progress, folder)

    def close(self) -> None:
        """Nothing to end."""
