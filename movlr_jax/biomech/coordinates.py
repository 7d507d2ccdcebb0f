"""The positions of a MuJoCo model as coordinates of OpenSim, and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from movlr_jax.biomech.opensim import MOVES, TO_OPENSIM, TURNS, Coordinate

if TYPE_CHECKING:
    from scipy.spatial.transform import Rotation

_FREE, _BALL, _SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{n}")) for n in ("FREE", "BALL", "SLIDE"))
_ORDER = "ZXY"  # of the axes about which tilt, list and rotation turn: R = Rz Rx Ry
PELVIS = "pelvis"


@dataclass(frozen=True)
class _Joint:
    """A joint, its coordinates, and its addresses in qpos and qvel."""

    name: str
    angular: Mapping[str, bool]  # coordinate -> whether it is an angle
    q: int
    v: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.angular)


@dataclass(frozen=True)
class _Scalar(_Joint):
    """A hinge or a slide."""

    coordinate: Coordinate
    range: tuple[float, float] | None  # of the coordinate


@dataclass(frozen=True)
class _Pose(_Joint):
    """A free joint with three angles and three positions, or a ball joint, which has no position."""

    zero: Rotation  # the orientation at which the angles are zero

    @property
    def free(self) -> bool:
        return len(self.angular) > len(TURNS)

    @property
    def quat(self) -> slice:
        """The place of the quaternion in qpos."""
        start = self.q + 3 if self.free else self.q
        return slice(start, start + 4)


class Coordinates:
    """The coordinates of a model, in the order of its joints.

    A free joint has `NAME_tilt`, `NAME_list`, `NAME_rotation`, `NAME_tx`, `NAME_ty` and `NAME_tz` in OpenSim's axes;
    its angles are zero at qpos0. A ball joint has the three angles.

    Args:
        model: The compiled model.
        table: Coordinates whose name, sign or zero differ from those of their joints.
        pelvis: Name of the free joint whose coordinates begin with `pelvis`; other free joints have their own names.
    """

    def __init__(self, model: mujoco.MjModel, table: Sequence[Coordinate] = (), pelvis: str | None = None):
        mapped = {c.joint: c for c in table}
        self._base = model.qpos0.copy()
        self._joints: list[_Scalar | _Pose] = []
        for j in range(model.njnt):
            name, kind = model.joint(j).name or f"joint{j}", int(model.jnt_type[j])
            q, v = int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])
            if kind in (_FREE, _BALL):
                prefix = PELVIS if name == pelvis else name
                parts, start = ((*TURNS, *MOVES), q + 3) if kind == _FREE else (TURNS, q)
                angular = {f"{prefix}_{part}": part in TURNS for part in parts}
                self._joints.append(_Pose(name, angular, q, v, _rotation(model.qpos0[start : start + 4])))
            else:
                coordinate = mapped.get(name, Coordinate(name, name))
                ends = coordinate.sign * model.jnt_range[j] + coordinate.offset
                range_ = (float(ends.min()), float(ends.max())) if model.jnt_limited[j] else None
                self._joints.append(_Scalar(name, {coordinate.name: kind != _SLIDE}, q, v, coordinate, range_))

    @property
    def names(self) -> list[str]:
        return list(self.angular)

    @property
    def angular(self) -> dict[str, bool]:
        """Coordinate -> whether it is an angle. The others are positions in m."""
        return {name: turns for joint in self._joints for name, turns in joint.angular.items()}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Coordinate -> its range in rad, of hinges that are limited."""
        hinges = (j for j in self._joints if isinstance(j, _Scalar) and j.angular[j.coordinate.name])
        return {joint.coordinate.name: joint.range for joint in hinges if joint.range}

    @property
    def of_joints(self) -> dict[str, tuple[str, ...]]:
        """Joint -> its coordinates."""
        return {joint.name: joint.names for joint in self._joints}

    def values(self, qpos: np.ndarray) -> dict[str, np.ndarray]:
        """Return coordinate -> [T] rad or m for qpos [T, nq]. Angles of a pose do not jump by 360 degrees."""
        qpos, found = np.asarray(qpos, float), {}
        for joint in self._joints:
            if isinstance(joint, _Scalar):
                c = joint.coordinate
                found[c.name] = c.sign * qpos[:, joint.q] + c.offset
                continue
            turns = np.unwrap(self._turns(joint, qpos), axis=0)
            moves = qpos[:, joint.q : joint.q + 3] @ TO_OPENSIM.T
            both = np.concatenate([turns, moves], axis=1)
            found |= {name: both[:, i] for i, name in enumerate(joint.names)}
        return found

    def speeds(self, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, np.ndarray]:
        """Return coordinate -> [T] rad/s or m/s for qpos [T, nq] and qvel [T, nv]."""
        qpos, qvel, found = np.asarray(qpos, float), np.asarray(qvel, float), {}
        for joint in self._joints:
            if isinstance(joint, _Scalar):
                found[joint.coordinate.name] = joint.coordinate.sign * qvel[:, joint.v]
                continue
            v = joint.v + 3 if joint.free else joint.v
            spin = _rotation(qpos[:, joint.quat]).apply(qvel[:, v : v + 3]) @ TO_OPENSIM.T  # MuJoCo's is in the body
            axes = np.linalg.pinv(_turning_axes(self._turns(joint, qpos)))
            moves = qvel[:, joint.v : joint.v + 3] @ TO_OPENSIM.T
            both = np.concatenate([np.einsum("tij,tj->ti", axes, spin), moves], axis=1)
            found |= {name: both[:, i] for i, name in enumerate(joint.names)}
        return found

    def qpos(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return qpos [T, nq] of coordinates -> [T] rad or m. Coordinates that are missing are those of qpos0."""
        from scipy.spatial.transform import Rotation  # slow to import

        length = len(next(iter(values.values())))
        qpos = np.repeat(self._base[None], length, axis=0)
        rest = {name: column[0] for name, column in self.values(self._base[None]).items()}
        for joint in self._joints:
            if isinstance(joint, _Scalar):
                c = joint.coordinate
                if c.name in values:
                    qpos[:, joint.q] = (values[c.name] - c.offset) / c.sign
                continue
            if not any(name in values for name in joint.names):
                continue
            both = np.stack([np.broadcast_to(values.get(n, rest[n]), length) for n in joint.names], axis=1)
            turned = Rotation.from_euler(_ORDER, both[:, :3]).as_matrix()
            quat = (Rotation.from_matrix(TO_OPENSIM.T @ turned @ TO_OPENSIM) * joint.zero).as_quat()[:, [3, 0, 1, 2]]
            qpos[:, joint.quat] = quat * np.where(quat[:, :1] < 0, -1.0, 1.0)
            if joint.free:
                qpos[:, joint.q : joint.q + 3] = both[:, 3:] @ TO_OPENSIM
        return qpos

    def _turns(self, joint: _Pose, qpos: np.ndarray) -> np.ndarray:
        """Return tilt, list and rotation [T, 3] rad; at a list of 90 degrees, rotation is 0."""
        from scipy.spatial.transform import Rotation  # slow to import

        turned = (_rotation(qpos[:, joint.quat]) * joint.zero.inv()).as_matrix()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # at 90 degrees
            return Rotation.from_matrix(TO_OPENSIM @ turned @ TO_OPENSIM.T).as_euler(_ORDER)


def _turning_axes(turns: np.ndarray) -> np.ndarray:
    """Return the axes [T, 3, 3], in columns, about which tilt, list and rotation [T, 3] rad turn in OpenSim's ground.

    The angular velocity is these axes times the speeds of the three.
    """
    from scipy.spatial.transform import Rotation  # slow to import

    x, y, z = np.eye(3)
    along = [Rotation.from_euler(_ORDER[:n], turns[:, :n]).apply(axis) for n, axis in ((1, x), (2, y))]
    return np.stack([np.broadcast_to(z, along[0].shape), *along], axis=-1)


def _rotation(quat: np.ndarray) -> Rotation:
    """Return the rotation of a quaternion [..., 4] (w, x, y, z)."""
    from scipy.spatial.transform import Rotation  # slow to import

    return Rotation.from_quat(quat[..., [1, 2, 3, 0]])
