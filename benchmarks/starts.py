"""How much of a score is the program and how much the start state, and what `starts=` of a search changes.

Programs of the scripted proposer are each evaluated from many start states. Then, in many draws, the best program is
chosen by its score from one start, or by the middle score of several, and judged by its mean score from the others.

    nice python benchmarks/starts.py [--task straight_leg ...] [--programs 8] [--starts 16]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from expected_worth import proposed, spread
from quick import read_options
from record import RESULTS, circumstances, write
from search_efficiency import TASKS

from movlr_jax.evolution.evaluation import evaluate

USED = (1, 3, 5)  # start states by which a program is chosen
_DRAWS = 2000
_SEED = 11


def scores_of(name: str, count: int, starts: int, quick: bool) -> np.ndarray:
    """Return the scores [P, starts] of the first programs of a search."""
    config, task, optimizer, verdicts = proposed(name, count - 1, quick)
    each: list[Sequence[float | None]] = []
    for begin in range(0, count, config.candidates):
        part = verdicts[begin : begin + config.candidates]
        each += [e.starts for e in evaluate(optimizer, task, part, _SEED, starts=starts)]
    scores = np.array(each, float)  # None, where a simulation diverged, becomes NaN
    return np.where(np.isnan(scores), np.nanmin(scores), scores)


def chosen(scores: np.ndarray, used: int) -> dict[str, float]:
    """Return how good the program is that is best by the middle of `used` starts, judged by its other starts.

    `right`: how often it is the best program. `lost`: its distance from the best one, as a share of the distance
    between the best and the mean program.
    """
    rng, right, lost, possible = np.random.default_rng(0), 0, 0.0, 0.0
    for _ in range(_DRAWS):
        order = rng.permutation(scores.shape[1])
        seen, truth = scores[:, order[:used]], scores[:, order[used:]].mean(axis=1)
        middle = np.sort(seen, axis=1)[:, (used - 1) // 2]
        pick = int(middle.argmax())
        right += pick == int(truth.argmax())
        lost += truth.max() - truth[pick]
        possible += truth.max() - truth.mean()
    return {"right": round(right / _DRAWS, 2), "lost": round(lost / possible, 2) if possible else 0.0}


def run(names: Sequence[str], count: int, starts: int, quick: bool) -> dict[str, Any]:
    rows = []
    for name in names:
        scores = scores_of(name, count, starts, quick)
        between, noise = spread(scores)
        rows.append(
            {
                "task": name,
                "programs": count,
                "starts": starts,
                "between_programs": round(between, 2),
                "between_starts": round(noise, 2),
                "chosen": {n: chosen(scores, n) for n in USED if n < starts},
                "scores": np.round(scores, 3).tolist(),
            }
        )
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "scores"}), flush=True)
    return {"benchmark": "starts", **circumstances(), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="how much the start state decides")
    usual = ["straight_leg", "flat_walk", "walker_walk", "touch_ball", "reacher"]
    parser.add_argument("--task", nargs="+", choices=TASKS, default=usual)
    parser.add_argument("--programs", type=int, default=8)
    parser.add_argument("--starts", type=int, default=16)
    given = read_options(parser, task=["touch_ball"], programs=4, starts=4)
    data = run(given.task, given.programs, given.starts, given.quick)
    if not given.quick:
        write(RESULTS / "starts.json", data)


if __name__ == "__main__":
    main()
