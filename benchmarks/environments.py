"""Which environments of other packages load as tasks, and how near their replays come to our physics.

Random controls are simulated by physics=native and played again in the environment from the same state. A line for
each environment: its time of loading and the largest difference of qpos after 1 and after all control steps, or the
sentence with which it does not load. For Playground, the seconds of the first and of the second measure of an episode
in place of the differences: the first compiles. The last line of stdout is one JSON object.

    nice python benchmarks/environments.py --suite myosuite [--match HandPose] [--steps 20]
"""

from __future__ import annotations

import argparse
import importlib
import json
import time

from movlr_jax.engine import environment

environment.prepare_environment()

import jax  # noqa: E402
import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances  # noqa: E402

from movlr_jax.control.episode import episode_of  # noqa: E402
from movlr_jax.errors import UserError  # noqa: E402
from movlr_jax.physics.native import NativePhysics  # noqa: E402
from movlr_jax.tasks import Task, build_task  # noqa: E402
from movlr_jax.tasks.environments.replay import Environment  # noqa: E402
from movlr_jax.tasks.registry import ENVIRONMENTS  # noqa: E402


def names(suite: str) -> list[str]:
    """Return the names of all environments of a suite."""
    if suite == "myosuite":
        return importlib.import_module("myosuite").register_all_envs()["all"]
    if suite == "playground":
        return sorted(importlib.import_module("mujoco_playground").registry.ALL_ENVS)
    registry = importlib.import_module("gymnasium").registry
    return sorted(name for name, spec in registry.items() if "mujoco" in str(spec.entry_point) and "v5" in name)


def differences(task: Task, steps: int) -> list[float]:
    """Return the largest difference of qpos between physics=native and the environment after each control step."""
    played: Environment = task.scoring.measure.__self__  # pyright: ignore[reportFunctionMemberAccess]
    physics = NativePhysics(task.model, task.layout, sim_dt=played.sim_dt, ctrl_dt=played.ctrl_dt, threads=1)
    low, high = task.model.actuator_ctrlrange.T
    controls = np.random.default_rng(0).uniform(low, high, (steps, task.model.nu)).astype(np.float32)
    state, found = physics.start(*task.start(np.random.default_rng(1), 1)), []
    played.begin(*(np.asarray(part)[0] for part in (state.qpos, state.qvel, state.act)))
    for control, action in zip(controls, played.actions(controls), strict=True):
        state = physics.rollout(state, _held, control[None], steps=1, key=jax.random.key(0)).final
        played.world.step(action)
        found.append(float(np.abs(np.asarray(state.qpos)[0] - played.world.data.qpos).max()))
    physics.close()
    return found


def seconds_of_measure(task: Task, steps: int) -> list[float]:
    """Return the seconds that the first and the second measure of an episode of Playground take."""
    timing = ENVIRONMENTS["playground"].settings(task.name)
    physics = NativePhysics(task.model, task.layout, sim_dt=timing["sim_dt"], ctrl_dt=timing["ctrl_dt"], threads=1)
    state, control = physics.start(*task.start(np.random.default_rng(1), 1)), np.zeros((1, task.model.nu), np.float32)
    played = episode_of(physics.rollout(state, _held, control, steps=steps, key=jax.random.key(0)), 0, steps)
    physics.close()
    found = []
    for _ in range(2):
        begun = time.perf_counter()
        task.scoring.measure(played, task)
        found.append(time.perf_counter() - begun)
    return found


def _held(params: jax.Array, view: object, key: jax.Array) -> jax.Array:
    return params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=("myosuite", "gymnasium", "playground"), default="gymnasium")
    parser.add_argument("--match", default="")
    parser.add_argument("--steps", type=int, default=20)
    given = read_options(parser, match="InvertedPendulum-v5", steps=2)
    loaded, refused = {}, {}
    for name in names(given.suite):
        if given.match not in name:
            continue
        begun = time.perf_counter()
        try:
            task = build_task(given.suite, "own", 1.0, {"env": name, "description": "move"})
        except UserError as error:
            refused[name] = str(error)
            print(f"{name}: {error}", flush=True)
            continue
        seconds = time.perf_counter() - begun
        try:
            found = (seconds_of_measure if given.suite == "playground" else differences)(task, given.steps)
        except UserError as error:
            refused[name] = str(error)
            print(f"{name}: {error}", flush=True)
            continue
        last = found[-1] if given.suite == "playground" else max(found)
        loaded[name] = {"seconds": round(seconds, 2), "first": found[0], "last": last}
        print(f"{name}: {seconds:.1f} s, {found[0]:.1e}, {last:.1e}", flush=True)
    print(json.dumps({"suite": given.suite, "loaded": loaded, "refused": refused, **circumstances()}))


if __name__ == "__main__":
    main()
