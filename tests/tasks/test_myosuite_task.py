"""Environments of MyoSuite as tasks: what they measure is what they say themselves."""

from __future__ import annotations

import sys
from typing import Any

import mujoco
import numpy as np
import pytest
from environment_episodes import STEPS, random_episode, totals

from movlr_jax.config.compose import compose
from movlr_jax.engine.rewards import reward_source
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.base import measured
from movlr_jax.tasks.environments.myosuite_task import settings_of

pytest.importorskip("myosuite", reason="the package myosuite is not installed")
gymnasium = pytest.importorskip("gymnasium")


def made(env: str, **settings: object) -> Task:
    return build_task("myosuite", "own", 1.0, {"env": env, **settings})


def action_for(control: np.ndarray, theirs: Any, env: str) -> np.ndarray:
    """The action for a control, after the formulas of MyoSuite: legs take controls, other muscles a sigmoid."""
    muscles = theirs.model.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE
    if "Leg" in env:
        return control
    if not muscles.any():
        low, high = theirs.model.actuator_ctrlrange.T
        return (control - (low + high) / 2) / ((high - low) / 2)
    share = np.where(muscles, control, 0.5)
    return np.where(muscles, 0.5 + np.log(share / (1 - share)) / 5, control)


# contacts and limits amplify that our physics begins every control step without the warm start of the solver
@pytest.mark.parametrize(
    ("env", "within"),
    [
        ("myoElbowPose1D6MRandom-v0", 1e-9),
        ("myoElbowPose1D6MExoRandom-v0", 1e-6),  # with a weight that the reset draws
        ("motorFingerPoseFixed-v0", 1e-9),
        ("myoFingerReachRandom-v0", 1e-9),
        ("myoSarcHandPoseFixed-v0", 1e-9),
        ("myoHandReorientOOD-v0", 1e-9),  # with an object that the reset draws
        ("myoLegRoughTerrainWalk-v0", 1e-3),  # with terrain that the reset draws
        ("myoHandObjHoldRandom-v0", 1e-2),
    ],
)
def test_an_episode_is_measured_by_the_environment_itself(env: str, within: float):
    task, steps = made(env), settings_of(env)
    episode, after = random_episode(task, steps)
    assert episode.start is not None
    theirs = gymnasium.make(env).unwrapped
    theirs.reset(seed=0)
    if theirs.model.na:
        theirs.data.act[:] = episode.start.act
    theirs.set_state(episode.start.qpos, episode.start.qvel)
    total, count, ended, solved = 0.0, 0, False, []
    while count < STEPS and not ended:
        control = np.asarray(episode.actions, float)[count]
        _, reward, ended, _, info = theirs.step(action_for(control, theirs, env))
        np.testing.assert_allclose(theirs.data.ctrl, control, atol=1e-6)
        np.testing.assert_allclose(theirs.data.qpos, after[count], atol=within)
        total, count = total + reward, count + 1
        solved.append(bool(info["solved"]))
    metrics = measured(episode, task, steps["ctrl_dt"])
    assert metrics["return"] == pytest.approx(total, rel=1e-6) == task.scoring.score(metrics)
    assert metrics["terminated"] == ended
    assert metrics.get("terminated_s", 0.0) == pytest.approx(count * steps["ctrl_dt"] if ended else 0.0)
    assert metrics["solved_fraction"] == np.mean(solved)
    assert metrics["success"] == (sum(solved) > 5)
    assert measured(episode, task, steps["ctrl_dt"]) == metrics, "a replay leaves nothing behind"


def test_start_states_are_those_of_the_reset_and_the_target_is_that_of_reset_seed():
    task = made("myoElbowPose1D6MRandom-v0", reset_seed=3)
    theirs = gymnasium.make("myoElbowPose1D6MRandom-v0").unwrapped
    theirs.reset(seed=3)
    assert task.goals["target_angles"] == pytest.approx(theirs.target_jnt_value, rel=1e-6)
    qpos, _, act = task.start(np.random.default_rng(0), 50)
    low, high = theirs.model.jnt_range[0]
    assert len(np.unique(qpos)) == 50
    assert low <= qpos.min() < low + 0.2
    assert high - 0.2 < qpos.max() <= high
    assert not act.any()
    assert made("myoElbowPose1D6MRandom-v0").goals["target_angles"] != task.goals["target_angles"]


def test_targets_of_fingertips_are_goals():
    task = made("myoHandReachFixed-v0")
    theirs = gymnasium.make("myoHandReachFixed-v0").unwrapped
    theirs.reset(seed=0)
    tips = ("THtip_r", "IFtip_r", "MFtip_r", "RFtip_r", "LFtip_r")
    assert {f"{tip}_pos" for tip in tips} == task.goals.keys()
    for tip in tips:
        assert task.goals[f"{tip}_pos"] == pytest.approx(theirs.data.site(f"{tip}_target").xpos, abs=1e-6)
        assert f'state.site("{tip}")' in task.rewards.initial


@pytest.mark.parametrize(
    "env",
    [
        "myoElbowPose1D6MRandom-v0",
        "myoElbowPose1D6MExoFixed-v0",
        "motorFingerPoseRandom-v0",
        "myoHandPoseFixed-v0",
        "myoTorsoPoseFixed-v0",
        "motorFingerReachRandom-v0",
        "myoHandReachFixed-v0",
        "myoHandObjHoldRandom-v0",
    ],
)
def test_the_reward_of_an_environment_is_a_program(env: str):
    """On 100 random states around the target, by the environment's own code."""
    task, theirs, rng = made(env), gymnasium.make(env).unwrapped, np.random.default_rng(0)
    theirs.reset(seed=0)
    qpos, qvel, act = task.start(rng, 100)
    near = rng.uniform(0, 1, (100, 1)) ** 3  # from the target or the start to far away
    if (angles := getattr(theirs, "target_jnt_value", None)) is not None:
        qpos[:50, : len(angles)] = angles
    qpos = qpos + near * rng.standard_normal(qpos.shape) * (0.1 if "ObjHold" in env else 1.0)
    act = rng.uniform(0, 1, act.shape)
    expected = []
    for row, speed, activation in zip(qpos, qvel, act, strict=True):
        theirs.data.act[:], theirs.data.time = activation, 1.0
        theirs.set_state(row, speed)
        expected.append(theirs.get_reward_dict(theirs.get_obs_dict(theirs._accessor))["dense"])
    found = totals(task, qpos, qvel, act, np.zeros((100, task.model.nu)))
    assert len(np.unique(np.round(expected, 3))) > 60
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert task.rewards.human == task.rewards.environment


def test_an_environment_whose_reward_is_no_program_is_told():
    task = made("myoHandKeyTurnFixed-v0")
    with pytest.raises(UserError, match=r"there is no reward 'environment': give a file.* one of: human, initial"):
        reward_source("environment", task)


def test_settings_are_those_of_the_environment():
    config = compose(["+task=myosuite", "env=myoHandKeyTurnFixed-v0"])
    assert (config.optimizer.ctrl_dt, config.optimizer.sim_dt, config.episode_s) == (0.02, 0.002, 4.0)
    assert compose(["+task=myosuite", "env=myoHandKeyTurnFixed-v0", "episode_s=1"]).episode_s == 1.0
    assert task_of(config).name == "myoHandKeyTurnFixed-v0"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (None, r"set env=NAME, as in env=myoHandPoseFixed-v0"),
        ("myoHandPoseFixed-v1", r"there is no env 'myoHandPoseFixed-v1'; did you mean 'myoHandPoseFixed-v0'"),
        ("myoFatiElbowPoseTaskFixed-v0", r"changes the controls of muscles \(fatigue\), which our physics"),
        ("myoReafHandPoseFixed-v0", r"changes the controls of muscles \(reroute\), which our physics"),
        ("myoChallengeOslRunFixed-v0", r"has not one action for each actuator"),
        ("myoChallengeSoccerP1-v0", r"say what env=myoChallengeSoccerP1-v0 rewards, as in task.settings.description"),
    ],
)
def test_an_environment_that_cannot_be_a_task_is_told(env: str | None, said: str):
    with pytest.raises(UserError, match=said):
        task_of(compose(["+task=myosuite", *([f"env={env}"] if env else [])]))


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "myosuite", None)
    with pytest.raises(UserError, match=r"needs the package 'myosuite'.*pip install 'movlr-jax\[myosuite\]'"):
        made("myoHandPoseFixed-v0")
