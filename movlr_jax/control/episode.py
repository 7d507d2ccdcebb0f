"""Evaluation episodes of K candidates in closed loop, whatever it is that controls them."""

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
    """What a task does to an episode.

    over: whether an episode has ended at each step, as by a fall. perturb: what befalls a body during an interval.
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
    """`steps` control steps of K x E rows (candidate k owns rows k*E:(k+1)*E) under `policy`.

    Its parameters are asked for anew, with two keys, every `every` steps. Ends early once the task says of every row
    that it is over.
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
        # what befalls a row after its episode is not its own
        diverged = np.where(over, diverged, state.diverged)
        if rules.over is not None:
            over |= rules.over(segment.steps, initial).any(axis=1) | diverged
            if over.all():
                break
    return concatenate(segments).replace(diverged=diverged)  # pyright: ignore[reportAttributeAccessIssue]


def by_candidate(x: Array, k: int) -> Any:
    """[K * N, ...] -> [K, N, ...]"""
    return x.reshape((k, len(x) // k, *x.shape[1:]))  # -1 would fail where nothing is in x


def concatenate(segments: Sequence[Trajectory]) -> Trajectory:
    """One trajectory from consecutive ones of the same rows."""
    joined = [(s.steps, s.actions) for s in segments]
    steps, actions = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *joined)
    last = segments[-1]
    return Trajectory(steps=steps, actions=actions, diverged=last.diverged, final=last.final)
