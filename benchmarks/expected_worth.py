"""How well screening knows a program before it is simulated.

Programs of the scripted proposer are each simulated from several start states. From a few of them and the first start
alone, screening predicts the others; the truth is their mean score from the other starts. How the programs of a first
generation are chosen is compared, too: the winner is the one with the best score from the first start.

    nice python benchmarks/expected_worth.py [--task walker_walk ...] [--programs 96] [--starts 4]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from quick import read_options
from record import RESULTS, circumstances, write
from search_efficiency import TASKS, SharedScorer, Trusting, settings_of

from movlr_jax.commands.session import task_of
from movlr_jax.config.compose import compose
from movlr_jax.config.schema import Config
from movlr_jax.control.base import Optimizer
from movlr_jax.control.build import build_optimizer
from movlr_jax.evolution.bank import Bank, Recorder, bank_of, read_bank
from movlr_jax.evolution.evaluation import evaluate, make_probe
from movlr_jax.evolution.gates import score_of
from movlr_jax.evolution.preferences import Pairs, log_likelihood
from movlr_jax.evolution.screening import expected_worth, represent, screen
from movlr_jax.language.base import ProposalRequest
from movlr_jax.language.proposers.scripted import ScriptedProposer
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import bank_path
from movlr_jax.tasks import Task

KNOWN = (4, 8, 16, 32)  # programs that were simulated
_DRAWS = 100  # choices of these
_WRITTEN = 64  # programs of which a first generation is chosen
_FIRST = 11  # seed of the first start state


def proposed(name: str, count: int, quick: bool) -> tuple[Config, Task, Optimizer, list[Verdict]]:
    """Return the settings, task and optimizer of a search, its first program and `count` that the proposer writes."""
    with tempfile.TemporaryDirectory() as folder:
        config = compose([*settings_of(name, Path(folder)), *(["episode_s=0.2"] if quick else [])])
        task = task_of(config)
        optimizer = build_optimizer(config.optimizer, task, config.physics)
    optimizer.scorer = SharedScorer(task)
    sandbox = Trusting(make_probe(task, optimizer.sim_physics, 0))
    request = ProposalRequest(
        0, task, None, None, (), config.seed, lambda source: sandbox.vet(source).message
    )
    sources = [task.initial_reward, *ScriptedProposer().propose(request, count)]
    return config, task, optimizer, sandbox.vet_all(sources)


def simulated(
    name: str, count: int, starts: int, quick: bool
) -> tuple[np.ndarray, np.ndarray, Bank, np.ndarray]:
    """Return scores [P, starts], rewards [P, S] and the motions from the first start, one of each program.

    The last one has the rewards [P, S] of the states that a first generation is chosen by.
    """
    config, task, optimizer, (_, *verdicts) = proposed(name, count, quick)
    scores, k, episodes = np.zeros((count, starts)), config.candidates, Recorder()
    for begin in range(0, count, k):
        for start in range(starts):

            def keep(row: int, *episode: Any, begin: int = begin) -> None:
                episodes.keep(begin + row, *episode)

            some, seed = verdicts[begin : begin + k], _FIRST + start
            rows = evaluate(optimizer, task, some, seed, keep=None if start else keep)
            scores[begin : begin + k, start] = [score_of(task, row) for row in rows]
    programs = [v.program for v in verdicts if v.program]
    with tempfile.TemporaryDirectory() as folder, Archive.create(Path(folder) / "run", "") as archive:
        archive.put(bank_path(0), episodes.data([str(i) for i in range(count)]))
        bank = read_bank(archive, task.layout)
    rewards, before = (
        np.concatenate([b.values(optimizer.scorer, programs[i : i + k]) for i in range(0, count, k)])
        for b in (bank, bank_of(make_probe(task, optimizer.sim_physics, 0)))
    )
    return scores, rewards, bank, before


def spread(scores: np.ndarray) -> tuple[float, float]:
    """Return the standard deviations of scores [P, starts] between programs, and of one program between starts.

    What all programs share at a start is left out (two-way analysis of variance).
    """
    p, n = scores.shape
    away = scores - scores.mean(axis=0)
    noise = np.square(away - away.mean(axis=1, keepdims=True)).sum() / ((p - 1) * (n - 1))
    return float(np.sqrt(max(away.mean(axis=1).var(ddof=1) - noise / n, 0.0))), float(np.sqrt(noise))


def predicted(scores: np.ndarray, rewards: np.ndarray, bank: Bank, known: int) -> Mapping[str, float]:
    """Return the mean correlations of two predictions with the scores from the other starts."""
    found: dict[str, list[float]] = {"agreement": [], "expected worth": []}
    rng, away, returns = np.random.default_rng(0), scores - scores.mean(axis=0), bank.returns(rewards)
    for _ in range(_DRAWS):
        some = rng.permutation(len(scores))
        some, others = some[:known], some[known:]
        seen = rewards[:, np.isin(bank.owner, some)]
        first, second = np.nonzero(np.greater.outer(away[some, 0], away[some, 0]))
        pairs, truth = Pairs(first, second, np.ones(len(first))), away[others, 1:].mean(axis=1)
        found["agreement"].append(_correlation(log_likelihood(returns[np.ix_(others, some)], pairs), truth))
        worth = expected_worth(seen[others], seen[some], away[some, 0])
        found["expected worth"].append(_correlation(worth, truth))
    return {name: round(float(np.mean(values)), 2) for name, values in found.items()}


def first_generations(scores: np.ndarray, rewards: np.ndarray, k: int) -> Mapping[str, Mapping[str, float]]:
    """Return the mean score of k chosen programs and of their winner, for three ways to choose them.

    rewards: [P, S] of the states that are known before any simulation.
    """
    rng, truth, found = np.random.default_rng(0), scores[:, 1:].mean(axis=1), {}
    none, no = Pairs(np.zeros(0, int), np.zeros(0, int), np.zeros(0)), np.zeros(rewards.shape[1], int)
    for _ in range(_DRAWS):
        some = rng.permutation(len(scores))[: min(_WRITTEN, 2 * len(scores) // 3)]
        seen = rewards[some]
        chosen = {
            "representative": represent(seen, k).chosen,
            "most different": screen(seen, seen, k, none, no).chosen,
            "random": list(range(min(k, len(some)))),
        }
        for name, picked in chosen.items():
            at = some[picked]
            found.setdefault(name, []).append((truth[at].mean(), truth[at[scores[at, 0].argmax()]]))
    return {
        name: dict(zip(("all", "winner"), np.mean(values, axis=0).round(2).tolist(), strict=True))
        for name, values in found.items()
    }


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and y.std() > 0 else 0.0


def run(names: Sequence[str], count: int, starts: int, quick: bool) -> dict[str, Any]:
    rows = []
    for name in names:
        scores, rewards, bank, before = simulated(name, count, starts, quick)
        between, noise = spread(scores)
        good = scores.mean(axis=1)
        row: dict[str, Any] = {
            "task": name,
            "programs": count,
            "starts": starts,
            "between_programs": round(between, 2),
            "between_starts": round(noise, 2),
            "one_start_explains": round(between**2 / (between**2 + noise**2), 3),
            "quantiles": [round(float(q), 2) for q in np.quantile(good, [0.0, 0.25, 0.5, 0.75, 1.0])],
        }
        # the highest correlation with the truth that noise between starts allows
        row["highest"] = round(between / float(np.sqrt(between**2 + noise**2 / (starts - 1))), 2)
        row["first_generation"] = first_generations(scores, before, 4)
        row["predicted"] = {n: predicted(scores, rewards, bank, n) for n in KNOWN if 2 * n <= count}
        print(json.dumps(row), flush=True)
        rows.append(row)
    return {"benchmark": "expected_worth", **circumstances(), "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="how well screening knows a program before it is simulated")
    usual = ["walker_walk", "reacher", "touch_ball", "cartpole_swingup"]
    parser.add_argument("--task", nargs="+", choices=TASKS, default=usual)
    parser.add_argument("--programs", type=int, default=96)
    parser.add_argument("--starts", type=int, default=4)
    given = read_options(parser, task=["touch_ball"], programs=8, starts=2)
    data = run(given.task, given.programs, given.starts, given.quick)
    if not given.quick:
        write(RESULTS / "expected_worth.json", data)


if __name__ == "__main__":
    main()
