"""judo's share of `peer_returns.py`, for the Python of an environment that has judo and not this package.

    peer_returns_judo.py CASE CHECKOUT mppi|cem SAMPLES SECONDS SEED...

Settings are judo's defaults for its task of the same kind, or else for any task.
"""

from __future__ import annotations

import argparse
from typing import Any

import mujoco
import numpy as np
from judo.utils import assets  # pyright: ignore[reportMissingImports]
from peer_cases import Act, Case, answer

assets.download_and_extract_meshes = lambda **_: None  # of judo's own tasks, which the import would download

from judo.controller import Controller, ControllerConfig  # noqa: E402  # pyright: ignore[reportMissingImports]
from judo.optimizers import get_registered_optimizers  # noqa: E402  # pyright: ignore[reportMissingImports]
from judo.tasks.base import Task, TaskConfig  # noqa: E402  # pyright: ignore[reportMissingImports]

LIKE = {"cart_pole": "cartpole", "quick": "cartpole", "cube": "leap_cube"}  # judo's tasks of the same kind


class Rewarded(Task[TaskConfig]):
    """A model with the reward of a case."""

    config_t = TaskConfig

    def __init__(self, case: Case, model: mujoco.MjModel):
        # Task's own constructor reads a file
        self.model = self.sim_model = model
        self.data, self.config, self.case, self.model_path = mujoco.MjData(model), TaskConfig(), case, ""

    def reward(
        self, states: np.ndarray, sensors: np.ndarray, controls: np.ndarray, system_metadata: Any = None
    ) -> np.ndarray:
        """Return the rewards [N] of rollouts: means over time for the cube, else sums, as in judo's tasks."""
        qpos, qvel = np.split(states, [self.model.nq], axis=-1)
        values = self.case.reward(np, qpos, qvel, controls, sensors)
        return values.mean(-1) if self.case.body == "cube" else values.sum(-1)


class Judo:
    """A controller of judo with its defaults for tasks of this kind."""

    def __init__(self, case: Case, given: argparse.Namespace):
        self.case, self.given = case, given
        self.model = case.simulated(given.checkout, step=0.0).compile()
        self.like, self.config = LIKE.get(given.case, ""), ControllerConfig()
        self.config.set_override(self.like)
        self.every_s = 1.0 / self.config.control_freq

    def begin(self, data: mujoco.MjData, seed: int) -> None:
        np.random.seed(seed)  # noqa: NPY002
        make, config_of = get_registered_optimizers()[self.given.rule]
        config = config_of()
        config.set_override(self.like)
        config.num_rollouts = self.given.samples
        self.controller = Controller(self.config, Rewarded(self.case, self.model), make(config, self.model.nu))

    def plan(self, data: mujoco.MjData) -> Act:
        self.controller.current_state = np.concatenate([data.qpos, data.qvel])
        self.controller.time = data.time
        self.controller.update_action()
        return lambda now: self.controller.action(now.time)


if __name__ == "__main__":
    answer(Judo)
