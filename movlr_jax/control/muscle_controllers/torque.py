"""Joint torques resolved into muscle activations: bounded least squares, some gradient steps at each control step."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from movlr_jax.types import Array

_EFFORT = 1e-3  # weight of activations beside torque errors, both in units of the joint's strength, squared


def resolve(reach: Array, wanted: Array, rest: Array, iterations: int = 24) -> jax.Array:
    """Activations [nu] in [0, 1] whose torques beside those of `rest` [nu] come nearest to `wanted` [nj].

    min_a |B (a - rest) - wanted|^2 + 0.001 |a - rest|^2, 0 <= a <= 1, by accelerated projected gradients (Beck and
    Teboulle, 2009). reach [nj, nu] is B: torque per activation. Muscles only pull: what `wanted` asks of one side
    alone, its antagonists give up first.
    """
    step = 1.0 / (jnp.sum(jnp.square(reach)) + _EFFORT)

    def descend(_: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        activation, ahead, t = carry
        slope = reach.T @ (reach @ (ahead - rest) - wanted) + _EFFORT * (ahead - rest)
        new = jnp.clip(ahead - step * slope, 0.0, 1.0)
        grown = 0.5 * (1 + jnp.sqrt(1 + 4 * t * t))
        return new, new + (t - 1) / grown * (new - activation), grown

    start = jnp.asarray(rest)
    return jax.lax.fori_loop(0, iterations, descend, (start, start, jnp.ones(())))[0]
