"""Start states of a training in the middle of strides, and of recorded episodes."""

from __future__ import annotations

import numpy as np

from movlr_jax.control.ppo.config import PpoConfig, motion_files
from movlr_jax.control.ppo.interface import Starts
from movlr_jax.errors import UserError
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.strides import stride_starts

_SEED = 0  # the same for all searches


def staggered(envs: int, limit: int) -> np.ndarray:
    """Return ages [envs] of the first episodes, which so end at different times within `limit` control steps."""
    return np.arange(envs) * limit // envs


def with_strides(config: PpoConfig, task: Task, starts: Starts) -> tuple[Starts, np.ndarray | None]:
    """Return the start states of a training, with those in the middle of strides, and their times.

    Raises UserError.
    """
    share = config.guidance.stride_starts
    if not share:
        return starts, None
    if task.layout.reference_by != "phase" or not task.reference:
        raise UserError(
            f"optimizer.ppo.stride_starts={share:g} needs a recorded stride: give "
            "reference=people, or reference=FILE.mot reference_by=phase"
        )
    count = round(share * config.starts)
    time, *states = stride_starts(task, np.random.default_rng(_SEED + 1), count)
    qpos, qvel, act = (np.concatenate(both) for both in zip(starts, states, strict=True))
    return (qpos, qvel, act), np.concatenate([np.zeros(len(starts[0])), time])


def with_motions(
    config: PpoConfig, task: Task, starts: Starts, times: np.ndarray | None
) -> tuple[Starts, np.ndarray | None]:
    """Return the start states and times of a training, with those in the middle of the recorded episodes.

    Raises UserError.
    """
    guidance = config.guidance
    if not guidance.motions:
        return starts, times
    files = motion_files(guidance.motions)
    if not files:
        raise UserError(
            f"optimizer.ppo.motions={list(guidance.motions)}: no recorded episode there; give the run_dir of an "
            "evaluation, or files such as gen_00/k00.npz of a search"
        )
    episodes = [EpisodeRecord.read(file, task.model) for file in files]
    rng, count = np.random.default_rng(_SEED + 2), round(guidance.motion_starts * config.starts)
    chosen = [episodes[i] for i in rng.integers(len(episodes), size=count)]
    at = [(episode, rng.integers(len(episode.time))) for episode in chosen]
    more = [np.array([getattr(e, name)[t] for e, t in at]) for name in ("qpos", "qvel", "act", "time")]
    times = np.zeros(len(starts[0])) if times is None else times
    qpos, qvel, act, times = (np.concatenate(both) for both in zip((*starts, times), more, strict=True))
    return (qpos, qvel, act), times
