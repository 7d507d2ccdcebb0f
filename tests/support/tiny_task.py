"""A small task of one's own: the leg of the tests lifts its foot. Quick enough to search many times."""

from __future__ import annotations

from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import simple_task


def task(forward_m: float = 0.25) -> Task:
    return simple_task(
        name="tiny_kick",
        model="tiny_muscle",
        description="bring the foot to the mark in front of the leg",
        goals={"foot_pos": [forward_m, 0.0, 0.25]},
        episode_s=0.1,
    )
