"""Norms and bounded functions for reward programs. Elementwise, float32, differentiable.

`smooth_abs` and `quadratic` are the norms of MPC2's hand-written rewards (Wei et al., ICLR 2025);
`tolerance` has the form that dm_control's suites use.
"""

from __future__ import annotations

import jax.numpy as jnp

from movlr_jax.types import Array


def smooth_abs(x: Array, p: float = 0.1) -> Array:
    """sqrt(x^2 + p^2) - p: quadratic within p of 0, |x| - p far away. Same shape as x."""
    return jnp.sqrt(jnp.square(x) + p * p) - p


def quadratic(x: Array) -> Array:
    """x^2 / 2. Same shape as x."""
    return 0.5 * jnp.square(x)


def gaussian(x: Array, sigma: float = 0.1) -> Array:
    """exp(-x^2 / (2 sigma^2)): 1 at 0, 0.61 at sigma. Same shape as x."""
    return jnp.exp(-0.5 * jnp.square(x / sigma))


def tolerance(x: Array, lower: float = 0.0, upper: float = 0.0, margin: float = 0.1) -> Array:
    """1 inside [lower, upper], falling as a Gaussian to 0.1 at `margin` outside. Same shape as x."""
    outside = jnp.maximum(lower - x, 0.0) + jnp.maximum(x - upper, 0.0)
    width = jnp.maximum(jnp.abs(margin), 1e-9)  # a margin of 0 ends at once
    return jnp.exp(-2.302585 * jnp.square(outside / width))


def rotation_error(rot_a: Array, rot_b: Array) -> Array:
    """Angle in rad, 0 to pi, of the rotation between two [3, 3] frames. []"""
    cosine = 0.5 * (jnp.sum(rot_a * rot_b) - 1.0)
    # finite slope at 0, where arccos has none
    sine = 0.5 * jnp.sqrt(jnp.sum(jnp.square(rot_a @ rot_b.T - rot_b @ rot_a.T)) / 2.0 + 1e-12)
    return jnp.arctan2(sine, cosine)


PUBLIC = {f.__name__: f for f in (smooth_abs, quadratic, gaussian, tolerance, rotation_error)}
