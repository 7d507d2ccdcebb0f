"""Rank items by pairwise preferences: Bradley-Terry strengths with uncertainty, pairs chosen actively.

Every pair is shown in both orders. Each answer adds one win to its winner, or half a win to both for a tie; so the
two answers of a judge that only follows the position cancel out. A comparison without an answer does not count.
Bradley and Terry (1952); the MAP fit with a Gaussian prior and its Laplace covariance keep the strengths finite for
an item that never loses. Items are named by anything that can be a key, as the names of programs.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from movlr_jax.config.ranking import RANKINGS, calls_needed
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.evolution.worth import normal
from movlr_jax.records import Comparison, Preference

Pair = tuple[Any, Any]  # of items; the first is shown first
Ask = Callable[[Sequence[Pair]], Sequence[Preference]]
BUDGET = 4  # calls of active per entrant
REPEATS = 3  # most comparisons by one person of the leader with one challenger
ENOUGH = 0.95  # probability of the leader at which active stops
_PRIOR_VARIANCE = 4.0
_FUTURES = 5  # simulated endings of a ranking in progress


@dataclass(frozen=True)
class Presentation:
    """How pairs are shown to a judge."""

    orders: int = 2  # how often a pair is shown when it meets, with the places exchanged each time
    most: int | None = None  # how often active shows one challenger to the leader; None: without a limit
    gates_first: bool = False  # pairs that a gate decides are not shown, which saves votes


BOTH_ORDERS = Presentation()


def to_people(raters: int) -> Presentation:
    """Return how people are shown pairs: each rater sees a pair once when it meets, and at most REPEATS times."""
    return Presentation(raters, REPEATS * raters, gates_first=True)


@dataclass(frozen=True)
class Strengths:
    """The result of comparisons of n items: strengths, higher is better."""

    items: Sequence[Any]
    strengths: np.ndarray  # [n]
    deviation: np.ndarray  # [n] posterior standard deviation
    p_best: np.ndarray  # [n] probability that each is the best
    comparisons: Sequence[Comparison] = ()
    # set by knockout, by paper, and if nothing was answered; overrides the strengths
    winner: Any = None
    unranked: frozenset[Any] = frozenset()  # items without an answered comparison

    @property
    def order(self) -> list[Any]:
        """Items from best to worst. Unranked items are last; among equal strengths the earlier item is first."""
        places = sorted(
            range(len(self.items)),
            key=lambda i: (
                self.winner is None or self.items[i] != self.winner,
                self.items[i] in self.unranked,
                -round(float(self.strengths[i]), 9),
                i,
            ),
        )
        return [self.items[i] for i in places]


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


def probability_best(strengths: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the posterior probability [n] that each is the strongest. Uses fixed samples, so it is deterministic."""
    samples = strengths + normal(len(strengths)) @ np.linalg.cholesky(covariance).T
    return np.bincount(samples.argmax(1), minlength=len(strengths)) / len(samples)


def wins_of(items: Sequence[Any], comparisons: Sequence[Comparison]) -> np.ndarray:
    """Return wins [n, n]: i beat j wins[i, j] times, a tie is half a win for both."""
    at, wins = {item: i for i, item in enumerate(items)}, np.zeros((len(items), len(items)))
    for c in comparisons:
        if not c.decided:
            continue
        share = {"first": 1.0, "second": 0.0, "tie": 0.5}[c.winner]
        i, j = at[c.first], at[c.second]
        wins[i, j] += share
        wins[j, i] += 1 - share
    return wins


def sided(pair: Pair, before: Sequence[Pair]) -> Pair:
    """Return `pair` in the order that balances how often each item was first in the pairs shown `before`."""
    (i, j), first = pair, Counter(a for a, _ in before)
    first.subtract(b for _, b in before)
    return (j, i) if first[i] > first[j] else (i, j)


def _shown(pairs: Sequence[Pair], orders: int, before: Sequence[Comparison]) -> list[Pair]:
    """Return each pair `orders` times, with the places exchanged from one to the next.

    An odd number starts with the order that balances how often each item was first in the comparisons `before`.
    """
    shown: list[Pair] = []
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
    answered = [c for c in comparisons if c.decided]
    both = meetings([(c.first, c.second) for c in answered])
    return sum(answered[i].preferred != answered[j].preferred for i, j in both) / len(both) if both else 0.0


def rank(
    items: Sequence[Any],
    ask: Ask,
    scheme: str = "active",
    budget: int | None = None,
    enough: float = ENOUGH,
    earlier: Sequence[Comparison] = (),
    entrants: Sequence[Any] | None = None,
    presentation: Presentation = BOTH_ORDERS,
    watch: Callable[[Sequence[Comparison]], None] = lambda comparisons: None,
) -> Strengths:
    """Rank items by comparing them.

    Schemes:
        active: Each entrant without a comparison meets the leader. Then the leader meets the most likely challenger
            among all items, until one is the best with probability `enough` or the budget is spent.
        round_robin: Every pair of entrants meets.
        knockout: The winners of pairs meet until one is left.
        paper: Each new entrant is shown once, before the current winner, as in MoVLR.

    All schemes but paper show pairs as `presentation` says, by default in both orders. If no comparison is answered,
    the first entrant is the winner, and active makes no further calls.

    Args:
        items: The items, each once.
        ask: Calls the judge.
        scheme: One of the schemes above.
        budget: Maximum number of calls of active; None: BUDGET per entrant.
        enough: Probability at which active stops.
        earlier: Earlier comparisons, which count too.
        entrants: The items to compare now; None: all.
        presentation: How pairs are shown. If once, the places are balanced over all pairs.
        watch: Called by active with the comparisons of this call so far, before each further pair.

    Raises:
        UserError: For an unknown scheme, or if `budget` is less than the scheme needs.
    """
    entrants = items if entrants is None else entrants
    n, m, orders = len(items), len(entrants), presentation.orders
    _check(scheme, budget, m, orders)
    if n <= 1:  # nothing to compare
        return Strengths(items, np.zeros(n), np.zeros(n), np.ones(n))
    winner, comparisons = None, list[Comparison]()
    if scheme == "round_robin":
        comparisons = _compare(ask, _shown(list(combinations(entrants, 2)), orders, earlier))
    elif scheme == "knockout":
        winner, comparisons = _knockout(entrants, ask, orders)
    elif scheme == "paper":
        winner, comparisons = _paper(entrants, ask)
    elif m > 1:
        while len(comparisons) + orders <= (budget or BUDGET * m):
            watch(comparisons)
            pair = next_pair(items, entrants, earlier, comparisons, enough, presentation.most)
            if pair is None:
                break
            comparisons += _compare(ask, _shown([pair], orders, [*earlier, *comparisons]))
    if comparisons and not any(c.decided for c in comparisons):
        winner = entrants[0]
    return strengths_of(items, [*earlier, *comparisons], comparisons, winner)


def _check(scheme: str, budget: int | None, m: int, orders: int) -> None:
    """Raise UserError for an unknown scheme, or a budget that is too small to compare `m` programs."""
    if scheme not in RANKINGS:
        raise UserError(unknown_name("ranking", scheme, RANKINGS))
    if budget is not None and budget < (least := calls_needed(scheme, m, orders)):
        raise UserError(
            f"ranking={scheme} of {m} programs needs at least {least} comparisons; comparisons={budget} is too few"
        )


def strengths_of(
    items: Sequence[Any], every: Sequence[Comparison], new: Sequence[Comparison] = (), winner: Any = None
) -> Strengths:
    """Return the strengths of items by `every` comparison, of which `new` are reported."""
    wins = wins_of(items, every)
    strengths, covariance = fit(len(items), wins)
    played = _played(wins)
    return Strengths(
        items=items,
        strengths=strengths,
        deviation=np.sqrt(np.diag(covariance)),
        p_best=probability_best(strengths, covariance),
        comparisons=tuple(new),
        winner=winner,
        unranked=frozenset(item for item, known in zip(items, played, strict=True) if not known),
    )


def next_pair(
    items: Sequence[Any],
    entrants: Sequence[Any],
    earlier: Sequence[Comparison],
    new: Sequence[Comparison] = (),
    enough: float = ENOUGH,
    most: int | None = None,
) -> Pair | None:
    """Return (leader, challenger), the pair that active compares next, or None if it stops.

    earlier: Comparisons of earlier calls of `rank`; `new`: of this one. Active stops when the leader is the best with
    probability `enough`, or when every entrant was shown and nothing was answered. With `most`, the leader does not
    meet a challenger more often, and active stops when the others are the best with probability 1 - `enough`.
    """
    n, at, comparisons = len(items), {item: i for i, item in enumerate(items)}, [*earlier, *new]
    wins = wins_of(items, comparisons)
    strengths, covariance = fit(n, wins)
    leader = at[entrants[0]]
    if wins.any():
        leader = int(np.argmax(np.where(_played(wins), strengths, -np.inf)))
    before = _played(wins_of(items, earlier))
    met = {*np.flatnonzero(before), *(at[name] for c in new for name in (c.first, c.second))}
    for challenger in entrants:
        if at[challenger] not in met and at[challenger] != leader:
            return items[leader], challenger
    if new and not any(c.decided for c in new):
        return None
    p_best = probability_best(strengths, covariance)
    leader = int(np.argmax(strengths))
    shown = [(at[c.first], at[c.second]) for c in comparisons]
    against = np.bincount([i + j - leader for i, j in shown if leader in (i, j)], minlength=n)
    settled = (np.arange(n) == leader) | (against >= (np.inf if most is None else most))
    if p_best[settled].sum() >= enough or settled.all():
        return None
    # The most likely challenger. Each comparison with the leader, answered or not, lowers its priority.
    priority = np.where(settled, -1.0, (p_best + 1e-6) / (1 + against))
    return items[leader], items[int(np.argmax(priority))]


def _compare(ask: Ask, pairs: Sequence[Pair]) -> list[Comparison]:
    return [Comparison.of(i, j, answer) for (i, j), answer in zip(pairs, ask(pairs), strict=True)]


def _played(wins: np.ndarray) -> np.ndarray:
    """Return [n] whether each item was compared."""
    return np.any(wins + wins.T, axis=1)


def _paper(entrants: Sequence[Any], ask: Ask) -> tuple[Any, list[Comparison]]:
    comparisons: list[Comparison] = []
    winner = entrants[0]
    for newcomer in entrants[1:]:
        comparisons += _compare(ask, [(newcomer, winner)])
        winner = newcomer if comparisons[-1].winner == "first" else winner
    return winner, comparisons


def _knockout(entrants: Sequence[Any], ask: Ask, orders: int) -> tuple[Any, list[Comparison]]:
    """Return the winner and all comparisons. The earlier item wins a tie; an odd item skips the round."""
    comparisons: list[Comparison] = []
    left = list(entrants)
    while len(left) > 1:
        pairs = [(left[i], left[i + 1]) for i in range(0, len(left) - 1, 2)]
        met = _compare(ask, _shown(pairs, orders, comparisons))
        won = Counter[Any]()
        for c in met:
            if c.decided:
                share = {"first": 1.0, "second": 0.0, "tie": 0.5}[c.winner]
                won.update({c.first: share, c.second: 1 - share})
        comparisons += met
        left = [j if won[j] > won[i] else i for i, j in pairs] + left[2 * len(pairs) :]
    return left[0], comparisons


@dataclass(frozen=True)
class RankingProgress:
    """An active ranking in progress."""

    names: Sequence[Any]  # [n] items, all of which are compared
    earlier: Sequence[Comparison]  # of earlier generations
    new: Sequence[Comparison]  # of this ranking, so far
    budget: int  # maximum number of comparisons of this ranking
    presentation: Presentation

    @property
    def at_most(self) -> int:
        """Number of comparisons left in the budget."""
        return max(0, self.budget - len(self.new))

    @cached_property
    def ranking(self) -> Strengths:
        """The ranking by all comparisons so far."""
        return strengths_of(self.names, [*self.earlier, *self.new])

    @cached_property
    def expected(self) -> int:
        """Median number of further comparisons over simulated endings, each with strengths drawn from the posterior.

        The draws are fixed, so equal comparisons give an equal number.
        """
        strengths, covariance = fit(len(self.names), wins_of(self.names, [*self.earlier, *self.new]))
        rng = np.random.default_rng(0)
        drawn = rng.multivariate_normal(strengths, covariance, size=_FUTURES, method="cholesky")
        return round(statistics.median(self._ending(truth, rng) for truth in drawn))

    def _ending(self, truth: np.ndarray, rng: np.random.Generator) -> int:
        """Return how many comparisons follow if `truth` [n] are the strengths."""
        new, strength = list(self.new), dict(zip(self.names, truth, strict=True))
        while len(new) + self.presentation.orders <= self.budget:
            pair = next_pair(self.names, self.names, self.earlier, new, most=self.presentation.most)
            if pair is None:
                break
            first, second = pair
            chance = 1 / (1 + np.exp(strength[second] - strength[first]))
            new += [
                Comparison.of(first, second, Preference("first" if rng.random() < chance else "second", ""))
                for _ in range(self.presentation.orders)
            ]
        return len(new) - len(self.new)

    def record(self) -> dict[str, Any]:
        """Return what a person who votes sees; without names, which would tell the leader from its challenger."""
        p_best = self.ranking.p_best
        return {
            "items": len(self.names),
            "given": len(self.new),
            "at_most": self.at_most,
            "expected": min(self.expected, self.at_most),
            "p_best": float(p_best.max()) if len(p_best) else 0.0,
            "enough": ENOUGH,
        }
