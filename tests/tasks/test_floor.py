"""A floor is added where a body would fall for ever, and nowhere else; episodes are those of C MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from bodies import MOTOR_DOG

import movlr_jax as mj

BALL = """<mujoco>
  <option timestep="0.002" {option}/>
  <worldbody>
    {world}
    <body name="ball" pos="0 0 {height}">
      {joint}
      <geom name="ball" size="0.1" mass="1" {geom}/>
      <body name="arm" pos="0 0 0.1">
        <joint name="arm" axis="0 1 0" range="-1 1"/>
        <geom name="arm" type="capsule" size="0.02" fromto="0 0 0 0 0 0.2" mass="0.1" {geom}/>
        <site name="top" pos="0 0 0.2"/>
      </body>
    </body>
  </worldbody>
  {more}
  <actuator><position joint="arm" kp="5" kv="0.5"/></actuator>
</mujoco>"""
FREE = "<freejoint/>"


def task_of(
    *, height: float = 0.1, joint: str = FREE, world: str = "", option: str = "", geom: str = "", more: str = ""
):
    text = BALL.format(height=height, joint=joint, world=world, option=option, geom=geom, more=more)
    return mj.simple_task(
        name="ball", model=mujoco.MjSpec.from_string(text), description="stand still", start_noise=0.0
    )


def height_after(model: mujoco.MjModel, seconds: float) -> float:
    data = mujoco.MjData(model)
    while data.time < seconds:
        mujoco.mj_step(model, data)
    return float(data.body("ball").xpos[2])


@pytest.mark.parametrize(("height", "floor"), [(0.4, 0.0), (0.095, 0.0), (-2.0, -2.1)])
def test_a_body_that_would_fall_gets_a_floor(height: float, floor: float):
    task = task_of(height=height)
    assert (
        task.origin.warnings[0] == f"the model has no floor, so ball would fall: a floor was added at z = {floor:g} m"
    )
    assert height_after(task.model, 2.0) == pytest.approx(floor + 0.1, abs=0.002)


def test_the_floor_collides_with_whatever_can_collide():
    task = task_of(geom='contype="4" conaffinity="2"')
    assert height_after(task.model, 2.0) == pytest.approx(0.1, abs=0.002)


def test_a_body_of_which_nothing_collides_stands_on_it():
    task = task_of(geom='contype="0" conaffinity="0"')
    assert task.origin.warnings[0].endswith("a floor was added at z = 0 m; its 2 simple shapes collide with it alone")
    assert height_after(task.model, 2.0) == pytest.approx(0.1, abs=0.002)
    assert set(task.adapter.touch) == {"ball", "arm"}


NO_FLOOR = {
    "a floor of its own": {"world": '<geom name="ground" type="plane" size="1 1 0.1" pos="0 0 -3"/>'},
    "a table": {"world": '<geom type="box" size="1 1 0.1" pos="0 0 -0.2"/>'},
    "no gravity": {"option": 'gravity="0 0 0"'},
    "a joint that holds it": {"joint": '<joint type="slide" axis="0 0 1" stiffness="500"/>'},
    "hangs": {"more": '<equality><connect body1="ball" body2="world" anchor="0 0 0"/></equality>'},
    "swims": {"option": 'density="5000"'},
    "a pair with the world": {
        "world": '<geom name="ground" type="plane" size="1 1 0.1" contype="0" conaffinity="0"/>',
        "more": '<contact><pair geom1="ground" geom2="ball"/></contact>',
    },
}


@pytest.mark.parametrize("case", NO_FLOOR)
def test_other_bodies_get_none(case: str):
    task = task_of(**NO_FLOOR[case])
    assert not [text for text in task.origin.warnings if "floor" in text]
    given = BALL.format(
        **{"height": 0.1, "joint": FREE, "world": "", "option": "", "geom": "", "more": ""} | NO_FLOOR[case]
    )
    assert task.model.ngeom == mujoco.MjModel.from_xml_string(given).ngeom


NO_GROUND = {
    "a marker under it": '<geom name="target" size="0.02" pos="0 0 -0.5"/>',
    "a small box under it": '<geom type="box" size="0.01 0.01 0.01" pos="0 0 -0.5"/>',
    "a plane that is a wall": '<geom type="plane" size="4 4 1" euler="0 90 0" pos="-2 0 0"/>',
    "a ceiling": '<geom type="plane" size="4 4 1" euler="180 0 0" pos="0 0 3"/>',
    "a platform elsewhere": '<geom type="box" size="1 1 0.1" pos="9 0 -0.1"/>',
    "a picture of a floor": '<geom type="plane" size="4 4 1" contype="0" conaffinity="0"/>',
}


@pytest.mark.parametrize("case", NO_GROUND)
def test_what_a_body_cannot_stand_on_is_no_floor(case: str):
    """The ball would fall 4.9 m in 1 s."""
    task = task_of(world=NO_GROUND[case])
    assert [text for text in task.origin.warnings if "so ball would fall: a floor was added at z = 0 m" in text]
    assert height_after(task.model, 1.0) == pytest.approx(0.1, abs=0.002)


@pytest.mark.parametrize(
    ("gravity", "axis", "at"), [((0, -9.81, 0), 1, "y = -0.1 m"), ((0, 0, 9.81), 2, "-0.42 m along -z")]
)
def test_a_floor_is_added_under_a_body_where_another_axis_is_up(gravity, axis: int, at: str):
    option = f'gravity="{gravity[0]} {gravity[1]} {gravity[2]}"'
    task = task_of(option=option)
    assert task.origin.warnings[0].endswith(f"a floor was added at {at}")
    data = mujoco.MjData(task.model)
    while data.time < 2.0:
        mujoco.mj_step(task.model, data)
    assert abs(data.body("ball").xpos[axis]) < 0.3
    assert abs(data.body("ball").cvel[3:]).max() < 0.1


def test_a_body_inside_the_floor_is_lifted_and_home_is_the_start():
    """By hand: a ball of 10 cm whose centre is 6 cm above the floor is 4 cm inside it."""
    text = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="ball" pos="0 0 1"><freejoint/>
      <geom size=".1" mass="1"/><body name="arm"><joint name="j" axis="0 1 0" range="-90 90"/>
      <geom type="capsule" fromto="0 0 .1 0 0 .3" size=".02" mass=".1"/></body></body></worldbody>
      <actuator><motor joint="j" ctrlrange="-1 1"/></actuator><keyframe><key name="down" qpos="0 0 2 1 0 0 0 0"/>
      <key name="go home" qpos="0 0 .06 1 0 0 0 .5"/></keyframe></mujoco>"""
    task = mj.simple_task(name="own", model=mujoco.MjSpec.from_string(text), description="hold", start_noise=0.0)
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    np.testing.assert_allclose(qpos, [0, 0, 0.1, 1, 0, 0, 0, 0.5], atol=1e-9)
    assert task.origin.warnings == ("at the start, ball was lifted by 40 mm, because it began inside the floor",)


def test_a_robot_without_a_keyframe_is_let_down_on_its_feet():
    """By hand: the legs of a trunk at 0.7 m are 0.6 m long, and end 0.1 m above the floor."""
    text = MOTOR_DOG.replace('pos="0 0 .62"', 'pos="0 0 .7"')
    task = mj.simple_task(name="own", model=mujoco.MjSpec.from_string(text), description="hold", start_noise=0.0)
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    assert qpos[2] == pytest.approx(0.6, abs=0.02)
    assert any("comes to rest on its feet" in line for line in task.origin.warnings)
