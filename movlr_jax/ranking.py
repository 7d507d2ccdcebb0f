"""Who is best, from pairwise preferences: Bradley-Terry strengths with uncertainty, pairs chosen actively.

Every pair is shown in both orders; a judge that answers by position contradicts itself and each order counts
half a win each (two answers that agree, or a tie, count accordingly). Bradley and Terry (1952); the MAP fit with a
Gaussian prior and its Laplace covariance keep strengths finite when somebody never loses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.types import Preference

Compare = Callable[[int, int], Preference]  # (first shown, second shown)
SCHEMES = ("active", "round_robin")
_PRIOR_VARIANCE = 4.0


@dataclass(frozen=True)
class Comparison:
    """One call of the judge: items by index, and what it said."""

    first: int
    second: int
    preference: Preference


@dataclass(frozen=True)
class Ranking:
    """Strengths of n items, higher is better."""

    strengths: np.ndarray  # [n]
    deviation: np.ndarray  # [n] posterior standard deviation
    p_best: np.ndarray  # [n] probability that each is the best
    flip_rate: float  # share of pairs whose two orders disagree on the winner
    comparisons: Sequence[Comparison]

    @property
    def order(self) -> list[int]:
        """Indices from best to worst; ties keep the earlier first."""
        return sorted(range(len(self.strengths)), key=lambda i: (-round(float(self.strengths[i]), 9), i))


def fit(n: int, wins: np.ndarray, variance: float = _PRIOR_VARIANCE) -> tuple[np.ndarray, np.ndarray]:
    """MAP strengths [n] and covariance [n, n] from wins [n, n]: wins[i, j] times i beat j (halves allowed).

    P(i beats j) = 1 / (1 + exp(s_j - s_i)); Newton's method on the log posterior.
    """
    s = np.zeros(n)
    played = wins + wins.T
    hessian = np.eye(n) / variance
    for _ in range(50):
        p = 1 / (1 + np.exp(s[None, :] - s[:, None]))
        gradient = (wins - played * p).sum(1) - s / variance
        h = played * p * (1 - p)
        hessian = np.diag(h.sum(1)) - h + np.eye(n) / variance
        step = np.linalg.solve(hessian, gradient)
        s = s + step
        if np.abs(step).max() < 1e-10:
            break
    return s, np.linalg.inv(hessian)


def probability_best(strengths: np.ndarray, covariance: np.ndarray, draws: int = 4096) -> np.ndarray:
    """[n] how often each is the strongest under the posterior; a fixed sample, so always the same answer."""
    rng = np.random.default_rng(0)
    samples = rng.multivariate_normal(strengths, covariance, size=draws, method="cholesky")
    return np.bincount(samples.argmax(1), minlength=len(strengths)) / draws


def _wins(n: int, comparisons: Sequence[Comparison]) -> np.ndarray:
    wins = np.zeros((n, n))
    for c in comparisons:
        share = {"first": 1.0, "second": 0.0, "tie": 0.5}[c.preference.winner]
        wins[c.first, c.second] += share
        wins[c.second, c.first] += 1 - share
    return wins


def _both_orders(compare: Compare, i: int, j: int) -> list[Comparison]:
    return [Comparison(i, j, compare(i, j)), Comparison(j, i, compare(j, i))]


def _flip_rate(comparisons: Sequence[Comparison]) -> float:
    pairs: dict[frozenset[int], list[int | None]] = {}
    for c in comparisons:
        winner = {"first": c.first, "second": c.second, "tie": None}[c.preference.winner]
        pairs.setdefault(frozenset((c.first, c.second)), []).append(winner)
    judged = [w for w in pairs.values() if len(w) > 1]
    return sum(len(set(w)) > 1 for w in judged) / len(judged) if judged else 0.0


def rank(
    n: int, compare: Compare, scheme: str = "active", budget: int | None = None, enough: float = 0.95
) -> Ranking:
    """Ranks n items with `compare`.

    active: each item meets the leader, then leader against likeliest challenger until P(best) >= enough or
    `budget` calls (default 4 n: 2 n pairs) are spent. round_robin: every pair. Both show both orders.
    """
    comparisons: list[Comparison] = []
    if scheme not in SCHEMES:
        raise UserError(unknown_name("ranking", scheme, SCHEMES))
    if n <= 1:  # nothing to compare
        return Ranking(np.zeros(n), np.zeros(n), np.ones(n), 0.0, ())

    def current() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        strengths, covariance = fit(n, _wins(n, comparisons))
        return strengths, covariance, probability_best(strengths, covariance)

    if scheme == "round_robin":
        for i, j in combinations(range(n), 2):
            comparisons += _both_orders(compare, i, j)
    else:
        budget = budget or 4 * n
        leader = 0
        for challenger in range(1, n):
            comparisons += _both_orders(compare, leader, challenger)
            leader = int(np.argmax(fit(n, _wins(n, comparisons))[0]))
        while len(comparisons) + 2 <= budget:
            strengths, _, p_best = current()
            leader = int(np.argmax(strengths))
            if p_best[leader] >= enough:
                break
            met = _wins(n, comparisons)[leader] + _wins(n, comparisons)[:, leader]
            # The likeliest challenger, each further meeting making it less so.
            doubt = np.where(np.arange(n) == leader, -1.0, (p_best + 1e-6) / (1 + met))
            comparisons += _both_orders(compare, leader, int(np.argmax(doubt)))
    strengths, covariance, p_best = current()
    return Ranking(
        strengths, np.sqrt(np.diag(covariance)), p_best, _flip_rate(comparisons), tuple(comparisons)
    )
