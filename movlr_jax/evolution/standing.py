"""How sure an unfinished ranking is, and how many comparisons it still needs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from movlr_jax.evolution.ranking import ENOUGH, Comparison, Ranking, Showing, fit, next_pair, rank, wins_of
from movlr_jax.language.base import Preference

_FUTURES = 5  # simulated endings of the ranking


@dataclass(frozen=True)
class Standing:
    """An active ranking in progress."""

    names: Sequence[str]  # [n] items
    entrants: Sequence[int]  # indices of the items to compare
    known: Sequence[Comparison]  # of earlier generations
    new: Sequence[Comparison]  # of this ranking, so far
    budget: int  # maximum number of comparisons of this ranking
    showing: Showing

    @property
    def at_most(self) -> int:
        """Number of comparisons left in the budget."""
        return max(0, self.budget - len(self.new))

    @cached_property
    def ranking(self) -> Ranking:
        """The ranking by all comparisons so far."""

        def nobody(pairs: Sequence[tuple[int, int]]) -> list[Preference]:
            return []

        one = [0] if self.names else []  # a single entrant is not compared
        return rank(len(self.names), nobody, known=[*self.known, *self.new], entrants=one)

    @cached_property
    def expected(self) -> int:
        """Median number of further comparisons over simulated endings, each with strengths drawn from the posterior.

        The draws are fixed, so equal comparisons give an equal number.
        """
        n = len(self.names)
        strengths, covariance = fit(n, wins_of(n, [*self.known, *self.new]))
        rng = np.random.default_rng(0)
        drawn = rng.multivariate_normal(strengths, covariance, size=_FUTURES, method="cholesky")
        return round(statistics.median(self._ending(truth, rng) for truth in drawn))

    def _ending(self, truth: np.ndarray, rng: np.random.Generator) -> int:
        """Return how many comparisons follow if `truth` [n] are the strengths."""
        new = list(self.new)
        while len(new) + self.showing.orders <= self.budget:
            pair = next_pair(len(self.names), self.entrants, self.known, new, most=self.showing.most)
            if pair is None:
                break
            chance = 1 / (1 + np.exp(truth[pair[1]] - truth[pair[0]]))
            new += [
                Comparison(*pair, Preference("first" if rng.random() < chance else "second", ""))
                for _ in range(self.showing.orders)
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
