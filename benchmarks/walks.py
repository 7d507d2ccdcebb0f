"""How the trained policies of the package walk: eight start states each, in C MuJoCo at 2 ms, for 10 s.

    nice python benchmarks/walks.py [--rows flat_walk,slope_walk] [--seed 201] [--out benchmarks/results]

Writes walks.json, and of each row pictures of one stride (walk_ROW.jpg) and its curves with people's behind them
(walk_ROW.png), of the robot also the angles of its twelve joints (walk_ROW_joints.png), all of the first start. Rows
that are not named stay as they are in the file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

import numpy as np  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from PIL import Image  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances, write  # noqa: E402

from movlr_jax._util.progress import Reporter  # noqa: E402
from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.engine.evaluate import EvaluationSetup, prepared, run_episode  # noqa: E402
from movlr_jax.engine.gait import analysed  # noqa: E402
from movlr_jax.evolution.film import clip_of  # noqa: E402
from movlr_jax.film.captions import Caption  # noqa: E402
from movlr_jax.film.clips import Style, frames  # noqa: E402
from movlr_jax.physics.domain import draw as draw_worlds  # noqa: E402
from movlr_jax.physics.native import NativePhysics  # noqa: E402
from movlr_jax.records import Trial  # noqa: E402
from movlr_jax.report.gait import picture  # noqa: E402
from movlr_jax.storage.trajectory import EpisodeRecord  # noqa: E402

LEGS, ROBOT = "ms_human_700_legs", "humanoid"
WORLDS = ("task.settings.randomise=true", "optimizer.ppo.env_steps=0")
ROWS = {  # name -> task, model and further settings
    "flat_walk": ("flat_walk", LEGS),
    "slow_walk": (
        "flat_walk",
        LEGS,
        "task.settings.speed_m_s=0.7",
        "task.settings.stride_frequency_hz=0.72",
        "optimizer.ppo.init=slow_walk_ms_human_700_legs",
    ),
    "rough_walk": ("rough_walk", LEGS),
    "slope_walk": ("slope_walk", LEGS),
    "left_turn": ("left_turn", LEGS),
    "injured_walk": ("injured_walk", LEGS),
    "flat_walk_700": ("flat_walk", "ms_human_700"),
    "flat_walk_myolegs": ("flat_walk", "myolegs"),
    "ostrich_walk": ("ostrich_walk", "ostrich"),
    # each start in a world of its own, with pushes
    **{
        name: (name, ROBOT, *WORLDS, f"optimizer.ppo.init={name}")
        for name in ("humanoid_walk", "humanoid_straight_leg", "humanoid_stairs", "humanoid_turn")
    },
}
FROM_S, PICTURES, COLUMNS, SIZE = 5.0, 8, 4, (480, 480)  # of a stride
SHOWN = (
    "success", "fell", "distance_m", "mean_speed_m_s", "lateral_drift_m", "heading_change_rad", "gait_r",
    "gait_rmse_deg", "gait_within_sd", "knee_swing_deg", "symmetry", "stance_percent",
    "double_support_percent", "cadence_steps_min", "step_length_m", "step_width_m", "foot_clearance_m",
    "stance_knee_rad", "terrain_level", "past_door_m", "velocity_error_m_s",
    "trunk_tilt_deg", "alternation", "force_r", "muscle_overlap", "cost_of_transport",
)  # fmt: skip


def measured(name: str, seed: int, starts: int, out: Path) -> dict[str, Any]:
    """Return the figures of one row, and draw it."""
    task_name, model, *more = ROWS[name]
    with tempfile.TemporaryDirectory() as folder:
        where = [f"+task={task_name}", f"model={model}", f"run_dir={folder}"]
        config = compose([*where, "optimizer=ppo", "reward=human", "films=false", *more])
        setup, episodes = prepared(config, Reporter()), []
        for i, (states, _, record) in enumerate(walked(setup, range(seed, seed + starts))):
            metrics = rounded(record, SHOWN)
            found = analysed(EpisodeRecord.read(states, setup.task.model, setup.task.adapter), setup.task)
            episodes.append({"seed": seed + i, **metrics, "faults": list(found["faults"])})
            if i == 0:
                draw(name, states, found["curves"], setup, out)
                if model == ROBOT:
                    draw_joints(states, setup, out / f"walk_{name}_joints.png")
    return {"task": task_name, "model": model, "policy": config.optimizer.ppo.init, "episodes": episodes}


def walked(setup: EvaluationSetup, seeds: range) -> Iterator[tuple[bytes, Trial, dict[str, Any]]]:
    """Run an episode from each start, in a randomised world of its own if the task has any."""
    for seed in seeds:
        outcome, record = run_episode(in_a_world(setup, seed), seed, Reporter())
        assert outcome.states is not None, outcome.reason
        yield outcome.states, outcome, record


def rounded(measures: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """Return the measures of these names to four digits; those that are missing are left out."""
    return {name: float(f"{measures[name]:.4g}") for name in names if name in measures}


def in_a_world(setup: EvaluationSetup, seed: int) -> EvaluationSetup:
    """Return `setup` with episodes in a randomised world, if the task has any."""
    if setup.task.course.ranges is None:
        return setup
    known = setup.optimizer.sim_physics
    world = NativePhysics(
        known.model,
        known.layout,
        sim_dt=known.sim_dt,
        ctrl_dt=known.ctrl_dt,
        domain=draw_worlds(setup.task.course.ranges, 1, seed),
    )
    return replace(setup, optimizer=setup.optimizer.acting_in(world))


def draw(name: str, states: bytes, curves: dict[str, Any] | None, setup: Any, out: Path) -> None:
    """Write pictures of a stride, and its curves."""
    clip = clip_of(setup.task, states, Caption(""))
    stride = 1.0 / float(setup.task.goals["stride_frequency"])
    part = clip.times <= FROM_S + stride  # from the start, since the camera follows the body
    act = None if clip.act is None else clip.act[part]
    task = clip.task.replace(cameras=clip.task.view.cameras[:1])
    clip = replace(clip, task=task, qpos=clip.qpos[part], times=clip.times[part], act=act)
    shots = list(frames(clip, Style(SIZE, PICTURES / stride), captions=False))[-PICTURES:]
    rows = [np.concatenate(shots[i : i + COLUMNS], axis=1) for i in range(0, PICTURES, COLUMNS)]
    Image.fromarray(np.concatenate(rows)).save(out / f"walk_{name}.jpg", quality=80)
    if curves:
        figure = picture(curves, f"{setup.task.name}, {setup.task.adapter.name}")
        figure.savefig(out / f"walk_{name}.png", dpi=110)


def draw_joints(states: bytes, setup: EvaluationSetup, path: Path) -> None:
    """Draw the angles of the planned joints over an episode, left and right of a pair in one panel."""
    joints = setup.task.adapter.planned_joints
    episode = EpisodeRecord.read(states, setup.task.model, setup.task.adapter)
    angles = angles_of(episode, joints)
    names = [joint.removeprefix("left_") for joint in joints if joint.startswith("left_")]
    pairs = {name: {side: (episode.time, angles[f"{side}_{name}"]) for side in ("left", "right")} for name in names}
    draw_angles(pairs, path)


def angles_of(episode: EpisodeRecord, joints: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the angle of each joint over the episode, [T] deg."""
    columns = {joint: episode.model.joint(joint).qposadr[0] for joint in joints}
    return {joint: np.rad2deg(episode.qpos[:, column]) for joint, column in columns.items()}


def draw_angles(panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]], path: Path) -> None:
    """Draw joint -> label of a line -> (time in s, angle in deg), a panel per joint in two rows."""
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    axes = figure.subplots(2, -(-len(panels) // 2), sharex=True)
    for axis, (name, lines) in zip(axes.flat, panels.items(), strict=True):
        for label, (time, angle) in lines.items():
            axis.plot(time, angle, lw=0.9, label=label)
        axis.set_title(name.replace("_", " "), fontsize=9)
        axis.grid(visible=True, alpha=0.3)
    axes[0, 0].legend(fontsize=8)
    figure.supxlabel("time, s", fontsize=9)
    figure.supylabel("angle, deg", fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description="how the trained policies walk")
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--seed", type=int, default=201)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = read_options(parser, rows="flat_walk_myolegs", starts=1, out=None)
    if given.out:
        measure(given.rows.split(","), given.seed, given.starts, given.out)
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure(given.rows.split(","), given.seed, given.starts, Path(folder))


def measure(names: Sequence[str], seed: int, starts: int, out: Path) -> None:
    """Measure and draw the named rows, and put them into walks.json."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "walks.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    for name in names:
        rows[name] = measured(name, seed, starts, out)
        summary = {
            m: [e[m] for e in rows[name]["episodes"] if m in e]
            for m in ("fell", "distance_m", "gait_r", "knee_swing_deg", "symmetry", "success")
        }
        print(name, json.dumps(summary), flush=True)
        write(path, {**circumstances(), "rows": rows})


if __name__ == "__main__":
    main()
