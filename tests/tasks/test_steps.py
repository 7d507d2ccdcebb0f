"""The stride from paths of the feet: forward kinematics of its angles must give the paths again."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from movlr_jax.config.compose import compose
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.rewards.state import reference_name
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.walker import Walker

SETTINGS = {
    "humanoid": ["+task=flat_walk", "model=humanoid", "optimizer=mppi", "task.settings.speed_m_s=0.8"],
    "ostrich": ["+task=ostrich_walk", "model=ostrich", "task.settings.speed_m_s=0.8"],
}


def walk(name: str) -> Task:
    return task_of(compose([*SETTINGS[name], "reference=steps"]))


def feet(task: Task, side: str) -> np.ndarray:
    """Where heel and toes of a side are over the stride: m ahead and up, [51, 2, 2]."""
    data, nominal = mujoco.MjData(task.model), Walker(task.model, task.adapter).nominal
    bodies = [task.model.body(task.adapter.role(f"{side}_{part}")).id for part in ("foot", "toes")]
    seen = []
    for i in range(51):
        data.qpos[:] = nominal
        for joint in task.layout.references:
            data.qpos[task.model.joint(joint).qposadr[0]] = task.reference[reference_name(joint)][i]
        mujoco.mj_kinematics(task.model, data)
        seen.append(data.xpos[bodies][:, [0, 2]])
    return np.array(seen)


@pytest.mark.parametrize("name", SETTINGS)
def test_feet_stay_on_the_ground_in_stance_and_swing_ahead(name: str):
    task = walk(name)
    frequency, speed = float(task.goals["stride_frequency"]), float(np.linalg.norm(task.goals["velocity"]))
    right, left = feet(task, "right"), feet(task, "left")
    np.testing.assert_allclose(np.roll(right[:50], 25, axis=0), left[:50], atol=0.01)
    np.testing.assert_allclose(right[0], right[50], atol=1e-6)
    heel, toes = right[:, 0], right[:, 1]
    flat = slice(0, 21)  # until the heel lifts, the foot stays where it is on a ground that moves back
    np.testing.assert_allclose(np.gradient(heel[flat, 0]) * 50 * frequency, -speed, rtol=0.1)
    assert np.ptp(heel[flat, 1]) < 0.01
    assert np.ptp(toes[flat, 1]) < 0.01
    assert heel[30, 1] - heel[0, 1] > 0.03  # then it lifts, and the toes stay
    assert abs(toes[30, 1] - toes[0, 1]) < 0.02
    swing = toes[33:48, 1] - toes[0, 1]
    assert swing.max() > 0.03
    assert swing.min() > -0.01
    assert np.ptp(heel[:, 0]) == pytest.approx(0.62 * speed / frequency, rel=0.1)


def test_only_walks_have_steps():
    with pytest.raises(UserError, match="needs a walking task, which bottle_pour is not"):
        task_of(compose(["+task=bottle_pour", "reference=steps"]))
