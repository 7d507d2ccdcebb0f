"""How a body moves over the feet on which it stands: joint changes that leave the feet where they are."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.biomech.world import box_corners, up_of
from movlr_jax.models.derived import base_joints, root_of, solid_of
from movlr_jax.models.motors import angles_per_control, supporting

_SOLE = 0.02  # m above the lowest point, up to which corners of shapes are those of a sole
_CROUCH = 0.06  # of the height of the centre of mass: legs that are stretched cannot move the body otherwise
_SLIPS = 0.3  # share of the motion of the body by which the soles may slip in a direction that counts
_STIFF, _SOFT = 10.0, 0.05  # weights of soles (1/m) and of angles (1/rad) where a crouch is sought
_DAMPED = 1e-6
_SIZE = 0.5  # of the noise, as a share of that of single joints: it moves all of them at once


def over_feet(model: mujoco.MjModel, posture: np.ndarray, span: np.ndarray, mixing: np.ndarray) -> np.ndarray:
    """Return `mixing` [nu, nu] for a body that stands at `posture` [nq], with rows that move it over its feet.

    A row is what one number of the noise does to all controls, in units of `span` [nu]. Up to six rows of the legs
    shift, lower, lean or turn the body while its soles stay, and the others move single joints. So a sample that
    changes few numbers can squat, which noise of single joints hardly ever does. A body that does not stand on legs
    with more joints than that keeps `mixing`.
    """
    legs = np.flatnonzero(supporting(model, posture) & (angles_per_control(model) > 0))
    ways = _ways(model, posture, legs)
    if not 0 < len(ways) < len(legs):
        return mixing
    from scipy.linalg import null_space, qr  # slow to import

    most = np.abs(np.diag(mixing))[legs] * span[legs]  # noise of each control
    ways = ways / angles_per_control(model)[legs]
    ways = ways / np.max(np.abs(ways) / most, axis=1, keepdims=True)  # the most of any of them
    *_, order = qr(null_space(ways / most).T, pivoting=True, mode="r")
    single = np.diag(most)[np.sort(order[: len(legs) - len(ways)])]
    found = mixing.copy()
    found[np.ix_(legs, legs)] = _SIZE * np.concatenate([ways, single]) / span[legs]
    return found


def _ways(model: mujoco.MjModel, posture: np.ndarray, legs: np.ndarray) -> np.ndarray:
    """Return changes [k, legs] rad or m of the joints of the actuators `legs` that move a body over its feet.

    k: up to 6, three along the axes of the world by the height of the centre of mass, and three around them by 1 rad,
    without those for which the soles would slip.
    """
    none, data, root = np.zeros((0, len(legs))), mujoco.MjData(model), root_of(model)
    base = [j for j in base_joints(model, root) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE]
    if not base or not len(legs):
        return none
    joints = model.actuator_trnid[legs, 0]
    angle, dofs = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
    at, dof = int(model.jnt_qposadr[base[0]]), int(model.jnt_dofadr[base[0]])

    def place(angles: np.ndarray, lowered: float = 0.0) -> np.ndarray:
        """Return the points of the soles [P, 3] m of the body with these angles [legs], `lowered` by some m."""
        data.qpos[:] = posture
        data.qpos[at : at + 3] -= lowered * up
        data.qpos[angle] = angles
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        return np.array([data.xpos[b] + data.xmat[b].reshape(3, 3) @ p for b, p in soles])

    data.qpos[:] = posture
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    up = up_of(model, data)
    soles = soles_of(model, data, up)
    start = place(posture[angle])
    height = float(data.subtree_com[root] @ up - (start @ up).min())
    limits = np.where(model.jnt_limited[joints, None] != 0, model.jnt_range[joints], (-np.pi, np.pi))
    low, high = np.minimum(limits[:, 0], posture[angle]) - _DAMPED, np.maximum(limits[:, 1], posture[angle]) + _DAMPED
    from scipy.optimize import least_squares  # slow to import

    def slip(angles: np.ndarray) -> np.ndarray:
        moved = place(angles, _CROUCH * height) - start
        return np.concatenate([_STIFF * moved.ravel(), _SOFT * (angles - posture[angle])])

    bent = posture[angle] + 0.1 * (limits.mean(axis=1) - posture[angle])  # on the side to which knees bend
    place(least_squares(slip, bent, bounds=(low, high)).x, _CROUCH * height)
    pulls, one = np.zeros((len(soles), 3, model.nv)), np.zeros((3, model.nv))
    for row, (b, p) in zip(pulls, soles, strict=True):
        mujoco.mj_jac(model, data, one, None, data.xpos[b] + data.xmat[b].reshape(3, 3) @ p, b)
        row[:] = one
    pulls = pulls.reshape(-1, model.nv)
    legs_pull, axes = pulls[:, dofs], data.xmat[int(model.jnt_bodyid[base[0]])].reshape(3, 3)
    twists = np.zeros((6, 6))
    twists[:3, :3], twists[3:, 3:] = height * np.eye(3), axes  # angular velocities are in the frame of the body
    carried = pulls[:, dof : dof + 6] @ twists.T  # [3 P, 6], how the soles would move with it
    damping = _DAMPED * len(soles) * height**2 * np.eye(len(legs))
    found = -np.linalg.solve(legs_pull.T @ legs_pull + damping, legs_pull.T @ carried)
    slips = np.linalg.norm(legs_pull @ found + carried, axis=0) / np.linalg.norm(carried, axis=0)
    return found.T[slips < _SLIPS]


def soles_of(model: mujoco.MjModel, data: mujoco.MjData, up: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return the lowest corners of the boxes around the shapes of a body: number of its part, and point [3] in it."""
    corners = [
        (int(model.geom_bodyid[g]), point)
        for g in solid_of(model, root_of(model))
        for point in box_corners(model, data, int(g))
    ]
    low = min((float(point @ up) for _, point in corners), default=0.0)
    return [
        (b, data.xmat[b].reshape(3, 3).T @ (point - data.xpos[b])) for b, point in corners if point @ up < low + _SOLE
    ]
