"""Reflected bodies: what a policy sees of them against MuJoCo, and policies that treat left and right alike."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from movlr_jax._util.settings import changed
from movlr_jax.config.compose import compose
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.actions import action_space
from movlr_jax.control.ppo.config import PolicyConfig, PpoConfig
from movlr_jax.control.ppo.observations import GAIT_MIRROR, observation
from movlr_jax.control.ppo.walking.symmetry import Reflection, action_reflection, observation_reflection, symmetric
from movlr_jax.engine.tasks import task_of
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import Task

# of the base, by a reflection between left and right
FLIPPED = ("pelvis_tz", "pelvis_list", "pelvis_rotation")


@pytest.fixture(scope="module")
def walk() -> Task:
    return task_of(compose(["+task=flat_walk", "model=ms_human_700_legs", "optimizer=ppo"]))


@pytest.fixture(scope="module")
def sees(walk: Task) -> PolicyConfig:
    return PolicyConfig(observe=("gait", "joints"), action="posture", joints=walk.adapter.planned_joints)


def reflected(walk: Task, values: np.ndarray, address: str) -> np.ndarray:
    """Reflect qpos or qvel [n] of the model joint by joint."""
    made = values.copy()
    for j in range(walk.model.njnt):
        joint = walk.model.joint(j)
        other = joint.name.replace("_l_", "_R_").replace("_r_", "_l_").replace("_R_", "_r_")
        if joint.name[-2:] in ("_l", "_r"):
            other = joint.name[:-2] + {"_l": "_r", "_r": "_l"}[joint.name[-2:]]
        here, there = (getattr(x, address)[0] for x in (joint, walk.model.joint(other)))
        made[here] = values[there] * (-1.0 if joint.name in FLIPPED else 1.0)
    return made


def test_a_reflected_body_is_seen_reflected(walk: Task, sees: PolicyConfig):
    """A body in motion, and the same one reflected, half a stride later."""
    model, rng = walk.model, np.random.default_rng(3)
    physics = NativePhysics(model, walk.layout, sim_dt=0.002, ctrl_dt=0.02)
    nominal = walk.start(np.random.default_rng(0), 1)
    qpos, qvel = nominal[0][0].copy(), np.zeros(model.nv)
    for name in sees.joints:
        joint = model.joint(name)
        qpos[joint.qposadr[0]] = np.clip(rng.normal(0.2, 0.2), *joint.range)
        qvel[joint.dofadr[0]] = rng.normal()
    for name in (*FLIPPED, "pelvis_tilt"):
        qpos[model.joint(name).qposadr[0]] = rng.normal(0, 0.1)
        qvel[model.joint(name).dofadr[0]] = rng.normal()
    both = [np.stack([x, reflected(walk, x, at)]) for x, at in ((qpos, "qposadr"), (qvel, "dofadr"))]
    view = physics.start(*both, np.repeat(nominal[2], 2, axis=0)).step
    rest = 0.5 * (nominal[0][0] + reflected(walk, nominal[0][0], "qposadr"))  # starts are not quite symmetric
    see = observation(sees, walk, rest)
    half = 0.5 / float(walk.goals["stride_frequency"])
    here, there = (
        np.asarray(see(jax.tree.map(lambda x, i=i: jnp.asarray(np.asarray(x)[i], jnp.float32), view).replace(time=t)))
        for i, t in ((0, 0.3), (1, 0.3 + half))
    )
    across = observation_reflection(sees, walk)
    np.testing.assert_allclose(across(jnp.asarray(here)), there, atol=2e-3)
    assert np.abs(here - there).max() > 0.5
    assert len(GAIT_MIRROR[0]) + 2 * len(sees.joints) == len(here) == len(across.index)
    physics.close()


def test_policies_and_values_are_symmetric_for_any_weights():
    config = changed(PpoConfig(), hidden=(8,), value_hidden=(8,))
    seen = Reflection(np.array([1, 0, 2]), np.array([1.0, 1.0, -1.0], np.float32))
    acted = Reflection(np.array([1, 0]), np.array([-1.0, -1.0], np.float32))
    network = symmetric(learning.networks(config, 3, 2), seen, acted)
    learner = learning.init(config, network, 3, jax.random.key(2))
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    mirrored = x[:, [1, 0, 2]] * [1, 1, -1]
    policy, value = network.policy_network.apply, network.value_network.apply
    logits = np.asarray(policy(learner.normalizer, learner.params.policy, x))
    across = np.asarray(policy(learner.normalizer, learner.params.policy, mirrored))
    np.testing.assert_allclose(across, logits[:, [1, 0, 3, 2]] * [-1, -1, 1, 1], atol=1e-6)
    np.testing.assert_allclose(
        value(learner.normalizer, learner.params.value, mirrored),
        value(learner.normalizer, learner.params.value, x),
        atol=1e-6,
    )
    assert np.abs(logits[:, 0] + logits[:, 1]).max() > 1e-3


def test_a_reflected_robot_does_what_the_robot_does_on_the_other_side():
    """Actions and their reflection, from a symmetric start: 0.2 s later the feet have changed places."""
    config = compose(["+task=humanoid_walk", "optimizer=ppo", "optimizer.ppo.mirror=true"])
    task, sees = task_of(config), replace(config.optimizer.ppo.policy, observe=("gait", "joints"))
    across = action_reflection(sees, task)
    qpos, qvel, act = (np.asarray(x)[:1] for x in task.start(np.random.default_rng(0), 1))
    qpos[:, 7:] = 0.0
    space = action_space(config.optimizer, task, (qpos, 0.0 * qvel, act))
    action = np.random.default_rng(5).uniform(-0.3, 0.3, space.size).astype(np.float32)
    feet = []
    for a in (action, np.asarray(across(jnp.asarray(action)))):
        data = mujoco.MjData(space.model)
        data.qpos[:] = qpos[0]
        mujoco.mj_forward(space.model, data)
        data.ctrl[:] = np.asarray(space.controls(jnp.asarray(a), None, 0.004, 0.02))
        for _ in range(50):
            mujoco.mj_step(space.model, data)
        feet.append(np.stack([data.body(task.adapter.roles[f"{s}_foot"]).xpos for s in ("left", "right")]))
    np.testing.assert_allclose(feet[1][::-1] * [1, -1, 1], feet[0], atol=1e-3)
    assert np.abs(feet[0][0] - feet[0][1] * [1, -1, 1]).max() > 0.02
