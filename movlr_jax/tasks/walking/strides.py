"""Start states in the middle of a recorded stride, from which trainings also begin (Peng et al., 2018)."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.models import follow_couplings
from movlr_jax.rewards.state import reference_name
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.walking.walker import Walker

_STEP = 0.01  # of a stride, for velocities


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
