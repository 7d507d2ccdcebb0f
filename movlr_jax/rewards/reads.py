"""Which entries of a vector a JAX function may read, found by tracing it: physics then measures nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from movlr_jax.rewards.state import STEP_SIZES
from movlr_jax.types import Step

# parameters of primitives whose operands are those of an inner jaxpr
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class Reads(NamedTuple):
    """What a function reads of a step."""

    sensors: np.ndarray  # [ns] bool, which entries of the sensor vector
    others: bool  # whether it reads anything else besides the time


def reads_of(function: Callable[..., Any], view: Step, *others: Any) -> Reads:
    """Return what `function(view, *others)` may read of `view`, the step of one simulation.

    Arguments are arrays or their shapes. Constant slices of the sensors are followed through calls and branches; a
    function that uses the vector in any other way, or in a loop, counts as reading all of it.
    """

    def of_parts(parts: dict[str, Any], *others: Any) -> Any:
        return function(Step(**parts), *others)

    jaxpr = jax.make_jaxpr(of_parts)(vars(view), *others).jaxpr
    parts = dict(zip(sorted(vars(view)), jaxpr.invars, strict=False))  # the leaves of a dict are sorted
    used = {operand for equation in jaxpr.eqns for operand in equation.invars if isinstance(operand, core.Var)}
    used |= {out for out in jaxpr.outvars if isinstance(out, core.Var)}
    return Reads(
        sensors=_read(jaxpr, parts["sensors"], np.shape(view.sensors)[0]),
        others=any(parts[name] in used for name in STEP_SIZES if name != "sensors"),
    )


def _read(jaxpr: Any, vector: Any, size: int) -> np.ndarray:
    """Return [size] bool, whether `jaxpr` may read each entry of its variable `vector`."""
    found = np.zeros(size, bool)
    for equation in jaxpr.eqns:
        for place, operand in enumerate(equation.invars):
            if operand is vector:
                found |= _read_by(equation, place, size)
    return found | any(out is vector for out in jaxpr.outvars)


def _read_by(equation: Any, place: int, size: int) -> np.ndarray:
    """Return [size] bool, whether `equation` may read each entry of its operand number `place`."""
    name, params = equation.primitive.name, equation.params
    if name == "slice":
        ((first,), (end,)) = params["start_indices"], params["limit_indices"]
        found = np.zeros(size, bool)
        found[first : end : (params["strides"] or (1,))[0]] = True
        return found
    inner: list[tuple[Any, int]] = []
    if name == "cond" and place > 0:
        inner = [(branch.jaxpr, place - 1) for branch in params["branches"]]
    elif name not in ("cond", "scan", "while"):
        called = next((params[key] for key in _CALLS if key in params), None)
        called = getattr(called, "jaxpr", called)
        if called is not None and len(called.invars) == len(equation.invars):
            inner = [(called, place)]
    if not inner:
        return np.ones(size, bool)
    return np.any([_read(jaxpr, jaxpr.invars[i], size) for jaxpr, i in inner], axis=0)
