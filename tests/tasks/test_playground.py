"""Environments of MuJoCo Playground as tasks, compared with the models and resets that Playground itself gives."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import mujoco
import numpy as np
import pytest
from environment_episodes import random_episode, totals
from moving import episode_of
from vetting import refusals, with_every_term

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.engine.rewards import reward_source
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.playground import models as playground_models
from movlr_jax.tasks.playground.environments import GOALS

pytest.importorskip("mujoco_playground", reason="the package playground is not installed")
pytestmark = pytest.mark.usefixtures("elsewhere")

SUITE = ["CartpoleBalance", "HopperHop", "WalkerWalk", "CheetahRun", "HumanoidWalk", "ReacherEasy", "PendulumSwingup"]
QUICK = ["candidates=2", "generations=1", "episode_s=0.16", "optimizer.mppi.samples=2", "optimizer.horizon_s=0.064",
         "trials=1", "films=false"]  # fmt: skip


def made(env: str, **settings: object) -> Task:
    return build_task("playground", "own", 1.0, {"env": env, **settings})


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    return {env: made(env) for env in SUITE}


@pytest.mark.parametrize("env", [env for env in SUITE if env != "ReacherEasy"])
def test_the_model_moves_as_that_of_playground(tasks: dict[str, Task], env: str):
    """Both stepped by C MuJoCo from the same start; MuJoCo 3.17 does not load Playground's own reacher."""
    from mujoco_playground import registry

    theirs = registry.load(env, config_overrides={"impl": "jax"}).mj_model
    ours = tasks[env].model
    assert (ours.nq, ours.nv, ours.nu, ours.nbody) == (theirs.nq, theirs.nv, theirs.nu, theirs.nbody)
    qpos, qvel, _ = tasks[env].start(np.random.default_rng(0), 1)
    ends = []
    for model in (ours, theirs):
        data = mujoco.MjData(model)
        model.opt.timestep, data.qpos[:], data.qvel[:] = 0.002, qpos[0], qvel[0]
        for i in range(50):
            data.ctrl[:] = 0.5 * np.sin(0.1 * i + np.arange(model.nu))
            mujoco.mj_step(model, data)
        ends.append(data.qpos.copy())
    assert np.allclose(*ends, atol=1e-5)
    assert not np.allclose(ends[0], qpos[0], atol=1e-3)


def test_the_start_is_the_reset_of_the_environment():
    from mujoco_playground import registry

    theirs = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    taken = playground_models.load_environment("CartpoleBalance")
    data = jax.jit(theirs.reset)(jax.random.key(7)).data
    qpos, qvel = taken.reset(7)
    assert np.allclose(qpos, data.qpos)
    assert np.allclose(qvel, data.qvel)
    assert not np.allclose(qpos, taken.reset(8)[0])


def test_a_target_stands_where_the_reset_puts_it(tasks: dict[str, Task]):
    near, other = tasks["ReacherEasy"], made("ReacherEasy", reset_seed=3)
    data = mujoco.MjData(near.model)
    mujoco.mj_forward(near.model, data)
    assert np.allclose(data.body("target").xpos, near.goals["finger_pos"], atol=1e-6)
    assert 0.05 <= np.linalg.norm(near.goals["finger_pos"][:2]) <= 0.2, "as Playground draws it"
    assert np.linalg.norm(near.goals["finger_pos"] - other.goals["finger_pos"]) > 0.01


@pytest.mark.parametrize("env", ["CartpoleBalance", "HumanoidWalk", "ReacherEasy"])
def test_rewards_and_terms_run(tasks: dict[str, Task], env: str):
    task = tasks[env]
    assert refusals(task, task.rewards.initial, task.rewards.human, *with_every_term(task)) == []


# Measures.


def test_a_walker_is_measured_until_it_falls(tasks: dict[str, Task]):
    """The walker's joints: rootz, rootx, rooty. 1.3 m high at the start, it has fallen below 0.78 m."""
    task = tasks["WalkerWalk"]
    qpos = np.zeros((21, task.model.nq))
    qpos[:, 1] = 0.1 * np.arange(21)  # 1 m/s
    task = made("WalkerWalk", measured_by="task")
    metrics = task.scoring.measure(episode_of(task, list(qpos)), task)
    assert metrics["distance_m"] == pytest.approx(2.0, abs=1e-5)
    assert metrics["mean_speed_m_s"] == pytest.approx(1.0, abs=1e-5)
    assert (metrics["fell"], metrics["success"]) == (0.0, 1.0)
    qpos[11:, 0] = -0.6
    fallen = task.scoring.measure(episode_of(task, list(qpos)), task)
    assert (fallen["fell"], fallen["success"]) == (1.0, 0.0)
    assert fallen["distance_m"] == pytest.approx(1.0, abs=1e-5)
    assert fallen["time_to_fall_s"] == pytest.approx(1.0, abs=1e-5)
    assert task.scoring.score(metrics) > task.scoring.score(fallen)
    assert [need.kind for need in task.scoring.diagnose(fallen)][:1] == ["upright"]


@pytest.mark.parametrize(
    ("env", "within"),
    [("CartpoleBalance", 1e-5), ("ReacherEasy", 1e-4), pytest.param("WalkerWalk", 1e-3, marks=pytest.mark.slow)],
)
def test_rewards_are_those_of_the_environment(env: str, within: float):
    """Compared with the environment itself, as MJX simulates it from the same state: over 10 steps, both agree."""
    task, steps, count = made(env, start="reset"), playground_models.timing(env), 10
    played, _ = random_episode(task, steps, count=count)
    theirs = playground_models.load_environment(env).own.env
    state = jax.jit(theirs.reset)(jax.random.key(0))
    assert played.start is not None
    state = state.replace(data=state.data.replace(qpos=played.start.qpos, qvel=played.start.qvel))
    step, rewards = jax.jit(theirs.step), []
    for action in np.asarray(played.actions):
        state = step(state, action)
        rewards.append(float(state.reward))
    metrics = task.scoring.measure(played, task)
    assert (
        metrics["environment_return"]
        == pytest.approx(sum(rewards), rel=within, abs=1e-5)
        == task.scoring.score(metrics)
    )
    assert metrics["environment_terminated"] == float(state.done)
    assert {name.partition("/")[2] for name in state.metrics} == {
        name.removeprefix("environment_") for name in metrics if name.startswith("environment_")
    } - {"return", "terminated"}
    slow = played.replace(steps=played.steps.replace(time=2 * np.asarray(played.steps.time)))
    with pytest.raises(UserError, match=r"acts every 0\.\d+ s; leave optimizer\.ctrl_dt out"):
        task.scoring.measure(slow, task)


def test_control_steps_are_those_of_the_environment():
    optimizer = compose(["+task=playground", "env=HopperHop"]).optimizer
    assert (optimizer.ctrl_dt, optimizer.sim_dt) == (0.02, 0.005)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["env=CartpoleBalanse"], r"there is no environment of MuJoCo Playground 'CartpoleBalanse'; did you mean"),
        ([], r"set env=NAME, for example env=CartpoleBalance"),
        (["env=CartpoleBalance", "task.settings.measured_by=me"], r"did you mean|environment"),
    ],
)
def test_what_cannot_be_a_task_is_told(settings: list[str], said: str):
    with pytest.raises(UserError, match=said):
        task_of(compose(["+task=playground", *settings]))


# The commands.


def test_evaluate_and_search_run(capfd: pytest.CaptureFixture[str]):
    asked = ["+task=playground", "env=CartpoleBalance", "seed=0", "optimizer=mppi", *QUICK]
    assert evaluate([*asked, "reward=human"]) == 0
    result = json.loads(capfd.readouterr().out.strip().splitlines()[-1])
    assert (result["task"], result["model"], result["reward"]) == ("CartpoleBalance", "CartpoleBalance", "human")
    assert result["object_position_error_m"] < 0.3
    assert search([*asked, "run_dir=found"]) == 0
    assert Path("found/best.py").is_file()
    assert Path("found/report.html").is_file()


@pytest.mark.parametrize("env", sorted(name for name, goal in GOALS.items() if goal.rewarded))
def test_the_reward_of_an_environment_is_a_program(env: str):
    """On 100 random states, which the environment's own code rewards after C MuJoCo has brought them up to date."""
    from mujoco_playground import registry

    task, rng = made(env), np.random.default_rng(0)
    theirs: Any = registry.load(env, config_overrides={"impl": "jax"})
    qpos, qvel, act = task.start(rng, 100)
    near = env == "PointMass"  # farther away it earns nothing
    qpos = (0.01 if near else 0.2) * rng.standard_normal(qpos.shape) + (0 if near else qpos)
    qvel = qvel + 2.0 * rng.standard_normal(qvel.shape)
    controls = rng.uniform(-1.2, 1.2, (100, task.model.nu))
    data, expected = mujoco.MjData(theirs.mj_model), []
    for body in np.flatnonzero(theirs.mj_model.body_mocapid >= 0):  # targets, where the reset of the task put them
        data.mocap_pos[theirs.mj_model.body_mocapid[body]] = task.model.body(theirs.mj_model.body(body).name).pos
    for row, speed, control in zip(qpos, qvel, controls, strict=True):
        data.qpos[:], data.qvel[:] = row, speed
        mujoco.mj_normalizeQuat(theirs.mj_model, data.qpos)
        mujoco.mj_forward(theirs.mj_model, data)
        arrays = {name: getattr(data, name) for name in ("qpos", "qvel", "xpos", "xipos", "site_xpos", "sensordata")}
        turned = {name: getattr(data, name).reshape(-1, 3, 3) for name in ("xmat", "geom_xmat")}
        seen = SimpleNamespace(**arrays, **turned, geom_xpos=data.geom_xpos)
        expected.append(float(theirs._get_reward(seen, control, {}, {})))
    found = totals(task, qpos, qvel, act, controls)
    assert len(np.unique(np.round(expected, 4))) > (1 if env == "PendulumSwingup" else 20)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert reward_source("environment", task) == (task.rewards.environment, "environment")
