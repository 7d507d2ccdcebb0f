"""The sampling planner's three functions against the same equations in plain numpy."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax.control.mpc.rules import Mppi, PlanDistribution, shift
from movlr_jax.control.mpc.rules.base import colored, sparse, spread_out

KNOTS, DIMS, N = 2, 3, 16
LOWER, UPPER = jnp.array([-1.0, 0.0, -5.0]), jnp.array([1.0, 2.0, 5.0])
update = jax.jit(Mppi.update, static_argnums=0)
BASE = Mppi(samples=N, temperature=0.2, sigma=0.1, sigma_min=0.05)


def drawn(seed: int = 0) -> tuple[PlanDistribution, np.ndarray, np.ndarray]:
    """A plan, samples [N, KNOTS, DIMS] in the box and costs [N]."""
    rng = np.random.default_rng(seed)
    plan = BASE.init(jnp.asarray(rng.uniform(LOWER, UPPER, (KNOTS, DIMS)), jnp.float32), LOWER, UPPER)
    return (plan, rng.uniform(LOWER, UPPER, (N, KNOTS, DIMS)).astype(np.float32), rng.normal(size=N).astype("f"))


def update_in_numpy(config: Mppi, plan: PlanDistribution, samples, costs) -> tuple[np.ndarray, np.ndarray]:
    """One sample at a time, in float64."""
    ranked = sorted((float(c), i) for i, c in enumerate(costs) if np.isfinite(c))
    ranked = ranked[: config.elites or config.samples]
    best, worst = ranked[0][0], ranked[-1][0]
    weights = [np.exp(-(c - best) / (config.temperature * max(worst - best, 1e-9))) for c, _ in ranked]
    mean, variance = np.zeros((KNOTS, DIMS)), np.zeros((KNOTS, DIMS))
    for w, (_, i) in zip(weights, ranked, strict=True):
        mean += w / sum(weights) * samples[i]
    for w, (_, i) in zip(weights, ranked, strict=True):
        variance += w / sum(weights) * (samples[i] - mean) ** 2
    sigma = (1 - config.adapt) * np.asarray(plan.sigma) + config.adapt * np.sqrt(variance)
    return mean, np.maximum(sigma, config.sigma_min * np.asarray(UPPER - LOWER))


@pytest.mark.parametrize(("elites", "adapt", "missing"), [(0, 0.0, 0), (1, 1.0, 3), (5, 0.3, 3), (2, 0.3, N - 1)])
def test_update_is_the_equation(elites: int, adapt: float, missing: int):
    config = replace(BASE, elites=elites, adapt=adapt)
    for seed in range(3):
        plan, samples, costs = drawn(seed)
        costs = 1000.0**seed * costs + np.float32(5 * seed)  # w . r has no natural unit
        gone = np.random.default_rng(seed).permutation(N)[:missing]
        costs[gone], samples[gone] = np.inf, 1e9
        new = update(config, plan, samples, costs, LOWER, UPPER)
        mean, sigma = update_in_numpy(config, plan, samples, costs)
        np.testing.assert_allclose(new.mean, mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(new.sigma, sigma, rtol=1e-4, atol=1e-5)


def test_update_worked_by_hand():
    """Costs 0, 1, 2 at temperature 0.5: weights 1, e^-1, e^-2 over a range of 2, so values 0, 1, 2 give 0.4247.

    Equal costs weigh the same: values 0, 1, 5 give 2.
    """
    config = Mppi(samples=3, temperature=0.5)
    box = jnp.array([0.0]), jnp.array([10.0])
    plan = config.init(jnp.zeros((1, 1)), *box)
    new = update(config, plan, jnp.array([0.0, 1.0, 2.0])[:, None, None], jnp.array([0.0, 1.0, 2.0]), *box)
    np.testing.assert_allclose(new.mean, [[0.4247]], atol=1e-4)
    equal = update(config, plan, jnp.array([0.0, 1.0, 5.0])[:, None, None], jnp.full(3, 3.0), *box)
    np.testing.assert_allclose(equal.mean, [[2.0]], atol=1e-5)
    only_best = replace(config, elites=1)
    assert update(only_best, plan, jnp.array([3.0, 1.0, 2.0])[:, None, None], jnp.array([1.0, 0.0, 2.0]),
                       *box).mean == 1.0  # fmt: skip


@pytest.mark.parametrize("cost", [np.inf, -np.inf, np.nan])
def test_costs_that_are_no_numbers_never_reach_the_plan(cost: float):
    plan, samples, costs = drawn()
    costs[4] = np.inf
    expected = update(BASE, plan, samples, costs, LOWER, UPPER)
    costs[4] = cost
    actual = update(BASE, plan, samples, costs, LOWER, UPPER)
    np.testing.assert_array_equal(actual.mean, expected.mean)
    nothing = update(BASE, plan, samples, np.full(N, cost, "f"), LOWER, UPPER)
    np.testing.assert_array_equal(nothing.mean, plan.mean)
    np.testing.assert_array_equal(nothing.sigma, plan.sigma)


def test_known_samples_come_first_the_mean_what_is_held_and_what_was_at_the_start():
    plan, _, _ = drawn()
    held, home = jnp.full((KNOTS, DIMS), 0.5), jnp.full((KNOTS, DIMS), 0.25)
    noise = jax.random.normal(jax.random.key(0), (N, KNOTS, DIMS))
    plain = np.clip(plan.mean + plan.sigma * noise, LOWER, UPPER)
    for keep in (0, 1, 2, 3):
        samples = replace(BASE, keep=keep).sample(plan, held, home, noise, LOWER, UPPER)
        np.testing.assert_array_equal(samples[0], plan.mean if keep >= 1 else plain[0])
        np.testing.assert_array_equal(samples[1], held if keep >= 2 else plain[1])
        np.testing.assert_array_equal(samples[2], home if keep >= 3 else plain[2])
        np.testing.assert_allclose(samples[3:], plain[3:], rtol=1e-6)
    beyond = BASE.sample(plan, 100 * held, held, noise, LOWER, UPPER)
    np.testing.assert_array_equal(beyond[1], np.broadcast_to(UPPER, (KNOTS, DIMS)))


def test_init_clips_and_scales_by_the_range():
    plan = BASE.init(jnp.full((KNOTS, DIMS), 3.0), LOWER, UPPER)
    np.testing.assert_array_equal(plan.mean, np.tile([1.0, 2.0, 3.0], (KNOTS, 1)))
    np.testing.assert_allclose(plan.sigma, np.tile([0.2, 0.2, 1.0], (KNOTS, 1)), rtol=1e-6)


def test_a_plan_moves_on_with_time():
    """Worked by hand: knots 0, 10, 20 a quarter of the horizon later are 5, 15, and the last one."""
    mean = jnp.array([0.0, 10.0, 20.0])[:, None]
    plan = PlanDistribution(mean=mean, sigma=jnp.ones((3, 1)))
    for fraction, expected in ((0.0, [0, 10, 20]), (0.25, [5, 15, 20]), (0.5, [10, 20, 20]), (1.0, [20] * 3)):
        np.testing.assert_allclose(shift(plan, fraction).mean[:, 0], expected)
    constant = PlanDistribution(mean=jnp.array([[3.0]]), sigma=jnp.ones((1, 1)))
    assert shift(constant, 0.4).mean == 3.0


def test_knots_that_are_held_move_on_by_their_length():
    """Eight knots, each held for an eighth of the horizon: after an eighth, each is the next one."""
    mean = jnp.array([0.0, 1, 2, 3, 4, 3, 2, 1])[:, None]
    plan = PlanDistribution(mean=mean, sigma=jnp.ones((8, 1)))
    np.testing.assert_allclose(shift(plan, 1 / 8, "zero").mean[:, 0], [1, 2, 3, 4, 3, 2, 1, 1])
    np.testing.assert_allclose(shift(plan, 1 / 16, "zero").mean[:3, 0], [0.5, 1.5, 2.5])


def test_sparse_noise_changes_few_dimensions_in_all_knots():
    """A third of the dimensions of each sample, others in the next sample; what is changed is the given noise."""
    key = jax.random.key(0)
    white = jax.random.normal(key, (3000, KNOTS, DIMS))
    noise = np.asarray(sparse(white, key, 1 / 3))
    changed = noise != 0
    np.testing.assert_array_equal(changed[:, 0], changed[:, 1])
    np.testing.assert_array_equal(noise[changed], np.asarray(white)[changed])
    np.testing.assert_allclose(np.cov(changed[:, 0].T), np.eye(DIMS) * 2 / 9, atol=0.02)  # each by itself, p = 1/3
    np.testing.assert_allclose(changed.mean((0, 1)), 1 / 3, atol=0.03)
    np.testing.assert_array_equal(sparse(white, key, 1.0), white)


def test_samples_differ_in_the_size_of_their_noise():
    """From a third to three times, by the same factor from one sample to the next."""
    noise = np.asarray(spread_out(jnp.ones((5, KNOTS, DIMS)), 3.0))
    for n, factor in enumerate((1 / 3, 3**-0.5, 1.0, 3**0.5, 3.0)):
        np.testing.assert_allclose(noise[n], factor, rtol=1e-5)
    np.testing.assert_array_equal(spread_out(jnp.ones((5, KNOTS, DIMS)), 1.0), 1.0)


def test_smooth_noise_correlates_in_time_alone():
    """Of many draws: unit variance, smooth^k between knots k apart, nothing between dimensions."""
    white = jax.random.normal(jax.random.key(0), (20000, 4, 2))
    noise = np.asarray(colored(white, 0.8)).reshape(20000, 8)
    apart = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    np.testing.assert_allclose(np.cov(noise.T), np.kron(0.8**apart, np.eye(2)), atol=0.04)
    np.testing.assert_array_equal(colored(white, 0.0), white)
