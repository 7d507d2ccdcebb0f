"""The cross-entropy method (Rubinstein, 1999)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from movlr_jax._util.parts import setting
from movlr_jax.control.mpc.rules.base import PlanDistribution, PlanningRule, changed
from movlr_jax.types import Array


@dataclass(frozen=True, kw_only=True)
class Cem(PlanningRule):
    """Mean and sigma become those of the elites: sigma' = (1 - adapt) sigma + adapt std(elites)."""

    elites: int = setting(0, "number of best samples; 0: a tenth, at least 2", least=0)
    adapt: float = setting(0.0, "weight of the elites' deviation in each update of sigma; 0: 1", least=0, most=1)
    sigma_min: float = setting(0.1, "lower bound of the adapted sigma", least=0)

    def update(
        self, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
    ) -> PlanDistribution:
        count = self.elites or max(2, self.samples // 10)
        costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        order = jnp.argsort(costs, stable=True)[:count]
        finite = jnp.isfinite(costs[order])
        w = finite / jnp.maximum(jnp.sum(finite), 1)
        mean = jnp.einsum("n,nkd->kd", w, samples[order])
        deviation = jnp.sqrt(jnp.einsum("n,nkd->kd", w, jnp.square(samples[order] - mean)))
        adapt = self.adapt or 1.0
        sigma = jnp.maximum((1 - adapt) * plan.sigma + adapt * deviation, self.sigma_min * (upper - lower))
        return changed(plan, jnp.any(finite), mean=mean, sigma=sigma)
