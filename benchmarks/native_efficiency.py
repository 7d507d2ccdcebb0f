"""How near the closed loop comes to raw C MuJoCo: the engine's steps/s beside one long open-loop rollout.

Same model, batch, length, threads and controls, the two alternating in one process; the last line of stdout is
one JSON object. `efficiency` is the median of the ratios of neighbouring runs.

    nice python benchmarks/native_efficiency.py [--rows 128] [--steps 50] [--repeats 7] [--ctrl-dt 0.016]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from movlr_jax import cli

cli.prepare_environment()

import jax  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402
from mujoco import rollout as mj_rollout  # noqa: E402

from movlr_jax.control.build import build_planner  # noqa: E402
from movlr_jax.physics.native import NativePhysics  # noqa: E402
from movlr_jax.session import hardware, versions  # noqa: E402
from movlr_jax.types import SimState  # noqa: E402


def raw(
    physics: NativePhysics, pool: mj_rollout.Rollout, datas: list, start: SimState, controls: np.ndarray
) -> float:
    """Seconds of one open-loop call for all rows and steps; controls [B, T * substeps, nu]."""
    rows, steps = controls.shape[:2]
    full = np.concatenate([start.time[:, None], start.qpos, start.qvel, start.act], axis=1)
    states = np.empty((rows, steps, full.shape[1]))
    sensors = np.empty((rows, steps, physics.model.nsensordata))
    begun = time.perf_counter()
    pool.rollout([physics.model] * rows, datas, full, controls, nstep=steps, skip_checks=True,
                 state=states, sensordata=sensors)  # fmt: skip
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description="steps/s of the closed loop beside raw MuJoCo")
    parser.add_argument("--task", default="bottle_pour")
    parser.add_argument("--rows", type=int, default=128, help="K x N")
    parser.add_argument("--steps", type=int, default=50, help="simulation steps per row")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()

    config = cli.compose([f"task={arguments.task}"])
    from movlr_jax.session import task_of

    task = task_of(config)
    planner = build_planner(config.optimizer, task)
    physics = planner.plan_physics
    assert isinstance(physics, NativePhysics)
    rows, ctrl_steps = arguments.rows, max(1, arguments.steps // physics.substeps)
    start = physics.start(*task.start(np.random.default_rng(0), rows))
    plans = planner.space.held(start)[:, None]
    params = planner.space.params(physics, start, plans)

    def engine() -> tuple[float, np.ndarray]:
        begun = time.perf_counter()
        done = physics.rollout(start, planner.plan_policy, params, steps=ctrl_steps, key=jax.random.key(0))
        return time.perf_counter() - begun, np.asarray(done.actions, np.float64)

    _, actions = engine()  # compiles
    controls = np.repeat(actions, physics.substeps, axis=1)
    threads = len(physics._datas)
    datas = [mujoco.MjData(physics.model) for _ in range(threads)]
    ratios, raw_rates, engine_rates, total = [], [], [], rows * ctrl_steps * physics.substeps
    with mj_rollout.Rollout(nthread=threads) as pool:
        raw(physics, pool, datas, start, controls)
        for _ in range(arguments.repeats):
            r, e = raw(physics, pool, datas, start, controls), engine()[0]
            ratios.append(r / e)
            raw_rates.append(total / r)
            engine_rates.append(total / e)
    print(
        json.dumps(
            {
                "benchmark": "native_efficiency",
                "task": task.name,
                "model": config.model,
                "rows": rows,
                "steps": ctrl_steps * physics.substeps,
                "substeps": physics.substeps,
                "threads": threads,
                "raw_steps_per_s": round(statistics.median(raw_rates)),
                "engine_steps_per_s": round(statistics.median(engine_rates)),
                "efficiency": round(statistics.median(ratios), 3),
                "efficiency_range": [round(min(ratios), 3), round(max(ratios), 3)],
                "hardware": hardware(),
                "versions": versions(),
            }
        )
    )


if __name__ == "__main__":
    main()
