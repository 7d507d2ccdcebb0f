"""Plans around a trained policy: it acts in closed loop, in every rollout and in the episode, and a plan adds to it.

What follows a plan is then not what a body would do if nobody looked, but what the policy makes of it: few samples
improve on a policy whose own motion is always one of them (as residual MPPI: Wang et al., 2024).
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
    """The numbers of a plan: what is added at `knots` of the horizon to the numbers that a policy commands."""

    def __init__(
        self,
        numbers: Callable[[Step, jax.Array], jax.Array],
        space: ActionSpace,
        knots: int,
        horizon_s: float,
    ):
        """numbers: what the policy commands in [-1, 1], [size], when it sees a step and draws by a key."""
        super().__init__(-np.ones(space.size, np.float32), np.ones(space.size, np.float32), knots, horizon_s)
        self._numbers, self._space = numbers, space

    def policy(self, physics: Physics):
        """Noise of the policy follows the clock alone: what is drawn in a rollout befalls the episode, too."""

        def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
            drawn = jax.random.fold_in(jax.random.key(0), jnp.round(view.time / physics.ctrl_dt).astype(int))
            added = between(params["knots"], view.time - params["start"], self.horizon_s)
            numbers = jnp.clip(self._numbers(view, drawn) + added, -1.0, 1.0)
            return self._space.controls(numbers, view, physics.sim_dt, physics.ctrl_dt)

        return policy

    def held(self, state: SimState) -> Array:
        """[R, knots, size] nothing is added."""
        return np.zeros((len(np.asarray(state.time)), self.knots, len(self.lower)), np.float32)
