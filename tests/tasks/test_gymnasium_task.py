"""Environments of Gymnasium as tasks: what they measure is what they say themselves."""

from __future__ import annotations

from functools import cache
from typing import Any

import mujoco
import numpy as np
import pytest
from environment_episodes import STEPS, random_episode, totals

from movlr_jax.config.compose import compose
from movlr_jax.control.build import acting
from movlr_jax.engine.rewards import reward_source
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import measured
from movlr_jax.tasks.environments.gymnasium_task import DESCRIPTIONS, gymnasium_task, open_environment, timing

gymnasium = pytest.importorskip("gymnasium", reason="the package gymnasium is not installed")
SPINNING = """
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv

class Spinning(InvertedPendulumEnv):
    def step(self, action):
        observed, _, _, cut, info = super().step(action)
        return observed, 2.0, False, cut, {**info, "is_success": True}
"""


@cache
def environment_task(env: str) -> Task:
    return task_of(compose(["+task=gymnasium", f"env={env}", "episode_s=1"]))


# contacts amplify that our physics begins every control step without the warm start of the solver
@pytest.mark.parametrize(("env", "within"), [("InvertedPendulum-v5", 1e-9), ("Reacher-v5", 1e-9), ("Ant-v5", 1e-3)])
def test_an_episode_is_measured_by_the_environment_itself(env: str, within: float):
    task = environment_task(env)
    episode, after = random_episode(task, timing(env))
    assert episode.start is not None
    theirs = gymnasium.make(env).unwrapped
    theirs.reset(seed=3)
    theirs.set_state(episode.start.qpos, episode.start.qvel)
    total, count, ended = 0.0, 0, False
    while count < STEPS and not ended:
        _, reward, ended, _, _ = theirs.step(np.asarray(episode.actions)[count])
        np.testing.assert_allclose(theirs.data.qpos, after[count], atol=within)
        total, count = total + reward, count + 1
    metrics = measured(episode, task, timing(env)["ctrl_dt"])
    assert metrics["return"] == total == task.scoring.score(metrics)
    assert metrics["terminated"] == ended
    assert metrics.get("terminated_s", 0.0) == pytest.approx(count * theirs.dt if ended else 0.0)
    assert "success" not in metrics


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            "Hopper-v5",
            "The environment ends an episode where the height of the trunk is not 0.7 to inf m or its tilt is not "
            "-0.2 to 0.2 rad",
        ),
        ("Ant-v5", "The environment ends an episode where the height of the trunk is not 0.2 to 1 m"),
        ("Swimmer-v5", ""),
    ],
)
def test_requests_say_when_the_environment_ends_an_episode(env: str, said: str):
    """The ranges are those of Gymnasium's documentation."""
    focus = gymnasium_task(episode_s=1.0, env=env).scoring.focus
    assert said in focus
    assert ("The environment ends an episode" in focus) == bool(said)


def test_start_states_are_those_of_the_reset():
    qpos, qvel, _ = environment_task("Hopper-v5").start(np.random.default_rng(0), 50)
    assert len(np.unique(qpos[:, 1])) == 50
    assert np.abs(qpos - gymnasium.make("Hopper-v5").unwrapped.init_qpos).max() <= 5e-3
    assert np.abs(qvel).max() <= 5e-3


def test_control_steps_are_those_of_the_environment():
    optimizer = compose(["+task=gymnasium", "env=Ant-v5"]).optimizer
    assert (optimizer.ctrl_dt, optimizer.sim_dt, optimizer.replan_every) == (0.05, 0.01, 1)
    task = environment_task("Hopper-v5")
    episode, _ = random_episode(task, timing("Hopper-v5"))
    slow = episode.replace(steps=episode.steps.replace(time=2 * np.asarray(episode.steps.time)))
    with pytest.raises(UserError, match=r"acts every 0\.008 s; leave optimizer\.ctrl_dt out"):
        task.scoring.measure(slow, task)


def test_a_policy_of_joint_targets_is_refused_where_an_environment_plays_torques_again():
    config = compose(["+task=gymnasium", "env=Hopper-v5", "optimizer=ppo", "optimizer.ppo.action=pd"])
    with pytest.raises(UserError, match="action=pd commands joint targets, but Hopper-v5 plays the torques"):
        acting(config.optimizer, task_of(config))


def test_an_environment_of_ones_own_brings_its_success(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_spinning.py").write_text(SPINNING, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    config = compose(["+task=gymnasium", "env=own_spinning:Spinning", "task.settings.description=spin"])
    task = task_of(config)
    episode, _ = random_episode(task, timing("own_spinning:Spinning"))
    metrics = task.scoring.measure(episode, task)
    assert (metrics["return"], metrics["success"], metrics["terminated"]) == (2.0 * STEPS, 1.0, 0.0)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (None, r"set env=NAME, as in env=Ant-v5"),
        ("Ant-v7", r"there is no env 'Ant-v7'; did you mean 'Ant-v5'"),
        ("CartPole-v1", r"env=CartPole-v1 is no environment on MuJoCo"),
        ("nowhere:Thing", r"env=nowhere:Thing cannot be made: ModuleNotFoundError"),
    ],
)
def test_an_environment_that_cannot_be_a_task_is_told(env: str | None, said: str):
    with pytest.raises(UserError, match=said):
        task_of(compose(["+task=gymnasium", *([f"env={env}"] if env else [])]))


def own_value(theirs: Any, family: str, control: np.ndarray) -> float:
    """What the environment rewards at its present state, by its own code, without contact forces."""
    data = theirs.data
    if family == "InvertedPendulum":  # in its step alone
        return float(abs(data.qpos[1]) <= 0.2)
    if family in ("Pusher", "Reacher"):
        given = (control,)
    elif family == "InvertedDoublePendulum":
        x, _, y = data.site_xpos[0]
        given = (x, y, y <= 1)
    elif family == "HumanoidStandup":
        given = (data.qpos[2], control)
    elif family == "Humanoid":
        jacobian = np.zeros((3, theirs.model.nv))
        mujoco.mj_jacSubtreeCom(theirs.model, data, jacobian, theirs.model.body("torso").id)
        given = (jacobian[0] @ data.qvel, control)
    else:
        given = (data.qvel[0], control)
    reward, terms = theirs._get_rew(*given)
    return reward - terms.get("reward_contact", 0.0) - terms.get("reward_impact", 0.0)


def alive(theirs: Any, family: str) -> bool:
    """Whether an episode goes on at its present state, by its own code; later rewards do not count."""
    if family == "InvertedDoublePendulum":
        return bool(theirs.data.site_xpos[0][2] > 1)
    return family in ("HalfCheetah", "HumanoidStandup", "Swimmer") or bool(getattr(theirs, "is_healthy", True))


@pytest.mark.parametrize("family", sorted(DESCRIPTIONS))
def test_the_reward_of_an_environment_is_a_program(family: str):
    """On 100 random states; of forward velocity the one at the state, where the environment means over its step.

    A state that ends an episode earns 0, as do all after it in the environment.
    """
    env = f"{family}-v5"
    task, theirs, rng = environment_task(env), open_environment(env), np.random.default_rng(0)
    qpos, qvel, act = task.start(rng, 100)
    qpos, qvel = qpos + 0.1 * rng.standard_normal(qpos.shape), qvel + rng.standard_normal(qvel.shape)
    low, high = task.model.actuator_ctrlrange.T
    controls = rng.uniform(low, high, (100, task.model.nu))
    expected = []
    for row, speed, control in zip(qpos, qvel, controls, strict=True):
        theirs.set_state(row, speed)
        theirs.data.ctrl[:] = control
        expected.append(own_value(theirs, family, control) * alive(theirs, family))
    found = totals(task, qpos, qvel, act, controls)
    assert len(np.unique(np.round(expected, 3))) > (1 if family == "InvertedPendulum" else 50)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert task.rewards.human == task.rewards.environment
    assert reward_source("environment", task) == (task.rewards.environment, "environment")
