"""Predictive sampling (Howell et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from movlr_jax.control.mpc.rules.base import PlanDistribution, PlanningRule, changed
from movlr_jax.types import Array


@dataclass(frozen=True, kw_only=True)
class PredictiveSampling(PlanningRule):
    """The mean becomes the sample of least cost; sigma stays."""

    def update(
        self, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
    ) -> PlanDistribution:
        costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        i = jnp.argmin(costs)
        return changed(plan, jnp.isfinite(costs[i]), mean=samples[i])
