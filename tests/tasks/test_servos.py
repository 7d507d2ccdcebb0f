"""Robots whose control 0 is not rest: position servos that stand on bent legs, and motors in N m."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

import movlr_jax as mj
from movlr_jax.control.mpc.knots import ControlSpace
from movlr_jax.engine.evaluate import fingerprint
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.base import shared_metrics
from movlr_jax.types import Step, Trajectory

MODEL = """<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="trunk" pos="0 0 1">
      <joint name="slide" type="slide" axis="0 0 1"/>
      <geom type="box" size=".1 .1 .1" mass="1"/>
      <body name="arm">
        <joint name="hip" axis="0 1 0" range="-2 2"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" mass=".2"/>
        <body name="fore" pos=".3 0 0">
          <joint name="knee" axis="0 1 0" range="-2 2"/>
          <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" mass=".1"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>ACTUATORS</actuator>
  <keyframe><key name="home" qpos="0 0.7 -1.4" ctrl="CTRL"/></keyframe>
</mujoco>"""
SERVOS = """
  <motor name="lift" joint="slide" ctrlrange="-50 50"/>
  <position name="hip" joint="hip" kp="50" ctrlrange="-2 2"/>
  <position name="knee" joint="knee" kp="50" ctrlrange="-1 2"/>"""
MOTORS = "".join(f'<motor name="{joint}" joint="{joint}" ctrlrange="-20 20"/>' for joint in ("slide", "hip", "knee"))


def task_of(actuators: str, ctrl: str = "0 0 0", **settings) -> Task:
    spec = mujoco.MjSpec.from_string(MODEL.replace("ACTUATORS", actuators).replace("CTRL", ctrl))
    return simple_task(name="hold", model=spec, description="hold still", episode_s=0.4, **settings)


def episode(task: Task, actions: np.ndarray) -> Trajectory:
    """An episode at the start posture with `actions` [T, nu]."""
    count = len(actions)
    qpos, *_ = (np.repeat(x, count, 0) for x in task.start(np.random.default_rng(0), 1))
    nothing = np.zeros((count, 0))
    step = Step(np.arange(count) * 0.02, qpos, np.zeros((count, task.model.nv)), nothing, nothing, actions)
    return Trajectory(steps=step, actions=actions, valid=np.asarray(count), final=None, extras=None)


@pytest.mark.parametrize(
    ("ctrl", "start", "rest"),
    [
        ("0 0 0", None, (0.0, 0.7, -1.0)),  # the knee's range ends at -1
        ("12.753 0.6 -0.9", None, (12.753, 0.6, -0.9)),
        ("12.753 0.6 -0.9", "home", (12.753, 0.6, -0.9)),
        ("12.753 0.6 -0.9", {"hip": 0.2, "knee": 0.5}, (0.0, 0.2, 0.5)),  # the keyframe's hold another posture
    ],
)
def test_a_plan_sets_out_from_the_controls_that_hold_the_start(ctrl: str, start, rest: tuple[float, ...]):
    task = task_of(SERVOS, ctrl, start=start, start_noise=0.0)
    physics = NativePhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=0.02)
    space = ControlSpace(task.model, 3, 0.2, resting=task.resting)
    begun = space.begun(physics.start(*task.start(np.random.default_rng(0), 2)))
    np.testing.assert_allclose(space.held(begun), np.broadcast_to(np.float32(rest), (2, 3, 3)), atol=1e-6)
    physics.close()


SETTINGS = ("optimizer=mppi", "optimizer.mppi.samples=1")
STILL = """WEIGHTS = {"a": 1.0}

def reward(state, action):
    return {"a": 0.0 * state.time}
"""


def test_a_robot_on_servos_stays_at_its_start_posture(tmp_path: Path):
    """C MuJoCo with the controls of the keyframe is the measure of what can be held."""
    task = task_of(SERVOS, "12.753 0.7 -1", start_noise=0.0)
    result = mj.evaluate_reward(STILL, task, *SETTINGS, f"run_dir={tmp_path}")
    data = mujoco.MjData(task.model)
    mujoco.mj_resetDataKeyframe(task.model, data, 0)
    mujoco.mj_step(task.model, data, len(result.trajectory.qpos) * 8 - 1)
    assert result.metrics["effort"] < 1e-9
    np.testing.assert_allclose(result.trajectory.qpos[-1], data.qpos, atol=1e-3)


def test_tasks_with_other_controls_at_the_start_are_other_trainings():
    task = task_of(SERVOS, "12.753 0.7 -1")
    other = task.replace(rest=np.zeros(3))
    assert len({fingerprint(t) for t in (task, other, task.replace(rest=None))}) == 3
    assert fingerprint(task) == fingerprint(task_of(SERVOS, "12.753 0.7 -1"))


def test_effort_is_what_the_controls_use_of_their_range():
    task = task_of(MOTORS)
    used = np.tile([0.0, 10.0, -20.0], (5, 1))
    assert shared_metrics(episode(task, used), task, 0.02)["effort"] == pytest.approx((0.0 + 0.25 + 1.0) / 3)
    task = task_of(SERVOS, start_noise=0.0)
    moved = np.tile([25.0, 0.7 + 1.35, -1.0], (5, 1))  # half of 50, half of 2.7 (from 0.7 to -2), none
    assert shared_metrics(episode(task, moved), task, 0.02)["effort"] == pytest.approx((0.25 + 0.25) / 3)
    changing = np.arange(5)[:, None] * np.array([[5.0, 0.27, 0.0]])  # a tenth of the ranges at every control step
    found = shared_metrics(episode(task, changing), task, 0.02)["smoothness"]
    assert found == pytest.approx(2 * (0.1 / 0.02) ** 2 / 3)


ORTHOSIS = """<mujoco>
  <worldbody>
    <body>
      <joint name="elbow" axis="0 1 0" range="-2 2"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" mass=".2"/>
      <site name="hand" pos=".3 0 0"/>
    </body>
    <site name="shoulder" pos="0 0 .3"/>
  </worldbody>
  <tendon><spatial name="flexor"><site site="shoulder"/><site site="hand"/></spatial></tendon>
  <actuator>
    <motor name="assist" joint="elbow" gear="2" ctrlrange="-5 5"/>
    <muscle name="flexor" tendon="flexor" ctrlrange="0 1"/>
    <position name="brake" joint="elbow" kp="40" ctrlrange="-2 2" forcerange="-8 8"/>
  </actuator>
</mujoco>"""


def test_each_actuator_of_muscles_and_motors_counts_by_its_own_measure(tmp_path: Path):
    """Activation of the muscle, control of the motor over its range, force of the servo over its largest force."""
    task = simple_task(
        name="orthosis", model=mujoco.MjSpec.from_string(ORTHOSIS), description="hold still", start_noise=0.0,
        episode_s=0.32,
    )  # fmt: skip
    assert "action / jnp.array([5, 1, 2])" in task.rewards.initial
    result = mj.evaluate_reward(STILL, task, *SETTINGS, f"run_dir={tmp_path}")
    made, q = result.trajectory, result.trajectory.qpos
    force = np.clip(40.0 * (made.ctrl[:, 2] - q[:, 0]), -8.0, 8.0)
    used = np.stack([made.ctrl[:, 0] / 5.0, made.act[:, 0], force / 8.0])
    assert np.abs(force).max() > 0.1
    assert result.metrics["effort"] == pytest.approx(np.square(used).mean(), rel=1e-3)
    change = np.diff(made.ctrl / [5.0, 1.0, 2.0], axis=0) / 0.016
    assert result.metrics["smoothness"] == pytest.approx(np.square(change).mean(), rel=1e-5)


def test_programs_that_are_written_here_know_the_ranges():
    """By hand, as above: half of 50, half of 2.7 and none are used."""
    servos = task_of(SERVOS, start_noise=0.0)
    assert "(action - jnp.array([0, 0.7, -1])) / jnp.array([50, 2.7, 3])" in servos.rewards.initial
    data = mujoco.MjData(servos.model)
    data.qpos[:] = servos.start(np.random.default_rng(0), 1)[0][0]
    mujoco.mj_forward(servos.model, data)
    _, terms = mj.load_reward(servos.rewards.initial, servos)(data, np.array([25.0, 0.7 + 1.35, -1.0]), data)
    assert float(terms["control"]) == pytest.approx(-(0.25 + 0.25) / 3)


@pytest.mark.parametrize(("start", "expected"), [(0.0, ()), (-0.91, ("world and trunk overlap by 10 mm",))])
def test_bodies_that_overlap_at_the_start_are_told(start: float, expected: tuple[str, ...]):
    warnings = task_of(MOTORS, start={"slide": start, "hip": 0.0, "knee": 0.0}).origin.warnings
    assert len(warnings) == len(expected)
    assert all(part in text for part, text in zip(expected, warnings, strict=True))


TOWEL = """<mujoco><worldbody>
  <body name="arm" pos="0 0 0.6"><joint name="lift" axis="0 1 0" range="-120 120"/>
    <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1"/></body>
  <body name="holder" pos="0.15 0 0.63">
    <flexcomp name="towel" type="grid" count="5 5 1" spacing=".06 .06 .06" radius=".02" mass=".2">
      <contact selfcollide="none"/></flexcomp></body>
  <body name="lamp" pos="2 2 1"><freejoint/><geom type="sphere" size="0.1" mass="0.2"/></body>
</worldbody><actuator><motor name="m" joint="lift" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_a_cloth_that_overlaps_is_named_and_no_other_body():
    spec = mujoco.MjSpec.from_string(TOWEL)
    task = simple_task(name="raise", model=spec, description="raise the arm", episode_s=0.4)
    (told,) = (text for text in task.origin.warnings if "overlap" in text)
    assert "arm and towel overlap by 20 mm" in told or "towel and arm overlap by 20 mm" in told


ACTIVATED = {
    "filtered": '<position name="{j}" joint="{j}" kp="60" kv="4" ctrlrange="-3 3" timeconst="0.3"/>',
    "integrated": '<intvelocity name="{j}" joint="{j}" kp="60" kv="4" ctrlrange="-2 2" actrange="-3 3"/>',
    "general": '<general name="{j}" joint="{j}" dyntype="filterexact" dynprm="0.2" gainprm="60" biastype="affine" '
    'biasprm="3 -60 -4" ctrlrange="-3 3"/>',
}
SWING = """<mujoco><option gravity="0 0 0"/><worldbody><body name="upper" pos="0 0 1">
  <joint name="hip" axis="0 1 0" range="-120 120" damping=".5"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="1"/>
  <body name="fore" pos="0 0 -.3"><joint name="knee" axis="0 1 0" range="-150 0" damping=".3"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.25" size=".025" mass=".7"/></body></body></worldbody>
  <actuator>ACTUATORS</actuator><keyframe><key name="bent" qpos=".6 -1.2"MORE/></keyframe></mujoco>"""


def swing(kind: str, more: str = "") -> mujoco.MjSpec:
    actuators = "".join(ACTIVATED[kind].format(j=joint) for joint in ("hip", "knee"))
    return mujoco.MjSpec.from_string(SWING.replace("ACTUATORS", actuators).replace("MORE", more))


@pytest.mark.parametrize("kind", ACTIVATED)
@pytest.mark.parametrize("start", [None, {"hip": -0.4, "knee": -0.9}])
def test_servos_with_an_activation_start_at_rest(kind: str, start: dict[str, float] | None):
    """C MuJoCo stays at the start for a second, under the controls that are said to hold it."""
    task = simple_task(name="hold", model=swing(kind), description="hold still", episode_s=1.0, start=start)
    qpos, qvel, act = (x[0] for x in task.start(np.random.default_rng(0), 1))
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[:], data.act[:], data.ctrl[:] = qpos, qvel, act, task.resting(qpos)
    mujoco.mj_step(task.model, data, nstep=round(1.0 / task.model.opt.timestep))
    np.testing.assert_allclose(data.qpos, qpos, atol=1e-3)


def test_what_a_keyframe_holds_is_kept_unless_other_joints_are_given():
    """Its activations; its controls, which fill the filters of servos; or what holds the joints that are given."""
    activated, commanded = swing("integrated", ' act="0.5 -1"'), swing("filtered", ' ctrl="0.7 -1.1"')
    for model, start, expected in (
        (activated, None, [0.5, -1.0]),
        (commanded, None, [0.7, -1.1]),
        (swing("integrated", ' act="0.5 -1"'), {"hip": 0.2}, [0.2, -1.2]),
    ):
        task = simple_task(name="hold", model=model, description="hold still", start=start, start_noise=0.0)
        np.testing.assert_allclose(task.start(np.random.default_rng(0), 1)[2], [expected], atol=1e-6)
