"""One cost of a plan from its costs in several randomised worlds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


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
