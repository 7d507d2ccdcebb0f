"""How a body moves over the feet on which it stands: joint changes that leave the feet where they are."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from movlr_jax.biomech.world import box_corners, up_of
from movlr_jax.models.derived import base_joints, root_of, solid_of
from movlr_jax.models.motors import angles_per_control, supporting

_SOLE = 0.02  # m above the lowest point, up to which corners of shapes are those of a sole
_CROUCH = 0.06  # of the height of the centre of mass: legs that are stretched cannot move the body otherwise
_DEEP = 1 / 3  # of the height of the centre of mass, that a body squats at most
_SLIPS = 0.3  # share of the motion of the body by which the soles may slip in a direction that counts
_STIFF, _SOFT = 10.0, 0.05  # weights of soles (1/m) and of angles (1/rad) where a crouch is sought
_BEGIN = (0.1, 0.4)  # of the way to the middle of the range of joints, from where a crouch is sought
_DAMPED = 1e-6
_SIZE = 0.5  # of the noise, as a share of that of single joints: it moves all of them at once


def over_feet(model: mujoco.MjModel, posture: np.ndarray, span: np.ndarray, mixing: np.ndarray) -> np.ndarray:
    """Return `mixing` [nu, nu] for a body that stands at `posture` [nq], with rows that move it over its feet.

    A row is what one number of the noise does to all controls, in units of `span` [nu]. Up to six rows of the legs
    shift, lower, lean or turn the body while its soles stay, and the others move single joints. So a sample that
    changes few numbers can squat, which noise of single joints hardly ever does. A body that does not stand on legs
    with more joints than that keeps `mixing`.
    """
    stands = _legs(model, posture, served=True)
    if stands is None:
        return mixing
    legs, ways = stands.actuators, _ways(stands)
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


@dataclass
class _Legs:
    """The legs of a floating body that stands at `posture` [nq]: actuators that bend them, and their joints."""

    model: mujoco.MjModel
    posture: np.ndarray
    actuators: np.ndarray

    def __post_init__(self) -> None:
        model, root = self.model, root_of(self.model)
        self.joints = model.actuator_trnid[self.actuators, 0]
        self.angle, self.dofs = model.jnt_qposadr[self.joints], model.jnt_dofadr[self.joints]
        self.base = next(j for j in base_joints(model, root) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE)
        self.data = mujoco.MjData(model)
        self.data.qpos[:] = self.posture
        mujoco.mj_kinematics(model, self.data)
        mujoco.mj_comPos(model, self.data)
        self.up = up_of(model, self.data)
        self.soles = soles_of(model, self.data, self.up)
        self.start = self.place(self.posture[self.angle])
        self.height = float(self.data.subtree_com[root] @ self.up - (self.start @ self.up).min())

    def place(self, angles: np.ndarray, lowered: float = 0.0) -> np.ndarray:
        """Return the points of the soles [P, 3] m of the body with these angles, `lowered` by some m."""
        data, at = self.data, int(self.model.jnt_qposadr[self.base])
        data.qpos[:] = self.posture
        data.qpos[at : at + 3] -= lowered * self.up
        data.qpos[self.angle] = angles
        mujoco.mj_kinematics(self.model, data)
        mujoco.mj_comPos(self.model, data)
        return np.array([data.xpos[b] + data.xmat[b].reshape(3, 3) @ p for b, p in self.soles])

    def bent(self, lowered: float) -> np.ndarray:
        """Return the angles with which the soles stay where they are, as well as they can, `lowered` by some m."""
        from scipy.optimize import least_squares  # slow to import

        model, now = self.model, self.posture[self.angle]
        limits = np.where(model.jnt_limited[self.joints, None] != 0, model.jnt_range[self.joints], (-np.pi, np.pi))
        low, high = np.minimum(limits[:, 0], now) - _DAMPED, np.maximum(limits[:, 1], now) + _DAMPED

        def slip(angles: np.ndarray) -> np.ndarray:
            moved = self.place(angles, lowered) - self.start
            return np.concatenate([_STIFF * moved.ravel(), _SOFT * (angles - now)])

        begins = (now + share * (limits.mean(axis=1) - now) for share in _BEGIN)  # on the side to which knees bend
        return min((least_squares(slip, begin, bounds=(low, high)) for begin in begins), key=lambda at: at.cost).x


def _legs(model: mujoco.MjModel, posture: np.ndarray, served: bool) -> _Legs | None:
    """Return the legs on which a floating body stands at `posture` [nq]; None if it does not. served: by servos."""
    floats = any(model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE for j in base_joints(model, root_of(model)))
    actuators = np.flatnonzero(supporting(model, posture) & (angles_per_control(model) > 0 if served else True))
    return _Legs(model, posture, actuators) if floats and len(actuators) else None


def crouched(model: mujoco.MjModel, posture: np.ndarray, depth: float | None = None) -> dict[str, float]:
    """Return joint -> angle in rad of the legs with which a body is lower by `depth` m, its soles where they are.

    None: by a third of the height of its centre of mass. Empty for a body that does not stand on legs, or whose legs
    cannot bend so far.
    """
    legs = _legs(model, posture, served=False)
    if legs is None:
        return {}
    depth = _DEEP * legs.height if depth is None else depth
    angles = legs.bent(depth)
    off = np.abs(legs.place(angles, depth) - legs.start).max()
    names = [model.joint(int(j)).name for j in legs.joints]
    return dict(zip(names, angles.tolist(), strict=True)) if off < _SLIPS * depth else {}


def _ways(legs: _Legs) -> np.ndarray:
    """Return changes [k, legs] rad or m of the joints of the legs that move a body over its feet.

    k: up to 6, three along the axes of the world by the height of the centre of mass, and three around them by 1 rad,
    without those for which the soles would slip.
    """
    model, data, soles, height = legs.model, legs.data, legs.soles, legs.height
    legs.place(legs.bent(_CROUCH * height), _CROUCH * height)
    pulls, one = np.zeros((len(soles), 3, model.nv)), np.zeros((3, model.nv))
    for row, (b, p) in zip(pulls, soles, strict=True):
        mujoco.mj_jac(model, data, one, None, data.xpos[b] + data.xmat[b].reshape(3, 3) @ p, b)
        row[:] = one
    pulls, dof = pulls.reshape(-1, model.nv), int(model.jnt_dofadr[legs.base])
    legs_pull, axes = pulls[:, legs.dofs], data.xmat[int(model.jnt_bodyid[legs.base])].reshape(3, 3)
    twists = np.zeros((6, 6))
    twists[:3, :3], twists[3:, 3:] = height * np.eye(3), axes  # angular velocities are in the frame of the body
    carried = pulls[:, dof : dof + 6] @ twists.T  # [3 P, 6], how the soles would move with it
    damping = _DAMPED * len(soles) * height**2 * np.eye(len(legs.actuators))
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
