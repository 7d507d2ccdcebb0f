"""Motors that joints can be commanded through: joint targets, which a servo of the model follows (PD)."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.biomech.muscles import enabled_actuators, moment_arms, pose
from movlr_jax.biomech.world import up_of
from movlr_jax.models.actuators import limits, servos
from movlr_jax.models.derived import above, base_joints, lowest_of, root_of
from movlr_jax.models.spec import quiet

_TURNS = (int(mujoco.mjtJoint.mjJNT_SLIDE), int(mujoco.mjtJoint.mjJNT_HINGE))
_OF_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_HOLD_S = 0.4  # s, how long the start posture is held to see how far joints give way
_SAG = 0.1  # rad or m that a joint may give way under its load
_SHARPEST = 0.1  # rad or m of error at which a motor gives at most its full force
_ROUNDS = 8
_MOVES = 1e-6  # of an acceleration per control that counts
_GENTLY = 0.5  # noise of motors that carry a body, as a share of that of others
_CARRIED = 0.01  # share of its weight that may be missing where motors carry a body
_BALANCED = 0.01  # m, distance of the centre of mass of a wheel from its axis


@dataclass(frozen=True)
class TargetSettings:
    """PD that follows joint targets: torque = kp (target - q) - kd q', within the limits of the motor."""

    kp: float = setting(0.0, "N m/rad or N/m; 0: from the inertia of each joint, see bandwidth_hz", least=0)
    kd: float = setting(0.0, "N m s/rad or N s/m; 0: from the damping ratio", least=0)
    bandwidth_hz: float = setting(
        5.0, "natural frequency of a joint with its limb; stiffer where the load of the start needs it", above=0
    )
    damping: float = setting(0.7, "damping ratio of a joint with its limb", least=0)
    reach: float = setting(
        1.0,
        "rad or m from the start posture within which limbs stay that carry the body; sigma is a share of twice "
        "this, or of the range of a servo or joint if that is less",
        above=0,
    )


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
    by_control = np.sort(model.actuator_gainprm[:, :1] * model.actuator_ctrlrange, axis=1)
    low, high = limits(model.actuator_ctrllimited, by_control)
    least, most = limits(model.actuator_forcelimited, model.actuator_forcerange)
    return np.stack([np.maximum(low, least), np.minimum(high, most)], axis=1)


def torque_limits(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] the largest torque (N m) or force (N) of motors on their joints in the weaker direction."""
    return np.abs(force_ranges(model)).min(axis=1) * np.abs(model.actuator_gear[:, 0])


def with_targets(
    model: mujoco.MjModel, which: np.ndarray, gains: tuple[np.ndarray, np.ndarray], posture: np.ndarray
) -> mujoco.MjModel:
    """Return a copy of `model` in which the motors `which` [nu] are servos of their joints.

    Their control u is an angle or position relative to `posture` [nq], within the range of the joint:
    torque = kp (q0 + u - q) - kd q', within the limits of the motor. gains: kp and kd [nu].
    """
    kp, kd = gains
    forces, model = force_ranges(model), copy.copy(model)
    for i in np.flatnonzero(which):
        joint, gear = model.actuator_trnid[i, 0], model.actuator_gear[i, 0]
        rest = posture[model.jnt_qposadr[joint]]
        model.actuator_biastype[i] = mujoco.mjtBias.mjBIAS_AFFINE
        model.actuator_gainprm[i], model.actuator_biasprm[i] = 0.0, 0.0
        # the length of an actuator is gear x angle, and the torque is gear x force
        model.actuator_gainprm[i, 0] = kp[i] / gear
        model.actuator_biasprm[i, :3] = kp[i] * rest / gear, -kp[i] / gear**2, -kd[i] / gear**2
        model.actuator_forcelimited[i] = np.isfinite(forces[i]).all()
        model.actuator_forcerange[i] = forces[i] if np.isfinite(forces[i]).all() else 0.0
        span = model.jnt_range[joint] if model.jnt_limited[joint] else (rest - np.pi, rest + np.pi)
        model.actuator_ctrllimited[i] = True
        model.actuator_ctrlrange[i] = min(0.0, span[0] - rest), max(0.0, span[1] - rest)
    return model


def angles_per_control(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] how many rad or m of its joint one unit of the control of a servo means; 0 for other actuators."""
    per, served = np.zeros(model.nu), servos(model) & of_joints(model)
    slope = model.actuator_biasprm[served, 1] * model.actuator_gear[served, 0]
    per[served] = np.abs(model.actuator_gainprm[served, 0] / slope)
    return per


def supporting(model: mujoco.MjModel, posture: np.ndarray) -> np.ndarray:
    """Return [nu] which actuators move joints of limbs on which a body that travels stands at `posture` [nq]."""
    data, root = pose(model, mujoco.MjData(model), posture), root_of(model)
    found = np.zeros(model.nu, bool)
    if (model.jnt_type[base_joints(model, root)] == mujoco.mjtJoint.mjJNT_HINGE).all():
        return found
    bearing = {body for foot in lowest_of(model, data, root) for body in above(model, foot)}
    for i in np.flatnonzero(of_joints(model)):
        found[i] = int(model.jnt_bodyid[model.actuator_trnid[i, 0]]) in bearing
    return found


def carrying(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray | None:
    """Return the controls [nu] of motors with which a floating body hovers at `qpos` [nq], as those of rotors.

    None if its motors cannot carry it through the air.
    """
    from scipy.optimize import lsq_linear  # slow to import

    if mujoco.mjtJoint.mjJNT_FREE not in model.jnt_type[base_joints(model, root_of(model))]:
        return None
    data, pull = _pulls(model, qpos)
    own = model.dof_treeid == model.body_treeid[root_of(model)]
    which, weight = pull[:, own].any(axis=1), data.qfrc_bias[own]
    if not which.any() or not weight.any():
        return None
    low, high = limits(model.actuator_ctrllimited[which], model.actuator_ctrlrange[which])
    found = lsq_linear(pull[which][:, own].T, weight, (low, np.maximum(high, low + 1e-9)))
    if np.linalg.norm(found.fun) > _CARRIED * np.linalg.norm(weight):
        return None
    controls = np.zeros(model.nu)
    controls[which] = found.x
    return controls


def _pulls(model: mujoco.MjModel, qpos: np.ndarray) -> tuple[mujoco.MjData, np.ndarray]:
    """Return data at `qpos` [nq] at rest, and the forces [nu, nv] of motors per unit of control, 0 of others."""
    data = mujoco.MjData(model)
    (moment,) = moment_arms(model, data, qpos[None])
    mujoco.mj_forward(model, data)
    fixed = (model.actuator_gaintype == mujoco.mjtGain.mjGAIN_FIXED) & (model.actuator_dyntype == 0)
    plain = fixed & (model.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE)
    return data, np.where(plain[:, None], model.actuator_gainprm[:, :1] * moment, 0.0)


def mixed(model: mujoco.MjModel, qpos: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Return what maps independent noise to that of controls, [nu, nu] in units of `span` [nu].

    The noise of motors that carry a floating body accelerates it alike in all directions that they have, 1 m/s^2 as
    likely as 1 rad/s^2, and half as much: independent noise of rotors would turn it over before it rises. That of all
    others is as it is.
    """
    found = np.eye(model.nu)
    if carrying(model, qpos) is None:
        return found
    data, pull = _pulls(model, qpos)
    base = model.jnt_dofadr[base_joints(model, root_of(model))[0]] + np.arange(6)
    accelerations = np.linalg.solve(_masses(model, data), (pull * span[:, None]).T)[base]
    which = np.abs(accelerations).max(axis=0) > _MOVES
    inverse = np.linalg.pinv(accelerations[:, which], rcond=_MOVES)
    values, vectors = np.linalg.eigh(inverse @ inverse.T)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    found[np.ix_(which, which)] = _GENTLY * root / np.sqrt(np.diag(root @ root).max())
    return found


def swing_s(model: mujoco.MjModel, posture: np.ndarray) -> float:
    """Return the longest period in s of a limb that swings as a pendulum: no motor can hold its hinge. 0: none."""
    data, longest = mujoco.MjData(model), 0.0
    data.qpos[:] = posture
    mujoco.mj_forward(model, data)
    (moment,) = moment_arms(model, data, posture[None])
    up, gravity, full = up_of(model, data), float(np.linalg.norm(model.opt.gravity)), _masses(model, data)
    weak = motors(model) & ~targetable(model, posture)
    root = root_of(model)
    free = ~(np.abs(moment[~weak]) > 1e-6).any(axis=0) & (model.dof_treeid == model.body_treeid[root])
    linked = _linked(model)
    for j in np.flatnonzero((model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE) & (model.jnt_stiffness == 0)):
        if int(model.jnt_bodyid[j]) in linked:
            continue
        body, dof, axis = int(model.jnt_bodyid[j]), int(model.jnt_dofadr[j]), data.xaxis[j]
        lever = float(np.linalg.norm(np.cross(axis, data.subtree_com[body] - data.xanchor[j])))
        pull = model.body_subtreemass[body] * gravity * lever * np.sqrt(max(0.0, 1.0 - (axis @ up) ** 2))
        if free[dof] and lever > _BALANCED and pull > 0:
            longest = max(longest, float(2 * np.pi * np.sqrt(full[dof, dof] / pull)))
    return longest


def _linked(model: mujoco.MjModel) -> set[int]:
    """Return the bodies of closed chains, as those of the four bars of a gripper, which equalities hold."""
    found, kinds, of_site = set[int](), mujoco.mjtEq, model.eq_objtype == mujoco.mjtObj.mjOBJ_SITE
    for eq in np.flatnonzero(model.eq_active0):
        kind = mujoco.mjtEq(int(model.eq_type[eq]))
        if kind == kinds.mjEQ_JOINT:
            owner = model.jnt_bodyid
        elif kind in (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
            owner = model.site_bodyid if of_site[eq] else np.arange(model.nbody)
        else:
            continue
        ends = (model.eq_obj1id[eq], model.eq_obj2id[eq])
        one, two = ({*above(model, int(owner[end]) if end >= 0 else 0)} for end in ends)
        found |= one ^ two
    return found


def targetable(model: mujoco.MjModel, posture: np.ndarray) -> np.ndarray:
    """Return [nu] the motors that suit joint targets: not wheels, nor joints of the base, nor too weak for a limb.

    A motor that cannot hold what it carries at any angle, as that of a pendulum, must swing it.
    """
    data = pose(model, mujoco.MjData(model), posture)
    up, found = up_of(model, data), motors(model)
    base = base_joints(model, root_of(model))
    if not (model.jnt_type[base] != mujoco.mjtJoint.mjJNT_HINGE).any():  # as the shoulder of an arm on a table
        base = []
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


def gains(
    settings: TargetSettings, model: mujoco.MjModel, which: np.ndarray, posture: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return kp and kd [nu] of servos in place of the motors `which` [nu], which hold `posture` [nq].

    With the inertia I of a joint and what it carries, kp = I (2 pi bandwidth)^2 and kd = 2 damping sqrt(kp I).
    Where a joint then gives way under the load of the start, kp is larger, as far as the limit of the motor allows.
    """
    inertia = _inertia(model, posture)
    most = torque_limits(model) / _SHARPEST
    kp = np.full(model.nu, settings.kp)
    if not settings.kp:
        kp = np.minimum(inertia * (2 * np.pi * settings.bandwidth_hz) ** 2, most)

    def with_damping(kp: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kp = np.where(which, kp, 0.0)
        return kp, np.where(which, settings.kd or 2 * settings.damping * np.sqrt(kp * inertia), 0.0)

    for _ in range(0 if settings.kp else _ROUNDS):
        sag = _sag(with_targets(model, which, with_damping(kp), posture), which, posture)
        if (sag <= _SAG).all():
            break
        kp = np.minimum(kp * np.clip(sag / _SAG, 1.0, 2.0), most)
    return with_damping(kp)


def _inertia(model: mujoco.MjModel, posture: np.ndarray) -> np.ndarray:
    """Return [nu] the inertia that the joint of each actuator moves at `posture` [nq]; 0 for other actuators."""
    data = mujoco.MjData(model)
    data.qpos[:] = posture
    mujoco.mj_forward(model, data)
    return np.where(motors(model), _masses(model, data).diagonal()[model.jnt_dofadr[_joints(model)]], 0.0)


def _masses(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Return the mass matrix [nv, nv] after mj_forward."""
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return full


def _joints(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu] the joint of each actuator; any of an actuator that drives none, as a muscle."""
    return np.where(of_joints(model), model.actuator_trnid[:, 0], 0)


def _sag(model: mujoco.MjModel, which: np.ndarray, posture: np.ndarray) -> np.ndarray:
    """Return [nu] how far the joints of the servos `which` [nu] are from `posture` [nq] after they have held it."""
    data = mujoco.MjData(model)
    data.qpos[:] = posture
    with quiet():
        mujoco.mj_step(model, data, nstep=round(_HOLD_S / model.opt.timestep))
    at = model.jnt_qposadr[_joints(model)]
    return np.where(which, np.abs(data.qpos[at] - posture[at]), 0.0)
