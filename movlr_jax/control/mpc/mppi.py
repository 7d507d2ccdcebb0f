"""MPPI as pure functions: init, sample, update, shift.

A plan distribution is a mean and a standard deviation of `knots` x `dims` numbers in a box. The plan space defines
their meaning (target postures in `mpc2`, controls in `knots`). Path integral update of Williams et al. (2017), with
elites and sigma adaptation as in the cross-entropy method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from movlr_jax.types import Array

_MASK = 1 << 20  # folded into the key of the noise for the choice of dimensions


@dataclass(frozen=True)
class MppiConfig:
    """Settings of MPPI. Sigmas are fractions of the range of each dimension."""

    samples: int = (
        0  # N, rollouts per plan and candidate; auto (or 0): 32 on CPUs, more where a search needs them
    )
    temperature: float = 0.02  # of the softmax over costs, in units of the elites' cost range
    elites: int = 0  # number of best samples used in the update; 0: all
    sigma: float = 0.1  # initial standard deviation
    sigma_min: float = 0.1  # lower bound of the adapted standard deviation
    adapt: float = 0.0  # weight of the elites' standard deviation in each update of sigma, 0..1
    # number of samples that are not random: the mean, then plans that hold the current state and the initial state
    keep: int = 2
    smooth: float = 0.0  # noise correlation between neighbouring knots, 0..1
    density: float = 1.0  # share of the dimensions that a sample changes, drawn anew for each sample
    spread: float = 1.0  # sigmas of the samples of a plan lie between sigma / spread and sigma * spread
    rule: str = "mppi"  # how samples become the next plan: a name of `rules.RULES`
    updates: int = 1  # rounds of samples, rollouts and update per plan
    strategy: str = "CMA_ES"  # rule=evosax: a name of `rules.STRATEGIES`
    anneal_updates: float = 0.5  # rule=dial: factor of the noise from one update to the next
    anneal_knots: float = 0.9  # rule=dial: factor of the noise from each knot to the one before
    worlds: int = 1  # randomised worlds in which every sample is rolled out; 1: the model as it is
    risk: str = "mean"  # cost of a sample over its worlds: a name of `rules.RISKS`
    tail: float = 0.25  # risk=cvar: share of the worlds that counts


@struct.dataclass
class PlanDistribution:
    """A normal distribution over plans."""

    mean: Array  # [knots, dims]
    sigma: Array  # [knots, dims]
    state: Any = None  # of a rule that has more between the updates of one plan


def init(config: MppiConfig, mean: Array, lower: Array, upper: Array) -> PlanDistribution:
    """Return the first distribution, with `mean` [knots, dims] clipped to the box [lower, upper], each [dims]."""
    spread = jnp.broadcast_to(config.sigma * (upper - lower), mean.shape)
    return PlanDistribution(mean=jnp.clip(mean, lower, upper), sigma=spread)


def colored(noise: Array, smooth: float) -> Array:
    """Correlate `noise` [N, knots, dims] in time: knots that are k apart correlate by smooth^k. Variances stay 1.

    Noise that is smooth in time needs fewer samples (Pinneri et al., 2020).
    """
    if smooth == 0.0:
        return noise
    apart = np.abs(np.subtract.outer(np.arange(noise.shape[1]), np.arange(noise.shape[1])))
    return jnp.einsum("kl,nld->nkd", np.linalg.cholesky(smooth**apart).astype(np.float32), noise)


def sparse(noise: Array, key: Array, density: float) -> Array:
    """Return `noise` [N, knots, dims] in which each sample keeps a share `density` of the dimensions; others are 0.

    Noise in all joints at once disturbs those that should stay as they are: a hand that lifts loses its grip.
    """
    if density == 1.0:
        return noise
    n, _, dims = noise.shape
    return noise * jax.random.bernoulli(jax.random.fold_in(key, _MASK), density, (n, 1, dims))


def spread_out(noise: Array, spread: float) -> Array:
    """Return `noise` [N, knots, dims] times factors that grow geometrically over the samples, 1 / spread to spread.

    Small changes keep what works, and large ones find a way out.
    """
    if spread == 1.0:
        return noise
    return noise * jnp.geomspace(1.0 / spread, spread, len(noise))[:, None, None]


def sample(
    config: MppiConfig,
    plan: PlanDistribution,
    held: Array,
    home: Array,
    noise: Array,
    lower: Array,
    upper: Array,
) -> Array:
    """Return N plans [N, knots, dims] in the box, from standard normal `noise` [N, knots, dims].

    The first `config.keep` plans are not random: the mean, `held` and `home` [knots, dims], which hold the current
    and the initial state. So the planner can always stay or go back. The noise is an argument, so that K candidates
    can share it (common random numbers).
    """
    drawn = plan.mean + plan.sigma * noise
    for i, known in enumerate((plan.mean, held, home)[: min(config.keep, config.samples)]):
        drawn = drawn.at[i].set(known)
    return jnp.clip(drawn, lower, upper)


def update(
    config: MppiConfig, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
) -> PlanDistribution:
    """Return the next distribution from `samples` [N, knots, dims] and their `costs` [N] (inf if diverged).

    mean = sum_n w_n z_n,  w = softmax(-(c - min c) / (temperature * range)) over the elites, where range is the range
    of their finite costs. Without a finite cost, the distribution does not change.
    """
    count = config.elites or config.samples
    costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)  # NaN counts as the worst cost
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


def shift(plan: PlanDistribution, fraction: float, spline: str = "linear") -> PlanDistribution:
    """Shift the mean by `fraction` of the horizon: each knot takes a later value, and the last is repeated.

    A knot of the spline `zero` is held for 1 / knots of the horizon; the others divide it into knots - 1 parts.
    """
    knots = plan.mean.shape[0]
    parts = knots if spline == "zero" else knots - 1
    at = jnp.minimum(jnp.arange(knots) + fraction * parts, knots - 1)
    low = jnp.floor(at).astype(int)
    share = (at - low)[:, None]
    mean = (1 - share) * plan.mean[low] + share * plan.mean[jnp.minimum(low + 1, knots - 1)]
    return plan.replace(mean=mean, state=None)  # pyright: ignore[reportAttributeAccessIssue]
