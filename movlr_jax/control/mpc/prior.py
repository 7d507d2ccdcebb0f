"""Plans around a trained policy, which acts in closed loop in every rollout and in the episode; a plan adds to it.

The motion of the policy alone is always one of the samples, so few samples can improve on it (as in residual MPPI,
Wang et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.control.mpc.knots import KnotSpace, between
from movlr_jax.control.ppo.actions import ActionSpace
from movlr_jax.physics.base import Physics
from movlr_jax.types import Array, SimState, Step


class PriorSpace(KnotSpace):
    """Plans that are added to the actions of a policy, with `knots` values over the horizon."""

    def __init__(
        self,
        numbers: Callable[[Step, jax.Array], jax.Array],
        space: ActionSpace,
        knots: int,
        horizon_s: float,
        spline: str = "linear",
    ):
        """numbers: the policy, (step, key) -> action [size] in [-1, 1]."""
        super().__init__(-np.ones(space.size, np.float32), np.ones(space.size, np.float32), knots, horizon_s, spline)
        self._numbers, self._space = numbers, space

    def policy(self, physics: Physics):
        """Return the policy. Its noise depends only on time, so that rollouts and the episode draw the same noise."""

        def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
            drawn = jax.random.fold_in(jax.random.key(0), jnp.round(view.time / physics.ctrl_dt).astype(int))
            added = between(params["knots"], view.time - params["start"], self.horizon_s, self.spline)
            numbers = jnp.clip(self._numbers(view, drawn) + added, -1.0, 1.0)
            return self._space.controls(numbers, view, physics.sim_dt, physics.ctrl_dt)

        return policy

    def held(self, state: SimState) -> Array:
        """Return plans [R, knots, size] of zeros, which add nothing."""
        return np.zeros((len(np.asarray(state.time)), self.knots, len(self.lower)), np.float32)
