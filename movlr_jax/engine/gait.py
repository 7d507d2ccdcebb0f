"""How a body walks in a recorded episode, compared with people."""

from __future__ import annotations

from typing import Any

from movlr_jax.biomech.gait.analysis import analyse
from movlr_jax.errors import UserError
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.biomechanics import recording


def analysed(record: EpisodeRecord, task: Task) -> dict[str, Any]:
    """Return `metrics`, `faults` (locked knees, shuffling, ...) and `curves` of an episode.

    `curves` is None if no leg completes a stride. Raises UserError if the model does not walk.
    """
    episode = record.replayed(task.layout)
    made = recording(episode, task)
    if made is None:
        raise UserError(
            f"model {task.adapter.name!r} has no feet: gait analysis needs the touch parts left_foot and right_foot"
        )
    analysis = analyse(made)
    return {
        "metrics": task.scoring.measure(episode, task),
        "faults": dict(task.scoring.faults(episode, task)) if task.scoring.faults else {},
        "curves": analysis.record() if analysis else None,
    }
