"""The body of a walker: its contacts, its start posture on the ground, and pushes."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from movlr_jax.biomech.static_optimisation import StaticOptimiser, base_dofs
from movlr_jax.biomech.world import lowest
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter, follow_couplings, nominal_qpos
from movlr_jax.tasks.base import Camera
from movlr_jax.tasks.walking.terrain import GROUND, Ground

FEET = ("left_foot", "right_foot")
_NONE = np.zeros(3)
# position of the centre of mass between heel (0) and toe joint (1) in stance. Toes bear little load, so the margin
# against tipping forward is the distance from here to the toe joint.
_STANCE = 0.35
# shares of the height and the width of a view that the standing body fills at most
FILLED, WIDEST = (0.72, 0.85)
SINK = 1e-3  # m, penetration of the feet into the ground at the start


def only_ground_contacts(spec: mujoco.MjSpec, adapter: ModelAdapter, floor: mujoco.MjsGeom) -> None:
    """Allow contacts of all geoms with the ground and between the legs, and disable all others.

    Bones of one limb overlap in every pose, and irrelevant contacts cost time.
    """
    legs = {side: _chain(spec, adapter, side) for side in ("left", "right")}
    shared = legs["left"] & legs["right"]
    for pair in list(spec.pairs):
        spec.delete(pair)
    for geom in spec.geoms:
        if geom.name.startswith(f"{GROUND}/"):
            geom.contype, geom.conaffinity = 1, 0
            continue
        if geom is floor or geom.name == GROUND or not (geom.contype or geom.conaffinity):
            continue
        owner = geom.parent.name
        left = owner in legs["left"] - shared
        right = owner in legs["right"] - shared
        geom.contype, geom.conaffinity = 2 if left else 0, 3 if right else 1
    floor.contype, floor.conaffinity = 1, 0


def _chain(spec: mujoco.MjSpec, adapter: ModelAdapter, side: str) -> set[str]:
    """Return the names of the bodies from a foot (with toes) up to the world."""
    names = set(adapter.touch.get(f"{side}_foot", ()))
    for name in tuple(names):
        body = spec.body(name)
        while body is not None and body.name != "world":
            names.add(body.name)
            body = body.parent
    return names


class Walker:
    """The nominal posture of a walker, its start states on the ground, and its pushes."""

    def __init__(self, model: mujoco.MjModel, adapter: ModelAdapter):
        for side in FEET:
            if side not in adapter.touch:
                raise UserError(
                    f"model {adapter.name!r} has no touch part {side!r}, but this task needs a walker; "
                    f"it has: {', '.join(adapter.touch) or 'none'}"
                )
        self.model, self.adapter = model, adapter
        if not model.geom_conaffinity.any():
            raise UserError(f"no geom of model {adapter.name!r} collides, so it cannot stand; give its contype")
        joints = [model.joint(name) for name in (*adapter.planned_joints, *adapter.kept_joints)]
        dofs = np.array([joint.dofadr[0] for joint in joints])
        self.planned = [model.joint(name) for name in adapter.planned_joints]
        self.base = base_dofs(model, dofs)
        self.static = StaticOptimiser(model, dofs)
        self._data = mujoco.MjData(model)
        self.nominal = self._balanced(nominal_qpos(model, adapter))

    def start(self, rng: np.random.Generator, noise: float, ground: Ground) -> np.ndarray:
        """Return the nominal posture [nq] with noise, ankles adapted to the slope, and feet on the ground."""
        qpos = self.nominal.copy()
        for joint, sign in self._ankles(qpos):
            qpos[joint.qposadr[0]] += sign * np.arctan(ground.slope)
        for joint in self.planned:
            low, high = joint.range
            value = qpos[joint.qposadr[0]] + noise * rng.standard_normal()
            qpos[joint.qposadr[0]] = np.clip(value, low, high)
        return self.on_ground(follow_couplings(self.model, qpos), ground.slope)

    def on_ground(self, qpos: np.ndarray, slope: float = 0.0) -> np.ndarray:
        """Return the posture [nq] moved up or down until its lowest point is SINK below a plane with this slope."""
        normal = np.array([-slope, 0.0, 1.0]) / np.hypot(1.0, slope)
        self._place(qpos)
        solid = self.model.geom_conaffinity.astype(bool)
        height = min(lowest(self.model, self._data, int(g), normal) for g in np.flatnonzero(solid))
        return self.moved(qpos, np.array([0.0, 0.0, -(height + SINK) / normal[2]]))

    def moved(self, qpos: np.ndarray, move: np.ndarray, turn: np.ndarray = _NONE) -> np.ndarray:
        """Return the posture [nq] with the whole body moved by `move` [3] m and turned by `turn` [3] rad."""
        qvel, moved = np.zeros(self.model.nv), qpos.copy()
        qvel[self.base] = self._base_motion(qpos, move, turn)
        mujoco.mj_integratePos(self.model, moved, qvel, 1.0)
        return moved

    def push(self, qpos: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Return the change of qvel [n, nv] that adds `velocity` [3] or [n, 3] m/s to the body at `qpos` [n, nq]."""
        qvel = np.zeros((len(qpos), self.model.nv))
        for i, (q, v) in enumerate(zip(qpos, np.broadcast_to(velocity, (len(qpos), 3)), strict=True)):
            qvel[i, self.base] = self._base_motion(q, v)
        return qvel

    def pitching(self, foot: str, qpos: np.ndarray) -> list[mujoco._structs._MjModelJointViews]:
        """Return the planned hinges that pitch a leg in the posture [nq], from the foot (a role) to the hip."""
        self._place(qpos)
        found, body = [], self.model.body(self.adapter.role(foot)).id
        while body:
            for joint in self.planned:
                if self.model.jnt_bodyid[joint.id] == body and abs(self._data.xaxis[joint.id][1]) > 0.7:
                    found.append(joint)
            body = self.model.body_parentid[body]
        return found

    def cameras(self, slope: float = 0.0) -> tuple[Camera, Camera]:
        """Return a camera at the right side and one in front. They follow the body, also up a `slope`.

        The standing body fills FILLED of the height of each view, or WIDEST of its width, if it is long.
        """
        self._place(self.nominal)
        visible = np.flatnonzero((self.model.geom_group < 3) & (self.model.geom_bodyid > 0))
        low, minus_high = (
            np.array([min(lowest(self.model, self._data, int(g), s * way) for g in visible) for way in np.eye(3)])
            for s in (1.0, -1.0)
        )
        high = -minus_high
        length, breadth, height = (float(v) for v in high - low)
        pelvis, head = (self.adapter.role(part) for part in ("pelvis", "head"))
        at = self._data.body(pelvis).xpos
        opening = 2 * np.tan(np.deg2rad(self.model.vis.global_.fovy) / 2)

        def distance(width: float) -> float:
            return float(max(height / FILLED, width / WIDEST) / opening)

        # the neck of a bird brings the upper half of the body nearer to the camera in front
        nearer = 0.5 * float(self._data.body(head).xpos[0] - at[0])
        middle = float(0.5 * (low[0] + high[0]))
        side = Camera((middle, float(at[1]), 0.5 * height), distance(length) + 0.5 * breadth, 90.0, -4.0)
        front = Camera((0.0, 0.0, 0.5 * height), nearer + distance(breadth), 180.0, -5.0)
        side, front = (replace(camera, track=pelvis, rise=slope) for camera in (side, front))
        return (replace(side, shows="the right side of the body"), replace(front, shows="the front of the body"))

    def _balanced(self, qpos: np.ndarray) -> np.ndarray:
        """Lean `qpos` about the ankles until the centre of mass is at its position in quiet stance."""
        ankles, total = self._ankles(qpos), 0.0
        root = self.model.body(self.adapter.root).id
        heels, toes = ([self.adapter.role(f"{s}_{part}") for s in ("left", "right")] for part in ("foot", "toes"))

        def leaned(angle: float) -> np.ndarray:
            turned = self.moved(qpos, np.zeros(3), np.array([0.0, angle, 0.0]))
            for joint, sign in ankles:
                turned[joint.qposadr[0]] += sign * angle  # keeps the feet level
            return follow_couplings(self.model, turned)

        for _ in range(5):
            self._place(leaned(total))
            heel, toe = (np.mean([self._data.body(b).xpos for b in part], axis=0) for part in (heels, toes))
            com = self._data.subtree_com[root]
            total -= float((com[0] - (1 - _STANCE) * heel[0] - _STANCE * toe[0]) / (com[2] - heel[2]))
        return leaned(total)

    def _place(self, qpos: np.ndarray) -> None:
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, self._data)
        mujoco.mj_comPos(self.model, self._data)

    def _base_motion(self, qpos: np.ndarray, move: np.ndarray, turn: np.ndarray = _NONE) -> np.ndarray:
        """Return the motion [base] of the base dofs that moves the root by `move` [3] m and `turn` [3] rad."""
        self._place(qpos)
        jacobian = np.zeros((6, self.model.nv))
        root = self.model.body(self.adapter.root).id
        mujoco.mj_jacBody(self.model, self._data, jacobian[:3], jacobian[3:], root)
        return np.linalg.pinv(jacobian[:, self.base]) @ np.concatenate([move, turn])

    def _ankles(self, qpos: np.ndarray) -> list[tuple[mujoco._structs._MjModelJointViews, float]]:
        """Return the joint of each leg that pitches the foot, and its sign: 1 if larger angles raise the toes."""
        ankles = [joints[0] for foot in FEET if (joints := self.pitching(foot, qpos))]
        return [(joint, -float(np.sign(self._data.xaxis[joint.id][1]))) for joint in ankles]


def random_direction(qpos: np.ndarray) -> np.ndarray:
    """Return pseudorandom horizontal unit vectors [n, 3] that depend only on the postures [n, nq].

    Without a generator, the direction of a row does not depend on the other rows of the batch.
    """
    turn = 54321.1 * np.abs(qpos).sum(axis=-1)  # the fraction of a turn is pseudorandom
    return np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], axis=-1)
