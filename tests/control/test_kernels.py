"""Kernels of a replan, counted in what XLA's CUDA compiler makes of it for a GPU that need not be there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import kernels
import pytest
from test_accelerators import SHORT, replan
from tiny_task import task as tiny_task

from movlr_jax.control.config import OptimizerConfig
from movlr_jax.control.muscle_controllers.actuation import MuscleConfig
from movlr_jax.control.muscle_controllers.torque import in_one_kernel, resolve

pytestmark = pytest.mark.slow
CONTROL_STEP = 720  # kernels of a control step of the leg with two steps of MJX


def test_kernels_are_counted():
    """Five trips of a loop, whose matrix product and sine are one kernel each."""

    @jax.jit
    def turned(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (jnp.sin(c @ c), None), x, None, length=5)[0]

    text = kernels.compiler(kernels.device())(turned, jax.ShapeDtypeStruct((64, 64), jnp.float32))
    (loop,) = kernels.count(text).loops
    assert (loop.depth, loop.trips) == (0, 5)
    assert 2 <= loop.kernels <= 4


def test_the_torque_law_is_one_kernel():
    """With the padding of its three arguments and the slice of its result; otherwise six kernels an iteration."""
    compiled = kernels.compiler(kernels.device())
    shapes = [
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 20, 100), (1024, 20), (1024, 100))
    ]
    one = jax.jit(jax.vmap(lambda *x: in_one_kernel(*x, iterations=24)))
    assert kernels.count(compiled(one, *shapes)).kernels <= 5
    assert kernels.count(compiled(jax.jit(jax.vmap(resolve)), *shapes)).kernels >= 100


def test_kernels_of_a_control_step():
    counts: list[kernels.Count] = []
    compiled = kernels.compiler(kernels.device())

    def counted(*arguments, **named) -> str:
        text = compiled(*arguments, **named)
        counts.append(kernels.count(text))
        return text

    config = OptimizerConfig(muscle=MuscleConfig(law="torque"), **SHORT)
    replan(config, tiny_task(), counted)
    (steps,) = (loop for count in counts for loop in count.loops if (loop.depth, loop.trips) == (0, 3))
    assert 100 < steps.kernels <= CONTROL_STEP
