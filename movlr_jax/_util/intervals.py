"""Confidence intervals of rates and means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def rate_interval(successes: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a rate; (0, 1) of no trials."""
    from scipy.stats import binomtest

    if n == 0:
        return 0.0, 1.0
    low, high = binomtest(successes, n).proportion_ci(0.95, method="wilson")
    return float(low), float(high)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % t interval of the mean; infinite for fewer than two values."""
    from scipy.special import stdtrit

    n = len(values)
    if n < 2:
        return -np.inf, np.inf
    middle, error = np.mean(values), np.std(values, ddof=1) / np.sqrt(n)
    away = stdtrit(n - 1, 0.975) * error
    return float(middle - away), float(middle + away)
