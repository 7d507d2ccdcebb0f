"""Kernels of a replan, counted in what XLA's CUDA compiler makes of it for a GPU that need not be there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import kernels
import numpy as np
import pytest
from lowering import recording
from test_accelerators import SHORT, replan
from tiny_task import task as tiny_task

from movlr_jax.control import muscle_controllers as laws
from movlr_jax.control.muscle_controllers.least_squares import in_one_kernel, resolve
from movlr_jax.control.optimizers import Mpc2
from movlr_jax.physics.mjx import MjxPhysics
from movlr_jax.types import Step

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

    config = Mpc2(muscle=laws.Torque(), **SHORT)
    replan(config, tiny_task(), counted)
    (steps,) = (loop for count in counts for loop in count.loops if (loop.depth, loop.trips) == (0, 3))
    assert 100 < steps.kernels <= CONTROL_STEP


@pytest.mark.parametrize("candidates", [1, 2])
def test_no_result_of_a_rollout_is_memory_for_the_steps_of_warp(candidates: int):
    """Warp captures a step anew if one of its arrays moves. Results move, while scratch memory is one block."""
    pytest.importorskip("warp", reason="the extra warp is not installed")
    task, rows = tiny_task(), 8
    physics = MjxPhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=0.01, name="warp")
    weights = (
        jnp.ones((candidates, 1 + task.model.nu)) if candidates > 1 else jnp.ones((rows, 1 + task.model.nu))
    )

    def policy(params: jax.Array, view: Step, key: jax.Array) -> jax.Array:
        return params[0] * view.qpos[0] + params[1:]

    with recording(kernels.memory_of_calls(kernels.device(), "ffi_call")) as recorder:
        start = physics.start(*task.start(np.random.default_rng(0), rows))
        physics.rollout(start, policy, weights, steps=3, key=jax.random.key(0), candidates=candidates)
    assert recorder.programs[-1].text.splitlines() == ["constant", "parameter", "preallocated-temp"]
