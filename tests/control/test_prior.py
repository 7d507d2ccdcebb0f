"""Plans around a trained policy, against the policy itself, and around a stride."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import program
from tiny_task import task as tiny_task

from movlr_jax._util.settings import changed
from movlr_jax.config.compose import compose
from movlr_jax.control import muscle_controllers as laws
from movlr_jax.control.build import build_optimizer, close
from movlr_jax.control.mpc import rules
from movlr_jax.control.optimizers import Mpc2, Ppo
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.control.ppo.policy_file import save_policy
from movlr_jax.control.ppo.trainer import PpoTrainer
from movlr_jax.control.settings import PriorConfig
from movlr_jax.engine.tasks import task_of
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.rewards.state import reference_name
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.types import Trajectory

TASK = tiny_task()
KICK = program('-jnp.linalg.norm(state.pos("foot") - state.goal("foot_pos"))')
BEND = program('state.q("knee")')
STEPS = 10


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Mpc2:
    """PPO from a policy that nobody has trained, but whose actions differ from state to state."""
    given = {
        "ctrl_dt": 0.01,
        "muscle": laws.Torque(kp=0.7, kd=0.05),
        "ppo": changed(
            PpoConfig(), env_steps=0, envs=2, starts=2, hidden=(16,), value_hidden=(16,), action="posture"
        ),
    }
    ppo = build_optimizer(Ppo(**given), TASK)
    assert isinstance(ppo, PpoTrainer)
    learners, _ = ppo.begin(1, jax.random.key(5))
    path = tmp_path_factory.mktemp("policy") / "policy_k00.npz"
    save_policy(path, jax.tree.map(lambda x: x[0], learners), ppo.config)
    config = Mpc2(plan_dt=0.005, horizon_s=0.08, knots=3, mppi=rules.Mppi(samples=1), **given)
    return replace(config, ppo=replace(config.ppo, init=str(path)), prior=PriorConfig(policy=str(path)))


def planner(config: Mpc2, **mppi: Any) -> Mpc2:
    return replace(config, mppi=rules.Mppi(**mppi))


def policy(config: Mpc2) -> Ppo:
    """Return the settings of the policy alone, without plans."""
    names = ("ctrl_dt", "sim_dt", "ppo", "pd", "groups", "muscle")
    return Ppo(**{name: getattr(config, name) for name in names})


def episode(config: Mpc2 | Ppo, reward: RewardProgram = KICK) -> Trajectory:
    """STEPS control steps under one program, always from the same start."""
    optimizer = build_optimizer(config, TASK)
    start = optimizer.sim_physics.start(*TASK.start(np.random.default_rng(3), 1))
    return optimizer.optimise([reward], jax.random.key(0)).rollout(start, steps=STEPS, key=jax.random.key(0))


@pytest.mark.slow
def test_one_sample_is_the_policy(config: Mpc2):
    """Nothing is added: the same controls at every step as where the policy acts for itself."""
    alone, beneath = episode(policy(config)), episode(planner(config, samples=1))
    assert np.ptp(alone.actions, axis=1).max() > 0.05, "a policy that holds still would say little"
    np.testing.assert_allclose(beneath.actions, alone.actions, atol=1e-5)
    np.testing.assert_allclose(beneath.steps.qpos, alone.steps.qpos, atol=1e-5)


@pytest.mark.parametrize("acts", ["mode", pytest.param("sample", marks=pytest.mark.slow)])
def test_plans_find_what_their_reward_asks_for(config: Mpc2, acts: str):
    """The knee bends further than under the policy alone, whose noise befalls rollouts and episode alike."""
    config = replace(config, ppo=replace(config.ppo, acts=acts))
    knee = [
        episode(planner(config, samples=n, sigma=0.3), BEND).steps.qpos[0, -1, TASK.model.joint("knee").qposadr[0]]
        for n in (1, 24)
    ]  # fmt: skip
    assert knee[1] > knee[0] + 0.02


def test_a_plan_is_added_to_what_the_policy_commands(config: Mpc2):
    """At each instant the controls of numbers + plan between its knots, held in [-1, 1]."""
    built: Any = build_optimizer(planner(config), TASK)
    trained = build_optimizer(policy(config), TASK)
    assert isinstance(trained, PpoTrainer)
    space, physics, numbers = built.space, built.sim_physics, trained.acting()
    state = physics.start(*TASK.start(np.random.default_rng(1), 1))
    np.testing.assert_array_equal(space.held(state), np.zeros((1, 3, trained.space.size)))
    plans = np.random.default_rng(2).uniform(-1, 1, (1, 1, 3, trained.space.size)).astype(np.float32)
    done = physics.rollout(
        state, built.sim_policy, space.params(physics, state, plans), steps=1, key=jax.random.key(0)
    )
    view = jax.tree.map(lambda x: jnp.asarray(x[0], jnp.float32), state.step)
    wanted = numbers(view, jax.random.key(0)) + plans[0, 0, 0]
    expected = trained.space.controls(jnp.clip(wanted, -1.0, 1.0), view, physics.sim_dt, physics.ctrl_dt)
    np.testing.assert_allclose(done.actions[0, 0], expected, atol=1e-5)


def test_a_plan_around_a_stride_adds_to_its_targets():
    """One sample, the stride alone: for 0.9 s the joints move as people's do. No policy is read.

    In the air, all commanded joints follow it within 3.5 degrees.
    """
    said: list[str] = []
    config = compose(
        ["+task=flat_walk", "model=ms_human_700_legs", "optimizer.prior.policy=reference", "optimizer.mppi.samples=1"]
    )
    assert (config.reference, config.optimizer.ppo.init) == ("people", "")
    task = task_of(config)
    planner: Any = build_optimizer(config.optimizer, task, say=said.append)
    (line,) = [text for text in said if "learned in the air" in text]
    assert float(line.split()[-3]) < 3.5, line
    assert planner.notes["policy"] == "reference"
    start = planner.sim_physics.start(*task.start(np.random.default_rng(0), 1))
    controllers = planner.optimise([load(parse(task.rewards.human))], jax.random.key(0))
    steps = controllers.rollout(start, steps=45, key=jax.random.key(0)).steps
    phase = np.asarray(steps.time)[0] * float(task.goals["stride_frequency"])
    for joint in ("knee_angle_r", "hip_flexion_r"):  # the left leg bears the body
        people = task.reference[reference_name(joint)]
        people = np.interp(phase, np.linspace(0, 1, len(people)), people)
        angle = np.asarray(steps.qpos)[0, :, task.model.joint(joint).qposadr[0]]
        assert np.corrcoef(people[10:], angle[10:])[0, 1] > 0.6, joint  # muscles answer late
    close(planner)


def test_a_policy_brings_its_own_law_and_rhythm_beneath_what_is_set():
    """The planner's own gains mean nothing to a policy that was trained under others."""
    name = "flat_walk_ms_human_700_legs"
    given = ["+task=slope_walk", "model=ms_human_700_legs"]
    around = compose([*given, f"optimizer.prior.policy={name}", "optimizer.mppi.samples=5"])
    trained = compose([*given[1:], "+task=flat_walk", "optimizer=ppo"])
    assert (around.optimizer.name, around.optimizer.prior.policy) == ("mpc2", name)
    for setting in ("muscle", "pd", "ctrl_dt", "ppo"):
        assert getattr(around.optimizer, setting) == getattr(trained.optimizer, setting)
    assert around.task.settings["stride_frequency_hz"] == trained.task.settings["stride_frequency_hz"]
    assert around.optimizer.mppi.samples == 5
    assert compose(given).optimizer.prior.policy == ""
