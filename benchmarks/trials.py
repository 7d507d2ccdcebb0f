"""How many trials a search needs, and by which rule it chooses: whole searches, simulated on recorded scores.

A search has three generations of four programs; the first program is the first champion. The scores of its trials are
drawn from recorded matrices of programs x start states, whose row means are the truth, or from normal distributions.
Compared are rules: who gets how many trials, and what replaces the champion. The last line of stdout is the JSON.

    nice python benchmarks/trials.py [--searches 60]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from quick import read_options
from record import RESULTS, circumstances, write
from scipy.stats import rankdata

from movlr_jax.evolution.worth import (
    Posterior,
    final_choice,
    from_answers,
    from_scores,
    halving,
    next_champion,
    undecided,
)

K, GENERATIONS = 4, 3
CONFIRM = 8  # fresh trials of the announced and the first program
MOST = 240  # trials that can be drawn in a search


@dataclass
class World:
    """The programs of one search, in the order in which they are written."""

    worth: np.ndarray  # [P]
    values: np.ndarray  # [P, MOST] of every trial


Play = Callable[[World], tuple[list[int], int]]
Draw = Callable[[np.random.Generator], World]


@dataclass
class Search:
    """What is known in a search so far."""

    world: World
    programs: list[int] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)
    drawn: int = 0

    def run(self, programs: Sequence[int], trials: int) -> None:
        """Give the programs new trials, the same for all of them."""
        for _ in range(trials):
            self.programs += programs
            self.trials += [self.drawn] * len(programs)
            self.drawn += 1

    @property
    def posterior(self) -> Posterior:
        values = self.world.values[self.programs, self.trials]
        return from_scores(len(self.world.worth), self.programs, self.trials, values)


@dataclass(frozen=True)
class Rule:
    """Trials of all entrants of a generation, of the better half, and of two while it is open who is better."""

    first: int
    half: int = 0
    cap: int = 0  # most trials of a program in a generation; 0: none while it is open
    threshold: float = 0.9  # probability at which a challenger replaces the champion
    recall: bool = False  # the best program so far that is still open enters the next generation, too
    last: int = 0  # most trials of the champion and an open challenger after the last generation
    promise: float = 0.0  # probability of being better than the first program at the end, with 8 more trials of both

    def __call__(self, world: World) -> tuple[list[int], int]:
        """Return the champion after each generation and at the end, and the trials before the confirmation."""
        search, champions, champion, recalled = Search(world), [], 0, []
        programs = range(len(world.worth))
        for begin in range(0, len(programs), K):
            tried = programs[: begin + K]
            entrants = [*dict.fromkeys([champion, *recalled, *(i for i in tried[begin:] if i)])]
            search.run(entrants, self.first)
            if self.half:
                search.run(halving(search.posterior, entrants, champion), self.half)
            posterior = self.settle(search, entrants, champion, self.cap - self.first - self.half)
            champion = next_champion(posterior, entrants, champion, self.threshold)
            recalled = undecided(posterior, tried, champion, self.threshold)[1:] if self.recall else []
            champions.append(champion)
        if self.last:
            posterior = self.settle(search, programs, champion, self.last)
            champion = final_choice(posterior, programs, champion, 0)
        trials = len(search.programs)
        if self.promise and champion:
            search.run([champion, 0], CONFIRM)
            champion = champion if search.posterior.p_better(champion, 0) >= self.promise else 0
        return [*champions, champion], trials

    def settle(self, search: Search, programs: Sequence[int], champion: int, most: int) -> Posterior:
        """Add trials of the champion and its best challenger while it is open which is better."""
        posterior = search.posterior
        for _ in range(most):
            pair = undecided(posterior, programs, champion, self.threshold)
            if not pair:
                break
            search.run(pair, 1)
            posterior = search.posterior
        return posterior


def mean_of(trials: int) -> Play:
    """The rule by which the best mean of some trials, the same for all programs, wins."""

    def rule(world: World) -> tuple[list[int], int]:
        mean = world.values[:, :trials].mean(axis=1)
        champions = [int(mean[: begin + K].argmax()) for begin in range(0, len(mean), K)]
        return [*champions, champions[-1]], trials * len(mean)

    return rule


ENDS = {"recall": True, "last": 8, "promise": 0.8}
RULES: dict[str, Play] = {
    "one trial": mean_of(1),
    "mean of 3": mean_of(3),
    "mean of 5": mean_of(5),
    "2 + 2, P 0.8": Rule(2, 2, threshold=0.8),
    "2 + 2, P 0.9": Rule(2, 2),
    "2 + 2, P 0.95": Rule(2, 2, threshold=0.95),
    "4 + 4, P 0.9": Rule(4, 4),
    "2 + 1, to 6 while open, P 0.9": Rule(2, 1, 6),
    "the same, recall and promise": Rule(2, 1, 6, **ENDS),
    "the same, P 0.8": Rule(2, 1, 6, threshold=0.8, **ENDS),
    "twice its trials": Rule(4, 2, 12, recall=True, last=16, promise=0.8),
    "four times its trials": Rule(8, 4, 24, recall=True, last=32, promise=0.8),
    "3 + 1, to 8 while open, recall and promise": Rule(3, 1, 8, **ENDS),
}


def recorded(scores: np.ndarray, first: int | None = 0) -> Draw:
    """Searches whose programs and trials are rows and columns of `scores` [P, T]; first: its row, None: any."""

    def draw(rng: np.random.Generator) -> World:
        order = rng.permutation(len(scores))
        if first is not None:
            order = np.array([first, *order[order != first]])
        values = scores[order][:, rng.integers(scores.shape[1], size=MOST)]
        return World(scores[order].mean(axis=1), values)

    return draw


def normal(spread: float, lead: float = 0.0, uneven: float = 0.0) -> Draw:
    """Searches with noise 1. lead: of the first program, in spreads; uneven: log spread of the programs' noise."""

    def draw(rng: np.random.Generator) -> World:
        worth = spread * rng.normal(size=K * GENERATIONS)
        worth[0] += spread * lead
        noise = np.exp(uneven * rng.normal(size=(len(worth), 1)))
        values = worth[:, None] + rng.normal(size=MOST) + noise * rng.normal(size=(len(worth), MOST))
        return World(worth, values)

    return draw


def families() -> dict[str, Draw]:
    """Every kind of search that is simulated."""
    found = {"hop": recorded(hop()["distance_m"]), "hop, any first": recorded(hop()["distance_m"], None)}
    for task, scores in starts().items():
        found[task] = recorded(scores)
    found["reacher, any first"] = recorded(starts()["reacher"], None)
    found |= {f"normal, spread {spread:g}": normal(spread) for spread in (0.3, 0.6, 1.0, 2.0)}
    return found | {
        "normal, spread 0.6, good first": normal(0.6, lead=1.0),
        "normal, spread 1, uneven noise": normal(1.0, uneven=0.7),
    }


def starts() -> dict[str, np.ndarray]:
    """Recorded scores [P, T] of five tasks; the first row is the first program."""
    rows = json.loads((RESULTS / "starts.json").read_text())["rows"]
    return {row["task"]: np.array(row["scores"]) for row in rows}


def hop() -> dict[str, np.ndarray]:
    """Recorded distances and successes [P, T] of the hop search."""
    rows = json.loads((RESULTS / "hop.json").read_text())["rows"]
    return {name: np.array([row[name] for row in rows], float) for name in ("distance_m", "success")}


def played(rule: Play, draw: Draw, searches: int) -> dict[str, Any]:
    """Return how often the announced program is worse than the first, what is gained, and the trials."""
    rng = np.random.default_rng(0)
    gained: list[float] = []
    possible, worths, trials = [], [], []
    for _ in range(searches):
        world = draw(rng)
        champions, used = rule(world)
        worths.append(world.worth[champions])
        gained.append(float(worths[-1][-1] - world.worth[0]))
        possible.append(world.worth.max() - world.worth[0])
        trials.append(used)
    shares = [1.0 if p <= 0 else g / p for g, p in zip(gained, possible, strict=True)]
    return {
        "worse": round(sum(g < -1e-9 for g in gained) / searches, 3),
        "median_gain": round(float(np.median(shares)), 2),
        "mean_gain": round(float(np.sum(gained) / np.sum(possible)), 2),
        "falls": bool(np.diff(np.median(np.array(worths), axis=0)).min() < -1e-9),
        "trials": round(float(np.mean(trials)), 1),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what `played` found in all families, as a line."""
    worse, gain, trials = ([float(row[key]) for row in rows] for key in ("worse", "median_gain", "trials"))
    return (
        f"worse {np.mean(worse):5.1%}, at most {max(worse):4.0%}; "
        f"median gain {np.mean(gain):.2f}, at least {min(gain):.2f}; {np.mean(trials):.0f} trials"
    )


def values_compared(draws: int) -> dict[str, Any]:
    """Return what is reached of the possible gain if the best mean of 3 trials wins, for three values of a trial.

    Judged by the score and the success of the other trials.
    """
    data = {"hop": tuple(hop().values())}
    bonus = {"touch_ball": 100, "reacher": 100, "flat_walk": 200}  # of a success, in the score
    data |= {
        task: (starts()[task], starts()[task] > bonus[task] * (1.5 if bonus[task] == 200 else 0.5)) for task in bonus
    }
    ways: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "score": lambda score, success: score,
        "rank of the score": lambda score, success: rankdata(score).reshape(score.shape),
        "success, then score": lambda score, success: success + 1e-6 * score,
        "success + rank": lambda score, success: success + rankdata(score).reshape(score.shape) / score.size,
    }
    found: dict[str, Any] = {}
    for task, (score, success) in data.items():
        rng, sums = np.random.default_rng(0), {way: np.zeros((2, 2)) for way in ways}
        for _ in range(draws):
            some, order = rng.choice(len(score), 5, replace=False), rng.permutation(score.shape[1])
            seen, other = np.ix_(some, order[:3]), np.ix_(some, order[3:])
            truths = [score[other].mean(axis=1), success[other].mean(axis=1)]
            for way, value in ways.items():
                pick = value(score[seen], success[seen]).mean(axis=1).argmax()
                sums[way] += [[t[pick] - t.mean(), t.max() - t.mean()] for t in truths]
        found[task] = {way: np.round(s[:, 0] / s[:, 1], 2).tolist() for way, s in sums.items()}
    return found


def calibration(searches: int) -> dict[str, Any]:
    """Return [belief, share that was true, number] of P(best) in bins, from scores and from answers."""
    found: dict[str, Any] = {}
    for trials in (2, 3, 5):
        found[f"scores, {trials} trials"] = binned(searches, lambda rng, n=trials: _from_scores(rng, n))
    for wrong in (0.0, 0.1, 0.2, 0.3):
        found[f"answers, {wrong:.0%} wrong"] = binned(searches, lambda rng, w=wrong: _from_answers(rng, w))
    return found


def binned(searches: int, one: Callable[[np.random.Generator], tuple[np.ndarray, Posterior]]) -> list[list[float]]:
    """Return the rows of a table of calibration."""
    rng, belief, true = np.random.default_rng(0), [], []
    for _ in range(searches):
        worth, posterior = one(rng)
        belief.append(posterior.p_best)
        true.append(worth == worth.max())
    p, right = np.concatenate(belief), np.concatenate(true)
    parts = [(p >= low) & (p < high) for low, high in pairwise((0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.01))]
    return [[round(float(p[b].mean()), 3), round(float(right[b].mean()), 3), int(b.sum())] for b in parts if b.any()]


def _values(rng: np.random.Generator, trials: int) -> tuple[np.ndarray, np.ndarray]:
    worth = rng.choice([0.3, 0.6, 1.0, 2.0]) * rng.normal(size=5)
    return worth, worth[:, None] + rng.normal(size=trials) + rng.normal(size=(5, trials))


def _from_scores(rng: np.random.Generator, trials: int) -> tuple[np.ndarray, Posterior]:
    worth, values = _values(rng, trials)
    program, trial = np.indices(values.shape)
    return worth, from_scores(5, program.ravel().tolist(), trial.ravel().tolist(), values.ravel().tolist())


def _from_answers(rng: np.random.Generator, wrong: float) -> tuple[np.ndarray, Posterior]:
    """Four pairs in each of four trials, in both orders."""
    worth, values = _values(rng, 4)
    answers = []
    for trial in range(4):
        for _ in range(4):
            i, j = rng.choice(5, 2, replace=False).tolist()
            for a, b in ((i, j), (j, i)):
                first = (values[a, trial] > values[b, trial]) != (rng.random() < wrong)
                answers.append((a, b, trial, "first" if first else "second"))
    return worth, from_answers(5, answers)


def main() -> None:
    parser = argparse.ArgumentParser(description="how many trials a search needs, and by which rule it chooses")
    parser.add_argument("--searches", type=int, default=60)
    given = read_options(parser, searches=2)
    rules = {}
    for name, rule in RULES.items():
        rules[name] = {family: played(rule, draw, given.searches) for family, draw in families().items()}
        print(f"{name:45s} {summary(list(rules[name].values()))}", flush=True)
    data = {
        "benchmark": "trials",
        **circumstances(),
        "searches": given.searches,
        "rules": rules,
        "values": values_compared(10 * given.searches),
        "calibration": calibration(3 * given.searches),
    }
    print(json.dumps(data))
    if not given.quick:
        write(RESULTS / "trials.json", data)


if __name__ == "__main__":
    main()
