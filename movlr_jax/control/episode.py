"""Closed-loop evaluation episodes of K candidates, for any controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from movlr_jax.physics.base import Physics
from movlr_jax.tasks import Task
from movlr_jax.types import Array, Policy, Progress, SimState, Step, Trajectory


@dataclass(frozen=True)
class Loop:
    """K controllers in closed loop: a policy, and new parameters for it every `every` control steps."""

    physics: Physics
    policy: Policy
    params: Callable[[SimState, Sequence[jax.Array]], Any]  # (state, two keys) -> parameters of the policy
    every: int  # control steps
    candidates: int


def play(
    loop: Loop, task: Task, start: SimState, *, steps: int, key: jax.Array, progress: Progress | None = None
) -> Trajectory:
    """Run K x E rows for `steps` control steps; candidate k owns rows k*E:(k+1)*E.

    key: One key, or the keys [E] of E trials; then a trial is the same alone and among others.
    Applies the perturbations of the task, and stops early once it has ended the episodes of all rows.
    """
    state, initial, every = start, start.step, loop.every
    segments, over = [], np.zeros(len(start.time), bool)
    candidates = len(start.time) if key.ndim else loop.candidates
    for t in range(0, steps, every):
        key, *params_keys, act_key = split(key, 4)
        if task.course.perturb:
            state = task.course.perturb(state, every * loop.physics.ctrl_dt)
        now, count = loop.params(state, params_keys), min(every, steps - t)
        segment = loop.physics.rollout(state, loop.policy, now, steps=count, key=act_key, candidates=candidates)
        segments.append(segment)
        state = segment.final
        if progress:
            progress(min(t + every, steps), steps)
        if task.course.over is not None:
            over |= task.course.over(segment.steps, initial).any(axis=1) | np.asarray(state.diverged)
            if over.all():
                break
    return concatenate(segments).replace(start=start)


def split(key: jax.Array, n: int) -> tuple[jax.Array, ...]:
    """Return n keys made of one key, or n times the keys [E] made of those of E trials."""
    if not key.ndim:
        return tuple(jax.random.split(key, n))
    return tuple(jax.vmap(lambda one: jax.random.split(one, n), out_axes=1)(key))


def fold_in(key: jax.Array, number: int) -> jax.Array:
    """Return `jax.random.fold_in` of one key, or of each of the keys [E] of E trials."""
    return jax.vmap(lambda one: jax.random.fold_in(one, number))(key) if key.ndim else jax.random.fold_in(key, number)


def by_candidate(x: Array, k: int) -> Any:
    """Reshape [K * N, ...] to [K, N, ...]."""
    return x.reshape((k, len(x) // k, *x.shape[1:]))  # -1 would fail for an empty x


def concatenate(segments: Sequence[Trajectory]) -> Trajectory:
    """Join consecutive trajectories of the same rows."""
    joined = [(s.steps, s.actions) for s in segments]
    steps, actions = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *joined)
    valid = np.sum([s.valid for s in segments], axis=0)  # 0 in all segments after divergence
    return Trajectory(steps=steps, actions=actions, valid=valid, final=segments[-1].final)


def episode_ends(trajectory: Trajectory, first: Step, task: Task) -> np.ndarray:
    """Return [B] the number of control steps that count in each row: all, or up to the one that ended it (a fall)."""
    rows, steps = np.shape(trajectory.actions)[:2]
    if task.course.over is None:
        return np.full(rows, steps)
    over = task.course.over(trajectory.steps, first)
    return np.where(over.any(axis=1), over.argmax(axis=1) + 1, steps)


def episode_of(trajectory: Trajectory, row: int, end: int) -> Trajectory:
    """Return the episode [end, ...] of one row of `trajectory` [B, T, ...]."""
    return Trajectory(
        steps=jax.tree.map(lambda x: np.asarray(x)[row, :end], trajectory.steps),
        actions=np.asarray(trajectory.actions)[row, :end],
        valid=np.minimum(trajectory.valid[row], end),  # divergence after the end does not count
        final=jax.tree.map(lambda x: x[row], trajectory.final),
        start=jax.tree.map(lambda x: x[row], trajectory.start),
    )
