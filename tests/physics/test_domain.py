"""Rows that live in worlds of their own, against C MuJoCo stepped one at a time."""

from __future__ import annotations

import jax
import mujoco
import numpy as np
import pytest

from movlr_jax.config.compose import compose
from movlr_jax.control.ppo.build import build_ppo
from movlr_jax.errors import UserError
from movlr_jax.physics.domain import Domain, Ranges, draw, fields, late_steps, variants
from movlr_jax.physics.mjx import MjxPhysics
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.state import instrument, layout_of
from movlr_jax.tasks import Task, build_task

SIM_DT, CTRL_DT = 0.002, 0.02


@pytest.fixture(scope="module")
def task() -> Task:
    return build_task("humanoid_walk", "humanoid", 10.0, {})


def hold(params, view, key):
    return params


def random_rows(task, rows):
    rng = np.random.default_rng(1)
    qpos, qvel, act = task.start(rng, rows)
    return qpos, qvel, act, rng.uniform(-0.3, 0.3, (rows, task.model.nu)).astype(np.float32)


def test_worlds_lie_in_their_ranges_and_come_again():
    ranges = Ranges()
    domain, same, other = draw(ranges, 500, 0), draw(ranges, 500, 0), draw(ranges, 500, 1)
    for name, wanted in (
        ("friction", (0.2, 1.3)),
        ("stiffness", (0.8, 1.2)),
        ("damping", (0.8, 1.2)),
        ("joint_friction", (0.1, 3.0)),
        ("latency_s", (0.002, 0.02)),
    ):
        drawn = getattr(domain, name)
        low, high = wanted
        assert low <= drawn.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < drawn.max() <= high
        np.testing.assert_array_equal(drawn, getattr(same, name))
        assert (drawn != getattr(other, name)).any()
    steps = late_steps(domain, SIM_DT, 10)
    assert (steps.min(), steps.max()) == (1, 10)
    with pytest.raises(UserError, match="friction"):
        draw(Ranges(friction=(1.0, 0.5)), 3, 0)


def test_a_world_changes_what_it_should_and_nothing_else(task):
    domain = draw(Ranges(), 3, 0)
    for i, world in enumerate(variants(task.model, domain)):
        for g in range(world.ngeom):
            assert world.geom_friction[g, 0] == domain.friction[i]
            np.testing.assert_array_equal(world.geom_friction[g, 1:], task.model.geom_friction[g, 1:])
        # kp (q0 - q) and kd, of the knee: rest torque 185.5, 400 N m/rad, 20 N m s/rad
        knee = world.actuator("left_knee")
        np.testing.assert_allclose(
            knee.biasprm[:3], [185.5 * domain.stiffness[i], -400 * domain.stiffness[i], -20 * domain.damping[i]]
        )
        assert knee.gainprm[0] == pytest.approx(280 * domain.stiffness[i])
        np.testing.assert_array_equal(world.dof_frictionloss, [0] * 6 + [domain.joint_friction[i]] * 12)
        changed = set(fields(task.model, domain))
        for name in ("body_mass", "dof_armature", "dof_damping", "actuator_forcerange", "jnt_range", "geom_size"):
            assert name not in changed
            np.testing.assert_array_equal(getattr(world, name), getattr(task.model, name))
    assert task.model.actuator("left_knee").gainprm[0] == 280  # the model itself is as it was


def test_each_row_is_its_world_stepped_alone_with_its_commands_late(task):
    domain = draw(Ranges(), 2, 3)
    physics = NativePhysics(task.model, task.layout, sim_dt=SIM_DT, ctrl_dt=CTRL_DT, domain=domain)
    qpos, qvel, act, controls = random_rows(task, 4)  # rows 2 and 3 live in worlds 0 and 1 again
    rollout = physics.rollout(physics.start(qpos, qvel, act), hold, controls, steps=3, key=jax.random.key(0))
    physics.close()
    late = late_steps(domain, SIM_DT, 10)
    assert late[0] != late[1]
    for row in range(4):
        model = variants(task.model, domain)[row % 2]
        model.opt.timestep = SIM_DT
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = qpos[row], qvel[row]
        for step in range(30):
            # the first command comes late, those after it are the same
            data.ctrl[:] = controls[row] if step >= late[row % 2] else 0
            mujoco.mj_step(model, data)
        np.testing.assert_array_equal(rollout.final.qpos[row], data.qpos)
        np.testing.assert_array_equal(rollout.final.qvel[row], data.qvel)


def test_a_policy_is_trained_in_as_many_worlds_as_it_has_simulations_and_evaluated_in_one():
    config = compose(["+task=humanoid_walk", "optimizer=ppo", "optimizer.ppo.envs=5"]).optimizer
    plain, varied = (
        build_ppo(config, build_task("humanoid_walk", "humanoid", 10.0, {"randomise": randomise}))
        for randomise in (False, True)
    )
    assert [len(ppo.physics.worlds) for ppo in (plain, varied)] == [1, 5]
    assert [len(ppo.sim_physics.worlds) for ppo in (plain, varied)] == [1, 1]
    assert len({world.geom_friction[0, 0] for world in varied.physics.worlds}) == 5
    assert varied.sim_physics.model.geom_friction[0, 0] == plain.sim_physics.model.geom_friction[0, 0]


PUSHED = """<mujoco><option timestep="0.002" integrator="implicitfast"/><worldbody>
<geom name="floor" type="plane" size="0 0 .1" contype="0" conaffinity="0"/>
<body name="box" pos="0 0 .1"><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
<geom name="ball" size=".1" mass="1" contype="0" conaffinity="0"/></body></worldbody>
<contact><pair geom1="floor" geom2="ball" friction="1 1 .005 .0001 .0001"/></contact>
<actuator><motor name="push" joint="x"/></actuator></mujoco>"""


@pytest.mark.parametrize("engine", ["native", pytest.param("mjx", marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["pair_friction", "dof_frictionloss"])
def test_worlds_have_what_the_model_lacks(engine: str, what: str):
    """Friction of a pair, dry friction of a joint that has none, late commands, against worlds stepped one by one."""
    spec = mujoco.MjSpec.from_string(PUSHED)
    instrument(spec, root="box", touch={}, sites=())
    model = spec.compile()
    same, late = np.ones(2), np.array([0.004, 0.01])
    friction, dry = (
        (np.array([0.2, 1.3]), 0 * same) if what == "pair_friction" else (0.2 * same, np.array([0.1, 3.0]))
    )
    domain = Domain(friction, same, same, dry, late)
    kind = NativePhysics if engine == "native" else MjxPhysics
    physics = kind(model, layout_of(model, {}), sim_dt=SIM_DT, ctrl_dt=CTRL_DT, coarse=True, domain=domain)
    start, push = physics.start(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 0))), np.full((2, 1), 5.0)
    found = physics.rollout(start, hold, push.astype(np.float32), steps=25, key=jax.random.key(0)).final.qpos
    for i in range(2):
        world = spec.compile()
        world.pair_friction[:, :2] = domain.friction[i]
        world.dof_frictionloss[0] = domain.joint_friction[i]
        data = mujoco.MjData(world)
        mujoco.mj_step(world, data, round(late[i] / SIM_DT))
        data.ctrl[:] = 5.0
        mujoco.mj_step(world, data, 250 - round(late[i] / SIM_DT))
        np.testing.assert_allclose(found[i], data.qpos, atol=2e-4)
    assert abs(found[0, 0] - found[1, 0]) > 0.1
