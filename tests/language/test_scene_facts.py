"""What messages say about the start of an episode, compared with C MuJoCo."""

from __future__ import annotations

import re

import mujoco
import numpy as np
import pytest
from grasping import built
from moving import HOPPER

from movlr_jax.language.prompts import names, system
from movlr_jax.language.scene import actuator_facts, joint_facts, scene_facts, start_of, varied_starts
from movlr_jax.tasks import Task, simple_task

BALL = """<mujoco><worldbody>
  <body name="arm" pos="0 0 1"><joint name="j" axis="0 1 0"/><geom size=".05 .2" type="capsule"/></body>
  <body name="red_ball" pos="1 0 .5"><joint name="b" axis="0 1 0" pos="0 0 1"/><geom size=".05"/></body>
  <body name="post" pos="2 0 .5"><geom size=".05"/></body>
</worldbody><actuator><motor joint="j" ctrlrange="-1 1"/></actuator></mujoco>"""


@pytest.fixture(scope="module", params=[("bottle_pour", "myoarm_r"), ("flat_walk", "humanoid")], ids=lambda p: p[1])
def task(request: pytest.FixtureRequest) -> Task:
    return built(*request.param)


def test_joint_moves_the_body_in_the_stated_direction(task: Task):
    """By finite differences of positions, not by Jacobians."""
    start, step = start_of(task), 1e-6
    facts = joint_facts(task, start)
    assert list(facts) == list(task.adapter.planned_joints)
    told = 0
    for joint, fact in facts.items():
        low, high = task.model.joint(joint).range
        assert fact.startswith(f"{low:.2f} to {high:.2f}, starts at ")
        said = re.search(r"a rise moves `(.*)` to ([+-])([xyz])", fact)
        if not said:
            continue
        told += 1
        moved = mujoco.MjData(task.model)
        moved.qpos[:] = start.qpos
        moved.joint(joint).qpos += step
        mujoco.mj_kinematics(task.model, moved)
        way = (moved.body(said[1]).xipos - start.body(said[1]).xipos) / step
        axis = int(np.argmax(np.abs(way)))
        assert (said[2], said[3]) == ("+" if way[axis] > 0 else "-", "xyz"[axis]), joint
    assert told > 0.6 * len(facts)


def test_soles_touch_the_floor():
    task = built("flat_walk", "humanoid")
    start = start_of(task)
    feet = [fact for fact in scene_facts(task, start) if fact.startswith("From the origin of")]
    assert len(feet) == 2
    for fact, body in zip(feet, ("left_foot", "right_foot"), strict=True):
        back, front, right, left, low, high = map(float, re.findall(r"-?\d+\.\d+", fact))
        assert start.body(body).xpos[2] + low == pytest.approx(0.0, abs=0.02)
        assert low < high
        assert fact.endswith("; it begins 0 cm above z = 0.")
        assert -0.15 < back < 0 < front < 0.25
        assert right < 0 < left


def test_body_named_in_the_description_is_located():
    spec = mujoco.MjSpec.from_string(BALL)
    task = simple_task(name="hit", model=spec, description="hit the red ball")
    (fact,) = (fact for fact in scene_facts(task, start_of(task)) if fact.startswith("Positions:"))
    assert "`red_ball` [1.000, 0.000, 0.500]" in fact
    assert "`post` [2.000, 0.000, 0.500]" in fact, "there are few"


def test_actuators_are_listed_with_the_command_that_holds_the_start():
    spec = mujoco.MjSpec.from_string(BALL)
    spec.add_actuator(name="turn", target="b", trntype=mujoco.mjtTrn.mjTRN_JOINT).set_to_position(kp=10.0)
    task = simple_task(name="hit", model=spec, description="hit", start={"b": 0.25}, start_noise=0.0)
    start = start_of(task)
    assert actuator_facts(task, start) == [
        "j (motor, -1 to 1, at most 1 N m)",
        "turn (position servo of `b`, no limit, 0.25 holds the start)",
    ]
    assert "- Actuators, in the order of `action` (range of the command): `j` (motor, -1 to 1, at" in names(task)
    muscles = built("bottle_pour", "myoarm_r")
    assert actuator_facts(muscles, start_of(muscles)) == []


@pytest.mark.parametrize(
    ("ground", "gravity", "facts"),
    [
        ('<geom type="plane" size="9 9 1"/>', "0 0 -9.81", ["The world's z axis points up;"]),
        ('<geom type="plane" size="9 9 1" pos="0 0 -.6"/>', "0 0 -1.62",
         ["The ground is at z = -0.6 m.", "Gravity is 1.62 m/s^2."]),
        ('<geom type="box" size="9 1 9" pos="0 1 0"/>', "0 -9.81 0",
         ["The world's y axis points up;", "The ground under `red_ball` is at y = 2 m and elsewhere",
          "`rot[:, 2] @ state.up` is 1 where its z axis points up", "`state.height(body)`", "`state.up`"]),
        ("", "0 0 0", ["There is no gravity."]),
    ],
)  # fmt: skip
def test_unusual_gravity_and_ground_are_described(ground: str, gravity: str, facts: list[str]):
    text = BALL.replace("<worldbody>", f'<option gravity="{gravity}"/><worldbody>{ground}')
    text = text.replace('<joint name="b" axis="0 1 0" pos="0 0 1"/>', '<freejoint name="b"/>')
    text = text.replace('<motor joint="j"', '<motor joint="b" gear="1"')
    task = simple_task(name="t", model=mujoco.MjSpec.from_string(text), description="play")
    said = system(task)
    for fact in facts:
        assert fact in said
    assert ("heading of the body's x axis" in said) == ("z axis points up;" in said)


def test_starts_that_differ_by_more_than_noise_are_told():
    def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.stack([rng.uniform(-1, 1, n), np.full(n, 0.02)], axis=1), np.zeros((n, 2)), np.zeros((n, 0))

    spec = mujoco.MjSpec.from_string(BALL)
    task = simple_task(name="swing", model=spec, description="swing", start=start)
    assert re.fullmatch(r"`j` at -0\.\d\d to 0\.\d\d", varied_starts(task))
    assert "- Episodes begin differently: `j` at" in names(task)
    noisy = simple_task(name="swing", model=mujoco.MjSpec.from_string(BALL), description="swing", start_noise=0.05)
    assert varied_starts(noisy) == ""
    assert "up to small noise" in names(noisy)


def test_joints_without_limits_are_described_where_none_is_planned():
    task = simple_task(name="swing", model=mujoco.MjSpec.from_string(BALL), description="swing")
    assert not task.adapter.planned_joints
    assert joint_facts(task, start_of(task))["j"] == "no limit, starts at 0.00"


def test_base_foot_motors_and_usual_speed_of_a_planar_body_are_told():
    task = simple_task(
        name="hopper", model=mujoco.MjSpec.from_string(HOPPER.replace("sole", "foot")), description="hop forward"
    )
    start, said = start_of(task), names(task)
    facts = joint_facts(task, start)
    assert facts["ahead"] == "no limit, starts at 0.00, a rise moves `trunk` to +x"
    assert facts["pitch"].endswith("a rise moves `foot` to -x")  # it leans forward
    assert "`knee` (motor, -1 to 1, at most 200 N m)" in said
    assert "From the origin of `foot`, `foot` reaches from -0.18 to 0.31 m along x" in said
    assert "(a usual speed, not a limit)" in said


@pytest.mark.parametrize(("angle", "told"), [(0.2, ""), (1.0, "`free` turned by up to 57 degrees")])
def test_turned_starts_are_told_by_their_angle_whatever_the_length_of_their_quaternions(angle: float, told: str):
    def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        half = np.where(np.arange(n) % 2, angle, 0.0) / 2
        quats = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=1) * rng.uniform(0.8, 1.2, (n, 1))
        qpos = np.concatenate([np.tile([0.0, 0.0, 1.0], (n, 1)), quats, np.zeros((n, 1))], axis=1)
        return qpos, np.zeros((n, 7)), np.zeros((n, 0))

    spec = mujoco.MjSpec.from_string(
        """<mujoco><worldbody><body name="trunk" pos="0 0 1"><freejoint name="free"/><geom size=".1"/>
        <body name="arm"><joint name="j" axis="0 1 0"/><geom size=".05 .2" type="capsule"/></body></body></worldbody>
        <actuator><motor joint="j" ctrlrange="-1 1"/></actuator></mujoco>"""
    )
    assert varied_starts(simple_task(name="spin", model=spec, description="spin", start=start)) == told
