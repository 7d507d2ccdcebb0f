"""Evolution strategies of evosax, which ask for samples and are told their costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from movlr_jax._util.parts import setting
from movlr_jax.control.mpc.rules.base import PlanDistribution, PlanningRule, changed
from movlr_jax.errors import needed
from movlr_jax.types import Array

# those that learn from the plans as they were rolled out; others, as xNES, learn from their own noise, which is not
# that of plans clipped to the box
STRATEGIES = ("CMA_ES", "Sep_CMA_ES", "MA_ES", "SNES")


@dataclass(frozen=True, kw_only=True)
class Evosax(PlanningRule):
    """An evolution strategy that starts anew at every plan, so several updates a plan are needed."""

    restarts: ClassVar[bool] = True
    strategy: str = setting("CMA_ES", f"one of {', '.join(STRATEGIES)}", choices=STRATEGIES)

    def noise(self, key: jax.Array, shape: tuple[int, int], mixing: Array, turn: int) -> Array:
        """Return the key itself: an evolution strategy draws its own samples."""
        return key

    def sample(
        self, plan: PlanDistribution, held: Array, home: Array, noise: Array, lower: Array, upper: Array
    ) -> Array:
        """Return the N plans [N, knots, dims] that the strategy asks for, clipped to the box."""
        strategy, params, state = self._state(plan)
        drawn, _ = strategy.ask(noise, state, params)
        return jnp.clip(drawn.reshape(-1, *plan.mean.shape) * _unit(plan), lower, upper)

    def update(
        self, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
    ) -> PlanDistribution:
        """Tell the strategy the costs. Diverged samples cost more than all others."""
        strategy, params, state = self._state(plan)
        finite = jnp.isfinite(costs)
        worst = jnp.max(jnp.where(finite, costs, -jnp.inf), initial=-jnp.inf)
        least = jnp.min(jnp.where(finite, costs, jnp.inf), initial=jnp.inf)
        c = jnp.where(finite, costs, jnp.where(jnp.any(finite), 2 * worst - least + 1.0, 0.0))
        flat = (samples / _unit(plan)).reshape(len(samples), -1)
        state, _ = strategy.tell(jax.random.key(0), flat, c, state, params)
        mean = jnp.clip(strategy.get_mean(state).reshape(plan.mean.shape) * _unit(plan), lower, upper)
        return changed(plan, jnp.any(finite), mean=mean).replace(state=state)  # pyright: ignore[reportAttributeAccessIssue]

    def _state(self, plan: PlanDistribution) -> tuple[Any, Any, Any]:
        """Return the strategy, its parameters and its state, which begins at the mean, in units of sigma."""
        strategy, params = _strategy(self.strategy, self.samples, plan.mean.size)
        if plan.state is not None:
            return strategy, params, plan.state
        return strategy, params, strategy.init(jax.random.key(0), (plan.mean / _unit(plan)).ravel(), params)


@cache
def _strategy(name: str, samples: int, size: int) -> tuple[Any, Any]:
    """Return an evolution strategy of evosax over `size` numbers, and its parameters. Raises UserError."""
    with needed("optimizer.mppi.rule=evosax", "evosax"):
        from evosax import algorithms
    with jax.ensure_compile_time_eval():  # it is kept, also if this is called while a function is traced
        made = getattr(algorithms, name)(samples, jnp.zeros(size))
        return made, made.default_params


def _unit(plan: PlanDistribution) -> Array:
    return jnp.maximum(plan.sigma, 1e-9)
