"""How near the closed loop comes to raw C MuJoCo: the engine's steps/s against one long open-loop rollout.

Same model, batch, length, threads and controls, the two alternating in one process; the last line of stdout is
one JSON object. `efficiency` is the median of the ratios of neighbouring runs; `rollout_share` is the part of a
whole replan (sampling, target kinematics, static optimisation, rollouts, scoring, update) that rollouts take.

    nice python benchmarks/native_efficiency.py [--samples 32] [--steps 50] [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from movlr_jax.config.compose import compose
from movlr_jax.engine import environment

environment.prepare_environment()

import jax  # noqa: E402
import mujoco  # noqa: E402
import numpy as np  # noqa: E402
from mujoco import rollout as mj_rollout  # noqa: E402
from quick import TINY_TASK, read_options  # noqa: E402
from record import circumstances  # noqa: E402

from movlr_jax.control.build import build_planner  # noqa: E402
from movlr_jax.control.mpc.planner import Planner  # noqa: E402
from movlr_jax.engine.tasks import task_of  # noqa: E402
from movlr_jax.physics.native import NativePhysics  # noqa: E402
from movlr_jax.sandbox.source import parse  # noqa: E402
from movlr_jax.sandbox.trace import load  # noqa: E402
from movlr_jax.tasks import Task  # noqa: E402
from movlr_jax.types import SimState  # noqa: E402

CANDIDATES = 4


def raw_rate(physics: NativePhysics, start: SimState, controls: np.ndarray) -> Callable[[], float]:
    """Steps/s of one open-loop call for all rows of `start` [B]; controls [B, T, nu], one per step."""
    rows, steps = controls.shape[:2]
    threads = physics.threads
    datas, pool = [mujoco.MjData(physics.model) for _ in range(threads)], mj_rollout.Rollout(nthread=threads)
    full = np.concatenate([start.time[:, None], start.qpos, start.qvel, start.act], axis=1)
    states, sensors = (np.empty((rows, steps, full.shape[1])), np.empty((rows, steps, physics.model.nsensordata)))

    def measure() -> float:
        begun = time.perf_counter()
        pool.rollout([physics.model] * rows, datas, full, controls, nstep=steps, skip_checks=True,
                     state=states, sensordata=sensors)  # fmt: skip
        return rows * steps / (time.perf_counter() - begun)

    return measure


def rollout_share(planner: Planner, task: Task) -> Callable[[], float]:
    """Share of a whole replan of K candidates that its physics rollouts take."""
    programs = [load(parse(task.rewards.human))] * CANDIDATES
    rows = [np.repeat(x, CANDIDATES, axis=0) for x in task.start(np.random.default_rng(0), 1)]
    start, key = planner.sim_physics.start(*rows), jax.random.key(0)
    controllers, plan = planner.optimise(programs, key), planner.init(planner.space.held(start))
    spent = 0.0
    rollout = planner.physics.rollout

    def timed(*arguments: Any, **named: Any) -> Any:
        nonlocal spent
        begun = time.perf_counter()
        result = rollout(*arguments, **named)
        spent += time.perf_counter() - begun
        return result

    def measure() -> float:
        nonlocal spent
        spent, begun = 0.0, time.perf_counter()
        planner.physics.rollout = timed  # the same work, with a clock around it
        jax.block_until_ready(controllers.replan(plan, start, start.step, planner.space.held(start), key, key).mean)
        planner.physics.rollout = rollout
        return spent / (time.perf_counter() - begun)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description="steps/s of the closed loop against raw MuJoCo")
    parser.add_argument("--task", default="bottle_pour")
    parser.add_argument("--samples", type=int, default=32, help=f"N; the batch is {CANDIDATES} x N rows")
    parser.add_argument("--steps", type=int, default=50, help="simulation steps per row")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = read_options(parser, task=str(TINY_TASK), samples=4, steps=16, repeats=1)

    config = compose([f"task={arguments.task}", f"optimizer.mppi.samples={arguments.samples}"])
    task = task_of(config)
    planner = build_planner(config.optimizer, task)
    physics = planner.physics
    assert isinstance(physics, NativePhysics)
    rows, ctrl_steps = CANDIDATES * arguments.samples, max(1, arguments.steps // physics.substeps)
    start = physics.start(*task.start(np.random.default_rng(0), rows))
    params = planner.space.params(physics, start, planner.space.held(start)[:, None])

    def engine() -> tuple[float, np.ndarray]:
        begun = time.perf_counter()
        done = physics.rollout(start, planner.plan_policy, params, steps=ctrl_steps, key=jax.random.key(0))
        seconds = time.perf_counter() - begun
        return rows * ctrl_steps * physics.substeps / seconds, np.asarray(done.actions, np.float64)

    controls = np.repeat(engine()[1], physics.substeps, axis=1)  # compiles, too
    raw, share = raw_rate(physics, start, controls), rollout_share(planner, task)
    raw(), share()
    runs = [(raw(), engine()[0], share()) for _ in range(arguments.repeats)]
    ratios = sorted(e / r for r, e, _ in runs)
    print(
        json.dumps(
            {
                "benchmark": "native_efficiency",
                "task": task.name,
                "model": config.model,
                "rows": rows,
                "steps": ctrl_steps * physics.substeps,
                "substeps": physics.substeps,
                "threads": physics.threads,
                "raw_steps_per_s": round(statistics.median(r for r, _, _ in runs)),
                "engine_steps_per_s": round(statistics.median(e for _, e, _ in runs)),
                "efficiency": round(statistics.median(ratios), 3),
                "efficiency_range": [round(ratios[0], 3), round(ratios[-1], 3)],
                "rollout_share": round(statistics.median(s for _, _, s in runs), 3),
                **circumstances(),
            }
        )
    )


if __name__ == "__main__":
    main()
