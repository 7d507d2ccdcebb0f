"""How much of a score is the program and how much the start state, and what `starts=` of a search changes.

Programs of the scripted proposer are each evaluated from many start states. Then, in many draws, the best program is
chosen by its score from one start, or by the middle score of several, and judged by its mean score from the others.

    nice python benchmarks/starts.py [--task straight_leg ...] [--programs 8] [--starts 16]
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from quick import read_options
from record import RESULTS, circumstances, write

from movlr_jax.commands.session import task_and_optimizer
from movlr_jax.config.compose import compose
from movlr_jax.config.schema import Config
from movlr_jax.control.base import Optimizer
from movlr_jax.evolution.evaluation import evaluate, make_probe
from movlr_jax.language.base import ProposalRequest
from movlr_jax.language.proposers.scripted import ScriptedProposer
from movlr_jax.sandbox.vet import Sandbox, Verdict
from movlr_jax.tasks import Task

USED = (1, 3, 5)  # start states by which a program is chosen
_DRAWS = 2000
_SEED = 11
_PAGE = Path(__file__).parent.parent / "docs" / "write_a_task.md"
SHORT = [
    "candidates=4", "physics=native", "optimizer=mppi", "optimizer.ctrl_dt=0.02", "optimizer.sim_dt=0.005",
    "optimizer.plan_dt=0.01", "optimizer.horizon_s=0.4", "optimizer.knots=4", "optimizer.mppi.samples=12",
    "optimizer.replan_every=4",
]  # fmt: skip
SETTLE = ["optimizer.mppi.adapt=0.3", "optimizer.mppi.sigma_min=0.01"]  # for a limb that comes to rest
TRAINED = ["candidates=4", "optimizer=ppo", "optimizer.ppo.env_steps=98304", "optimizer.ppo.unrolls=2"]
TASKS: Mapping[str, Sequence[str]] = {
    "straight_leg": ["+task=humanoid_straight_leg", "optimizer.ppo.init=humanoid_walk", *TRAINED],
    "flat_walk": ["+task=flat_walk", "model=ms_human_700_legs", *TRAINED],
    "walker_walk": ["+task=playground", "env=WalkerWalk", *SHORT, "episode_s=1.6"],
    "touch_ball": [*SHORT, *SETTLE, "episode_s=2"],
    "reacher": ["+task=playground", "env=ReacherEasy", *SHORT, *SETTLE, "episode_s=2"],
}


def settings_of(name: str, folder: Path) -> list[str]:
    """Return the settings of a task; the files of the task of the documentation are written to `folder`."""
    if name != "touch_ball":
        return list(TASKS[name])
    section = _PAGE.read_text(encoding="utf-8").partition("## An arm that touches a ball")[2]
    for language, file in (("xml", "arm.xml"), ("python", "touch_ball.py")):
        found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
        assert found
        (folder / file).write_text(found[1], encoding="utf-8")
    return [f"+task={folder / 'touch_ball.py'}", *TASKS[name]]


def proposed(name: str, count: int, quick: bool) -> tuple[Config, Task, Optimizer, list[Verdict]]:
    """Return the settings, task and optimizer of a search, its first program and `count` that the proposer writes."""
    with tempfile.TemporaryDirectory() as folder:
        config = compose([*settings_of(name, Path(folder)), *(["episode_s=0.2"] if quick else [])])
        task, optimizer = task_and_optimizer(config)
    request = ProposalRequest(0, task, None, None, (), config.seed)
    sources = [task.initial_reward, *ScriptedProposer().propose(request, count)]
    sandbox = Sandbox(make_probe(task, optimizer.sim_physics, 0))
    try:
        return config, task, optimizer, sandbox.vet_all(sources)
    finally:
        sandbox.close()


def spread(scores: np.ndarray) -> tuple[float, float]:
    """Return the standard deviations of scores [P, starts] between programs, and of one program between starts.

    What all programs share at a start is left out (two-way analysis of variance).
    """
    p, n = scores.shape
    away = scores - scores.mean(axis=0)
    noise = np.square(away - away.mean(axis=1, keepdims=True)).sum() / ((p - 1) * (n - 1))
    return float(np.sqrt(max(away.mean(axis=1).var(ddof=1) - noise / n, 0.0))), float(np.sqrt(noise))


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
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--programs", type=int, default=8)
    parser.add_argument("--starts", type=int, default=16)
    given = read_options(parser, task=["touch_ball"], programs=4, starts=4)
    data = run(given.task, given.programs, given.starts, given.quick)
    if not given.quick:
        write(RESULTS / "starts.json", data)


if __name__ == "__main__":
    main()
