"""How the samples of a plan become the next plan, and how the costs of one plan in several worlds become one cost.

Rules share the samples of `mppi.sample` unless they say otherwise. Each is a pure function of one candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax._util.registry import Registry
from movlr_jax.control.mpc import mppi
from movlr_jax.control.mpc.mppi import MppiConfig, PlanDistribution
from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.types import Array

# strategies of evosax that learn from the plans as they were rolled out; others, as xNES, learn from their own noise,
# which is not that of plans clipped to the box
STRATEGIES = ("CMA_ES", "Sep_CMA_ES", "MA_ES", "SNES")


def normal(
    config: MppiConfig, key: jax.Array, n: int, shape: tuple[int, int], mixing: Array, turn: int
) -> Array:
    """Return the noise [N, knots, dims] of the plans of update `turn`, the same for all candidates."""
    noise = mppi.sparse(jax.random.normal(key, (n, *shape)), key, config.density)
    return mppi.spread_out(mppi.colored(noise @ mixing, config.smooth), config.spread)


def annealed(
    config: MppiConfig, key: jax.Array, n: int, shape: tuple[int, int], mixing: Array, turn: int
) -> Array:
    """Return noise that shrinks from one update to the next, and towards the knots that are executed first.

    sigma of update i and knot h of H: sigma anneal_updates^i anneal_knots^(H-1-h) (DIAL-MPC, Xue et al., 2024).
    """
    knots = shape[0]
    share = config.anneal_updates**turn * config.anneal_knots ** np.arange(
        knots - 1, -1, -1, dtype=np.float32
    )
    return normal(config, key, n, shape, mixing, turn) * share[:, None]


def best(
    config: MppiConfig, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
):
    """Predictive sampling (Howell et al., 2022): the mean becomes the sample of least cost; sigma stays."""
    costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
    i = jnp.argmin(costs)
    return plan.replace(mean=jnp.where(jnp.isfinite(costs[i]), samples[i], plan.mean))  # pyright: ignore[reportAttributeAccessIssue]


def cem(config: MppiConfig, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array):
    """Cross-entropy method (Rubinstein, 1999): mean and sigma become those of the elites, a tenth unless set.

    sigma' = (1 - adapt) sigma + adapt std(elites), adapt = 1 unless set, and at least sigma_min.
    """
    count = config.elites or max(2, config.samples // 10)
    costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
    order = jnp.argsort(costs, stable=True)[:count]
    finite = jnp.isfinite(costs[order])
    w = finite / jnp.maximum(jnp.sum(finite), 1)
    mean = jnp.einsum("n,nkd->kd", w, samples[order])
    std = jnp.sqrt(jnp.einsum("n,nkd->kd", w, jnp.square(samples[order] - mean)))
    adapt = config.adapt or 1.0
    sigma = jnp.maximum((1 - adapt) * plan.sigma + adapt * std, config.sigma_min * (upper - lower))
    some = jnp.any(finite)
    return plan.replace(  # pyright: ignore[reportAttributeAccessIssue]
        mean=jnp.where(some, mean, plan.mean), sigma=jnp.where(some, sigma, plan.sigma)
    )


def dial(
    config: MppiConfig, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
):
    """Return the softmax mean with standardised costs, w = softmax(-(c - mean c) / (temperature std c)); sigma stays.

    With noise that is `annealed`, several updates a plan are DIAL-MPC (Xue et al., 2024).
    """
    finite = jnp.isfinite(costs)
    count = jnp.maximum(jnp.sum(finite), 1)
    c = jnp.where(finite, costs, 0.0)
    centred = jnp.where(finite, c - jnp.sum(c) / count, 0.0)
    scale = config.temperature * jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(centred)) / count), 1e-9)
    w = jax.nn.softmax(jnp.where(finite, -centred / scale, -jnp.inf))
    mean = jnp.einsum("n,nkd->kd", jnp.where(finite, w, 0.0), samples)
    return plan.replace(mean=jnp.where(jnp.any(finite), mean, plan.mean))  # pyright: ignore[reportAttributeAccessIssue]


def only_key(
    config: MppiConfig, key: jax.Array, n: int, shape: tuple[int, int], mixing: Array, turn: int
) -> Array:
    """Return the key itself: an evolution strategy draws its own samples."""
    return key


@cache
def _strategy(config: MppiConfig, size: int) -> tuple[Any, Any]:
    """Return an evolution strategy of evosax over `size` numbers, and its parameters. Raises UserError."""
    if config.strategy not in STRATEGIES:
        raise UserError(unknown_name("optimizer.mppi.strategy", config.strategy, STRATEGIES))
    with needed("optimizer.mppi.rule=evosax", "evosax"):
        from evosax import algorithms
    with jax.ensure_compile_time_eval():  # it is kept, also if this is called while a function is traced
        made = getattr(algorithms, config.strategy)(config.samples, jnp.zeros(size))
        return made, made.default_params


def _begun(config: MppiConfig, plan: PlanDistribution) -> tuple[Any, Any, Any]:
    """Return the strategy, its parameters and its state, which begins at the mean, in units of sigma."""
    made, params = _strategy(config, plan.mean.size)
    if plan.state is not None:
        return made, params, plan.state
    return made, params, made.init(jax.random.key(0), (plan.mean / _unit(plan)).ravel(), params)


def _unit(plan: PlanDistribution) -> Array:
    return jnp.maximum(plan.sigma, 1e-9)


def asked(
    config: MppiConfig,
    plan: PlanDistribution,
    held: Array,
    home: Array,
    noise: Array,
    lower: Array,
    upper: Array,
) -> Array:
    """Return N plans [N, knots, dims] of an evolution strategy, clipped to the box."""
    made, params, state = _begun(config, plan)
    drawn, _ = made.ask(noise, state, params)
    return jnp.clip(drawn.reshape(-1, *plan.mean.shape) * _unit(plan), lower, upper)


def told(
    config: MppiConfig, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
):
    """Update an evolution strategy, which starts anew at every plan. Diverged samples cost more than all others."""
    made, params, state = _begun(config, plan)
    finite = jnp.isfinite(costs)
    worst = jnp.max(jnp.where(finite, costs, -jnp.inf), initial=-jnp.inf)
    least = jnp.min(jnp.where(finite, costs, jnp.inf), initial=jnp.inf)
    c = jnp.where(finite, costs, jnp.where(jnp.any(finite), 2 * worst - least + 1.0, 0.0))
    flat = (samples / _unit(plan)).reshape(len(samples), -1)
    state, _ = made.tell(jax.random.key(0), flat, c, state, params)
    mean = jnp.clip(made.get_mean(state).reshape(plan.mean.shape) * _unit(plan), lower, upper)
    some = jnp.any(finite)
    return plan.replace(mean=jnp.where(some, mean, plan.mean), state=state)  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class Rule:
    """A way to plan by sampling.

    update: (config, plan, samples [N, knots, dims], costs [N], lower, upper) -> next plan.
    noise: (config, key, N, shape, mixing, number of the update) -> noise for `sample`.
    sample: (config, plan, held, home, noise, lower, upper) -> samples [N, knots, dims].
    """

    update: Callable[..., PlanDistribution]
    noise: Callable[..., Array] = normal
    sample: Callable[..., Array] = mppi.sample


RULES: Registry[Rule] = Registry(
    "rule",
    "movlr_jax.planning_rules",
    {
        "mppi": Rule(mppi.update),
        "best": Rule(best),
        "cem": Rule(cem),
        "dial": Rule(dial, noise=annealed),
        "evosax": Rule(told, noise=only_key, sample=asked),
    },
)


def average(costs: Any, share: float) -> Any:
    """Return the mean over the worlds of costs [..., W]."""
    return costs.mean(axis=-1)


def worst(costs: Any, share: float) -> Any:
    """Return the largest of the costs [..., W]."""
    return costs.max(axis=-1)


def cvar(costs: Any, share: float) -> Any:
    """Return the conditional value at risk: the mean of the worst `share` of the costs [..., W], at least one.

    (Rockafellar and Uryasev, 2000)
    """
    count = max(1, int(np.ceil(share * costs.shape[-1] - 1e-9)))
    xp = jnp if isinstance(costs, jax.Array) else np
    return xp.sort(costs, axis=-1)[..., -count:].mean(axis=-1)


RISKS: dict[str, Callable[[Any, float], Any]] = {"mean": average, "worst": worst, "cvar": cvar}
