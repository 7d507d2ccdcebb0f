"""Batches that do not fit into memory are rolled out in parts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.control.mpc.planner import Batches
from movlr_jax.errors import UserError

TOO_MUCH = 2**50  # bytes, more than any device has


class Device:
    """The part of physics that an estimate of memory needs."""

    name = "mjx"

    def __init__(self, estimate: int = 1):
        self.estimate = estimate

    def parts(self, rows: int, steps: int) -> int:
        return self.estimate


def holds(rows: int):
    """Return a function that JAX cannot run for more than `rows` rows, for want of memory."""
    seen: list[int] = []

    def run(part: slice) -> np.ndarray:
        count = part.stop - part.start
        seen.append(count)
        if count > rows:
            jnp.zeros(TOO_MUCH, jnp.int8).block_until_ready()
        return np.arange(part.start, part.stop)

    return run, seen


def test_what_does_not_fit_runs_in_smaller_parts_from_then_on():
    said: list[str] = []
    parts, (run, seen) = Batches(Device(), 25, said.append), holds(3)
    np.testing.assert_array_equal(np.concatenate(parts.run(2, 12, run)), np.arange(12))
    assert seen == [12, 6, 4, 3, 3, 3, 3]
    seen.clear()
    parts.run(2, 12, run)
    assert seen == [3, 3, 3, 3]
    assert said[-1] == ("  memory: 24 rollouts of 25 steps do not fit into memory together; they run in 4 parts of 6")


def test_the_estimate_comes_first():
    parts, (run, seen) = Batches(Device(estimate=2), 25, print), holds(6)
    parts.run(2, 12, run)
    assert seen == [6, 6]


def test_one_plan_that_does_not_fit_is_an_error():
    parts, (run, _) = Batches(Device(), 25, print), holds(0)
    with pytest.raises(UserError, match=r"2 rollouts of 25 steps do not fit .* use fewer candidates"):
        parts.run(2, 4, run)


def test_other_errors_are_not_about_memory():
    def run(part: slice) -> None:
        raise jax.errors.JaxRuntimeError("INTERNAL: a bug")

    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        Batches(Device(), 25, print).run(2, 4, run)
