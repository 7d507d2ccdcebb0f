"""What travels between the driver and its workers: checked operations and weights there, evaluations back.

No code travels. A worker checks the operations again before it builds a program from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.control.base import Optimizer
from movlr_jax.evolution.evaluation import evaluate
from movlr_jax.records import Trial
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.rewards.state import Layout
from movlr_jax.sandbox.cost import measure
from movlr_jax.sandbox.graph import read
from movlr_jax.sandbox.inputs import inputs
from movlr_jax.sandbox.vet import Verdict, rebuild
from movlr_jax.tasks import Task
from movlr_jax.types import Progress


@dataclass(frozen=True)
class Shard:
    """Some programs of a batch, for one worker. Plain data."""

    rows: tuple[int, ...]  # their places in the batch
    programs: tuple[tuple[bytes, Mapping[str, float]], ...]  # operations, JSON of `sandbox.codec`, and weights
    # rows of the worker's batch; missing ones repeat the last program, so that nothing compiles anew
    size: int
    seeds: tuple[int, ...]  # of the trials
    folder: Path | None  # where an optimizer that trains saves its checkpoints


def unpack(document: bytes, weights: Mapping[str, float], layout: Layout) -> RewardProgram:
    """Return the program without its source. Its operations are checked again. Raises ProgramError."""
    read_from = inputs(layout)
    graph = read(document, list(weights), read_from)
    return rebuild(graph, document, dict(weights), measure(graph, read_from).cost)


def shards(verdicts: Sequence[Verdict], size: int, seeds: Sequence[int], folder: Path | None) -> list[Shard]:
    """Return the accepted programs of a batch in shards of `size`."""
    accepted = {row: v.program for row, v in enumerate(verdicts) if v.program}
    found, rows = [], list(accepted)
    for first in range(0, len(rows), size):
        part = tuple(rows[first : first + size])
        place = folder / f"rows_{part[0]:02d}_{part[-1]:02d}" if folder else None
        programs = tuple((accepted[row].document, dict(accepted[row].weights)) for row in part)
        found.append(Shard(part, programs, size, tuple(seeds), place))
    return found


def evaluate_shard(
    optimizer: Optimizer, task: Task, shard: Shard, progress: Progress | None = None
) -> list[list[Trial]]:
    """Run the trials of the programs of a shard, which has further rows for nothing if it has too few."""
    programs = [unpack(document, weights, task.layout) for document, weights in shard.programs]
    programs += [programs[-1]] * (shard.size - len(programs))
    verdicts = [Verdict("probe", None, 0.0, program) for program in programs]
    return evaluate(optimizer, task, verdicts, shard.seeds, progress, shard.folder)[: len(shard.rows)]
