"""What a walking policy is shown: by hand from C MuJoCo, and the same wherever and whichever way a body walks."""

from __future__ import annotations

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from movlr_jax.control.ppo.observations import gait_view, joint_view
from movlr_jax.tasks import build_task
from movlr_jax.tasks.instruction import with_instruction
from movlr_jax.types import Step

TURN = np.pi / 2


@pytest.fixture(scope="module")
def turn():
    """myolegs asked to turn left by 90 degrees from 1 s on; it has a free joint."""
    return build_task("left_turn", "myolegs", 10.0, {"turn_s": 1.0, "start_noise": 0.0})


def posture(task) -> np.ndarray:
    return task.start(np.random.default_rng(0), 1)[0][0]


def seen(task, time: float, *, yaw: float = 0.0, place=(0.0, 0.0), qvel=None) -> tuple[Step, mujoco.MjData]:
    """The start posture with one knee bent, turned about the vertical with its free joint's velocity."""
    data, model = mujoco.MjData(task.model), task.model
    data.qpos[:] = posture(task)
    data.qpos[model.joint("knee_angle_r").qposadr[0]] += 0.5
    whole = np.array([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])
    lean = np.array([np.cos(0.1), 0.0, np.sin(0.1), 0.0])
    turned = np.empty(4)
    mujoco.mju_mulQuat(turned, lean, data.qpos[3:7].copy())
    mujoco.mju_mulQuat(data.qpos[3:7], whole, turned)
    data.qpos[:2] = place
    if qvel is not None:
        data.qvel[:] = qvel
        # of the world; turning is the body's
        mujoco.mju_rotVecQuat(data.qvel[:3], np.asarray(qvel)[:3].copy(), whole)
    mujoco.mj_forward(model, data)
    fields = (time, data.qpos, data.qvel, data.act, data.sensordata, np.zeros(model.nu))
    return Step(*(jnp.asarray(x, jnp.float32) for x in fields)), data


def test_a_motion_from_words_is_seen_as_the_walk_it_replaces(turn):
    """A task from words has a heading and no turn_time: nothing but the goal speed (entry 16) differs."""
    flat = build_task("flat_walk", "myolegs", 10.0, {})
    words = with_instruction(flat, "walk forward at 1 m/s")
    assert "turn_time" in flat.goals
    assert "turn_time" not in words.goals
    step, _ = seen(turn, 0.25, place=(3.0, 0.2))
    walk, told = (np.asarray(gait_view(task, posture(flat))(step)) for task in (flat, words))
    np.testing.assert_array_equal(np.delete(walk, 16), np.delete(told, 16))
    assert told[16] == pytest.approx(np.linalg.norm(words.goals["velocity"]))


def test_the_view_of_a_leaning_moving_body_by_hand(turn):
    qpos, view = posture(turn), gait_view(turn, posture(turn))
    qvel = np.zeros(turn.model.nv)
    qvel[:6] = [0.7, -0.2, 0.1, 0.3, 0.4, 0.5]
    step, data = seen(turn, 0.25, place=(3.0, 0.2), qvel=qvel)
    start = mujoco.MjData(turn.model)
    start.qpos[:] = qpos
    mujoco.mj_kinematics(turn.model, start)
    pelvis, feet = turn.adapter.role("pelvis"), ("calcn_l", "calcn_r", "toes_l", "toes_r")

    def above(d):
        return d.body(pelvis).xpos[2] - min(d.body(foot).xpos[2] for foot in feet)

    rot = data.body(pelvis).xmat.reshape(3, 3) @ start.body(pelvis).xmat.reshape(3, 3).T
    # it leans ahead by 0.2 rad
    np.testing.assert_allclose(rot[:, 2], [np.sin(0.2), 0.0, np.cos(0.2)], atol=1e-9)
    velocity = np.zeros(6)
    body = turn.model.body(pelvis).id
    mujoco.mj_objectVelocity(turn.model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocity, 0)
    weight = 9.81 * turn.model.body_mass.sum()
    loads = [data.sensordata[list(turn.layout.touch[f])].sum() / weight for f in ("left_foot", "right_foot")]
    phase = 2 * np.pi * 0.8 * 0.25
    expected = [above(data) - above(start), *rot[:, 0], *rot[:, 2], *velocity[3:], *velocity[:3], 0.2, *loads]
    expected += [0.8, np.sin(phase), np.cos(phase)]
    np.testing.assert_allclose(view(step), expected, atol=2e-5)
    assert max(loads) > 0.05
    knee = joint_view(turn.model, qpos, ("hip_flexion_r", "knee_angle_r"))(step)
    np.testing.assert_allclose(knee, [0.0, 0.5, 0.0, 0.0], atol=1e-6)


def test_a_body_that_has_turned_as_asked_sees_what_it_saw_before(turn):
    """At 1.75 s half of the turn is asked for, from 2.5 s on all of it."""
    view, qvel = gait_view(turn, posture(turn)), np.zeros(turn.model.nv)
    qvel[:6] = [0.7, -0.2, 0.1, 0.3, 0.4, 0.5]
    clock = 1 / 0.8  # s, after which the gait's clock is where it was
    ahead = np.asarray(view(seen(turn, 0.5, qvel=qvel)[0]))
    for time, yaw in ((0.5 + clock, 0.5 * TURN), (0.5 + 2 * clock, TURN)):
        step, _ = seen(turn, time, yaw=yaw, place=(4.0, -0.3), qvel=qvel)
        np.testing.assert_allclose(view(step), ahead, atol=2e-5)
    late = np.asarray(view(seen(turn, 0.5 + 2 * clock, qvel=qvel)[0]))
    assert np.abs(late - ahead).max() > 0.5  # who has not turned sees it


def test_a_robot_sees_a_turn_by_its_place():
    """A door at x = 2 m, y = 1.2 m: ahead along x until 1 m before it, then to the left, through the door."""
    task = build_task("humanoid_turn", "humanoid", 10.0, {"start_noise": 0.0})
    view = gait_view(task, task.start(np.random.default_rng(0), 1)[0][0])

    def at(x: float, y: float, yaw: float) -> np.ndarray:
        data = mujoco.MjData(task.model)
        data.qpos[:] = task.start(np.random.default_rng(0), 1)[0][0]
        data.qpos[:2], data.qpos[3:7] = (x, y), [np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)]
        data.qvel[:2] = 0.6 * np.cos(yaw), 0.6 * np.sin(yaw)
        mujoco.mj_forward(task.model, data)
        fields = (0.4, data.qpos, data.qvel, data.act, data.sensordata, np.zeros(task.model.nu))
        return np.asarray(view(Step(*(jnp.asarray(x, jnp.float32) for x in fields))))

    ahead = at(0.3, 0.1, 0.0)
    np.testing.assert_allclose(ahead[7], 0.6, atol=1e-5)
    assert ahead[13] == pytest.approx(0.1, abs=1e-5)
    assert at(2.0, 0.8, TURN)[13] == pytest.approx(0.0, abs=1e-5)
    assert at(2.2, 0.8, TURN)[13] == pytest.approx(-0.2, abs=1e-5)  # to the right of the way through the door
    np.testing.assert_allclose(at(2.0, 0.8, TURN)[1:10], ahead[1:10], atol=1e-5)
    assert np.abs(at(2.0, 0.8, 0.0) - ahead).max() > 0.5  # who has not turned sees it


def test_heights_are_above_the_feet_also_up_a_slope():
    task = build_task("slope_walk", "myolegs", 10.0, {"start_noise": 0.0})
    view = gait_view(task, posture(task))
    low, data = seen(task, 0.0)
    data.qpos[:3] += [4.0, 0.0, 0.35]  # off the ground a little, so that nothing else differs
    data.qpos[2] += 1.0
    mujoco.mj_forward(task.model, data)
    high = low.replace(sensors=jnp.asarray(data.sensordata, jnp.float32))  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(view(high)[:13], view(low)[:13], atol=2e-5)
