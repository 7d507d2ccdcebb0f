"""Ranges of the controls of a model."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.errors import UserError


def control_ranges(model: mujoco.MjModel, whose: str = "a trained policy acts") -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper limits [nu] of the controls; a disabled actuator has one control, the nearest to 0.

    Raises UserError if an actuator has no limits.
    """
    acts, limited = enabled_actuators(model), model.actuator_ctrllimited.astype(bool)
    without = np.flatnonzero(acts & ~limited)
    unlimited = [model.actuator(i).name for i in without]
    if unlimited:
        muscles = (model.actuator_gaintype[without] == mujoco.mjtGain.mjGAIN_MUSCLE).any()
        instead = ", or give optimizer=mpc2, which plans the postures of muscles" if muscles else ""
        raise UserError(
            f"{whose} within control ranges, but these actuators have none: {', '.join(unlimited[:5])}; "
            f"set ctrlrange in the model{instead}"
        )
    low, high = model.actuator_ctrlrange.T
    idle = np.where(limited, np.clip(0.0, low, high), 0.0)
    return np.where(acts, low, idle), np.where(acts, high, idle)
