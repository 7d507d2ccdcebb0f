"""Tasks as Gymnasium environments."""

from __future__ import annotations

import multiprocessing
import warnings
from pathlib import Path

import numpy as np
import pytest
from cli_cases import SUPPORT

pytest.importorskip("gymnasium", reason="the extra gym is not installed")

import gymnasium
import jax
from gymnasium.utils.env_checker import check_env

from movlr_jax.errors import UserError
from movlr_jax.gym import environment_id, task_names
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer

TINY = {"task": SUPPORT / "tiny_task.py", "settings": ["optimizer.sim_dt=0.002", "optimizer.ctrl_dt=0.02"]}
REWARD = '''"""Lift the foot and save effort."""

WEIGHTS = {"lift": 2.0, "effort": -0.5}


def reward(state, action):
    return {"lift": state.pos("foot")[2] - state.initial.pos("foot")[2], "effort": jnp.sum(action**2)}
'''


@pytest.fixture(scope="module")
def env():
    made = gymnasium.make(environment_id("task"), **TINY, reward=REWARD)
    yield made
    made.close()


def test_environment_passes_checks_of_gymnasium(env: gymnasium.Env):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*infinity")  # observations have no bounds
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("when", [0, 3])
def test_simulation_that_diverges_ends_episode_without_success(env: gymnasium.Env, when: int):
    one, nothing = env.unwrapped, np.zeros(env.action_space.shape, np.float32)
    env.reset(seed=0)
    before = [env.step(nothing)[4]["terms"] for _ in range(when)]
    one.data.qvel[:] = 1e11  # MuJoCo gives up at 1e10
    seen, _, terminated, truncated, info = env.step(nothing)
    assert (terminated, truncated, np.isfinite(seen).all()) == (True, False, True)
    assert info["metrics"]["diverged_fraction"] == 1.0
    assert info["metrics"].get("success", 0.0) == 0.0
    # the body was set back: its reward is the least so far, not that of where it was set
    assert info["terms"]["lift"] <= min([t["lift"] for t in before], default=0.0)


def test_step_is_that_of_physics_and_its_reward_that_of_scorer(env: gymnasium.Env):
    one = env.unwrapped
    env.reset(seed=5)
    start, actions = one._state(), np.random.default_rng(1).uniform(-1, 1, (5, 7)).astype(np.float32)
    rewards, ended = [], False
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        ended |= terminated or truncated
    physics = NativePhysics(one.model, one.task.layout, sim_dt=0.002, ctrl_dt=0.02)
    controls = np.stack([ctrl for _, ctrl in one._steps])

    def played(params, view, key):
        return params[jax.numpy.round(view.time / 0.02).astype(int)]

    rollout = physics.rollout(physics.start(start.qpos, start.qvel, start.act), played, controls[None], steps=5,
                              key=jax.random.key(0))  # fmt: skip
    np.testing.assert_allclose(one.data.qpos, rollout.final.qpos[0], atol=1e-7)
    rows = jax.tree.map(lambda x: np.asarray(x, np.float32)[None], (rollout.steps, rollout.actions, start.step))
    scores = Scorer(one.task.layout, one.task.data)([one.program], *rows)
    np.testing.assert_allclose(rewards, scores.totals[0, 0], rtol=1e-4, atol=1e-5)
    assert ended  # after 0.1 s
    assert info["metrics"]["object_position_error_m"] > 0
    assert set(info["terms"]) == {"lift", "effort"}


def test_fork_of_process_that_runs_jax_is_told(env: gymnasium.Env):
    """It would hang: gymnasium's AsyncVectorEnv forks by default."""
    ours, theirs = multiprocessing.Pipe()

    def build() -> None:
        try:
            gymnasium.make(env.spec)
        except UserError as error:
            theirs.send(str(error))

    child = multiprocessing.get_context("fork").Process(target=build)
    child.start()
    assert ours.poll(60)
    assert "context='spawn'" in ours.recv()
    child.join(10)


@pytest.mark.slow
@pytest.mark.parametrize("name", task_names())
def test_every_environment_passes_checks(name: str, tmp_path: Path):
    made = gymnasium.make(environment_id(name), episode_s=1.0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*infinity")
        check_env(made.unwrapped, skip_render_check=True)
    made.close()
