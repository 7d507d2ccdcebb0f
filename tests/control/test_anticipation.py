"""Targets with which muscles follow a stride: by hand, and on the legs that hang in the air."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.config.compose import compose
from movlr_jax.control.ppo.build import build_ppo
from movlr_jax.control.ppo.walking.anticipation import PHASES, at_phase, recorded_targets
from movlr_jax.engine.tasks import task_of

LEGS = ["+task=flat_walk", "model=ms_human_700_legs", "optimizer=ppo", "tuned=false", "optimizer.ppo.action=posture",
        "optimizer.ppo.teacher=reference", "optimizer.ppo.observe=[gait,joints]", "optimizer.muscle.law=torque",
        "optimizer.muscle.kp=2", "optimizer.muscle.kd=0.1", "optimizer.pd.beta=1.6", "optimizer.ppo.reach=limits",
        "optimizer.ppo.starts=2"]  # fmt: skip


def test_angles_between_the_phases_of_a_table_are_interpolated_around_its_end():
    table = jnp.asarray(np.arange(PHASES)[:, None] * [1.0, 10.0])
    np.testing.assert_allclose(at_phase(table, 3.25 / PHASES), [3.25, 32.5], rtol=1e-5)
    np.testing.assert_allclose(at_phase(table, 2 + 3.25 / PHASES), [3.25, 32.5], rtol=1e-4)
    np.testing.assert_allclose(at_phase(table, 1 - 0.5 / PHASES), [24.5, 245.0], rtol=1e-4)


@pytest.mark.slow
def test_joints_follow_the_stride_with_learned_targets():
    task = task_of(compose([*LEGS, "reference=people"]))
    said: list[str] = []
    ppo = build_ppo(compose([*LEGS, "reference=people"]).optimizer, task, say=said.append)
    (line,) = said
    assert float(line.split()[-3]) < 3.5, line  # degrees off, of all commanded joints
    targets, joints = ppo.space.targets, ppo.space.targets.joints
    recorded = recorded_targets(task, joints, np.asarray(targets.rest))
    knee = joints.index("knee_angle_r")
    learned = ppo.first.teacher.targets[:, knee]
    # the knee is told to bend further and earlier than it is to bend
    assert learned.max() > recorded[:, knee].max()
    assert np.mod(recorded[:, knee].argmax() - learned.argmax(), PHASES) in range(1, PHASES // 5)
    ppo.physics.close()
