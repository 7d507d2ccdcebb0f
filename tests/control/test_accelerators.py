"""The programs of a replan and of a training are lowered for CUDA and TPU on a machine with neither.

Each of them is whole and runs in single precision: it calls back to no host and no library of the CPU, and all its
shapes are known.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from lowering import Recorder, faults, recording
from programs import program
from test_ppo import cart_task

from movlr_jax._util.settings import changed
from movlr_jax.config.compose import compose
from movlr_jax.control.build import build_planner
from movlr_jax.control.optimizers import Ppo
from movlr_jax.control.ppo.build import build_ppo
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.control.ppo.training import CurveRecorder
from movlr_jax.control.settings import OptimizerSettings
from movlr_jax.engine.tasks import task_of
from movlr_jax.tasks import Task

pytest.importorskip("mujoco.mjx")
KEY = jax.random.key(0)
TRAINING = changed(PpoConfig(), envs=4, unroll=3, unrolls=2, minibatches=2, epochs=2, hidden=(8,), value_hidden=(8,))
TERMS = ("state.com[2] - jnp.mean(action ** 2)", "state.com_vel[0] * jnp.exp(-state.time)")
REWARDS = [program(term) for term in TERMS]


def replan(config: OptimizerSettings, task: Task) -> Recorder:
    """Return the programs of one replan of two candidates."""
    with recording() as recorder:
        planner = build_planner(config, task, "mjx")
        start = planner.sim_physics.start(*task.start(np.random.default_rng(0), 2))
        controllers = planner.optimise(REWARDS, KEY)
        held = planner.space.held(start)
        controllers.replan(planner.init(held), start, start.step, held, KEY, KEY)
    return recorder


def training(config: Ppo, task: Task) -> Recorder:
    """Return the programs of one batch of a training of two candidates: collect, relabel, update."""
    with recording() as recorder:
        ppo = build_ppo(config, task, "mjx", print)
        state = ppo.begin(2, KEY)
        ppo.step(REWARDS, state, KEY, CurveRecorder(REWARDS, ppo.config.batch, ppo.physics.ctrl_dt))
    return recorder


def assert_whole(recorder: Recorder, *expected: str) -> None:
    """Every program can run on an accelerator, and the `expected` ones are among them."""
    names = {program.name for program in recorder.programs}
    for part in expected:
        assert any(part in name for name in names), (part, names)
    wrong = {program.name: found for program in recorder.programs if (found := faults(program.text))}
    assert not wrong


def test_a_training_of_a_pole_on_a_cart():
    config = Ppo(sim_dt=0.01, ctrl_dt=0.02, ppo=TRAINING)
    assert_whole(training(config, cart_task()), "Ppo", "Programs", "_score", "total")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [["task=humanoid_walk"], ["task=flat_walk", "model=ms_human_700_legs"], ["task=bottle_pour", "model=myoarm_r"]],
    ids=["humanoid", "legs of 100 muscles", "arm of 63 muscles"],
)
def test_a_replan_of(settings: list[str]):
    config = compose([*settings, "optimizer.mppi.samples=4", "optimizer.horizon_s=0.1"])
    assert_whole(replan(config.optimizer, task_of(config)), "Planner", "Programs", "_score", "total")
