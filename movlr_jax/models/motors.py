"""Motors that joints can be commanded through: joint targets, which a servo of the model follows (PD)."""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.biomech.world import up_of
from movlr_jax.models.actuators import servos
from movlr_jax.models.derived import base_joints, root_of

_TURNS = (int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE))
_OF_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_BALANCED = 0.01  # m, distance of the centre of mass of a wheel from its axis


def of_joints(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] whether each actuator acts on one hinge or slide, without dynamics of its own."""
    joint = np.where(np.isin(model.actuator_trntype, _OF_JOINT), model.actuator_trnid[:, 0], -1)
    turns = (joint >= 0) & np.isin(model.jnt_type[joint], _TURNS)
    return turns & (model.actuator_dyntype == mujoco.mjtDyn.mjDYN_NONE) & (model.actuator_gear[:, 0] != 0)


def motors(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] whether each actuator is a motor: it alone drives a joint, with a force that its control sets."""
    fixed = (model.actuator_gaintype == mujoco.mjtGain.mjGAIN_FIXED) & (model.actuator_gainprm[:, 0] != 0)
    plain = of_joints(model) & fixed & (model.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE)
    found = plain & enabled_actuators(model)
    driven, count = np.unique(model.actuator_trnid[of_joints(model), 0], return_counts=True)
    return found & np.isin(model.actuator_trnid[:, 0], driven[count == 1])


def force_ranges(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu, 2] the least and largest force of motors; infinite without limits."""
    no_limits = np.array([-np.inf, np.inf])
    by_control = np.sort(model.actuator_gainprm[:, :1] * model.actuator_ctrlrange, axis=1)
    by_control = np.where(model.actuator_ctrllimited[:, None].astype(bool), by_control, no_limits)
    own = np.where(model.actuator_forcelimited[:, None].astype(bool), model.actuator_forcerange, no_limits)
    return np.stack(
        [np.maximum(by_control[:, 0], own[:, 0]), np.minimum(by_control[:, 1], own[:, 1])], axis=1
    )


def torque_limits(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] the largest torque (N m) or force (N) of motors on their joints in the weaker direction."""
    return np.abs(force_ranges(model)).min(axis=1) * np.abs(model.actuator_gear[:, 0])


def with_targets(
    model: mujoco.MjModel,
    which: np.ndarray,
    gains: tuple[np.ndarray, np.ndarray],
    posture: np.ndarray,
) -> mujoco.MjModel:
    """Return a copy of `model` in which the motors `which` [nu] are servos of their joints.

    Their control u is an angle or position relative to `posture` [nq], within the range of the joint:
    torque = kp (q0 + u - q) - kd q', within the limits of the motor. gains: kp and kd [nu].
    """
    kp, kd = gains
    limits, model = force_ranges(model), copy.copy(model)
    for i in np.flatnonzero(which):
        joint, gear = model.actuator_trnid[i, 0], model.actuator_gear[i, 0]
        rest = posture[model.jnt_qposadr[joint]]
        model.actuator_biastype[i] = mujoco.mjtBias.mjBIAS_AFFINE
        model.actuator_gainprm[i], model.actuator_biasprm[i] = 0.0, 0.0
        # the length of an actuator is gear x angle, and the torque is gear x force
        model.actuator_gainprm[i, 0] = kp[i] / gear
        model.actuator_biasprm[i, :3] = kp[i] * rest / gear, -kp[i] / gear**2, -kd[i] / gear**2
        model.actuator_forcelimited[i] = np.isfinite(limits[i]).all()
        model.actuator_forcerange[i] = limits[i] if np.isfinite(limits[i]).all() else 0.0
        span = model.jnt_range[joint] if model.jnt_limited[joint] else (rest - np.pi, rest + np.pi)
        model.actuator_ctrllimited[i] = True
        model.actuator_ctrlrange[i] = min(0.0, span[0] - rest), max(0.0, span[1] - rest)
    return model


def noise_shares(model: mujoco.MjModel, reach: float) -> np.ndarray:
    """Return [nu] the share of each control range that the noise of plans refers to.

    Of servos of joints at most 2 `reach` (rad or m), as the range of a joint says little about motions; of others 1.
    """
    served = np.flatnonzero(servos(model) & of_joints(model) & model.actuator_ctrllimited.astype(bool))
    shares = np.ones(model.nu)
    for i in served:
        moved = model.actuator_gainprm[i, 0] / (model.actuator_biasprm[i, 1] * model.actuator_gear[i, 0])
        shares[i] = min(1.0, 2 * reach / max(abs(moved) * np.ptp(model.actuator_ctrlrange[i]), 1e-9))
    return shares


def targetable(model: mujoco.MjModel, posture: np.ndarray) -> np.ndarray:
    """Return [nu] the motors that suit joint targets: not wheels, nor joints of the base, nor too weak for a limb.

    A motor that cannot hold what it carries at any angle, as that of a pendulum, must swing it.
    """
    data = mujoco.MjData(model)
    data.qpos[:] = posture
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    up, found = up_of(model, data), motors(model)
    base = base_joints(model, root_of(model))
    strength, gravity = torque_limits(model), float(np.linalg.norm(model.opt.gravity))
    for i in np.flatnonzero(found):
        joint = int(model.actuator_trnid[i, 0])
        body, axis = int(model.jnt_bodyid[joint]), data.xaxis[joint]
        lever = np.linalg.norm(np.cross(axis, data.subtree_com[body] - data.xanchor[joint]))
        hinge = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE
        share = np.sqrt(max(0.0, 1.0 - (axis @ up) ** 2)) if hinge else abs(axis @ up)
        load = model.body_subtreemass[body] * gravity * share * (lever if hinge else 1.0)
        wheel = hinge and not model.jnt_limited[joint] and lever < _BALANCED
        found[i] = not wheel and joint not in base and load < strength[i]
    return found
