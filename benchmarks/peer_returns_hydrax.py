"""hydrax's share of `peer_returns.py`, for the Python of an environment that has its dependencies.

    PYTHONPATH=CHECKOUT peer_returns_hydrax.py CASE CHECKOUT example SAMPLES SECONDS SEED...

The settings are those of the examples of hydrax for these models, without its randomised worlds.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from peer_cases import SIM_DT, Act, Case, answer

EXAMPLES: dict[str, tuple[str, float, dict[str, Any]]] = {  # algorithm, plans per s, settings
    "cart_pole": ("PredictiveSampling", 50, {"noise_level": 0.3, "plan_horizon": 1.0, "spline_type": "cubic"}),
    "walker": ("PredictiveSampling", 50, {"noise_level": 0.5, "plan_horizon": 0.6, "num_knots": 5}),
    "cube": ("PredictiveSampling", 25, {"noise_level": 0.2, "plan_horizon": 0.25}),
    "g1": ("MPPI", 50, {"noise_level": 0.3, "plan_horizon": 0.6, "temperature": 0.1}),
}


class Hydrax:
    """A controller of hydrax, planning in MJX on the CPU with the model as its file says."""

    def __init__(self, case: Case, given: argparse.Namespace):
        from hydrax import algs  # pyright: ignore[reportMissingImports]
        from hydrax.task_base import Task  # pyright: ignore[reportMissingImports]

        class Rewarded(Task):
            def running_cost(self, state: Any, control: jax.Array) -> jax.Array:
                return -case.reward(jnp, state.qpos, state.qvel, control, state.sensordata)

            def terminal_cost(self, state: Any) -> jax.Array:
                return jnp.zeros(())

        name, frequency, settings = EXAMPLES[given.case]
        self.every_s = 1.0 / frequency
        self.task = Rewarded(case.spec(given.checkout).compile())
        self.planner = getattr(algs, name)(self.task, num_samples=given.samples, **settings)
        self.optimize, self.controls = jax.jit(self.planner.optimize), jax.jit(self.planner.interp_func)
        self.times = np.arange(round(self.every_s / SIM_DT)) * SIM_DT

    def begin(self, data: mujoco.MjData, seed: int) -> None:
        self.params, self.state = self.planner.init_params(seed=seed), self.task.make_data()

    def plan(self, data: mujoco.MjData) -> Act:
        qpos, qvel = jnp.array(data.qpos), jnp.array(data.qvel)
        self.state = self.state.replace(qpos=qpos, qvel=qvel, time=data.time)
        self.params, _ = self.optimize(self.state, self.params)
        begun = data.time
        controls = np.asarray(self.controls(self.times + begun, self.params.tk, self.params.mean[None]))[0]
        return lambda now: controls[min(round((now.time - begun) / SIM_DT), len(controls) - 1)]


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[2])
    answer(Hydrax)
