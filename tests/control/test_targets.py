"""Joint targets for motors: which motors, their gains, and that the recorded controls are torques of these motors."""

from __future__ import annotations

from dataclasses import replace

import jax
import mujoco
import numpy as np
import pytest
from bodies import CART, MOTOR_DOG, WHEELED
from programs import program

from movlr_jax.control.build import build_optimizer
from movlr_jax.control.mpc.planner import Planner
from movlr_jax.control.optimizers import Mppi
from movlr_jax.control.targets import joint_targets
from movlr_jax.errors import UserError
from movlr_jax.models.motors import TargetSettings, gains, motors, targetable
from movlr_jax.tasks import Task, simple_task

ARM = """<mujoco><worldbody><body pos="0 0 .5"><joint name="a" axis="0 1 0" range="-90 90"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03"/>
<body pos="0 0 -.3"><joint name="b" axis="0 1 0" range="-90 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03"/></body></body></worldbody>
<actuator><motor joint="a" ctrlrange="-20 20"/><motor joint="b" ctrlrange="-9 9"/></actuator></mujoco>"""
EFFORT, STEADY = "jnp.sum(jnp.square(action))", "0.5 * jnp.sum(action * state.prev_action)"  # of weight 2
REWARD = program(f"-{EFFORT}", STEADY)


def task_of(text: str) -> Task:
    spec = mujoco.MjSpec.from_string(text)
    return simple_task(name="own", model=spec, description="hold the posture", episode_s=0.2)


def planner_of(task: Task, physics: str = "native", **settings) -> Planner:
    config = Mppi(sim_dt=0.002, plan_dt=0.002, ctrl_dt=0.002, horizon_s=0.02, knots=2)
    config = replace(config, mppi=replace(config.mppi, samples=4), **settings)
    planner = build_optimizer(config, task, physics)
    assert isinstance(planner, Planner)
    return planner


def test_recorded_torques_move_the_users_model_alike():
    """Open loop in C MuJoCo, with the model as its user gave it: gears, gains and force limits included."""
    task = task_of(MOTOR_DOG)
    planner = planner_of(task)
    start = planner.sim_physics.start(*task.start(np.random.default_rng(1), 1))
    controllers = planner.optimise([program(EFFORT, STEADY)], jax.random.key(0))
    played = controllers.rollout(start, steps=100, key=jax.random.key(0))
    actions = np.asarray(played.actions[0])
    data = mujoco.MjData(task.model)
    data.qpos[:] = start.qpos[0]
    for t, action in enumerate(actions):
        np.testing.assert_allclose(data.qpos, played.steps.qpos[0, t], atol=2e-3)
        data.ctrl[:] = action
        mujoco.mj_step(task.model, data)
    low, high = task.model.actuator_ctrlrange.T
    assert (actions >= low - 1e-4).all()
    assert (actions <= high + 1e-4).all()
    assert np.ptp(actions) > 1.0
    np.testing.assert_array_equal(played.steps.prev_action[0, 1:], actions[:-1])


def test_held_torques_are_the_means_of_servos_and_move_the_users_model_alike():
    """An environment holds an action over its control step: C MuJoCo with held controls goes through the same states.

    The means are taken from servos that start where each control step starts.
    """
    task = task_of(MOTOR_DOG).replace(holds_controls=True)
    planner = planner_of(task, ctrl_dt=0.02, horizon_s=0.1, knots=1)
    assert planner.targets is not None
    start = planner.sim_physics.start(*task.start(np.random.default_rng(1), 1))
    controllers = planner.optimise([program(EFFORT, STEADY)], jax.random.key(0))
    played = controllers.rollout(start, steps=20, key=jax.random.key(0))
    data, served = mujoco.MjData(task.model), planner.targets.model
    task.model.opt.timestep = served.opt.timestep = 0.002
    data.qpos[:] = start.qpos[0]
    for t, action in enumerate(np.asarray(played.actions[0])):
        tried, forces = mujoco.MjData(served), []
        tried.qpos[:], tried.qvel[:], tried.ctrl[:] = data.qpos, data.qvel, played.extras[0, t]
        for _ in range(10):
            mujoco.mj_step(served, tried)
            forces.append(tried.actuator_force / planner.targets.gain)
        low, high = task.model.actuator_ctrlrange.T
        np.testing.assert_allclose(action, np.clip(np.mean(forces, axis=0), low, high), atol=2e-3)
        data.ctrl[:] = action
        mujoco.mj_step(task.model, data, nstep=9)
        np.testing.assert_allclose(data.qpos, played.steps.qpos[0, t], atol=1e-4)
        mujoco.mj_step(task.model, data)


def test_rewards_read_torques_in_plans_and_episodes():
    """The cost of one plan is the mean of what the same program gives for the recorded controls."""
    task = task_of(MOTOR_DOG)
    planner = planner_of(task)
    start = planner.sim_physics.start(*task.start(np.random.default_rng(0), 1))
    controllers = planner.optimise([REWARD], jax.random.key(0))
    home = planner.space.held(planner.space.begun(start))
    plan = (home + 0.2)[:, None]
    cost = controllers.costs(plan, start, start.step, jax.random.key(0))
    params = planner.space.params(planner.sim_physics, start, plan)
    played = planner.physics.rollout(start, planner.plan_policy, params, steps=planner.horizon, key=jax.random.key(0))
    u = np.asarray(planner.recorded(start, played).actions[0], float)
    before = np.vstack([planner.recorded(start, played).steps.prev_action[0, :1], u[:-1]])
    assert np.abs(u).max() > 1.0  # not the targets, which are 0.2
    np.testing.assert_allclose(cost[0, 0], np.mean(np.sum(u**2 - u * before, axis=1)), rtol=1e-4)


@pytest.mark.slow
def test_engines_agree_on_costs():
    task, costs = task_of(MOTOR_DOG.replace('<geom type="plane" size="5 5 .1"/>', "")), []
    for physics in ("native", "mjx"):
        planner = planner_of(task, physics)
        rows = task.start(np.random.default_rng(0), 1)
        start = planner.sim_physics.start(*rows)
        plan = np.full((1, 1, 2, 8), 0.2, np.float32)
        controllers = planner.optimise([REWARD], jax.random.key(0))
        costs.append(np.asarray(controllers.costs(plan, start, start.step, jax.random.key(0))))
    np.testing.assert_allclose(*costs, rtol=1e-2)


def test_which_motors_suit_targets():
    """Legs do; wheels, carts that carry a pole, servos and motors that are weaker than their limb do not."""
    servo = MOTOR_DOG.replace('<motor name="fl_h" joint="fl_hip" gear="3"', '<position kp="50" joint="fl_hip"')
    for text, expected in (
        (MOTOR_DOG, 8),
        (WHEELED, 0),
        (CART, 0),
        (ARM, 2),
        (servo, 7),
        (MOTOR_DOG.replace('gear="3" ctrlrange="-8 8"', 'gear="3" ctrlrange="-.1 .1"'), 4),
    ):  # fmt: skip
        task = task_of(text)
        posture = task.start(np.random.default_rng(0), 1)[0][0]
        assert targetable(task.model, posture).sum() == expected
    with pytest.raises(UserError, match="no motor that alone drives"):
        joint_targets(TargetSettings(), task_of(CART.replace("motor", "position")), "targets")


def test_legs_stay_within_reach_of_the_stance_and_arms_do_not():
    """By hand: legs with ranges of 90 and 120 degrees reach 1 rad; a servo of an arm keeps its range of 5 rad.

    Its noise refers to 1 rad, that of legs to 2 rad.
    """
    arm = """<body pos="0 0 .1"><joint name="arm" axis="0 1 0" range="-150 150"/>
      <geom type="capsule" fromto="0 0 0 0 0 .2" size=".02" mass=".1"/></body></body></worldbody>"""
    text = MOTOR_DOG.replace("</body></worldbody>", arm).replace(
        "</actuator>", '<position joint="arm" kp="20" kv="1" ctrlrange="-2.5 2.5"/></actuator>'
    )
    space = planner_of(task_of(text), targets=TargetSettings(reach=1.0)).space
    np.testing.assert_allclose(space.lower, [-1.0] * 8 + [-2.5])
    np.testing.assert_allclose(space.upper, [1.0] * 8 + [2.5])
    np.testing.assert_allclose(np.diag(space.mixing), [1.0] * 8 + [0.2])


def test_gains_follow_from_inertia_and_load():
    """kp = I (2 pi f)^2 and kd = 2 damping sqrt(kp I) for a limb without load; more for one that gives way."""
    text = """<mujoco><option gravity="0 0 {g}"/><worldbody><body name="arm"><joint name="j" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 .5 0 0" size=".02" mass="2"/></body></worldbody>
      <actuator><motor joint="j" ctrlrange="-40 40"/></actuator></mujoco>"""
    free, loaded = (mujoco.MjModel.from_xml_string(text.format(g=g)) for g in (0, -9.81))
    inertia = mujoco.MjData(free)
    mujoco.mj_forward(free, inertia)
    full = np.zeros((1, 1))
    mujoco.mj_fullM(free, inertia, full)
    settings = TargetSettings(bandwidth_hz=1.0, damping=0.7)
    kp, kd = gains(settings, free, motors(free), np.zeros(1))
    np.testing.assert_allclose(kp, full[0] * (2 * np.pi) ** 2, rtol=1e-6)
    np.testing.assert_allclose(kd, 2 * 0.7 * np.sqrt(kp * full[0]), rtol=1e-6)
    stiff, _ = gains(settings, loaded, motors(loaded), np.zeros(1))
    assert kp[0] < 0.5 * stiff[0] <= 0.5 * 40 / 0.1
    np.testing.assert_allclose(
        gains(TargetSettings(kp=7.0, kd=0.5), loaded, motors(loaded), np.zeros(1)), [[7], [0.5]]
    )
