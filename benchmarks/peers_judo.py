"""judo's share of `peers.py`, for the Python of an environment that has judo and not this package.

    peers_judo.py MODEL.mjb START.npz SAMPLES STEPS REPLANS KNOTS

Each line of stdin is the number of a reward. The answer is a line of JSON: wall time and processor time of REPLANS
replans under this reward.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import mujoco
import numpy as np
from judo.controller import Controller, ControllerConfig  # pyright: ignore[reportMissingImports]
from judo.optimizers.mppi import MPPI, MPPIConfig  # pyright: ignore[reportMissingImports]
from judo.tasks.base import Task, TaskConfig  # pyright: ignore[reportMissingImports]


def smooth_abs(x: np.ndarray, p: float = 0.1) -> np.ndarray:
    return np.sqrt(x * x + p * p) - p


class Posture(Task[TaskConfig]):
    """The reward of `peers.source`, on the sensors of `peers.with_sensors`."""

    config_t = TaskConfig

    def __init__(self, model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, number: int):
        # Task's own constructor downloads the meshes of judo's examples
        self.model = self.sim_model = model
        self.data, self.config, self.model_path = mujoco.MjData(model), TaskConfig(), ""
        self._start, self._sharp = (qpos, qvel), 1.0 + number / 1000

    def reset(self) -> None:
        self.data.qpos[:], self.data.qvel[:] = self._start
        mujoco.mj_forward(self.model, self.data)

    def reward(
        self,
        states: np.ndarray,
        sensors: np.ndarray,
        controls: np.ndarray,
        system_metadata: dict[str, Any] | None = None,
    ) -> np.ndarray:
        com, up, velocity = sensors[..., 0:3], sensors[..., 3:6], sensors[..., 6:9]
        qvel = states[..., self.model.nq :]
        total = 10.0 * up[..., 2] - 5.0 * smooth_abs(self._sharp * (com[..., 2] - 0.7))
        total += 3.0 * np.exp(-self._sharp * np.square(velocity[..., 0] - 0.5))
        total -= 0.1 * np.square(qvel).mean(axis=-1) + 0.1 * np.square(controls).mean(axis=-1)
        return total.mean(axis=-1)


def main() -> None:
    path, start, *numbers = sys.argv[1:]
    samples, steps, replans, knots = map(int, numbers)
    model, state = mujoco.MjModel.from_binary_path(path), np.load(start)

    def controller(number: int) -> Controller:
        task = Posture(model, state["qpos"], state["qvel"], number)
        optimizer = MPPI(MPPIConfig(num_rollouts=samples, num_nodes=knots, sigma=0.2), model.nu)
        horizon = (steps - 0.5) * model.opt.timestep  # judo rounds up
        config = ControllerConfig(horizon=horizon, spline_order="linear", action_normalizer="min_max")
        made = Controller(config, task, optimizer)
        made.current_state = np.concatenate([state["qpos"], state["qvel"]])
        return made

    working = controller(0)
    working.update_action()
    assert working.states.shape[:2] == (samples, steps)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        begun, cpu = time.perf_counter(), time.process_time()
        working.task = Posture(model, state["qpos"], state["qvel"], int(line))
        working.reset()
        for _ in range(replans):
            working.update_action()
        took = {"wall_s": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu}
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    main()
