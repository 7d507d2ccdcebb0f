"""DIAL-MPC (Xue et al., 2024): several updates a plan, with noise that shrinks."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.control.mpc.rules.base import PlanDistribution, PlanningRule, changed
from movlr_jax.types import Array


@dataclass(frozen=True, kw_only=True)
class Dial(PlanningRule):
    """The mean becomes the softmax mean with standardised costs, w = softmax(-(c - mean c) / (temperature std c)).

    Sigma stays, and the noise of update i at knot h of H is multiplied by anneal_updates^i anneal_knots^(H-1-h).
    """

    temperature: float = setting(0.02, "of the softmax over costs, in units of their deviation", above=0)
    anneal_updates: float = setting(0.5, "factor of the noise from one update to the next", above=0)
    anneal_knots: float = setting(0.9, "factor of the noise from each knot to the one before", above=0)

    def noise(self, key: jax.Array, shape: tuple[int, int], mixing: Array, turn: int) -> Array:
        share = self.anneal_updates**turn * self.anneal_knots ** np.arange(shape[0] - 1, -1, -1, dtype=np.float32)
        return super().noise(key, shape, mixing, turn) * share[:, None]

    def update(
        self, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
    ) -> PlanDistribution:
        finite = jnp.isfinite(costs)
        count = jnp.maximum(jnp.sum(finite), 1)
        c = jnp.where(finite, costs, 0.0)
        centred = jnp.where(finite, c - jnp.sum(c) / count, 0.0)
        scale = self.temperature * jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(centred)) / count), 1e-9)
        w = jax.nn.softmax(jnp.where(finite, -centred / scale, -jnp.inf))
        mean = jnp.einsum("n,nkd->kd", jnp.where(finite, w, 0.0), samples)
        return changed(plan, jnp.any(finite), mean=mean)
