"""The comparison of MJX with C MuJoCo that comes before its use."""

from __future__ import annotations

from pathlib import Path

import jax
import mujoco
import pytest

from movlr_jax.errors import UserError
from movlr_jax.physics.agreement import compared
from movlr_jax.physics.choose import planning_physics
from movlr_jax.tasks import Task, simple_task

ARM = """<mujoco><option OPTION>FLAG</option><worldbody>
  <body name="upper" pos="0 0 1">
    <joint name="shoulder" axis="0 1 0" range="-120 120" damping="0.2" JOINT/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass="1"/>
    <body name="fore" pos=".3 0 0"><joint name="elbow" axis="0 1 0" damping="0.1"/>
      <geom type="box" size=".15 .02 .01" pos=".15 0 0" mass=".5"/></body></body></worldbody>
  <actuator><motor name="own" joint="shoulder" gear="5" ctrlrange="-1 1"/>
    <motor name="more" joint="elbow" gear="3" ctrlrange="-1 1" MOTOR/></actuator></mujoco>"""


def held(option: str = "", flag: str = "", joint: str = "", motor: str = "") -> Task:
    text = ARM
    for word, part in {"OPTION": option, "FLAG": flag, "JOINT": joint, "MOTOR": motor}.items():
        text = text.replace(word, part)
    model = mujoco.MjSpec.from_string(text)
    return simple_task(name="hold", model=model, description="hold still", episode_s=0.4, start_noise=0.0)


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No comparison that an earlier test remembers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"motor": 'armature="0.5" damping="2"'}, ("armature of actuators", "damping of actuators")),
        (
            {"flag": '<flag spring="disable"/>', "joint": 'stiffness="30" springref="40"'},
            ('that <flag spring="disable"/> leaves damping on',),
        ),
        (
            {"option": 'actuatorgroupdisable="1"', "motor": 'group="1"', "joint": 'stiffness="10 100 30"'},
            ("actuatorgroupdisable", "polynomial stiffness of joints"),
        ),
    ],
)
def test_what_mjx_ignores_is_found_and_named(parts: dict[str, str], named: tuple[str, ...]):
    agreement = compared("mjx", held(**parts), sim_dt=0.008)
    assert not agreement.agrees
    assert set(agreement.features) == {*named}


def test_a_model_that_mjx_computes_agrees_and_is_remembered():
    scene = held(joint='stiffness="20" frictionloss="1"', motor='forcerange="-2 2"')
    first = compared("mjx", scene, sim_dt=0.008)
    assert first.agrees
    assert first.difference < 1e-4
    again = compared("mjx", scene, sim_dt=0.008)
    assert again.seconds == 0.0
    assert again.difference == first.difference


def test_physics_that_differs_is_refused_with_its_name_and_left_by_auto(monkeypatch: pytest.MonkeyPatch):
    scene = held(option='actuatorgroupdisable="1"', motor='group="1"')
    with pytest.raises(UserError, match=r"physics=mjx .* elbow .* ignores actuatorgroupdisable; use physics=native"):
        planning_physics("mjx", scene, sim_dt=0.008, ctrl_dt=0.016)

    class Accelerator:
        platform, device_kind = "tpu", "a chip that this machine does not have"

    there = [*jax.devices(), Accelerator()]
    monkeypatch.setattr(jax, "devices", lambda *_: there)
    said: list[str] = []
    physics = planning_physics("auto", scene, sim_dt=0.008, ctrl_dt=0.016, say=said.append)
    assert physics.name == "native"
    assert any("physics=native instead" in text and "ignores actuatorgroupdisable" in text for text in said), said


@pytest.mark.slow
def test_warp_is_compared_too():
    pytest.importorskip("warp")
    from movlr_jax.physics.mjx import check_warp

    check_warp()
    assert compared("warp", held(), sim_dt=0.008).agrees
    found = compared("warp", held(motor='armature="0.5"'), sim_dt=0.008)
    assert found.features == ("armature of actuators",)
