"""Controls in terms of what they do: those that hold a posture, and how much of their range is used."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.biomech.muscles import enabled_actuators, pose
from movlr_jax.errors import UserError

MUSCLE = mujoco.mjtGain.mjGAIN_MUSCLE


def muscles(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] whether each actuator is a muscle."""
    return model.actuator_gaintype == MUSCLE


def has_muscles(model: mujoco.MjModel) -> bool:
    return bool(muscles(model).any())


def servos(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] whether each actuator is a position servo."""
    affine = (model.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE) & (model.actuator_biasprm[:, 1] < 0)
    return affine & (model.actuator_gainprm[:, 0] != 0)


def require_one_control(model: mujoco.MjModel) -> None:
    """Raise UserError if an actuator has several controls, as those of MuJoCo for orientations have."""
    if model.nu != model.nactuator:
        raise UserError(
            f"the model has {model.nactuator} actuators with {model.nu} controls, expected one control for each; "
            "replace those of several controls, such as <orientation> or <pid>, by <position> or <motor>"
        )


def servo_controls(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Return the controls [nu] with which position servos stay at `qpos` [nq]; all others are 0, within their ranges.

    Gravity is not compensated: a servo gives way by its load divided by its gain. Disabled servos hold nothing.
    """
    integrator = model.actuator_dyntype == mujoco.mjtDyn.mjDYN_INTEGRATOR
    controls = np.where(enabled_actuators(model) & ~integrator, _setpoints(model, qpos), 0.0)
    return np.clip(controls, *limits(model.actuator_ctrllimited, model.actuator_ctrlrange))


def limits(limited: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return the ends [2, n] of `ranges` [n, 2], infinite where they are not `limited` [n]."""
    return np.where(limited[:, None].astype(bool), ranges, (-np.inf, np.inf)).T


def servo_activations(model: mujoco.MjModel, qpos: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return the activations [na] with which actuators other than muscles stay at `qpos` [nq] under `rest` [nu].

    A filter has settled at its control, and the integrator of a servo is at its setpoint; all others are 0.
    """
    dynamics, found = model.actuator_dyntype, np.zeros(model.na)
    filters = np.isin(dynamics, (int(mujoco.mjtDyn.mjDYN_FILTER), int(mujoco.mjtDyn.mjDYN_FILTEREXACT)))
    values = np.where(filters, rest, 0.0)
    integrator = enabled_actuators(model) & (dynamics == mujoco.mjtDyn.mjDYN_INTEGRATOR)
    values = np.where(integrator, _setpoints(model, qpos), values)
    values = np.clip(values, *limits(model.actuator_actlimited, model.actuator_actrange))
    last = model.actuator_actadr + model.actuator_actnum - 1  # the one that a gain multiplies
    settled = filters | integrator
    found[last[settled]] = values[settled]
    return found


def _setpoints(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Return the inputs [nu] with which position servos give no force at `qpos` [nq]; 0 for all others."""
    data, found = pose(model, mujoco.MjData(model), qpos), np.zeros(model.nu)
    for i in np.flatnonzero(servos(model)):
        offset, slope, *_ = model.actuator_biasprm[i]
        found[i] = -(slope * data.actuator_length[i] + offset) / model.actuator_gainprm[i, 0]
    return found


def control_scale(model: mujoco.MjModel, rest: np.ndarray) -> np.ndarray:
    """Return [nu] the largest distance of each control from `rest` [nu]; 1 for muscles and those without a range."""
    low, high = model.actuator_ctrlrange.T
    reach = np.maximum(np.abs(low - rest), np.abs(high - rest))
    return np.where(model.actuator_ctrllimited.astype(bool) & ~muscles(model) & (reach > 0), reach, 1.0)
