"""Sampling planners as three pure functions: init, sample, update.

A plan is a mean and a spread over `knots` x `dims` numbers in a box; what the numbers mean is the
caller's (target postures in `mpc2`, controls in `knots`). Path integral update after Williams et al. (2017),
with elites and sigma adaptation as in the cross-entropy method.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from flax import struct

from movlr_jax.types import Array


@dataclass(frozen=True)
class MppiConfig:
    """Settings of the planner; sigmas are fractions of each dimension's range."""

    samples: int = 32  # N, rollouts per plan and candidate
    temperature: float = 0.02  # of the softmax over costs, in units of the elites' cost range
    elites: int = 0  # how many of the best enter the update; 0: all of them
    sigma: float = 0.1  # spread of the first plan
    sigma_min: float = 0.1  # floor of the adapted spread
    adapt: float = 0.0  # how much of the elites' own spread enters sigma at each update, 0..1
    # samples that are not random: the mean itself, then what is held now, then what was held at the start
    keep: int = 2
    smooth: float = 0.0  # correlation of the noise of neighbouring knots, 0..1


@struct.dataclass
class PlanDistribution:
    """A distribution over plans of one candidate."""

    mean: Array  # [knots, dims]
    sigma: Array  # [knots, dims]


def init(config: MppiConfig, mean: Array, lower: Array, upper: Array) -> PlanDistribution:
    """A plan around `mean` [knots, dims] in the box [lower, upper], each [dims]."""
    spread = jnp.broadcast_to(config.sigma * (upper - lower), mean.shape)
    return PlanDistribution(mean=jnp.clip(mean, lower, upper), sigma=spread)


def colored(noise: Array, smooth: float) -> Array:
    """`noise` [N, knots, dims] with neighbouring knots correlated by `smooth`, those k apart by smooth^k.

    Plans that are smooth in time are found by fewer samples (Pinneri et al., 2020); variances stay 1.
    """
    if smooth == 0.0:
        return noise
    apart = np.abs(np.subtract.outer(np.arange(noise.shape[1]), np.arange(noise.shape[1])))
    return jnp.einsum("kl,nld->nkd", np.linalg.cholesky(smooth**apart).astype(np.float32), noise)


def sample(
    config: MppiConfig,
    plan: PlanDistribution,
    held: Array,
    home: Array,
    noise: Array,
    lower: Array,
    upper: Array,
) -> Array:
    """N plans [N, knots, dims] in the box, from standard normal `noise` [N, knots, dims].

    The first is the mean, the second `held` and the third `home` [knots, dims] (what is held now, what was at
    the start): a planner can always do nothing new, or go back. The noise is an argument so that K candidates
    can share it (common random numbers).
    """
    drawn = plan.mean + plan.sigma * noise
    for i, known in enumerate((plan.mean, held, home)[: min(config.keep, config.samples)]):
        drawn = drawn.at[i].set(known)
    return jnp.clip(drawn, lower, upper)


def update(
    config: MppiConfig, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
) -> PlanDistribution:
    """The next plan from `samples` [N, knots, dims] and their `costs` [N], lower is better, inf if diverged.

    mean = sum_n w_n z_n,  w = softmax(-(c - min c) / (temperature * range)) over the elites; the range is that
    of the finite costs among them. With no finite cost the plan stays as it is.
    """
    count = config.elites or config.samples
    costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)  # a cost that is no number is no good one
    best = jnp.argsort(costs, stable=True)[:count]
    z, c = samples[best], costs[best]
    finite = jnp.isfinite(c)
    largest = jnp.max(jnp.where(finite, c, -jnp.inf))
    scale = config.temperature * jnp.maximum(largest - c[0], 1e-9)
    w = jnp.where(finite, jnp.exp(-(c - c[0]) / scale), 0.0)
    w = w / jnp.maximum(jnp.sum(w), 1e-9)
    mean = jnp.einsum("n,nkd->kd", w, z)
    spread = jnp.sqrt(jnp.einsum("n,nkd->kd", w, jnp.square(z - mean)))
    sigma = (1 - config.adapt) * plan.sigma + config.adapt * spread
    sigma = jnp.maximum(sigma, config.sigma_min * (upper - lower))
    some = jnp.any(finite)
    return PlanDistribution(mean=jnp.where(some, mean, plan.mean), sigma=jnp.where(some, sigma, plan.sigma))


def shift(plan: PlanDistribution, fraction: float) -> PlanDistribution:
    """The plan seen `fraction` of its horizon later: knots move towards the present, the last one stays."""
    knots = plan.mean.shape[0]
    at = jnp.minimum(jnp.arange(knots) + fraction * (knots - 1), knots - 1)
    low = jnp.floor(at).astype(int)
    share = (at - low)[:, None]
    mean = (1 - share) * plan.mean[low] + share * plan.mean[jnp.minimum(low + 1, knots - 1)]
    return plan.replace(mean=mean)  # pyright: ignore[reportAttributeAccessIssue]
