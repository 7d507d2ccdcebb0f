"""Pairs of motions with a known winner, on which a judge of films is tested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Clip
from movlr_jax.models import follow_couplings
from movlr_jax.tasks import Task
from movlr_jax.tasks.reference import PEOPLE, with_reference
from movlr_jax.tasks.walking.biomechanics import leg_coordinates
from movlr_jax.tasks.walking.strides import stride_posture
from movlr_jax.tasks.walking.walker import Walker

SECONDS, _STEP = 2.0, 0.02  # s, length of the clips and time between their frames


@dataclass(frozen=True)
class KnownPair:
    """Two motions with a known winner. `bad` is None if both are the same motion."""

    name: str
    description: str
    good: Clip
    bad: Clip | None


def known_pairs(task: Task) -> list[KnownPair]:
    """Return the pairs: standing, fallen; forward, reversed; one motion twice; bent knees, locked knees.

    The last one needs a person's legs. Raises UserError without a pelvis.
    """
    if "pelvis" not in task.roles:
        raise UserError(f"task {task.name} has no standing body; give +task=flat_walk, or no task")
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    forward = np.array(task.adapter.forward, float)
    still = _clip(task, qpos, lambda t: (np.zeros(3), np.zeros(3)))
    side, data = np.cross([0.0, 0.0, 1.0], forward), mujoco.MjData(task.model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(task.model, data)
    height = float(data.body(task.roles["pelvis"]).xpos[2])

    def falls(t: float) -> tuple[np.ndarray, np.ndarray]:
        rate = 1.0 / 0.8 if t < 0.8 else 0.0
        return np.array([0.0, 0.0, -0.8 * height * rate]), side * (np.pi / 2) * rate

    fallen = _clip(task, qpos, falls)
    walk, back = (
        _clip(task, qpos, lambda t, way=way: (way * forward, np.zeros(3)), swing=way) for way in (1.0, -1.0)
    )
    pairs = [
        KnownPair("standing, fallen", "stand upright and keep the balance", still, fallen),
        KnownPair("forward, reversed", "walk forward, in the direction the body faces", walk, back),
        KnownPair("identical", "walk forward, in the direction the body faces", walk, None),
    ]
    if strides := _strides(task):
        pairs.append(KnownPair("bent knees, locked knees", "walk forward as a person does", *strides))
    return pairs


def _strides(task: Task) -> tuple[Clip, Clip] | None:
    """Return people's stride with their knees and with straight ones; None without a person's legs.

    Both move forward equally fast and stay on the ground, so that distance and height do not tell them apart.
    """
    knees = leg_coordinates(task.adapter, task.layout.joints, task.model).get("knee_flexion")
    if knees is None or "stride_frequency" not in task.goals:
        return None
    task = with_reference(task, PEOPLE)
    walker, forward = Walker(task.model, task.adapter), np.array(task.adapter.forward, float)
    frequency, speed = float(task.goals["stride_frequency"]), float(np.linalg.norm(task.goals["velocity"]))
    times = np.arange(0.0, SECONDS, _STEP)

    def clip(locked: bool) -> Clip:
        postures = []
        for t in times:
            qpos = stride_posture(task, walker, frequency * t)
            for knee in knees if locked else ():
                qpos[task.model.joint(knee.joint).qposadr[0]] = -knee.sign * knee.offset
            on_ground = walker.on_ground(follow_couplings(task.model, qpos))
            postures.append(walker.moved(on_ground, speed * t * forward))
        return Clip(task, np.array(postures), times, Caption(""))

    return clip(locked=False), clip(locked=True)


def _clip(
    task: Task, qpos: np.ndarray, velocity: Callable[[float], tuple[np.ndarray, np.ndarray]], swing: float = 0.0
) -> Clip:
    """Move the start posture kinematically.

    `velocity(t)` returns the linear (m/s) and the angular (rad/s) velocity of the pelvis. swing: 1 swings the legs,
    -1 swings them in the reverse order of time.
    """
    model, data = task.model, mujoco.MjData(task.model)
    body = model.body(task.roles["pelvis"]).id
    q, times, postures = np.array(qpos, float), np.arange(0.0, SECONDS, _STEP), []
    for t in times:
        posture = q.copy()
        if swing:
            _swing(model, posture, t if swing > 0 else times[-1] - t)
        postures.append(posture)
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        jacobian = np.zeros((6, model.nv))
        mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], body)
        rates = np.linalg.lstsq(jacobian, np.concatenate(velocity(float(t))), rcond=1e-6)[0]
        mujoco.mj_integratePos(model, q, rates, _STEP)
    return Clip(task, np.array(postures), times, Caption(""))


def _swing(model: mujoco.MjModel, qpos: np.ndarray, t: float) -> None:
    """Swing the legs, in models whose hip joints are named hip_flexion*."""
    for j in range(model.njnt):
        name = model.joint(j).name
        if name.startswith("hip_flexion"):
            phase = 0.0 if name.endswith("_r") else np.pi
            qpos[model.jnt_qposadr[j]] += 0.4 * np.sin(2 * np.pi * t + phase)
