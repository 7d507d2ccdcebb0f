"""The body of a Ray actor that evaluates shards. Nothing here imports JAX before its environment is set."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from movlr_jax.evolution.workers.shard import Shard
    from movlr_jax.records import Trial

Parts = tuple[Any, Any]  # (task, optimizer)


class Worker:
    """Builds its physics once, then evaluates shards. Ray calls `progress` while `evaluate` runs."""

    def __init__(self, environment: Mapping[str, str], make: Callable[[], Parts]):
        """environment: variables that JAX and XLA read when they start. make: builds the task and the optimizer."""
        os.environ.update(environment)
        self._make, self._progress = make, (0, 1)

    def about(self) -> dict[str, Any]:
        """Build the physics. Return where the worker runs, and its package versions. Raises UserError."""
        from movlr_jax._util.machine import versions

        self._task, self._optimizer = self._make()
        return {"host": socket.gethostname(), "pid": os.getpid(), "versions": versions()}

    def evaluate(self, shard: Shard) -> tuple[Sequence[list[Trial]], dict[str, Any]]:
        """Return the evaluations of a shard, and what it took: s, simulation steps, and traces of physics so far."""
        from movlr_jax.evolution.workers.shard import evaluate_shard

        began, before = time.monotonic(), self._optimizer.steps_done
        self._progress = (0, 1)
        evaluations = evaluate_shard(self._optimizer, self._task, shard, self._tick)
        took = {
            "seconds": time.monotonic() - began,
            "steps": self._optimizer.steps_done - before,
            "traces": dict(self._optimizer.physics.traces),
        }
        return evaluations, took

    def progress(self) -> tuple[int, int, int]:
        """Return (done, total) of the present shard and the simulation steps of this worker so far."""
        done, total = self._progress
        return done, total, self._optimizer.steps_done

    def _tick(self, done: int, total: int) -> None:
        self._progress = (done, total)
