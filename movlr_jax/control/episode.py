"""Closed-loop evaluation episodes of K candidates, for any controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from movlr_jax.physics.base import Physics
from movlr_jax.types import Array, Policy, Progress, SimState, Step, Trajectory


@dataclass(frozen=True)
class EpisodeRules:
    """Termination and perturbation rules of a task.

    over: whether the task has ended the episode at each step, for example because of a fall.
    perturb: (state, s) -> state, applies the perturbations of an interval of that length.
    """

    over: Callable[[Step, Step], np.ndarray] | None = None
    perturb: Callable[[SimState, float], SimState] | None = None


def play(
    physics: Physics,
    policy: Policy,
    rules: EpisodeRules,
    start: SimState,
    params: Callable[[SimState, Sequence[jax.Array]], Any],
    *,
    steps: int,
    every: int,
    candidates: int,
    key: jax.Array,
    progress: Progress | None = None,
) -> Trajectory:
    """Run K x E rows for `steps` control steps under `policy`; candidate k owns rows k*E:(k+1)*E.

    `params(state, two keys)` gives new policy parameters every `every` steps. The run stops early once the episodes
    of all rows are over.
    """
    state, initial = start, start.step
    segments, over, diverged = [], np.zeros(len(start.time), bool), np.asarray(start.diverged)
    for t in range(0, steps, every):
        key, *params_keys, act_key = jax.random.split(key, 4)
        if rules.perturb:
            state = rules.perturb(state, every * physics.ctrl_dt)
        now = params(state, params_keys)
        segment = physics.rollout(
            state, policy, now, steps=min(every, steps - t), key=act_key, candidates=candidates
        )
        segments.append(segment)
        state = segment.final
        if progress:
            progress(min(t + every, steps), steps)
        # divergence after the end of an episode does not count
        diverged = np.where(over, diverged, state.diverged)
        if rules.over is not None:
            over |= rules.over(segment.steps, initial).any(axis=1) | diverged
            if over.all():
                break
    return concatenate(segments).replace(diverged=diverged)  # pyright: ignore[reportAttributeAccessIssue]


def by_candidate(x: Array, k: int) -> Any:
    """Reshape [K * N, ...] to [K, N, ...]."""
    return x.reshape((k, len(x) // k, *x.shape[1:]))  # -1 would fail for an empty x


def concatenate(segments: Sequence[Trajectory]) -> Trajectory:
    """Join consecutive trajectories of the same rows."""
    joined = [(s.steps, s.actions) for s in segments]
    steps, actions = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *joined)
    last = segments[-1]
    return Trajectory(steps=steps, actions=actions, diverged=last.diverged, final=last.final)
