"""Norms and shapes against numbers worked by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.rewards import shaping


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (shaping.smooth_abs(0.0), 0.0),
        (shaping.smooth_abs(0.075), 0.025),  # sqrt(0.075^2 + 0.1^2) = 0.125
        (shaping.smooth_abs(-0.24, p=0.1), 0.16),  # 10-24-26
        (shaping.smooth_abs(3.0, p=4.0), 1.0),  # 3-4-5
        (shaping.quadratic(0.0), 0.0),
        (shaping.quadratic(-3.0), 4.5),
        (shaping.gaussian(0.0), 1.0),
        (shaping.gaussian(0.1), 0.6065307),  # exp(-1/2)
        (shaping.gaussian(-1.0, sigma=0.5), 0.1353353),  # exp(-2)
        (shaping.tolerance(0.0), 1.0),
        (shaping.tolerance(0.1), 0.1),  # at the margin
        (shaping.tolerance(-0.05), 0.5623413),  # 10^(-1/4)
        (shaping.tolerance(1.5, lower=1.0, upper=2.0), 1.0),
        (shaping.tolerance(1.5, lower=1.0, upper=2.0, margin=0.0), 1.0),
        (shaping.tolerance(2.001, lower=1.0, upper=2.0, margin=0.0), 0.0),
        (shaping.tolerance(2.0, lower=1.0, upper=2.0), 1.0),
        (shaping.tolerance(0.5, lower=1.0, upper=2.0, margin=0.5), 0.1),
        (shaping.tolerance(3.0, lower=1.0, upper=2.0, margin=0.5), 1e-4),  # twice the margin: 0.1^4
    ],
)
def test_worked_by_hand(value: jax.Array, expected: float):
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["smooth_abs", "quadratic", "gaussian", "tolerance"])
def test_elementwise_and_smooth_everywhere(name: str):
    """Same shape, float32, and a finite gradient wherever rewards go, at 0 as well."""
    shape, x = shaping.PUBLIC[name], jnp.array([[-1e3, -0.3, -1e-8], [0.0, 1e-8, 2.0]], jnp.float32)
    assert shape(x).shape == x.shape
    assert shape(x).dtype == jnp.float32
    np.testing.assert_allclose(shape(x)[0, 1], shape(x[0, 1]), rtol=1e-6)
    assert np.isfinite(jax.grad(lambda y: shape(y).sum())(x)).all()


def axis_angle(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rodrigues' formula, in float64."""
    x, y, z = axis / np.linalg.norm(axis)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


@pytest.mark.parametrize("axis", [[1, 0, 0], [1, 2, 3]])
@pytest.mark.parametrize("angle", [0.0, 1e-3, 1.0, np.pi - 1e-3, np.pi])
def test_the_angle_between_two_frames(axis: list[float], angle: float):
    base = axis_angle(np.array([0.3, -0.5, 0.8]), 1.1)
    turned = axis_angle(np.array(axis, float), angle) @ base
    error = shaping.rotation_error(jnp.float32(turned), jnp.float32(base))
    assert error.shape == ()
    np.testing.assert_allclose(error, angle, atol=1e-4)
    np.testing.assert_allclose(shaping.rotation_error(jnp.float32(base), jnp.float32(turned)), error, atol=1e-5)


@pytest.mark.parametrize("angle", [0.0, 1e-6, 1.0, np.pi])
def test_the_angle_has_a_finite_slope(angle: float):
    target = jnp.eye(3, dtype=jnp.float32)
    turned = jnp.float32(axis_angle(np.array([0.0, 1.0, 0.0]), angle))
    assert np.isfinite(jax.grad(shaping.rotation_error)(turned, target)).all()


def test_the_slope_points_the_right_way():
    """d error / d angle = 1."""

    def error(angle: jax.Array) -> jax.Array:
        c, s = jnp.cos(angle), jnp.sin(angle)
        turned = jnp.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        return shaping.rotation_error(turned, jnp.eye(3))

    np.testing.assert_allclose(jax.grad(error)(0.7), 1.0, rtol=1e-4)
