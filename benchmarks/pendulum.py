"""Brax's inverted pendulum, as an environment of Brax and as a task of ours: the same model, sizes and rewards.

The reward of Brax is 1 a step until the pole leans by 0.2 rad; variants of it stand for the programs of a search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import brax
import jax
import jax.numpy as jnp
import numpy as np
from brax.envs.base import State, Wrapper
from brax.envs.inverted_pendulum import InvertedPendulum

from movlr_jax._util.settings import changed
from movlr_jax.control.optimizers import Ppo
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import simple_task
from movlr_jax.types import Step

MODEL = Path(brax.__file__).parent / "envs" / "assets" / "inverted_pendulum.xml"
SIM_DT, CTRL_DT, EPISODE = 0.02, 0.04, 1000  # s, s, control steps
LEAN = 0.2  # rad, where an episode ends

PPO = changed(
    PpoConfig(),
    env_steps=200_000,
    envs=64,
    unroll=10,
    unrolls=4,
    minibatches=8,
    epochs=4,
    learning_rate=1e-3,
    discount=0.97,
    gae_lambda=0.95,
    clip=0.3,
    entropy=1e-2,
    max_grad_norm=0.0,
    reward_scale=0.1,
    normalise_returns=False,
    clip_observation=0.0,
    hidden=(32, 32),
    value_hidden=(64, 64),
    observe=("qpos", "qvel"),
    starts=256,
    checkpoint_every=10**6,
)


def settings(ppo: PpoConfig = PPO) -> Ppo:
    return Ppo(sim_dt=SIM_DT, ctrl_dt=CTRL_DT, ppo=ppo)


@dataclass(frozen=True)
class Reward:
    """One reward for both: 1 - lean q1^2 - speed |qd| a step."""

    lean: float = 0.0
    speed: float = 0.0

    @property
    def program(self) -> RewardProgram:
        terms = {"alive": "1.0 + 0.0 * state.time"}
        terms |= {"lean": 'jnp.square(state.q("hinge"))'} if self.lean else {}
        terms |= {"speed": "jnp.sum(jnp.abs(state.qvel))"} if self.speed else {}
        weights = {"alive": 1.0, "lean": -self.lean, "speed": -self.speed}
        body = "\n".join(f"        {name!r}: {value}," for name, value in terms.items())
        source = (
            f'"""Keep the pole up."""\n\nWEIGHTS = { ({name: weights[name] for name in terms}) }\n\n\n'
            f"def reward(state, action):\n    return {{\n{body}\n    }}\n"
        )
        return load(parse(source))

    def of(self, observation: jax.Array) -> jax.Array:
        """The same from Brax's observation [q, qd]."""
        speed = jnp.abs(observation[2:]).sum()
        return 1.0 - self.lean * observation[1] ** 2 - self.speed * speed


def rewards(k: int) -> list[Reward]:
    """K different ones; the first is Brax's own."""
    return [Reward(lean=0.5 * (i % 4), speed=0.01 * (i // 4)) for i in range(k)]


class Rewarded(Wrapper):
    """The environment of Brax under another reward."""

    def __init__(self, env: Any, reward: Callable[[jax.Array], jax.Array]):
        super().__init__(env)
        self._reward = reward

    def step(self, state: State, action: jax.Array) -> State:
        done = self.env.step(state, action)
        return done.replace(reward=self._reward(jnp.asarray(done.obs)))


def environment(reward: Reward) -> Rewarded:
    return Rewarded(InvertedPendulum(backend="mjx"), reward.of)


def task() -> Task:
    """The same as a task: starts within 0.01 of upright at rest, ends where the pole leans too far."""

    def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return rng.uniform(-0.01, 0.01, (n, 2)), rng.uniform(-0.01, 0.01, (n, 2)), np.zeros((n, 0))

    def over(steps: Step, first: Step) -> np.ndarray:
        return np.abs(np.asarray(steps.qpos)[..., 1]) > LEAN

    made = simple_task(
        name="inverted_pendulum",
        model=str(MODEL),
        description="keep the pole up",
        start=start,
        reward=Reward().program.source,
        measure=lambda episode: {"up_s": float(episode.time[-1])},
        episode_s=EPISODE * CTRL_DT,
    )
    return made.replace(over=over)


def brax_settings(ppo: PpoConfig, seed: int) -> dict[str, Any]:
    """Arguments of `brax.training.agents.ppo.train.train` that say what `ppo` says."""
    from functools import partial

    from brax.training.agents.ppo.networks import make_ppo_networks

    return {
        "num_timesteps": ppo.batch * ppo.batches,
        "num_envs": ppo.envs,
        "episode_length": EPISODE,
        "unroll_length": ppo.unroll,
        "batch_size": ppo.envs * ppo.unrolls // ppo.minibatches,
        "num_minibatches": ppo.minibatches,
        "num_updates_per_batch": ppo.epochs,
        "learning_rate": ppo.learning_rate,
        "discounting": ppo.discount,
        "gae_lambda": ppo.gae_lambda,
        "clipping_epsilon": ppo.clip,
        "entropy_cost": ppo.entropy,
        "vf_loss_coefficient": ppo.value_loss,
        "max_grad_norm": ppo.max_grad_norm or None,
        "reward_scaling": ppo.reward_scale,
        "normalize_observations": True,
        "network_factory": partial(
            make_ppo_networks, policy_hidden_layer_sizes=ppo.hidden, value_hidden_layer_sizes=ppo.value_hidden
        ),
        "seed": seed,
    }
