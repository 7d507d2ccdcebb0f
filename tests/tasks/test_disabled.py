"""What a model switches off: groups of actuators and equality constraints."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from movlr_jax.biomech.muscles import moment_arms
from movlr_jax.biomech.static_optimisation import base_dofs, coupling_jacobian
from movlr_jax.control.mpc.knots import control_ranges
from movlr_jax.errors import UserError
from movlr_jax.evolution.scripted.plain_terms import plain_terms
from movlr_jax.models import follow_couplings
from movlr_jax.models.derived import driven_joints
from movlr_jax.tasks import simple_task
from movlr_jax.tasks.base import exertion, joints_at_limit, shared_metrics
from movlr_jax.types import Step, Trajectory

ARM = """<mujoco><option OPTION>FLAG</option>
  <worldbody><body name="upper" pos="0 0 1">
    <joint name="shoulder" axis="0 1 0" range="-120 120" damping="1"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="1"/>
    <body name="fore" pos="0 0 -.3">
      <joint name="elbow" axis="0 1 0" range="-150 0" damping="1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.25" size=".03" mass="1"/></body></body></worldbody>
  <equality><joint joint1="elbow" joint2="shoulder" polycoef="0 1 0 0 0" active="ACTIVE"/></equality>
  <actuator>
    <motor name="own" joint="shoulder" gear="4" ctrlrange="-1 1"/>
    <motor name="strong" joint="elbow" gear="40" ctrlrange="0.5 1" group="1"/>
    <motor name="loose" joint="elbow" group="1"/>
  </actuator></mujoco>"""
OFF, NO_EQUALITY = 'actuatorgroupdisable="1"', '<flag equality="disable"/>'


def model_of(option: str = "", flag: str = "", active: str = "false") -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(text_of(option, flag, active))


def text_of(option: str = "", flag: str = "", active: str = "false") -> str:
    return ARM.replace("OPTION", option).replace("FLAG", flag).replace("ACTIVE", active)


@pytest.mark.parametrize(
    ("flag", "active", "free"), [("", "false", True), (NO_EQUALITY, "true", True), ("", "true", False)]
)
def test_an_inactive_equality_couples_nothing(flag: str, active: str, free: bool):
    model = model_of(flag=flag, active=active)
    names = [model.joint(j).name for j in driven_joints(model)]
    assert names == (["shoulder", "elbow"] if free else ["shoulder"])
    qpos = np.array([0.5, -1.0])
    np.testing.assert_allclose(follow_couplings(model, qpos), [0.5, -1.0 if free else 0.5])
    assert coupling_jacobian(model, np.array([0]), qpos)[1, 0] == (0.0 if free else 1.0)
    assert joints_at_limit(model, np.array([[0.0, 0.0]])) == (0.5 if free else 0.0)


def test_a_joint_with_an_inactive_equality_may_belong_to_the_base():
    model = model_of()
    model.eq_obj1id[0], model.eq_obj2id[0] = 0, 1  # the shoulder would follow the elbow
    assert base_dofs(model, np.array([1])).tolist() == [0]


def test_a_disabled_actuator_moves_and_plans_nothing():
    model = model_of(OFF)
    assert [model.joint(j).name for j in driven_joints(model)] == ["shoulder"]
    (moment,) = moment_arms(model, mujoco.MjData(model), np.zeros((1, 2)))
    np.testing.assert_allclose(moment, [[4, 0], [0, 0], [0, 0]])
    np.testing.assert_allclose(control_ranges(model), [[-1, 0.5, 0], [1, 0.5, 0]])
    with pytest.raises(UserError, match="loose"):
        control_ranges(model_of())


def test_a_disabled_actuator_has_no_effort(tmp_path: Path):
    found = {}
    for option in ("", OFF):
        file = tmp_path / "arm.xml"
        file.write_text(text_of(option), encoding="utf-8")
        task = simple_task(name="hold", model=file, description="hold still", episode_s=0.4)
        count, nothing = 3, np.zeros((3, 0))
        actions = np.tile([0.5, 1.0, 0.0], (count, 1))
        actions[1, 1] = 0.5
        step = Step(np.arange(3.0), np.zeros((3, 2)), np.zeros((3, 2)), nothing, nothing, actions)
        done = Trajectory(steps=step, actions=actions, valid=np.array(3), final=None, extras=None)  # pyright: ignore
        found[option] = exertion(task, done), shared_metrics(done, task, 0.1)
    np.testing.assert_allclose(found[OFF][0], 0.25)  # the square of the half that the motor gives
    assert found[OFF][1]["smoothness"] == 0.0
    assert found[""][1]["smoothness"] > 0.0


def test_terms_and_words_leave_disabled_actuators_out(tmp_path: Path):
    file = tmp_path / "arm.xml"
    file.write_text(text_of(OFF), encoding="utf-8")
    task = simple_task(name="hold", model=file, description="hold still", episode_s=0.4)
    assert task.adapter.planned_joints == ("shoulder",)
    names = {term.name for term in plain_terms(task)}
    assert any(name.startswith("shoulder") for name in names)
    assert not any(name.startswith("elbow") for name in names)
