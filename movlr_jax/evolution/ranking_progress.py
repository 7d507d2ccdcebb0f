"""How sure an unfinished ranking is, and how many comparisons it still needs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from movlr_jax.evolution.pairwise import ENOUGH, Presentation, Strengths, fit, next_pair, strengths_of, wins_of
from movlr_jax.records import Comparison, Preference

_FUTURES = 5  # simulated endings of the ranking


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
