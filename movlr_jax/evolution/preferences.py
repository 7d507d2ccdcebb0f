"""What comparisons say about programs: the likelihood of their returns, and weights fitted to them.

P(a beats b) = 1 / (1 + exp(-beta (R(a) - R(b)))) with the return R of a motion (Bradley and Terry, 1952; Christiano
et al., 2017). Returns come from the rollout bank, so neither needs physics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from movlr_jax.sandbox.source import MAX_WEIGHT

_BETAS = np.array([0.5, 1.0, 2.0, 4.0, 8.0])  # per standard deviation of a program's returns
_TINY = 1e-9
_SLOPE = 2.0  # length of the written weights in the prior, in logits per standard deviation of a term
_VARIANCE = 16.0  # of the prior around the written weights
# A fit changes no sign and drops no term: contributions keep `_LEAST` of what was written. No weight becomes more
# than `_MOST` times the written one, as that of a term which hardly varied over the bank would.
_LEAST, _MOST = 0.1, 10.0


@dataclass(frozen=True)
class Pairs:
    """Comparisons of motions. Of n motions, `first[i]` was preferred to `second[i]` with `share[i]` (0.5: a tie)."""

    first: np.ndarray  # [C] indices of motions
    second: np.ndarray  # [C]
    share: np.ndarray  # [C] 1: first, 0: second, 0.5: a tie

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class FittedWeights:
    """Weights of one program, fitted to comparisons."""

    weights: Mapping[str, float]
    deviation: Mapping[str, float]  # posterior standard deviation of each weight, in its unit
    draws: Sequence[Mapping[str, float]]  # samples of the posterior


def standardised(returns: np.ndarray) -> np.ndarray:
    """Return returns [P, E] with mean 0 and standard deviation 1 in each row; 0 where a row is constant."""
    centred = returns - returns.mean(axis=1, keepdims=True)
    spread = returns.std(axis=1, keepdims=True)
    return np.where(spread > _TINY * (1 + np.abs(returns).max(axis=1, keepdims=True)), centred, 0.0) / (
        spread + _TINY
    )


def log_likelihood(returns: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Return [P] the mean log likelihood of a comparison under the returns [P, E] of each program; log(1/2): chance.

    The scale of a reward has no meaning, so the likelihood is the mean over the slopes `_BETAS`.
    """
    if not len(pairs):
        return np.full(len(returns), np.log(0.5))
    z = standardised(returns)
    logits = _BETAS[:, None, None] * (z[:, pairs.first] - z[:, pairs.second])  # [beta, P, C]
    each = -pairs.share * np.logaddexp(0, -logits) - (1 - pairs.share) * np.logaddexp(0, logits)
    total = each.sum(axis=2)
    best = total.max(axis=0)
    return (best + np.log(np.exp(total - best).mean(axis=0))) / len(pairs)


def agreeing(returns: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Return [P] the number of decided comparisons that the returns [P, E] of each program order in the same way."""
    decided = pairs.share != 0.5
    difference = returns[:, pairs.first[decided]] - returns[:, pairs.second[decided]]
    return (np.sign(difference) == np.sign(pairs.share[decided] - 0.5)).sum(axis=1)


def fit_weights(
    term_returns: Mapping[str, np.ndarray],
    written: Mapping[str, float],
    pairs: Pairs,
    rng: np.random.Generator,
    draws: int = 0,
) -> FittedWeights:
    """Fit the weights of r = w . r to comparisons: logistic regression with a normal prior at the written weights.

    Term returns [E] are divided by their standard deviation over the bank, so all weights have the same unit. The MAP
    is found with SciPy, the covariance is Laplace's. The sum of all contributions stays that of the written
    weights, because the scale of a reward has no meaning.
    """
    names = list(written)
    columns = np.array([term_returns[name] for name in names])
    spread = columns.std(axis=1)
    varies = spread > _TINY * (1 + np.abs(columns).max(axis=1))
    scale = np.where(varies, spread, 1.0)
    phi = np.where(varies[:, None], columns / scale[:, None], 0.0).T  # [E, d]
    before = np.array([written[name] for name in names])
    prior = np.where(varies, before * scale, 0.0)
    size = np.linalg.norm(prior)
    if not len(pairs) or size == 0:
        return FittedWeights(dict(written), dict.fromkeys(names, 0.0), [dict(written)] * draws)
    prior = _SLOPE * prior / size
    x, y = phi[pairs.first] - phi[pairs.second], pairs.share
    mode, covariance = _logistic(x, y, prior)

    def weights(u: np.ndarray) -> dict[str, float]:
        """Convert contributions to weights with the signs and the total size of the written ones."""
        kept = np.sign(prior) * np.maximum(np.sign(prior) * u, _LEAST * np.abs(prior))
        fitted = np.where(varies, kept * size / np.linalg.norm(kept) / scale, before)
        most = np.minimum(_MOST * np.abs(before), MAX_WEIGHT)
        return {name: float(f"{w:.4g}") for name, w in zip(names, np.clip(fitted, -most, most), strict=True)}

    unit = size / np.linalg.norm(mode)
    deviation = np.where(varies, np.sqrt(np.diag(covariance)) * unit / scale, 0.0)
    samples = rng.multivariate_normal(mode, covariance, draws, method="cholesky")
    return FittedWeights(
        weights(mode),
        {name: float(f"{s:.3g}") for name, s in zip(names, deviation, strict=True)},
        [weights(u) for u in samples],
    )


def _logistic(x: np.ndarray, y: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the MAP [d] and covariance [d, d] of a logistic regression of `y` [C] on `x` [C, d] around `prior`."""

    def loss(u: np.ndarray) -> float:
        logit, away = x @ u, u - prior
        each = y * np.logaddexp(0, -logit) + (1 - y) * np.logaddexp(0, logit)
        return float(each.sum() + 0.5 * away @ away / _VARIANCE)

    def gradient(u: np.ndarray) -> np.ndarray:
        return x.T @ (expit(x @ u) - y) + (u - prior) / _VARIANCE

    def hessian(u: np.ndarray) -> np.ndarray:
        p = expit(x @ u)
        return (x * (p * (1 - p))[:, None]).T @ x + np.eye(len(u)) / _VARIANCE

    mode = minimize(loss, prior, jac=gradient, hess=hessian, method="trust-exact").x
    return mode, np.linalg.inv(hessian(mode))
