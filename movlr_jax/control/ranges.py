"""Ranges of the controls of a model."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.errors import UserError


def control_ranges(
    model: mujoco.MjModel, whose: str = "a trained policy acts"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper limits [nu] of the controls. Raises UserError if an actuator has no limits."""
    without = np.flatnonzero(~model.actuator_ctrllimited.astype(bool))
    unlimited = [model.actuator(i).name for i in without]
    if unlimited:
        muscles = (model.actuator_gaintype[without] == mujoco.mjtGain.mjGAIN_MUSCLE).any()
        instead = ", or give optimizer=mpc2, which plans the postures of muscles" if muscles else ""
        raise UserError(
            f"{whose} within control ranges, but these actuators have none: {', '.join(unlimited[:5])}; "
            f"set ctrlrange in the model{instead}"
        )
    low, high = model.actuator_ctrlrange.T
    return low, high
