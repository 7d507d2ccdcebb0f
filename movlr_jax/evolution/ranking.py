"""Rank candidates from pairwise preferences: Bradley-Terry strengths with uncertainty, pairs chosen actively.

Every pair is shown in both orders. Each answer adds one win to its winner, or half a win to both for a tie; so the
two answers of a judge that only follows the position cancel out. A comparison without an answer does not count.
Bradley and Terry (1952); the MAP fit with a Gaussian prior and its Laplace covariance keep the strengths finite for a
candidate that never loses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from movlr_jax.config.ranking import RANKINGS, calls_needed
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.language.base import Preference

Ask = Callable[[Sequence[tuple[int, int]]], Sequence[Preference]]  # takes pairs (first shown, second shown)
BUDGET = 4  # calls of active per entrant
REPEATS = 3  # most comparisons by one person of the leader with one challenger
ENOUGH = 0.95  # probability of the leader at which active stops
_PRIOR_VARIANCE = 4.0


@dataclass(frozen=True)
class Showing:
    """How a judge is shown pairs."""

    orders: int = 2  # how often a pair is shown when it meets, with the places exchanged each time
    most: int | None = None  # how often active shows one challenger to the leader; None: without a limit
    gates_first: bool = False  # pairs that a gate decides are not shown, which saves votes


BOTH_ORDERS = Showing()


def to_people(raters: int) -> Showing:
    """Return how people are shown pairs: each rater sees a pair once when it meets, and at most REPEATS times."""
    return Showing(raters, REPEATS * raters, gates_first=True)


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


def wins_of(n: int, comparisons: Sequence[Comparison]) -> np.ndarray:
    """Return wins [n, n]: i beat j wins[i, j] times, a tie is half a win for both."""
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


def sided(pair: tuple[int, int], before: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return `pair` in the order that balances how often each item was first in the pairs shown `before`."""
    (i, j), first = pair, Counter(a for a, _ in before)
    first.subtract(b for _, b in before)
    return (j, i) if first[i] > first[j] else (i, j)


def _shown(
    pairs: Sequence[tuple[int, int]], orders: int, before: Sequence[Comparison]
) -> list[tuple[int, int]]:
    """Return each pair `orders` times, with the places exchanged from one to the next.

    An odd number starts with the order that balances how often each item was first in the comparisons `before`.
    """
    shown: list[tuple[int, int]] = []
    for i, j in pairs:
        if orders % 2:
            i, j = sided((i, j), [*((c.first, c.second) for c in before), *shown])
        shown += [(i, j) if turn % 2 == 0 else (j, i) for turn in range(orders)]
    return shown


def meetings(shown: Sequence[tuple[Hashable, Hashable]]) -> list[tuple[int, int]]:
    """Return the indices of the two answers of each meeting, given the pairs as they were shown, in order of time.

    An answer belongs to the next one about the same pair in the other order. Answers without one are left out.
    """
    waiting: dict[tuple[Hashable, Hashable], list[int]] = {}
    found = []
    for i, (first, second) in enumerate(shown):
        if others := waiting.get((second, first)):
            found.append((others.pop(0), i))
        else:
            waiting.setdefault((first, second), []).append(i)
    return found


def flip_rate(comparisons: Sequence[Comparison]) -> float:
    """Return the share of pairs, among those answered in both orders, whose two answers name different winners.

    A pair that meets again counts again.
    """
    answered = [c for c in comparisons if decided(c)]
    winners = [{"first": c.first, "second": c.second, "tie": None}[c.preference.winner] for c in answered]
    both = meetings([(c.first, c.second) for c in answered])
    return sum(winners[i] != winners[j] for i, j in both) / len(both) if both else 0.0


def rank(
    n: int,
    ask: Ask,
    scheme: str = "active",
    budget: int | None = None,
    enough: float = ENOUGH,
    known: Sequence[Comparison] = (),
    entrants: Sequence[int] | None = None,
    showing: Showing = BOTH_ORDERS,
    watch: Callable[[Sequence[Comparison]], None] = lambda comparisons: None,
) -> Ranking:
    """Rank n items from their comparisons.

    Schemes:
        active: Each entrant without a comparison meets the leader. Then the leader meets the most likely challenger
            among all items, until one is the best with probability `enough` or the budget is spent.
        round_robin: Every pair of entrants meets.
        knockout: The winners of pairs meet until one is left.
        paper: Each new entrant is shown once, before the current winner, as in MoVLR.

    All schemes but paper show pairs as `showing` says, by default in both orders. If no comparison is answered, the
    first entrant is the winner, and active makes no further calls.

    Args:
        n: Number of items.
        ask: Calls the judge.
        scheme: One of the schemes above.
        budget: Maximum number of calls of active; None: 4 per entrant.
        enough: Probability at which active stops.
        known: Earlier comparisons, which count too.
        entrants: Indices of the items to compare now; None: all.
        showing: How the judge is shown pairs. If once, the places are balanced over all pairs.
        watch: Called by active with the comparisons of this call so far, before each further pair.

    Raises:
        UserError: For an unknown scheme, or if `budget` is less than the scheme needs.
    """
    if scheme not in RANKINGS:
        raise UserError(unknown_name("ranking", scheme, RANKINGS))
    if n <= 1:  # nothing to compare
        return Ranking(np.zeros(n), np.zeros(n), np.ones(n), 0.0, ())
    entrants = range(n) if entrants is None else entrants
    m = len(entrants)
    orders = showing.orders
    least = calls_needed(scheme, m, orders)
    if budget is not None and budget < least:
        raise UserError(
            f"ranking={scheme} of {m} programs needs at least {least} comparisons; "
            f"comparisons={budget} is too few"
        )
    winner, comparisons = None, []
    if scheme == "round_robin":
        comparisons = _compare(ask, _shown(list(combinations(entrants, 2)), orders, known))
    elif scheme == "knockout":
        winner, comparisons = _knockout(entrants, ask, orders)
    elif scheme == "paper":
        winner, comparisons = _paper(entrants, ask)
    elif m > 1:
        while len(comparisons) + orders <= (budget or BUDGET * m):
            watch(comparisons)
            pair = next_pair(n, entrants, known, comparisons, enough, showing.most)
            if pair is None:
                break
            comparisons += _compare(ask, _shown([pair], orders, [*known, *comparisons]))
    if comparisons and not any(map(decided, comparisons)):
        winner = entrants[0]
    wins = wins_of(n, [*known, *comparisons])
    strengths, covariance = fit(n, wins)
    p_best = probability_best(strengths, covariance)
    deviation = np.sqrt(np.diag(covariance))
    unranked = frozenset(map(int, np.flatnonzero(~_played(wins))))
    return Ranking(strengths, deviation, p_best, flip_rate(comparisons), tuple(comparisons), winner, unranked)


def next_pair(
    n: int,
    entrants: Sequence[int],
    known: Sequence[Comparison],
    new: Sequence[Comparison] = (),
    enough: float = ENOUGH,
    most: int | None = None,
) -> tuple[int, int] | None:
    """Return (leader, challenger), the pair that active compares next, or None if it stops.

    known: Comparisons of earlier calls of `rank`; `new`: of this one. Active stops when the leader is the best with
    probability `enough`, or when every entrant was shown and nothing was answered. With `most`, the leader does not
    meet a challenger more often, and active stops when the others are the best with probability 1 - `enough`.
    """
    comparisons = [*known, *new]
    wins = wins_of(n, comparisons)
    strengths, covariance = fit(n, wins)
    leader = int(np.argmax(np.where(_played(wins), strengths, -np.inf))) if wins.any() else entrants[0]
    met = {*np.flatnonzero(_played(wins_of(n, known))), *(i for c in new for i in (c.first, c.second))}
    for challenger in entrants:
        if challenger not in met and challenger != leader:
            return leader, challenger
    if new and not any(map(decided, new)):
        return None
    p_best = probability_best(strengths, covariance)
    leader = int(np.argmax(strengths))
    against = np.bincount(
        [c.first + c.second - leader for c in comparisons if leader in (c.first, c.second)], minlength=n
    )
    settled = (np.arange(n) == leader) | (against >= (np.inf if most is None else most))
    if p_best[settled].sum() >= enough or settled.all():
        return None
    # The most likely challenger. Each comparison with the leader, answered or not, lowers its priority.
    priority = np.where(settled, -1.0, (p_best + 1e-6) / (1 + against))
    return leader, int(np.argmax(priority))


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


def _knockout(entrants: Sequence[int], ask: Ask, orders: int) -> tuple[int, list[Comparison]]:
    """Return the winner and all comparisons. The earlier item wins a tie; an odd item skips the round."""
    comparisons: list[Comparison] = []
    left = list(entrants)
    while len(left) > 1:
        pairs = [(left[i], left[i + 1]) for i in range(0, len(left) - 1, 2)]
        met = _compare(ask, _shown(pairs, orders, comparisons))
        wins = wins_of(max(left) + 1, met)
        comparisons += met
        left = [j if wins[j, i] > wins[i, j] else i for i, j in pairs] + left[2 * len(pairs) :]
    return left[0], comparisons
