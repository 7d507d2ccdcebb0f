"""Who is best, from pairwise preferences: Bradley-Terry strengths with uncertainty, pairs chosen actively.

Every pair is shown in both orders; a judge that answers by position contradicts itself and each order counts
half a win each (two answers that agree, or a tie, count accordingly). A comparison that was not answered does not
count. Bradley and Terry (1952); the MAP fit with a Gaussian prior and its Laplace covariance keep strengths finite
when somebody never loses.
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

Ask = Callable[[Sequence[tuple[int, int]]], Sequence[Preference]]  # of pairs (first shown, second shown)
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
    winner: int | None = (
        None  # of knockout and paper, which name one whatever the strengths say; of no answers at all
    )
    unranked: frozenset[int] = frozenset()  # those that no answered comparison has met

    @property
    def order(self) -> list[int]:
        """Indices from best to worst, those unranked last; ties keep the earlier first."""
        return sorted(
            range(len(self.strengths)),
            key=lambda i: (i != self.winner, i in self.unranked, -round(float(self.strengths[i]), 9), i),
        )


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
    samples = strengths + _normal(draws, len(strengths)) @ np.linalg.cholesky(covariance).T
    return np.bincount(samples.argmax(1), minlength=len(strengths)) / draws


@cache
def _normal(draws: int, n: int) -> np.ndarray:
    """[draws, n] of the standard normal distribution, the same each time."""
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
    """Whether a comparison has an outcome, be it a tie."""
    return comparison.preference.winner != "none"


def unanswered(recorded: Sequence[Mapping[str, Any]]) -> int:
    """How many comparisons of a record the judge gave no answer to, whether or not a gate decided them."""
    return sum(c.get("answered") is False for c in recorded)


def silence(rankings: Sequence[Mapping[str, Any]]) -> str | None:
    """What a run's rankings, as recorded, say of a judge that did not answer; None: it always did."""
    recorded = [list(ranking.get("comparisons") or []) for ranking in rankings]
    silent, asked = sum(map(unanswered, recorded)), sum(map(len, recorded))
    if not silent:
        return None
    unranked = sum(bool(cs) and r.get("flip_rate") is None for cs, r in zip(recorded, rankings, strict=True))
    said = f"the judge did not answer {silent} of {asked} comparisons"
    if not unranked:
        return f"{said}; these count for nothing"
    kept = "the first program that ran" if unranked == len(rankings) else "the best of before"
    return f"{said}, so {unranked} of {len(rankings)} generations are not ranked: {kept} was kept, nobody chose it"


def _asked(ask: Ask, pairs: Sequence[tuple[int, int]]) -> list[Comparison]:
    return [Comparison(i, j, p) for (i, j), p in zip(pairs, ask(pairs), strict=True)]


def _both_orders(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [shown for i, j in pairs for shown in ((i, j), (j, i))]


def flip_rate(comparisons: Sequence[Comparison]) -> float:
    """Share of the pairs shown in both orders, and answered, whose answers name different winners."""
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
    """Ranks n items. `known` are comparisons made before, which count; `entrants` who meets now (all, if None).

    active: each entrant that was never compared meets the leader, then the leader the likeliest challenger among
    all items, until one is the best with probability `enough` or `budget` calls (4 an entrant if None) are spent.
    round_robin: every pair of entrants. knockout: winners of pairs meet until one is left. These show both orders.
    paper: each newcomer is shown once before whoever stands, as MoVLR does. Where not one comparison is answered,
    nothing more is asked and the first entrant stays the best. Raises UserError when `budget` is less than a scheme
    needs.
    """
    if scheme not in RANKINGS:
        raise UserError(unknown_name("ranking", scheme, RANKINGS))
    if n <= 1:  # nothing to compare
        return Ranking(np.zeros(n), np.zeros(n), np.ones(n), 0.0, ())
    entrants = range(n) if entrants is None else entrants
    m = len(entrants)
    if budget is not None and budget < calls_needed(scheme, m):
        raise UserError(
            f"ranking={scheme} of {m} programs takes {calls_needed(scheme, m)} comparisons or more; "
            f"comparisons={budget} is too few"
        )
    winner, comparisons = None, []
    if scheme == "round_robin":
        comparisons = _asked(ask, _both_orders(list(combinations(entrants, 2))))
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
        comparisons += _asked(ask, _both_orders([(leader, challenger)]))
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
        # The likeliest challenger, each further meeting making it less so, answered or not.
        doubt = np.where(np.arange(n) == leader, -1.0, (p_best + 1e-6) / (1 + met))
        comparisons += _asked(ask, _both_orders([(leader, int(np.argmax(doubt)))]))
    return comparisons


def _leader(n: int, wins: np.ndarray) -> int:
    """The strongest of those that were ever compared."""
    return int(np.argmax(np.where(_played(wins), fit(n, wins)[0], -np.inf)))


def _played(wins: np.ndarray) -> np.ndarray:
    """[n] whether each was ever compared."""
    return np.any(wins + wins.T, axis=1)


def _paper(entrants: Sequence[int], ask: Ask) -> tuple[int, list[Comparison]]:
    comparisons: list[Comparison] = []
    winner = entrants[0]
    for newcomer in entrants[1:]:
        comparisons += _asked(ask, [(newcomer, winner)])
        winner = newcomer if comparisons[-1].preference.winner == "first" else winner
    return winner, comparisons


def _knockout(entrants: Sequence[int], ask: Ask) -> tuple[int, list[Comparison]]:
    """Who is left, and all comparisons; of a pair that ties the earlier stays, an odd one out waits a round."""
    comparisons: list[Comparison] = []
    left = list(entrants)
    while len(left) > 1:
        pairs = [(left[i], left[i + 1]) for i in range(0, len(left) - 1, 2)]
        met = _asked(ask, _both_orders(pairs))
        wins = _wins(max(left) + 1, met)
        comparisons += met
        left = [j if wins[j, i] > wins[i, j] else i for i, j in pairs] + left[2 * len(pairs) :]
    return left[0], comparisons
