"""Resolve joint torques into muscle activations: bounded least squares by a few gradient steps per control step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from movlr_jax.types import Array

# weight of squared activations relative to squared torque errors (in units of the joint's strength)
_EFFORT = 1e-3
# entries of a matrix that 4 and 8 warps of a GPU can keep in registers while they iterate
_SMALL, _LARGEST = (2**12, 2**14)


def resolve(reach: Array, target: Array, rest: Array, iterations: int = 24) -> jax.Array:
    """Return activations [nu] in [0, 1] whose torques relative to those of `rest` [nu] are closest to `target` [nj].

    min_a |B (a - rest) - target|^2 + 0.001 |a - rest|^2, 0 <= a <= 1, by accelerated projected gradients (Beck and
    Teboulle, 2009). reach [nj, nu] is B: torque per activation. Muscles only pull, so a torque in one direction
    relaxes the antagonists first.

    On an NVIDIA GPU all iterations are one kernel; as operations of XLA they are six kernels each.
    """
    descend = partial(_descend, iterations=iterations)
    if jax.default_backend() != "gpu" or _padded(reach.shape[0]) * _padded(reach.shape[1]) > _LARGEST:
        return descend(reach, target, rest)
    one_kernel = partial(in_one_kernel, iterations=iterations)
    arguments = (jnp.asarray(reach), jnp.asarray(target), jnp.asarray(rest))
    return jax.lax.platform_dependent(*arguments, cuda=one_kernel, default=descend)


def in_one_kernel(
    reach: jax.Array, target: jax.Array, rest: jax.Array, iterations: int, interpret: bool = False
) -> jax.Array:
    """Return what `resolve` returns, from one kernel of Pallas per row. `interpret` runs it on any device."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    def kernel(reach: Any, target: Any, rest: Any, found: Any) -> None:
        found[...] = _descend(reach[...], target[...], rest[...], iterations, _sum_of_products)

    # a kernel's arrays have powers of two as sizes; zeros stay zero
    joints, muscles = (_padded(n) - n for n in reach.shape)
    padded = (jnp.pad(reach, ((0, joints), (0, muscles))), jnp.pad(target, (0, joints)), jnp.pad(rest, (0, muscles)))
    shape = jax.ShapeDtypeStruct(padded[2].shape, padded[2].dtype)
    how = triton.CompilerParams(num_warps=4 if padded[0].size <= _SMALL else 8, num_stages=1)
    call = pl.pallas_call(kernel, out_shape=shape, compiler_params=how, interpret=interpret)
    return call(*padded)[: rest.shape[0]]


Product = Callable[[Any, Any, int], Any]  # (matrix, vector, axis of the matrix to sum over) -> vector


def _product(matrix: Any, vector: Any, axis: int) -> Any:
    return matrix @ vector if axis else matrix.T @ vector


def _sum_of_products(matrix: Any, vector: Any, axis: int) -> Any:
    return jnp.sum(matrix * (vector[None, :] if axis else vector[:, None]), axis=axis)


def _descend(reach: Any, target: Any, rest: Any, iterations: int, product: Product = _product) -> jax.Array:
    step = 1.0 / (jnp.sum(jnp.square(reach)) + _EFFORT)

    def descend(_: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        activation, ahead, t = carry
        error = product(reach, ahead - rest, 1) - target
        slope = product(reach, error, 0) + _EFFORT * (ahead - rest)
        new = jnp.clip(ahead - step * slope, 0.0, 1.0)
        grown = 0.5 * (1 + jnp.sqrt(1 + 4 * t * t))
        return new, new + (t - 1) / grown * (new - activation), grown

    start = jnp.asarray(rest)
    return jax.lax.fori_loop(0, iterations, descend, (start, start, jnp.ones(())))[0]


def _padded(n: int) -> int:
    """Return the smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()
