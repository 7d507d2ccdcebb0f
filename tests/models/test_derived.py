"""Which body is controlled, and where its joints let it go."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from moving import episode_of

import movlr_jax as mj
from movlr_jax.models import derived
from movlr_jax.models.from_path import adapter_of
from movlr_jax.tasks.base import measured
from movlr_jax.tasks.readout import Readout

FLOOR = '<geom name="floor" type="plane" size="9 9 .1"/>'
ROVER = """<body name="rover" pos="0 0 .2"><freejoint/><geom type="box" size=".2 .1 .1" mass="6"/>
  <body name="wheel" pos="0 .2 0"><joint name="axle" axis="0 1 0"/><geom type="cylinder" size=".1 .02" euler="90 0 0"
  mass="1"/></body></body>"""
CRATE = '<body name="crate" pos="3 2 .3"><freejoint name="loose"/><geom type="box" size=".3 .3 .3" mass="60"/></body>'
MOTOR = '<motor joint="axle" ctrlrange="-1 1"/>'


def spec_of(bodies: str, motors: str) -> mujoco.MjSpec:
    text = f"<mujoco><worldbody>{FLOOR}{bodies}</worldbody><actuator>{motors}</actuator></mujoco>"
    return mujoco.MjSpec.from_string(text)


@pytest.mark.parametrize("bodies", [ROVER + CRATE, CRATE + ROVER])
def test_the_root_is_what_actuators_move_not_what_is_heavy(bodies: str):
    task = mj.simple_task(name="t", model=spec_of(bodies, MOTOR), description="drive forward")
    assert (task.adapter.root, task.view.cameras[0].track) == ("rover", "rover")
    assert task.scoring.motion
    assert task.scoring.motion.of.name == "rover"
    crate = task.model.joint("loose").qposadr[0]
    qpos = np.repeat(task.model.qpos0[None], 5, axis=0)
    qpos[:, crate] += np.linspace(0, 2, 5)
    episode = episode_of(task, qpos)
    assert measured(episode, task, 0.1)["distance_m"] == pytest.approx(0.0, abs=1e-6), "the crate moved"
    data = mujoco.MjData(task.model)
    mujoco.mj_forward(task.model, data)
    own = data.subtree_com[task.model.body("rover").id]
    np.testing.assert_allclose(Readout(task.layout, episode.steps).com, np.repeat(own[None], 5, axis=0), atol=1e-5)


def test_of_two_machines_the_one_with_more_actuators_is_the_body():
    panel = '<geom type="box" size=".4 .02 .9" mass="40"/>'
    door = f'<body name="door" pos="1 0 1"><joint name="hinge" axis="0 0 1"/>{panel}</body>'
    legs = ROVER.replace(
        "</body></body>", '</body><body name="arm"><joint name="arm"/><geom size=".05"/></body></body>'
    )
    model = spec_of(door + legs, MOTOR + '<motor joint="hinge"/><motor joint="arm"/>').compile()
    assert model.body(derived.root_of(model)).name == "rover"


CHAIN = """<body name="x"><joint name="x" type="slide" axis="1 0 0" {slide}/><inertial {tiny}/>
<body name="y"><joint name="y" type="slide" axis="0 1 0" {slide}/><inertial {tiny}/>
<body name="robot"><joint name="yaw" axis="0 0 1" {hinge}/><geom type="box" size=".2 .1 .1" pos="0 0 .2"/>
<body name="arm" pos="0 0 .3"><joint name="arm" axis="0 1 0" range="-1 1"/><geom size=".05" pos=".2 0 0"/></body>
</body></body></body>"""
TINY = 'pos="0 0 0" mass=".001" diaginertia="1e-6 1e-6 1e-6"'
DRIVES = "".join(f'<velocity joint="{j}" kv="9"/>' for j in ("x", "y", "yaw")) + '<position joint="arm"/>'
LIMITS = {"free": ("", ""), "limited": ('range="-5 5" limited="true"', 'range="-180 180" limited="true"')}


def planar(case: str, nested: bool) -> mujoco.MjSpec:
    slide, hinge = LIMITS[case]
    chain = CHAIN.format(slide=slide, hinge=hinge, tiny=TINY)
    if not nested:  # all joints in one body
        ways = {"x": "1 0 0", "y": "0 1 0"}
        joints = "".join(f'<joint name="{j}" type="slide" axis="{way}" {slide}/>' for j, way in ways.items())
        chain = chain[chain.index('<body name="robot">') :].replace("</body></body></body>", "</body>")
        chain = chain.replace('<body name="robot">', f'<body name="robot">{joints}')
    return spec_of(chain, DRIVES)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("case", LIMITS)
def test_a_planar_base_travels_and_turns(case: str, nested: bool):
    ways = {"drive forward": (1, 0, 0), "drive to the left": (0, 1, 0), "drive backward": (-1, 0, 0)}
    for words, way in ways.items():
        task = mj.simple_task(name="t", model=planar(case, nested), description=words)
        assert task.scoring.motion
        assert task.scoring.motion.travel
        assert (task.adapter.root, task.scoring.motion.travel["way"]) == ("robot", way)
        assert task.view.cameras[0].track == "robot"
    task = mj.simple_task(name="t", model=planar(case, nested), description="turn left by 90 degrees")
    assert task.scoring.motion
    assert task.scoring.motion.text().startswith("turn left by 90°")
    qpos = np.zeros((5, task.model.nq))
    qpos[:, task.model.joint("yaw").qposadr[0]] = np.linspace(0, np.pi / 2, 5)
    assert measured(episode_of(task, qpos), task, 0.1)["turned_rad"] == pytest.approx(np.pi / 2, abs=1e-5)


def test_a_short_rail_or_a_hinge_with_stops_takes_a_body_nowhere():
    rail = CHAIN.format(slide='range="-.2 .2" limited="true"', hinge='range="-40 40" limited="true"', tiny=TINY)
    for words, lacks in (("drive forward", "move along +x"), ("turn left", "turn about the vertical")):
        task = mj.simple_task(name="t", model=spec_of(rail, DRIVES), description=words)
        assert task.scoring.motion
        assert lacks in task.scoring.motion.problem


def test_the_limits_of_a_nested_base_of_a_walker_are_removed(tmp_path):
    feet = "".join(
        f'<body name="{s}_foot" pos="0 {y} 0"><joint name="{s}" axis="0 1 0" range="-1 1"/><geom size=".05"/></body>'
        for s, y in (("left", 0.1), ("right", -0.1))
    )
    chain = CHAIN.format(slide='range="-5 5" limited="true"', hinge="", tiny=TINY)
    chain = chain.replace('<body name="arm"', feet + '<body name="arm"')
    file = tmp_path / "walker.xml"
    file.write_text(f"<mujoco><worldbody>{FLOOR}{chain}</worldbody><actuator>{DRIVES}</actuator></mujoco>")
    adapter = adapter_of(str(file))
    model = adapter.load().compile()
    assert adapter.root == "robot"
    assert not any(model.joint(j).limited[0] for j in ("x", "y", "yaw"))
    assert model.joint("arm").limited[0]
