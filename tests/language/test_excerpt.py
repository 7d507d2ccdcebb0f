"""The excerpt of a model, read back by MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from grasping import built

from movlr_jax.language.excerpt import MAX_CHARACTERS, mjcf_excerpt
from movlr_jax.tasks import Task


@pytest.fixture(scope="module", params=[("bottle_pour", "myoarm_r"), ("humanoid_walk", "humanoid")])
def task(request) -> Task:
    return built(*request.param)


def test_excerpt_read_by_mujoco_has_the_same_bodies_and_joints(task: Task):
    text = mjcf_excerpt(task)
    assert len(text) < MAX_CHARACTERS
    bare = text.replace('type="mesh"', 'type="sphere" size="0.01"')
    options = '<compiler angle="radian" boundmass="0.01" boundinertia="0.001"/>'
    read = mujoco.MjModel.from_xml_string(f"<mujoco>{options}{bare}</mujoco>")
    assert read.njnt == task.model.njnt
    placed = [mujoco.MjData(model) for model in (task.model, read)]
    for model, data in zip((task.model, read), placed, strict=True):
        mujoco.mj_kinematics(model, data)
    for body in range(1, read.nbody):
        name = read.body(body).name
        np.testing.assert_allclose(placed[1].xpos[body], placed[0].body(name).xpos, atol=1e-3)
        np.testing.assert_allclose(placed[1].xmat[body], placed[0].body(name).xmat, atol=2e-3)
    for joint in range(read.njnt):
        original = task.model.joint(read.joint(joint).name)
        np.testing.assert_allclose(placed[1].xaxis[joint], placed[0].xaxis[original.id], atol=2e-3)
        np.testing.assert_allclose(read.jnt_range[joint], original.range, rtol=1e-3, atol=1e-4)
