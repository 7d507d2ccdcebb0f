"""MotionVL's comparison: the robot trained under hand-written rewards and under those that a search found.

    movlr-jax train +recipe=benchmarks/motionvl_walk.yaml reward=best.py seed=0 run_dir=DIR
    python benchmarks/motionvl.py rl_base=DIR,DIR,DIR rl_llm=DIR,DIR,DIR [--seed 801] [--out benchmarks/results]

METHOD=DIR,DIR,... names the trainings of one method, one per seed, or policies of the package. Each policy runs from
eight starts, each in a randomised world of its own with pushes, for 10 s in C MuJoCo. Writes, for the task:

    motionvl_TASK.json         measures of each start, mean and standard deviation over the trainings of a method
    motionvl_TASK.png          learning curves: the hand-written reward per control step, on which the others do not
                               train, and the length of episodes, mean and standard deviation over the trainings
    motionvl_TASK_joints.png   angles of the twelve joints under the first policy of each method, from the first start
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

import numpy as np  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances, write  # noqa: E402
from walks import angles_of, draw_angles, rounded, walked  # noqa: E402

from movlr_jax._util.progress import Reporter  # noqa: E402
from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.engine.evaluate import prepared  # noqa: E402
from movlr_jax.storage.trajectory import EpisodeRecord  # noqa: E402
from movlr_jax.tasks.readout import Readout  # noqa: E402
from movlr_jax.tasks.walking.biomechanics import trunk_tilt  # noqa: E402

WORLDS = (
    "model=humanoid", "task.settings.randomise=true", "optimizer=ppo", "optimizer.ppo.env_steps=0", "reward=human",
    "films=false",
)  # fmt: skip
UPRIGHT_DEG = 15.0  # at most, of the trunk against the vertical at the start
PART_S = (4.0, 6.0)  # of an episode, of which angles are drawn
Angles = dict[str, np.ndarray]  # time in s, under "time", and the angle of each joint in degrees
SHOWN = (
    "upright_percent", "human_reward", "velocity_error_m_s", "fell", "distance_m", "mean_speed_m_s", "symmetry",
    "stance_percent", "stance_knee_rad", "trunk_tilt_deg", "lateral_drift_m", "cost_of_transport", "success",
)  # fmt: skip


def measured(policy: Path, seeds: range, task_name: str) -> tuple[list[dict[str, float]], Angles]:
    """Return the measures of one policy from each start, and the angles of the planned joints from the first."""
    with tempfile.TemporaryDirectory() as folder:
        given = [f"+task={task_name}", *WORLDS, f"run_dir={folder}", f"optimizer.ppo.init={policy}"]
        setup, episodes, angles = prepared(compose(given), Reporter()), [], {}
        task, whole = setup.task, round(setup.task.episode_s / setup.optimizer.sim_physics.ctrl_dt)
        for seed, (kept, outcome, record) in zip(seeds, walked(setup, seeds), strict=True):
            states = EpisodeRecord.read(kept, task.model, task.adapter)
            angles = angles or {"time": states.time, **angles_of(states, task.adapter.planned_joints)}
            read = Readout(task.layout, states.replayed(task.layout).steps)
            upright = trunk_tilt(read.rot(task.roles["trunk"])) <= UPRIGHT_DEG
            mean = sum(term["weighted_mean"] for term in outcome.terms.values())
            record["upright_percent"] = 100.0 * upright.sum() / whole
            record["human_reward"] = mean * len(states.time) / whole  # nothing is earned after a fall
            episodes.append({"seed": seed, **rounded(record, SHOWN)})
        return episodes, angles


def summarised(trainings: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return mean and standard deviation over trainings of each measure, itself the mean over starts."""
    means = {
        name: [float(np.mean([e[name] for e in episodes if name in e])) for episodes in trainings.values()]
        for name in SHOWN
        if any(name in e for episodes in trainings.values() for e in episodes)
    }
    return {name: {"mean": float(np.mean(x)), "std": float(np.std(x)), "n": len(x)} for name, x in means.items()}


def learning(folder: Path) -> dict[str, np.ndarray]:
    """Return the learning curves of all stages of a training, one after another."""
    done, found = 0.0, {"env_steps": [], "human_reward": [], "episode_s": []}
    for path in sorted(folder.glob("stages/*/curves.json")):
        curve = json.loads(path.read_text(encoding="utf-8"))
        found["env_steps"] += [done + s for s in curve["env_steps"]]
        found["human_reward"] += curve.get("human_reward", curve["reward"])  # its own, if it trained on that
        found["episode_s"] += curve["episode_s"]
        done = found["env_steps"][-1]
    return {name: np.array(values, float) for name, values in found.items()}


def draw(methods: Mapping[str, Sequence[Path]], path: Path) -> None:
    """Draw the learning curves of the methods, mean and standard deviation over trainings."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = dict(zip(("human_reward", "episode_s"), figure.subplots(1, 2), strict=True))
    for method, folders in methods.items():
        curves = [learning(folder) for folder in folders if (folder / "stages").is_dir()]
        for name, panel in panels.items() if curves else ():
            steps = curves[0]["env_steps"]
            rows = np.stack([np.interp(steps, c["env_steps"], _smooth(c[name])) for c in curves])
            mean, deviation = rows.mean(axis=0), rows.std(axis=0)
            (line,) = panel.plot(steps / 1e6, mean, label=f"{method} (n = {len(rows)})")
            band = {"color": line.get_color(), "alpha": 0.2, "linewidth": 0}
            panel.fill_between(steps / 1e6, mean - deviation, mean + deviation, **band)
            panel.set_xlabel("control steps, millions")
            panel.grid(visible=True, alpha=0.3)
    panels["human_reward"].set_ylabel("hand-written reward per control step")
    panels["episode_s"].set_ylabel("length of episodes, s")
    panels["human_reward"].legend()
    figure.savefig(path, dpi=120)


def draw_joints(methods: Mapping[str, Angles], path: Path) -> None:
    """Draw the angles of all joints over a part of an episode: left joints above right ones, a line per method."""
    joints = [name for name in next(iter(methods.values())) if name != "time"]
    panels = {}
    for name in sorted(joints, key=lambda joint: joint.startswith("right")):
        panels[name] = {}
        for method, angles in methods.items():
            part = (PART_S[0] <= angles["time"]) & (angles["time"] <= PART_S[1])
            panels[name][method] = (angles["time"][part], angles[name][part])
    draw_angles(panels, path)


def _smooth(values: np.ndarray, points: int = 9) -> np.ndarray:
    """Return the running mean over `points`; missing values are filled in from their neighbours."""
    at, known = np.arange(len(values)), np.isfinite(values)
    padded = np.pad(np.interp(at, at[known], values[known]), points // 2, mode="edge")
    return np.convolve(padded, np.full(points, 1.0 / points), mode="valid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD=DIR,DIR")
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=801)
    parser.add_argument("--task", default="humanoid_walk", help="a task of the robot")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = read_options(parser, methods=["package=humanoid_walk"], starts=1, out=None)
    methods = {
        method: [Path(folder) for folder in folders.split(",")]
        for method, _, folders in (text.partition("=") for text in given.methods)
    }
    if not methods:
        parser.error("METHOD=DIR or --quick is needed")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
    seeds, rows, angles = range(given.seed, given.seed + given.starts), {}, {}
    for method, folders in methods.items():
        trainings = {}
        for folder in folders:
            policy = folder / "policy.npz"
            trainings[folder.name], first = measured(policy if policy.exists() else folder, seeds, given.task)
            angles.setdefault(method, first)
        rows[method] = {"summary": summarised(trainings), "trainings": trainings}
        print(method, json.dumps(rows[method]["summary"]), flush=True)
    if given.out:
        stem = f"motionvl_{given.task}"
        write(given.out / f"{stem}.json", {"task": given.task, **circumstances(), "methods": rows})
        draw(methods, given.out / f"{stem}.png")
        draw_joints(angles, given.out / f"{stem}_joints.png")


if __name__ == "__main__":
    main()
