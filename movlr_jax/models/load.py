"""The load that position servos carry at a posture: how far from it they have to be set, so that they hold it."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np

from movlr_jax.biomech.world import world_of
from movlr_jax.models.actuators import limits, servo_controls, servos
from movlr_jax.models.derived import base_joints, lies, root_of
from movlr_jax.models.motors import of_joints
from movlr_jax.models.stance import soles_of

_EDGES = np.array([[0.5, 0, 1], [-0.5, 0, 1], [0, 0.5, 1], [0, -0.5, 1]])  # of a pyramid of friction
_EVEN = 1e-3  # weight of even forces
_MISSING = 0.05  # share of its weight that the feet may not carry
_WEAK = 0.3  # rad or m; a servo that would have to be set further is too weak
_GIVES_WAY = 1.0  # rad or m, by which a servo gives way that cannot hold a posture
_NAMED = 4
_SAME = 0.02  # rad or m by which the controls of a keyframe may differ from its posture


def with_load(
    model: mujoco.MjModel, posture: np.ndarray, resting: Callable[[np.ndarray], np.ndarray]
) -> Callable[[np.ndarray], np.ndarray]:
    """Return `resting` (qpos [nq] -> controls [nu]) with servos set so that they carry the load at `posture` [nq].

    Controls of a keyframe that are not its posture stay: they may hold the load already.
    """
    served = servos(model) & of_joints(model)
    apart = np.abs(resting(posture) - servo_controls(model, posture))[served]
    if not served.any() or apart.max() > _SAME:
        return resting
    further, (low, high) = load_of(model, posture), limits(model.actuator_ctrllimited, model.actuator_ctrlrange)
    return lambda qpos: np.clip(resting(qpos) + further, low, high)


def weak_servos(model: mujoco.MjModel, qpos: np.ndarray) -> str:
    """Return a sentence that names the servos which cannot hold `qpos` [nq] under gravity, "" if all can."""
    gives = load_of(model, qpos, most=np.inf)
    if not (weak := np.flatnonzero(np.abs(gives) > _GIVES_WAY)).size:
        return ""
    names = [model.actuator(int(i)).name or f"actuator {i}" for i in weak[np.argsort(-np.abs(gives[weak]))]]
    said = ", ".join(names[:_NAMED]) + f" and {len(names) - _NAMED} others" * (len(names) > _NAMED)
    least = float(np.abs(gives).max() / _GIVES_WAY)
    return (
        f"the servos {said} are too weak to hold the posture at the start, so the body gives way whatever is "
        f"planned: their kp in the file would have to be at least {least:.2g} times as large"
    )


def load_of(model: mujoco.MjModel, qpos: np.ndarray, most: float = _WEAK) -> np.ndarray:
    """Return [nu] rad or m: what a servo of a joint gives way at `qpos` [nq] under gravity; 0 of other actuators.

    A floating body stands on its soles, whose forces are sought by least squares. 0 for all if they cannot carry it.
    """
    data, root, none = mujoco.MjData(model), root_of(model), np.zeros(model.nu)
    if not (served := servos(model) & of_joints(model)).any():
        return none
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    torque, kinds = data.qfrc_bias - data.qfrc_passive, [int(model.jnt_type[j]) for j in base_joints(model, root)]
    if int(mujoco.mjtJoint.mjJNT_FREE) in kinds:
        if lies(model, data, root) or (feet := _feet(model, data, root, torque)) is None:
            return none
        torque = torque - feet
    elif int(mujoco.mjtJoint.mjJNT_SLIDE) in kinds:
        return none
    found = none.copy()
    for i in np.flatnonzero(served):
        dof = model.jnt_dofadr[model.actuator_trnid[i, 0]]
        found[i] = torque[dof] / (model.actuator_gear[i, 0] * model.actuator_gainprm[i, 0])
    return np.clip(found, -most, most)


def _feet(model: mujoco.MjModel, data: mujoco.MjData, root: int, torque: np.ndarray) -> np.ndarray | None:
    """Return the forces [nv] of the soles of a floating body that carry `torque` [nv] at its base, if any do."""
    from scipy.optimize import lsq_linear  # slow to import

    frame, joints = world_of(model, root).frame, base_joints(model, root)
    free = next(j for j in joints if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE)
    base, one, pulls = int(model.jnt_dofadr[free]) + np.arange(6), np.zeros((3, model.nv)), list[np.ndarray]()
    for body, point in soles_of(model, data, frame[2]):
        mujoco.mj_jac(model, data, one, None, data.xpos[body] + data.xmat[body].reshape(3, 3) @ point, body)
        pulls.append(_EDGES @ frame @ one)
    if not pulls:
        return None
    pull = np.concatenate(pulls)  # [4 points, nv]
    even = np.vstack([pull[:, base].T, _EVEN * np.eye(len(pull))])
    force = lsq_linear(even, np.concatenate([torque[base], np.zeros(len(pull))]), (0.0, np.inf)).x
    missing = np.linalg.norm(pull[:, base].T @ force - torque[base])
    return pull.T @ force if missing < _MISSING * np.linalg.norm(torque[base]) else None
