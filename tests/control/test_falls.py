"""What a training sees of a sentence: a fall ends its episodes and lasts, and where the body is says nothing."""

from __future__ import annotations

import jax
import mujoco
import numpy as np
import pytest

pytest.importorskip("brax", reason="the extra ppo is not installed")

from bodies import QUADRUPED
from test_ppo import SMALL

import movlr_jax as mj
from movlr_jax._util.settings import changed
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.optimizers import Ppo
from movlr_jax.control.ppo.trainer import PpoTrainer

KEY = jax.random.key(1)


def trainer_of(words: str, **settings) -> PpoTrainer:
    task = mj.simple_task(name="own", model=mujoco.MjSpec.from_string(QUADRUPED), description=words)
    config = Ppo(sim_dt=0.005, ctrl_dt=0.02, ppo=changed(SMALL, **settings))
    made = build_optimizer(config, task.replace(episode_s=1.0))
    assert isinstance(made, PpoTrainer)
    return made


def test_fall_ends_an_episode_of_a_training():
    """Half of the bodies are turned on their backs in the air; the others fall no lower than 60 % within 0.1 s."""
    found = {}
    for words in ("walk forward", "lie down"):
        ppo = trainer_of(words)
        learners, fleet = ppo.begin(1, KEY)
        qpos = np.array(fleet.state.qpos, float)
        qpos[:4, 3:7] = [0.0, 1.0, 0.0, 0.0]
        state = ppo.physics.start(qpos, np.zeros_like(fleet.state.qvel), np.asarray(fleet.state.act))
        params = (learners.normalizer, learners.params.policy)
        segment, _ = ppo.collect(params, fleet.replace(state=state), KEY, 1)
        found[words] = segment.terminated.any(axis=1).tolist()
    assert found == {"walk forward": [True] * 4 + [False] * 4, "lie down": [False] * 8}


def test_reward_after_a_fall_is_the_poorest_for_ever():
    """By hand: the least reward is 101, the others 102; with a discount of 0.9, 101 counts 0.9 / 0.1 = 9 times."""
    ppo = trainer_of("walk forward", discount=0.9)
    learners, fleet = ppo.begin(1, KEY)
    segment, _ = ppo.collect((learners.normalizer, learners.params.policy), fleet, KEY, 1)
    over = np.zeros(segment.valid.shape, bool)
    over[2, 4] = True
    segments = [segment.__class__(**{**vars(segment), "terminated": over})]
    rewards = np.resize([101.0, *[102.0] * 9], over.shape).astype(np.float32)[None]
    changes = ppo._lasting(rewards, segments, 1) - rewards
    assert changes[0, 2, 4] == pytest.approx(9 * 101.0, rel=1e-5)
    changes[0, 2, 4] = 0.0
    assert not changes.any()


@pytest.mark.parametrize(
    ("words", "sees"),
    [
        ("walk forward", [-0.3]),  # how far to the left
        ("walk backward", [0.3]),
        ("walk forward 2 m", [0.4, -0.3]),
        ("stand still", [0.4, -0.3]),
    ],
)
def test_policy_sees_where_it_is_only_if_that_matters(words: str, sees: list[float]):
    ppo = trainer_of(words, observe=("qpos",))
    step = jax.tree.map(lambda x: np.asarray(x[0], np.float32), ppo.pool.step)
    moved = step.replace(qpos=step.qpos + np.array([0.4, -0.3] + [0.0] * (len(step.qpos) - 2), np.float32))
    change = np.asarray(ppo.see(moved)) - np.asarray(ppo.see(step))
    np.testing.assert_allclose(change[change != 0.0], sees, atol=1e-6)
