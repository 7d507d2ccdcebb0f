"""Resolve joint torques into muscle activations: bounded least squares by a few gradient steps per control step."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from movlr_jax.types import Array

_EFFORT = (
    1e-3  # weight of squared activations relative to squared torque errors (in units of the joint's strength)
)


def resolve(reach: Array, target: Array, rest: Array, iterations: int = 24) -> jax.Array:
    """Return activations [nu] in [0, 1] whose torques relative to those of `rest` [nu] are closest to `target` [nj].

    min_a |B (a - rest) - target|^2 + 0.001 |a - rest|^2, 0 <= a <= 1, by accelerated projected gradients (Beck and
    Teboulle, 2009). reach [nj, nu] is B: torque per activation. Muscles only pull, so a torque in one direction
    relaxes the antagonists first.
    """
    step = 1.0 / (jnp.sum(jnp.square(reach)) + _EFFORT)

    def descend(_: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        activation, ahead, t = carry
        slope = reach.T @ (reach @ (ahead - rest) - target) + _EFFORT * (ahead - rest)
        new = jnp.clip(ahead - step * slope, 0.0, 1.0)
        grown = 0.5 * (1 + jnp.sqrt(1 + 4 * t * t))
        return new, new + (t - 1) / grown * (new - activation), grown

    start = jnp.asarray(rest)
    return jax.lax.fori_loop(0, iterations, descend, (start, start, jnp.ones(())))[0]
