"""Policies that command what plans command, and that are taught by a planner under the same program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from programs import program

pytest.importorskip("brax", reason="the extra ppo is not installed")

from test_posture import SMALL
from test_targets import ARM, task_of

from movlr_jax._util.settings import changed
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.optimizers import Ppo
from movlr_jax.control.ppo.trainer import PpoTrainer
from movlr_jax.errors import UserError

BENT = 0.5  # rad
BEND = program(f"-jnp.square(state.q('a') - {BENT})", "-0.0001 * jnp.mean(jnp.square(action))")


def trainer_of(episode_s: float = 0.2, ctrl_dt: float = 0.01, **settings) -> PpoTrainer:
    config = Ppo(sim_dt=0.002, ctrl_dt=ctrl_dt, ppo=changed(SMALL, action="targets", **settings))
    made = build_optimizer(config, task_of(ARM).replace(episode_s=episode_s))
    assert isinstance(made, PpoTrainer)
    return made


def test_policy_commands_targets_and_its_torques_move_the_users_model_alike():
    ppo = trainer_of(ctrl_dt=0.002)
    assert ppo.space.action is not None
    asked = np.linspace(-0.9, 0.9, 10)[:, None] * np.array([1.0, -1.0])
    commanded = jnp.stack([ppo.space.controls(a, jax.tree.map(lambda x: x[0], ppo.pool.step), 0, 0) for a in asked])
    reached = jax.vmap(ppo.space.action)(commanded)
    moves = np.ptp(commanded, axis=0) > 0.1
    assert moves.any()
    np.testing.assert_allclose(reached[:, moves], asked[:, moves], atol=1e-5)

    learner, fleet = ppo.begin(1, jax.random.key(1))
    segment, _ = ppo.collect((learner.normalizer, learner.params.policy), fleet, jax.random.key(2), 1)
    actions = np.asarray(segment.trajectory.actions[0])
    task = ppo.task
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[:] = fleet.state.qpos[0], fleet.state.qvel[0]
    for t, action in enumerate(actions):
        np.testing.assert_allclose(data.qpos, segment.trajectory.steps.qpos[0, t], atol=1e-5)
        data.ctrl[:] = action
        mujoco.mj_step(task.model, data)
    assert np.ptp(actions) > 0.1
    low, high = task.model.actuator_ctrlrange.T
    assert ((actions >= low - 1e-4) & (actions <= high + 1e-4)).all()


def test_policy_learns_from_the_planner_before_it_is_trained():
    ppo = trainer_of(episode_s=0.6, teacher="planner", teach_steps=6 * 240, hidden=(32, 32), observe=("qpos", "qvel"))
    learner, _ = ppo.begin(1, jax.random.key(1), programs=[BEND])
    untaught, _ = trainer_of(episode_s=0.6, hidden=(32, 32), observe=("qpos", "qvel")).begin(1, jax.random.key(1))
    start = jax.tree.map(lambda x: x[:4], ppo.pool)

    def ended(learned) -> np.ndarray:
        made = ppo.sim_physics.rollout(
            start, ppo.exploit, (learned.normalizer, learned.params.policy), steps=60, key=jax.random.key(3)
        )
        return np.abs(np.asarray(made.steps.qpos)[:, -1, 0] - BENT)

    assert ended(learner).max() < 0.15
    assert ended(untaught).min() > 0.3


def test_planner_teaches_only_what_it_commands():
    with pytest.raises(UserError, match=r"teaches what plans command; give optimizer\.ppo\.action=targets"):
        build_optimizer(Ppo(ppo=changed(SMALL, action="controls", teacher="planner")), task_of(ARM))
