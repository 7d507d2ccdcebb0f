"""Plans over the controls themselves: knots in time, linear between; for any actuator."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.control.ppo.actions import control_ranges
from movlr_jax.physics.base import Physics
from movlr_jax.types import Array, SimState, Step


def between(knots: Any, elapsed: Array, horizon_s: float) -> Any:
    """What lies `elapsed` s [] into plans [knots, ...] over `horizon_s`, linear between knots; then the last."""
    count = len(jax.tree.leaves(knots)[0])
    x = jnp.clip(elapsed / horizon_s * (count - 1), 0.0, count - 1.0)
    low = jnp.clip(jnp.floor(x).astype(int), 0, max(count - 2, 0))
    high, share = jnp.minimum(low + 1, count - 1), x - low
    return jax.tree.map(lambda at: (1 - share) * at[low] + share * at[high], knots)


class KnotSpace:
    """Plans that are `knots` values of some numbers over the horizon, each within its range."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray, knots: int, horizon_s: float):
        self.lower, self.upper, self.knots, self.horizon_s = lower, upper, knots, horizon_s
        self.mixing = np.eye(len(lower), dtype=np.float32)

    def params(self, physics: Physics, state: SimState, plans: Array) -> dict[str, Any]:
        """Policy parameters [R * n, ...] for plans [R, n, knots, dims] that begin now."""
        rows, n = plans.shape[:2]
        return {
            "knots": plans.reshape(rows * n, *plans.shape[2:]),
            "start": np.repeat(np.asarray(state.time, np.float32), n),
        }


class ControlSpace(KnotSpace):
    """The numbers of a plain MPPI plan: `knots` values of every control over the horizon."""

    def __init__(self, model: mujoco.MjModel, knots: int, horizon_s: float):
        low, high = control_ranges(model, "optimizer=mppi samples")
        super().__init__(low.astype(np.float32), high.astype(np.float32), knots, horizon_s)

    def policy(self, physics: Physics):
        def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
            return between(params["knots"], view.time - params["start"], self.horizon_s)

        return policy

    def held(self, state: SimState) -> np.ndarray:
        """[R, knots, nu] the control of each row now, held."""
        return np.repeat(np.asarray(state.prev_action)[:, None], self.knots, axis=1)
