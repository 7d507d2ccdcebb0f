"""MPPI: the path integral update of Williams et al. (2017), with elites and an adapted sigma."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from movlr_jax._util.parts import setting
from movlr_jax.control.mpc.rules.base import PlanDistribution, PlanningRule, changed
from movlr_jax.types import Array


@dataclass(frozen=True, kw_only=True)
class Mppi(PlanningRule):
    """The mean becomes the softmax mean of the samples.

    mean = sum_n w_n z_n,  w = softmax(-(c - min c) / (temperature * range)) over the elites, where range is the range
    of their finite costs.
    """

    temperature: float = setting(0.02, "of the softmax over costs, in units of the elites' cost range", above=0)
    elites: int = setting(0, "number of best samples used in the update; 0: all", least=0)
    adapt: float = setting(0.0, "weight of the elites' deviation in each update of sigma", least=0, most=1)
    sigma_min: float = setting(0.1, "lower bound of the adapted sigma", least=0)

    def update(
        self, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
    ) -> PlanDistribution:
        count = self.elites or self.samples
        costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        best = jnp.argsort(costs, stable=True)[:count]
        z, c = samples[best], costs[best]
        finite = jnp.isfinite(c)
        largest = jnp.max(jnp.where(finite, c, -jnp.inf))
        scale = self.temperature * jnp.maximum(largest - c[0], 1e-9)
        w = jnp.where(finite, jnp.exp(-(c - c[0]) / scale), 0.0)
        w = w / jnp.maximum(jnp.sum(w), 1e-9)
        mean = jnp.einsum("n,nkd->kd", w, z)
        deviation = jnp.sqrt(jnp.einsum("n,nkd->kd", w, jnp.square(z - mean)))
        sigma = (1 - self.adapt) * plan.sigma + self.adapt * deviation
        sigma = jnp.maximum(sigma, self.sigma_min * (upper - lower))
        return changed(plan, jnp.any(finite), mean=mean, sigma=sigma)
