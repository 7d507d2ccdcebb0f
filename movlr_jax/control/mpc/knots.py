"""Plans of knots in time, and plans over controls, for any actuator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.errors import UserError
from movlr_jax.physics.base import Physics
from movlr_jax.types import Array, Policy, SimState, Step

PLANNER = "optimizer=mppi samples"  # what needs control ranges


def control_ranges(model: mujoco.MjModel, whose: str = "a trained policy acts") -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper limits [nu] of the controls; a disabled actuator has one control, the nearest to 0.

    Raises UserError if an actuator has no limits.
    """
    acts, limited = enabled_actuators(model), model.actuator_ctrllimited.astype(bool)
    without = np.flatnonzero(acts & ~limited)
    if without.size:
        muscles = (model.actuator_gaintype[without] == mujoco.mjtGain.mjGAIN_MUSCLE).any()
        instead = ", or give optimizer=mpc2, which plans the postures of muscles" if muscles else ""
        raise UserError(
            f"{whose} within control ranges, but these actuators have none: "
            f"{', '.join(model.actuator(i).name for i in without[:5])}; set ctrlrange in the model{instead}"
        )
    low, high = model.actuator_ctrlrange.T
    idle = np.where(limited, np.clip(0.0, low, high), 0.0)
    return np.where(acts, low, idle), np.where(acts, high, idle)


def between(knots: Any, elapsed: Array, horizon_s: float, spline: str = "linear") -> Any:
    """Interpolate `knots` [knots, ...], spread over `horizon_s`, at `elapsed` [] s; later, hold the last.

    spline: a name of SPLINES.
    """
    return SPLINES[spline](knots, elapsed, horizon_s)


def _place(knots: Any, elapsed: Array, horizon_s: float) -> tuple[int, Array, Array, Array]:
    """Return the number of knots, the indices of those before and after `elapsed`, and the way between them."""
    count = len(jax.tree.leaves(knots)[0])
    x = jnp.clip(elapsed / horizon_s * (count - 1), 0.0, count - 1.0)
    low = jnp.clip(jnp.floor(x).astype(int), 0, max(count - 2, 0))
    return count, low, jnp.minimum(low + 1, count - 1), x - low


def linear(knots: Any, elapsed: Array, horizon_s: float) -> Any:
    """Interpolate linearly: the first knot is now, the last at the horizon."""
    _, low, high, share = _place(knots, elapsed, horizon_s)
    return jax.tree.map(lambda at: (1 - share) * at[low] + share * at[high], knots)


def zero(knots: Any, elapsed: Array, horizon_s: float) -> Any:
    """Hold each knot for an equal part of the horizon."""
    count = len(jax.tree.leaves(knots)[0])
    at = jnp.clip(jnp.floor(elapsed / horizon_s * count + 1e-4).astype(int), 0, count - 1)
    return jax.tree.map(lambda x: x[at], knots)


def cubic(knots: Any, elapsed: Array, horizon_s: float) -> Any:
    """Interpolate by cubic Hermite polynomials whose slopes are central differences (Catmull and Rom, 1974).

    At both ends, the slope is that to the next knot. Between knots, values may exceed those of the knots.
    """
    count, low, high, t = _place(knots, elapsed, horizon_s)

    def curve(at: Any) -> Any:
        def slope(i: Array) -> Any:
            before, after = jnp.maximum(i - 1, 0), jnp.minimum(i + 1, count - 1)
            return (at[after] - at[before]) / jnp.maximum(after - before, 1)

        rest = 1 - t
        return rest * rest * ((1 + 2 * t) * at[low] + t * slope(low)) + t * t * (
            (3 - 2 * t) * at[high] - rest * slope(high)
        )

    return jax.tree.map(curve, knots)


SPLINES = {"linear": linear, "zero": zero, "cubic": cubic}


class PlanSpace:
    """The meaning of the numbers of a plan: `knots` values of each dimension, within `lower` and `upper` [dims]."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray, knots: int, horizon_s: float, spline: str = "linear"):
        self.lower, self.upper, self.knots, self.horizon_s, self.spline = (lower, upper, knots, horizon_s, spline)
        # [dims, dims], maps independent noise to the noise of plans; variances stay 1
        self.mixing = np.eye(len(lower), dtype=np.float32)

    def policy(self, physics: Physics) -> Policy:
        """Return the policy that acts by the parameters that `params` returns."""
        raise NotImplementedError

    def held(self, state: SimState) -> np.ndarray:
        """Return plans [R, knots, dims] that go on as each row of `state` is."""
        raise NotImplementedError

    def begun(self, start: SimState) -> SimState:
        """Return the start [R] of an episode with the controls from which the first plan sets out."""
        return start

    def params(self, physics: Physics, state: SimState, plans: Array) -> dict[str, Any]:
        """Return policy parameters [R * n, ...] for plans [R, n, knots, dims] that start at `state`."""
        rows, n = plans.shape[:2]
        return {
            "knots": plans.reshape(rows * n, *plans.shape[2:]),
            "start": np.repeat(np.asarray(state.time, np.float32), n),
        }


class ControlSpace(PlanSpace):
    """Plans of standard MPPI: `knots` values of every control over the horizon.

    resting: qpos [nq] -> controls [nu] that hold a start posture, around which the first plan samples.
    box: lower and upper limits of plans [nu] within the control ranges, and what maps independent noise to theirs
    [nu, nu]; None: the control ranges.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        knots: int,
        horizon_s: float,
        spline: str = "linear",
        resting: Callable[[np.ndarray], np.ndarray] | None = None,
        box: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ):
        low, high, mixing = box or (*control_ranges(model, PLANNER), None)
        super().__init__(low.astype(np.float32), high.astype(np.float32), knots, horizon_s, spline)
        self._resting = resting
        if mixing is not None:
            self.mixing = mixing.astype(np.float32)

    def begun(self, start: SimState) -> SimState:
        if self._resting is None:
            return start
        rest = np.array([self._resting(qpos) for qpos in np.asarray(start.qpos)], np.float32)
        return start.replace(prev_action=rest if isinstance(start.prev_action, np.ndarray) else jnp.asarray(rest))

    def policy(self, physics: Physics) -> Policy:
        def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
            return between(params["knots"], view.time - params["start"], self.horizon_s, self.spline)

        return policy

    def held(self, state: SimState) -> np.ndarray:
        """Return plans [R, knots, nu] that hold the current control of each row."""
        return np.repeat(np.asarray(state.prev_action)[:, None], self.knots, axis=1)
