"""How often each ranking finds the best of K programs when the judge is noisy and favours the film it is shown first.

The judge says `first` with probability 1 / (1 + exp(-(slope (s_i - s_j) + bias))), the strengths s of the K programs
are drawn from a unit normal. Beside the four settings of `ranking=`: a champion that keeps its place in one order or
in both, and every pair in one order. With --generations the K programs come in as many parts, and each ranking knows
the comparisons of those before, or (`forgetful`) does not. The last line of stdout is one JSON object.

    nice python benchmarks/ranking.py [--trials 400] [--slopes 1.5 3] [--generations 3]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from quick import read_options

from movlr_jax._util.machine import versions
from movlr_jax.evolution.pairwise import BOTH_ORDERS, Presentation, fit, rank, to_people
from movlr_jax.records import Comparison, Preference

Pair = tuple[int, int]


class Judge:
    """Noisy, and biased to the first shown by `bias` logits. Counts its calls."""

    def __init__(self, strengths: np.ndarray, slope: float, bias: float, seed: int):
        self.strengths, self.slope, self.bias = strengths, slope, bias
        self.rng, self.calls = np.random.default_rng(seed), 0

    def __call__(self, pairs: Sequence[Pair]) -> list[Preference]:
        self.calls += len(pairs)
        return [Preference("first" if self.first(i, j) else "second", "") for i, j in pairs]

    def first(self, i: int, j: int) -> bool:
        logit = self.slope * (self.strengths[i] - self.strengths[j]) + self.bias
        return bool(self.rng.random() < 1 / (1 + np.exp(-logit)))


def champion(judge: Judge, k: int) -> int:
    """Whoever stands is shown first, and loses its place to whom the judge prefers."""
    best = 0
    for newcomer in range(1, k):
        if judge([(best, newcomer)])[0].winner == "second":
            best = newcomer
    return best


def swapped_champion(judge: Judge, k: int) -> int:
    """The same in both orders; one win each leaves it in its place."""
    best = 0
    for newcomer in range(1, k):
        a, b = judge([(best, newcomer), (newcomer, best)])
        if (a.winner, b.winner) == ("second", "first"):
            best = newcomer
    return best


def one_order_round_robin(judge: Judge, k: int) -> int:
    wins = np.zeros((k, k))
    for i, j in combinations(range(k), 2):
        won = judge([(i, j)])[0].winner == "first"
        wins[i, j], wins[j, i] = won, not won
    return int(np.argmax(fit(k, wins)[0]))


def by(
    scheme: str, budget: int | None = None, presentation: Presentation = BOTH_ORDERS
) -> Callable[[Judge, int], int]:
    return lambda judge, k: rank(range(k), judge, scheme, budget, presentation=presentation).order[0]


PROTOCOLS: dict[str, Callable[[Judge, int], int]] = {
    "champion, one order": champion,
    "champion, both orders": swapped_champion,
    "round robin, one order": one_order_round_robin,
    "ranking=active": by("active", 40),
    "ranking=active, one person": by("active", 39, to_people(1)),
    "ranking=active, two people": by("active", 39, to_people(2)),
    "ranking=round_robin": by("round_robin"),
    "ranking=knockout": by("knockout"),
    "ranking=paper": by("paper"),
}


def over_generations(judge: Judge, k: int, generations: int, remember: bool) -> int:
    """The best after k programs came in parts, each part ranked with the best so far and 4 calls a program."""
    earlier: list[Comparison] = []
    best: int | None = None
    for part in np.array_split(np.arange(k), generations):
        entrants = [*([] if best is None else [best]), *part.tolist()]
        if remember:
            items = range(part[-1] + 1)
            result = rank(items, judge, earlier=earlier, entrants=entrants, budget=4 * len(part))
            earlier += result.comparisons
            best = result.order[0]
        else:
            best = rank(entrants, judge, budget=4 * len(part)).order[0]
    assert best is not None
    return best


def table(k: int, trials: int, slope: float, bias: float, generations: int) -> list[dict[str, object]]:
    """P(top-1), its standard error and the mean calls of every protocol."""
    protocols = dict(PROTOCOLS)
    for name, remember in (("all comparisons", True), ("forgetful", False)):
        protocols[f"active, {generations} generations, {name}"] = lambda judge, k, r=remember: over_generations(
            judge, k, generations, r
        )
    rows = []
    for name, protocol in protocols.items():
        found, calls = 0, 0
        for trial in range(trials):
            strengths = np.random.default_rng(trial).normal(size=k)
            judge = Judge(strengths, slope, bias, 10_000 + trial)
            found += protocol(judge, k) == strengths.argmax()
            calls += judge.calls
        share = found / trials
        rows.append(
            {
                "protocol": name,
                "p_top1": round(share, 3),
                "standard_error": round(float(np.sqrt(share * (1 - share) / trials)), 3),
                "calls": round(calls / trials, 1),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="how often each ranking finds the best of K")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--bias", type=float, default=0.8, help="logits in favour of the first shown")
    parser.add_argument("--slopes", type=float, nargs="+", default=[1.5, 3.0])
    parser.add_argument("--generations", type=int, default=3)
    a = read_options(parser, trials=4, slopes=[1.5])
    tables = {f"{s:g}": table(a.k, a.trials, s, a.bias, a.generations) for s in a.slopes}
    for slope, rows in tables.items():
        print(f"slope {slope}, bias {a.bias:g}, K = {a.k}, {a.trials} trials")
        for row in rows:
            print(
                f"  {row['protocol']:40s} {row['p_top1']:6.1%} +- {row['standard_error']:.1%}  {row['calls']} calls"
            )
    print(
        json.dumps(
            {
                "benchmark": "ranking",
                "k": a.k,
                "trials": a.trials,
                "bias_logits": a.bias,
                "by_slope": tables,
                "versions": versions(),
            }
        )
    )


if __name__ == "__main__":
    main()
