"""A body with legs stands at the start, although its file has it sprawled or entangled."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from bodies import QUADRUPED

import movlr_jax as mj
from movlr_jax.tasks import Task

# legs of 0.2 and 0.2 m point ahead where all joints are 0, and the trunk is on the floor
SPRAWLED = QUADRUPED.replace('_thigh" pos', '_thigh" euler="0 -90 0" pos').replace('pos="0 0 .42"', 'pos="0 0 .05"')
HOME = '<keyframe><key name="home" qpos="0 0 .3 1 0 0 0 {legs} 1 0 .1 1 0 0 0"/></keyframe></mujoco>'


def task_of(text: str) -> Task:
    return mj.simple_task(
        name="own", model=mujoco.MjSpec.from_string(text), description="stand still", start_noise=0.0
    )


def test_a_body_that_sprawls_stands_up():
    """By hand: hips are at 3/4 of 0.4 m, and a foot is a ball of 2 cm; it stays there while it is held."""
    task = task_of(SPRAWLED)
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    assert qpos[2] == pytest.approx(0.75 * 0.4, abs=0.04)
    assert task.origin.warnings == (
        "at the start, base stands on its 4 legs, not in the posture of the file, in which it does not stand",
    )
    data = mujoco.MjData(task.model)
    data.qpos[:] = qpos
    mujoco.mj_forward(task.model, data)
    feet = np.array([data.body(f"{leg}_foot").xpos for leg in ("FL", "FR", "RL", "RR")])
    np.testing.assert_allclose(feet[:, 2], 0.022, atol=0.01)
    assert np.ptp(feet[:, 0]) > 0.35, "each under its hip"
    assert data.contact.dist.min(initial=0.0) > -0.01


def test_a_keyframe_stays_unless_it_is_entangled():
    apart = " ".join(["0 1.9 -1.8"] * 4)
    task = task_of(SPRAWLED.replace("</mujoco>", HOME.format(legs=apart)))
    np.testing.assert_allclose(task.start(np.random.default_rng(0), 1)[0][0][7:10], [0, 1.9, -1.8])
    crossed = " ".join(["0 2.6 0", "0 2.6 0", "0 .54 0", "0 .54 0"])  # front legs point back, hind legs ahead
    task = task_of(SPRAWLED.replace("</mujoco>", HOME.format(legs=crossed)))
    assert any("parts of it are inside each other" in line for line in task.origin.warnings)


def test_a_body_that_stands_stays_as_it_is():
    task = task_of(QUADRUPED)
    np.testing.assert_allclose(task.start(np.random.default_rng(0), 1)[0][0][7:19], 0.0, atol=0.1)


def test_a_body_with_more_muscles_than_joints_stays_as_it_is():
    """Muscles act on tendons, whose numbers are no joints; they hold no posture, so its start is that of its file."""
    sites = "".join(f'<site name="at{i}" pos="0 0 {0.05 * i}"/>' for i in range(2))
    tendons = "".join(f'<spatial name="t{i}"><site site="at{i % 2}"/><site site="toe"/></spatial>' for i in range(20))
    muscles = "".join(f'<muscle name="m{i}" tendon="t{i}" lengthrange=".01 1"/>' for i in range(20))
    text = SPRAWLED[: SPRAWLED.index("<actuator>")].replace('<geom type="box"', f'{sites}<geom type="box"', 1)
    text = text.replace('<body name="FL_foot"', '<site name="toe"/><body name="FL_foot"')
    task = task_of(f"{text}<tendon>{tendons}</tendon><actuator>{muscles}</actuator></mujoco>")
    np.testing.assert_allclose(task.start(np.random.default_rng(0), 1)[0][0][7:19], 0.0, atol=0.1)
    assert not any("stands on its" in line for line in task.origin.warnings)
