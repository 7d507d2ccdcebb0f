"""The inputs of a traced reward as a flat list: a step, the action, the start of the episode, the data of the
task (goals, recorded motion) by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from movlr_jax.rewards.state import STEP_SIZES, Layout
from movlr_jax.types import Array, Step

FIELDS = ("time", *STEP_SIZES)


def inputs(layout: Layout) -> list[jax.core.ShapedArray]:
    """Return the shapes and types of the flat list, in order."""
    step = [(), *((layout.sizes[size],) for size in STEP_SIZES.values())]
    data = layout.data
    shapes = [*step, (layout.sizes["nu"],), *step, *(data[name] for name in sorted(data))]
    return [jax.core.ShapedArray(tuple(shape), jnp.dtype("float32")) for shape in shapes]


def pack(layout: Layout, values: Sequence[Any]) -> tuple[Step, Any, Step, dict[str, Any]]:
    """Return (step, action, initial, goals) from the flat list."""
    n = len(FIELDS)
    step, initial = (Step(**dict(zip(FIELDS, v, strict=True))) for v in (values[:n], values[n + 1 : 2 * n + 1]))
    return step, values[n], initial, dict(zip(sorted(layout.data), values[2 * n + 1 :], strict=True))


def flat(step: Step, action: Array, initial: Step, goals: Mapping[str, Array]) -> list[Any]:
    """Return the flat list of these values."""
    first, start = ([getattr(s, name) for name in FIELDS] for s in (step, initial))
    return [*first, action, *start, *(goals[name] for name in sorted(goals))]
