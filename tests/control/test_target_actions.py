"""Policies that command what plans command."""

from __future__ import annotations

import re

import jax
import mujoco
import numpy as np
import pytest

pytest.importorskip("brax", reason="the extra ppo is not installed")

from test_posture import SMALL
from test_targets import ARM, task_of

from movlr_jax._util.settings import changed
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.optimizers import Ppo
from movlr_jax.control.ppo.trainer import PpoTrainer


def test_policy_commands_targets_and_its_torques_move_the_users_model_alike():
    config = Ppo(sim_dt=0.002, ctrl_dt=0.002, ppo=changed(SMALL, action="targets"))
    ppo = build_optimizer(config, task_of(ARM).replace(episode_s=0.2))
    assert isinstance(ppo, PpoTrainer)
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


@pytest.mark.parametrize(
    ("model", "settings", "action"),
    [
        (ARM, {}, "targets of plans"),
        (ARM, {"action": "controls"}, "controls"),
        (re.sub("<motor ([^>]*)/>", r'<position \1 kp="9"/>', ARM), {}, "controls"),  # they are targets already
    ],
)
def test_policies_command_targets_where_motors_have_no_servos(model: str, settings: dict[str, str], action: str):
    ppo = build_optimizer(Ppo(ppo=changed(SMALL, **{"action": "auto", **settings})), task_of(model))
    assert isinstance(ppo, PpoTrainer)
    assert ppo.notes["action"] == action
    assert ppo.config.policy.action == action.split()[0], "the file of a policy says what it commands"
