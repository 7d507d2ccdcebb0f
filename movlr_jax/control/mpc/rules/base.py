"""What all planning rules share: the settings of their samples, and normal noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.types import Array, Replaceable


def _cvar(costs: Any, share: float) -> Any:
    """Return the conditional value at risk: the mean of the worst `share` of the costs [..., W], at least one.

    (Rockafellar and Uryasev, 2000)
    """
    count = max(1, int(np.ceil(share * costs.shape[-1] - 1e-9)))
    xp = jnp if isinstance(costs, jax.Array) else np
    return xp.sort(costs, axis=-1)[..., -count:].mean(axis=-1)


# one cost of a plan from its costs [..., W] in randomised worlds, and the share of the worlds that counts
RISKS: dict[str, Callable[[Any, float], Any]] = {
    "mean": lambda costs, share: costs.mean(axis=-1),
    "worst": lambda costs, share: costs.max(axis=-1),
    "cvar": _cvar,
}
_MASK = 1 << 20  # folded into the key of the noise for the choice of dimensions


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PlanDistribution(Replaceable):
    """A normal distribution over plans of `knots` x `dims` numbers in a box. The plan space defines their meaning."""

    mean: Array  # [knots, dims]
    sigma: Array  # [knots, dims]
    state: Any = None  # of a rule that has more between the updates of one plan


@dataclass(frozen=True, kw_only=True)
class PlanningRule:
    """How plans are sampled and how samples become the next plan. A rule of its own overrides `update`.

    Sigmas are fractions of the range of each dimension. The methods are pure JAX functions of one candidate;
    `lower` and `upper` [dims] are the bounds of a plan.
    """

    restarts: ClassVar[bool] = False  # whether every plan begins anew, so that a warm first plan is lost

    samples: int = setting(
        0, "rollouts per plan and candidate; auto (or 0): 32 on CPUs, more where a search needs them", least=0
    )
    sigma: float = setting(
        0.0, "standard deviation of the first samples; 0: that of the optimiser, 0.1 of mpc2 and 0.2 of mppi", least=0
    )
    keep: int = setting(
        2, "samples that are not random: the mean, then plans that hold the current and the initial state", least=0
    )
    smooth: float = setting(
        0.0,
        "noise correlation between neighbouring knots; 0: none, or with density=0 what suits the body",
        least=0,
        below=1,
    )
    density: float = setting(
        0.0,
        "share of the dimensions that a sample changes, drawn anew for each sample; 0: all, or what suits the body",
        least=0,
        most=1,
    )
    spread: float = setting(
        1.0, "sigmas of the samples of a plan lie between sigma / spread and sigma * spread", least=1
    )
    updates: int = setting(1, "rounds of samples, rollouts and update per plan", least=1)
    worlds: int = setting(1, "randomised worlds in which every sample is rolled out; 1: the model as it is", least=1)
    risk: str = setting("mean", "cost of a sample over its worlds: mean, worst or cvar", choices=RISKS)
    tail: float = setting(0.25, "risk=cvar: share of the worlds that counts", above=0, most=1)

    def init(self, mean: Array, lower: Array, upper: Array) -> PlanDistribution:
        """Return the first distribution, with `mean` [knots, dims] clipped to the box."""
        sigma = jnp.broadcast_to(self.sigma * (upper - lower), mean.shape)
        return PlanDistribution(mean=jnp.clip(mean, lower, upper), sigma=sigma)

    def noise(self, key: jax.Array, shape: tuple[int, int], mixing: Array, turn: int) -> Array:
        """Return the noise [N, knots, dims] of the samples of update `turn`, the same for all candidates.

        shape: (knots, dims). mixing [dims, dims]: correlates the dimensions; variances stay 1.
        """
        noise = sparse(jax.random.normal(key, (self.samples, *shape)), key, self.density)
        return spread_out(colored(noise @ mixing, self.smooth), self.spread)

    def sample(
        self, plan: PlanDistribution, held: Array, home: Array, noise: Array, lower: Array, upper: Array
    ) -> Array:
        """Return N plans [N, knots, dims] in the box, from standard normal `noise` [N, knots, dims].

        The first `keep` plans are not random: the mean, `held` and `home` [knots, dims], which hold the current and
        the initial state. So the planner can always stay or go back. The noise is an argument, so that K candidates
        can share it (common random numbers).
        """
        drawn = plan.mean + plan.sigma * noise
        for i, known in enumerate((plan.mean, held, home)[: min(self.keep, self.samples)]):
            drawn = drawn.at[i].set(known)
        return jnp.clip(drawn, lower, upper)

    def update(
        self, plan: PlanDistribution, samples: Array, costs: Array, lower: Array, upper: Array
    ) -> PlanDistribution:
        """Return the next distribution from `samples` [N, knots, dims] and their `costs` [N].

        Costs of diverged rollouts are inf, and a rule treats nan like them. Without a finite cost, the distribution
        does not change.
        """
        raise NotImplementedError


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

    A density of 0 keeps all, as one of 1 does. Noise in all joints at once disturbs those that should stay as they
    are: a hand that lifts loses its grip.
    """
    if density in (0.0, 1.0):
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


def changed(plan: PlanDistribution, some: Array, **new: Array) -> PlanDistribution:
    """Return the plan with the arrays `new`, if there are `some` finite costs; else as it was."""
    kept = {name: jnp.where(some, value, getattr(plan, name)) for name, value in new.items()}
    return plan.replace(**kept)


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
    return plan.replace(mean=mean, state=None)
