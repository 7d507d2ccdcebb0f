"""A trial episode, on which the functions of a task are called before anything is planned."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.tasks.base import Task
from movlr_jax.types import SimState, Step, Trajectory

CTRL_DT = 0.016  # s, control step of the trial episode


def trial(task: Task) -> Trajectory:
    """Return an episode [T] of full length: two simulation steps without control, the second repeated to the end."""
    model, data = task.model, mujoco.MjData(task.model)
    for to, rows in zip((data.qpos, data.qvel, data.act), starts(task, 2), strict=True):
        to[:] = rows[0]
    count = max(2, round(task.episode_s / CTRL_DT))
    held = np.minimum(np.arange(count), 1)
    seen = []
    for _ in range(2):
        mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        seen.append([np.array(x, np.float32) for x in (data.qpos, data.qvel, data.act, data.sensordata)])
    qpos, qvel, act, sensors = (np.stack(pair)[held] for pair in zip(*seen, strict=True))
    time, actions = np.float32(CTRL_DT) * np.arange(1, count + 1), np.zeros((count, model.nu), np.float32)
    last = SimState(time[-1], qpos[-1], qvel[-1], act[-1], sensors[-1], actions[-1], np.array(False))
    return Trajectory(Step(time, qpos, qvel, act, sensors, actions), actions, np.array(count), last)


def starts(task: Task, n: int) -> tuple[np.ndarray, ...]:
    """Return n start states of the task. Raises UserError if its `start` returns anything else."""
    m, given = task.model, task.start(np.random.default_rng(0), n)
    expected = {"qpos": (n, m.nq), "qvel": (n, m.nv), "act": (n, m.na)}
    try:
        found = dict(zip(expected, (np.asarray(x, float) for x in given), strict=True))
    except (TypeError, ValueError):
        found = {}
    for name, shape in expected.items():
        if name not in found or found[name].shape != shape or not np.isfinite(found[name]).all():
            got = f"{name} {found[name].shape}" if name in found else f"{given!r:.80}"
            raise UserError(
                f"start of the task {task.name} returns {got} for n = {n}, expected finite numbers qpos [n, {m.nq}], "
                f"qvel [n, {m.nv}], act [n, {m.na}]"
            )
    return tuple(found.values())
