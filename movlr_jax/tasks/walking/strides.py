"""Strides of walkers: start states in the middle of a recorded one, and one from the paths of the feet.

Trainings also begin in the middle of a stride (Peng et al., 2018). Where no motion of a walker is recorded, a stride
is found by inverse kinematics: the base stays as it stands, or lower if the legs are too straight. Each foot moves
back under its hip in stance, its heel lifts from toes that stay in their place, and it swings ahead with its toes
pointing down. The left leg is half a stride after the right.
"""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models import follow_couplings
from movlr_jax.rewards.state import reference_name
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.walking.walker import Walker

_STEP = 0.01  # of a stride, for velocities
SAMPLES = 50  # of a stride
STANCE = 0.62  # share of the stride at which a foot leaves the ground
HEEL_OFF = 0.42  # share of the stride from which its heel lifts
LIFT = 0.14  # m, of the toes in the middle of the swing
PUSH_OFF = 0.5  # rad by which the toes point down when the foot leaves the ground
HANG = 0.35  # rad by which they point down in the middle of the swing, in addition
_AHEAD = 0.02  # m by which the path is ahead of the standing foot
_BENT = 0.98  # of its length, to which a leg extends at most
_INSIDE = 0.02  # rad, distance from the ends of the joints' ranges
_WEIGHTS = np.array([20.0, 20.0, 2.0])  # of errors in m and rad
_LAST = 0.1  # 1/rad, weight of the distance from the last angles
_REST = 0.5  # 1/rad, weight of the distance of the hip from where it stands


def stride_starts(
    task: Task, rng: np.random.Generator, n: int, noise: float = 0.03
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return time [n] s, qpos [n, nq], qvel [n, nv] and act [n, na] at random phases of the second recorded stride.

    The joints have the angles and velocities of the recorded motion, the lowest foot touches the ground or its slope,
    and the whole body moves along it at the goal speed. noise: standard deviation of the planned joints, rad.
    """
    model, walker = task.model, Walker(task.model, task.adapter)
    frequency = float(task.goals["stride_frequency"])
    slope, speed = float(task.goals["slope"]), np.array(task.goals["velocity"], float)
    speed[2] = slope * speed[0]

    phases = rng.random(n)
    qpos, qvel = np.zeros((n, model.nq)), np.zeros((n, model.nv))
    for i, phase in enumerate(phases):
        before, after = (stride_posture(task, walker, p) for p in (phase - _STEP, phase + _STEP))
        mujoco.mj_differentiatePos(model, qvel[i], 2 * _STEP / frequency, before, after)
        middle = stride_posture(task, walker, phase)
        for joint in walker.planned:
            at = joint.qposadr[0]
            middle[at] = np.clip(middle[at] + noise * rng.standard_normal(), *joint.range)
        qpos[i] = walker.on_ground(follow_couplings(model, middle), slope)
    qvel += walker.push(qpos, speed)
    act = np.array([walker.static(q) if model.na else np.zeros(0) for q in qpos])
    return (1.0 + phases) / frequency, qpos, qvel, act


def stride_posture(task: Task, walker: Walker, phase: float) -> np.ndarray:
    """Return the nominal posture [nq] with the joints at `phase` of the recorded stride, 1 for the whole stride."""
    model, qpos = task.model, walker.nominal.copy()
    for joint in task.layout.references:
        samples = task.reference[reference_name(joint)]
        low, high = model.joint(joint).range
        angle = np.interp(phase % 1.0, np.linspace(0.0, 1.0, len(samples)), samples)
        qpos[model.joint(joint).qposadr[0]] = np.clip(angle, low, high)
    return follow_couplings(model, qpos)


def foot_path(speed: float, frequency: float, length: float) -> np.ndarray:
    """Return the path of a foot from its contact on.

    Args:
        speed: Of the walk, m/s.
        frequency: Strides per s.
        length: Of the foot, m.

    Returns:
        [SAMPLES, 3]: m ahead and m up from where it stands, and rad by which its toes point down.
    """
    phase = np.arange(SAMPLES) / SAMPLES
    stands, swing = phase < STANCE, np.clip((phase - STANCE) / (1 - STANCE), 0.0, 1.0)
    reach = STANCE * speed / frequency
    ahead = np.where(stands, 0.5 - phase / STANCE, swing - 0.5 - np.sin(2 * np.pi * swing) / (2 * np.pi))
    released = PUSH_OFF * np.clip((phase - HEEL_OFF) / (STANCE - HEEL_OFF), 0.0, 1.0) ** 2
    heel = np.where(stands, released, PUSH_OFF * np.cos(0.5 * np.pi * swing) ** 2)
    raised = np.where(stands, 0.0, np.sin(np.pi * swing) ** 2)
    return np.stack([reach * ahead, LIFT * raised + length * np.sin(heel), heel + HANG * raised], axis=1)


def steps(task: Task) -> dict[str, np.ndarray]:
    """Return the angles [SAMPLES + 1] rad of each hinge that pitches a leg, over a stride at the task's goal speed.

    The last sample is the first one.

    Raises:
        UserError: If the task has no goal speed and stride frequency, or the model has no legs.
    """
    if not {"velocity", "stride_frequency"} <= set(task.goals):
        raise UserError(f"reference=steps needs a walking task, which {task.name} is not")
    speed, frequency = float(np.linalg.norm(task.goals["velocity"])), float(task.goals["stride_frequency"])
    walker, found = Walker(task.model, task.adapter), {}
    for side, late in (("right", 0), ("left", SAMPLES // 2)):
        leg = _Leg(walker, side)
        curve = np.roll(leg.follow(foot_path(speed, frequency, leg.length)), late, axis=0)
        found |= dict(zip(leg.names, np.append(curve, curve[:1], axis=0).T, strict=True))
    return found


class _Leg:
    """The hinges that pitch one leg, from the hip on; the rest of the body stands."""

    def __init__(self, walker: Walker, side: str):
        self._model, self._data = walker.model, mujoco.MjData(walker.model)
        foot, toes = (walker.adapter.role(f"{side}_{part}") for part in ("foot", "toes"))
        joints = walker.pitching(f"{side}_foot", walker.nominal)[::-1]
        self.names = [joint.name for joint in joints]
        self.length = float(np.linalg.norm(self._model.body(toes).pos))  # m, of the foot
        self._foot, self._toes = self._data.body(foot), self._data.body(toes)
        self._nominal, self._at = walker.nominal, np.array([joint.qposadr[0] for joint in joints])
        self._hip = int(self._model.jnt_bodyid[joints[0].id])
        low, high = np.array([joint.range for joint in joints]).T
        self._box = low + _INSIDE, high - _INSIDE
        self._rest = np.clip(self._nominal[self._at], *self._box)

    def follow(self, path: np.ndarray) -> np.ndarray:
        """Return the angles [SAMPLES, joints] rad with which the foot follows the `path` of `foot_path`."""
        from scipy.optimize import least_squares  # slow to import

        stood = self._placed(self._rest) + (_AHEAD, 0.0, 0.0)
        path = path + stood + (0.0, self._lower(stood[:2], np.ptp(path[:, 0])), 0.0)
        last, found = self._rest, []
        for wanted in np.concatenate([path, path]):  # the second round begins where the first ends
            last = least_squares(self._off, last, bounds=self._box, args=(wanted, last)).x
            found.append(last)
        return np.array(found[len(path) :])

    def _lower(self, stood: np.ndarray, reach: float) -> float:
        """Return by how much in m the base is lower than in standing, so that feet `reach` m apart can stand."""
        hip, body, length = self._model.body(self._hip), self._model.body(self._foot.id), 0.0
        while body.id != hip.id:
            length, body = length + float(np.linalg.norm(body.pos)), self._model.body(body.parentid[0])
        ahead, up = self._data.body(self._hip).xpos[[0, 2]] - stood
        farthest = 0.5 * reach + abs(ahead)
        return max(0.0, up - float(np.sqrt(max((_BENT * length) ** 2 - farthest**2, 0.0))))

    def _placed(self, angles: np.ndarray) -> np.ndarray:
        """Return where the foot is: m ahead, m up, and rad by which its toes point down."""
        self._data.qpos[:] = self._nominal
        self._data.qpos[self._at] = angles
        mujoco.mj_kinematics(self._model, self._data)
        heel, along = self._foot.xpos, self._toes.xpos - self._foot.xpos
        return np.array([heel[0], heel[2], np.arctan2(-along[2], along[0])])

    def _off(self, angles: np.ndarray, wanted: np.ndarray, last: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [_WEIGHTS * (self._placed(angles) - wanted), _LAST * (angles - last), _REST * (angles - self._rest)[:1]]
        )
