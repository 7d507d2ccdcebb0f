"""Rank candidates from pairwise preferences: Bradley-Terry strengths with uncertainty, pairs chosen actively.

Every pair is shown in both orders. Each answer adds one win to its winner, or half a win to both for a tie; so the
two answers of a judge that only follows the position cancel out. A comparison without an answer does not count.
Bradley and Terry (1952); the MAP fit with a Gaussian prior and its Laplace covariance keep the strengths finite for a
candidate that never loses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from movlr_jax.config.methods import RANKINGS, calls_needed
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.language.base import Preference

Ask = Callable[[Sequence[tuple[int, int]]], Sequence[Preference]]  # takes pairs (first shown, second shown)
_PRIOR_VARIANCE = 4.0


@dataclass(frozen=True)
class Comparison:
    """One call of the judge: the indices of both items, and the answer."""

    first: int
    second: int
    preference: Preference


@dataclass(frozen=True)
class Ranking:
    """Strengths of n items, higher is better."""

    strengths: np.ndarray  # [n]
    deviation: np.ndarray  # [n] posterior standard deviation
    p_best: np.ndarray  # [n] probability that each is the best
    flip_rate: float  # share of pairs with different winners in the two orders
    comparisons: Sequence[Comparison]
    # set by knockout, by paper, and if nothing was answered; overrides the strengths
    winner: int | None = None
    unranked: frozenset[int] = frozenset()  # items without an answered comparison

    @property
    def order(self) -> list[int]:
        """Indices from best to worst. Unranked items are last; among equal strengths the earlier item is first."""
        return sorted(
            range(len(self.strengths)),
            key=lambda i: (i != self.winner, i in self.unranked, -round(float(self.strengths[i]), 9), i),
        )


def fit(n: int, wins: np.ndarray, variance: float = _PRIOR_VARIANCE) -> tuple[np.ndarray, np.ndarray]:
    """Return MAP strengths [n] and covariance [n, n] from wins [n, n]: i beat j wins[i, j] times (halves allowed).

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
    """Return the posterior probability [n] that each is the strongest. Uses fixed samples, so it is deterministic."""
    samples = strengths + _normal(draws, len(strengths)) @ np.linalg.cholesky(covariance).T
    return np.bincount(samples.argmax(1), minlength=len(strengths)) / draws


@cache
def _normal(draws: int, n: int) -> np.ndarray:
    """Return fixed samples [draws, n] of the standard normal distribution."""
    return np.random.default_rng(0).standard_normal((draws, n))


def _wins(n: int, comparisons: Sequence[Comparison]) -> np.ndarray:
    wins = np.zeros((n, n))
    for c in comparisons:
        if not decided(c):
            continue
        share = {"first": 1.0, "second": 0.0, "tie": 0.5}[c.preference.winner]
        wins[c.first, c.second] += share
        wins[c.second, c.first] += 1 - share
    return wins


def decided(comparison: Comparison) -> bool:
    """Whether a comparison has a result; a tie is a result."""
    return comparison.preference.winner != "none"


def unanswered(recorded: Sequence[Mapping[str, Any]]) -> int:
    """Count the recorded comparisons that the judge did not answer, including those that a gate decided."""
    return sum(c.get("answered") is False for c in recorded)


def nothing_answered(rankings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the recorded rankings of a run have comparisons, none of which the judge answered."""
    recorded = [c for ranking in rankings for c in ranking.get("comparisons") or []]
    return 0 < len(recorded) == unanswered(recorded)


def silence(rankings: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a warning if the recorded rankings of a run have unanswered comparisons, else None."""
    recorded = [list(ranking.get("comparisons") or []) for ranking in rankings]
    silent, asked = sum(map(unanswered, recorded)), sum(map(len, recorded))
    if not silent:
        return None
    unranked = sum(bool(cs) and r.get("flip_rate") is None for cs, r in zip(recorded, rankings, strict=True))
    count = f"the judge did not answer {silent} of {asked} comparisons"
    if not unranked:
        return f"{count}; these are ignored"
    kept = "the first program that ran" if unranked == len(rankings) else "the previous best"
    return f"{count}, so {unranked} of {len(rankings)} generations are not ranked; {kept} was kept by default"


def _compare(ask: Ask, pairs: Sequence[tuple[int, int]]) -> list[Comparison]:
    return [Comparison(i, j, p) for (i, j), p in zip(pairs, ask(pairs), strict=True)]


def _both_orders(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [shown for i, j in pairs for shown in ((i, j), (j, i))]


def flip_rate(comparisons: Sequence[Comparison]) -> float:
    """Return the share of pairs, among those answered in both orders, whose two answers name different winners."""
    pairs: dict[frozenset[int], list[int | None]] = {}
    for c in filter(decided, comparisons):
        winner = {"first": c.first, "second": c.second, "tie": None}[c.preference.winner]
        pairs.setdefault(frozenset((c.first, c.second)), []).append(winner)
    judged = [w for w in pairs.values() if len(w) > 1]
    return sum(len(set(w)) > 1 for w in judged) / len(judged) if judged else 0.0


def rank(
    n: int,
    ask: Ask,
    scheme: str = "active",
    budget: int | None = None,
    enough: float = 0.95,
    known: Sequence[Comparison] = (),
    entrants: Sequence[int] | None = None,
) -> Ranking:
    """Rank n items from their comparisons.

    Schemes:
        active: Each entrant without a comparison meets the leader. Then the leader meets the most likely challenger
            among all items, until one is the best with probability `enough` or the budget is spent.
        round_robin: Every pair of entrants meets.
        knockout: The winners of pairs meet until one is left.
        paper: Each new entrant is shown once, before the current winner, as in MoVLR.

    All schemes but paper show every pair in both orders. If no comparison is answered, the first entrant is the
    winner, and active makes no further calls.

    Args:
        n: Number of items.
        ask: Calls the judge.
        scheme: One of the schemes above.
        budget: Maximum number of calls of active; None: 4 per entrant.
        enough: Probability at which active stops.
        known: Earlier comparisons, which count too.
        entrants: Indices of the items to compare now; None: all.

    Raises:
        UserError: For an unknown scheme, or if `budget` is less than the scheme needs.
    """
    if scheme not in RANKINGS:
        raise UserError(unknown_name("ranking", scheme, RANKINGS))
    if n <= 1:  # nothing to compare
        return Ranking(np.zeros(n), np.zeros(n), np.ones(n), 0.0, ())
    entrants = range(n) if entrants is None else entrants
    m = len(entrants)
    if budget is not None and budget < calls_needed(scheme, m):
        raise UserError(
            f"ranking={scheme} of {m} programs needs at least {calls_needed(scheme, m)} comparisons; "
            f"comparisons={budget} is too few"
        )
    winner, comparisons = None, []
    if scheme == "round_robin":
        comparisons = _compare(ask, _both_orders(list(combinations(entrants, 2))))
    elif scheme == "knockout":
        winner, comparisons = _knockout(entrants, ask)
    elif scheme == "paper":
        winner, comparisons = _paper(entrants, ask)
    elif m > 1:
        comparisons = _active(n, entrants, ask, budget or 4 * m, enough, known)
    if comparisons and not any(map(decided, comparisons)):
        winner = entrants[0]
    wins = _wins(n, [*known, *comparisons])
    strengths, covariance = fit(n, wins)
    p_best = probability_best(strengths, covariance)
    deviation = np.sqrt(np.diag(covariance))
    unranked = frozenset(map(int, np.flatnonzero(~_played(wins))))
    return Ranking(strengths, deviation, p_best, flip_rate(comparisons), tuple(comparisons), winner, unranked)


def _active(
    n: int, entrants: Sequence[int], ask: Ask, budget: int, enough: float, known: Sequence[Comparison]
) -> list[Comparison]:
    comparisons: list[Comparison] = []
    wins = _wins(n, known)
    played = set(np.flatnonzero(_played(wins)))
    leader = _leader(n, wins) if played else entrants[0]
    for challenger in entrants:
        if challenger in played or challenger == leader:
            continue
        comparisons += _compare(ask, _both_orders([(leader, challenger)]))
        wins = _wins(n, [*known, *comparisons])
        leader = _leader(n, wins) if wins.any() else leader
    while len(comparisons) + 2 <= budget and (not comparisons or any(map(decided, comparisons))):
        wins = _wins(n, [*known, *comparisons])
        strengths, covariance = fit(n, wins)
        p_best = probability_best(strengths, covariance)
        leader = int(np.argmax(strengths))
        if p_best[leader] >= enough:
            break
        met = np.bincount(
            [c.first + c.second - leader for c in [*known, *comparisons] if leader in (c.first, c.second)],
            minlength=n,
        )
        # The most likely challenger. Each comparison with the leader, answered or not, lowers its priority.
        priority = np.where(np.arange(n) == leader, -1.0, (p_best + 1e-6) / (1 + met))
        comparisons += _compare(ask, _both_orders([(leader, int(np.argmax(priority)))]))
    return comparisons


def _leader(n: int, wins: np.ndarray) -> int:
    """Return the strongest of the items that were compared."""
    return int(np.argmax(np.where(_played(wins), fit(n, wins)[0], -np.inf)))


def _played(wins: np.ndarray) -> np.ndarray:
    """Return [n] whether each item was compared."""
    return np.any(wins + wins.T, axis=1)


def _paper(entrants: Sequence[int], ask: Ask) -> tuple[int, list[Comparison]]:
    comparisons: list[Comparison] = []
    winner = entrants[0]
    for newcomer in entrants[1:]:
        comparisons += _compare(ask, [(newcomer, winner)])
        winner = newcomer if comparisons[-1].preference.winner == "first" else winner
    return winner, comparisons


def _knockout(entrants: Sequence[int], ask: Ask) -> tuple[int, list[Comparison]]:
    """Return the winner and all comparisons. The earlier item wins a tie; an odd item skips the round."""
    comparisons: list[Comparison] = []
    left = list(entrants)
    while len(left) > 1:
        pairs = [(left[i], left[i + 1]) for i in range(0, len(left) - 1, 2)]
        met = _compare(ask, _both_orders(pairs))
        wins = _wins(max(left) + 1, met)
        comparisons += met
        left = [j if wins[j, i] > wins[i, j] else i for i, j in pairs] + left[2 * len(pairs) :]
    return left[0], comparisons
