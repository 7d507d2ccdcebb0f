"""Rules of planning, splines and risks against hand-worked numbers and loops in plain numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax._util.parts import check_ranges
from movlr_jax.control.mpc.knots import between
from movlr_jax.control.mpc.rules import RULES, Mppi, PlanDistribution, PlanningRule, evosax, shift
from movlr_jax.control.mpc.rules.base import RISKS, colored, sparse, spread_out
from movlr_jax.control.mpc.rules.evosax import STRATEGIES
from movlr_jax.errors import UserError

LOWER, UPPER = jnp.array([-1.0, 0.0]), jnp.array([1.0, 2.0])
SETTINGS = {"samples": 20, "temperature": 0.3, "sigma": 0.1, "sigma_min": 0.01}


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(LOWER, UPPER, (20, 3, 2)).astype("f"), rng.normal(size=20).astype("f")


def rule(name: str, **settings) -> PlanningRule:
    """Return a rule with those of the settings that it has."""
    return RULES.read({"rule": name, **SETTINGS, **settings}, "optimizer.mppi")


PLAN = rule("mppi").init(jnp.array([[0.2, 1.0], [0.0, 0.5], [-0.3, 1.5]]), LOWER, UPPER)


def updated(name: str, samples, costs, **settings) -> PlanDistribution:
    return rule(name, **settings).update(PLAN, samples, costs, LOWER, UPPER)


def test_noise_of_mppi_is_normal_mixed_and_correlated_in_time():
    mppi, key = rule("mppi", smooth=0.5), jax.random.key(3)
    assert (Mppi().updates, Mppi().worlds) == (1, 1)
    mixing = np.linalg.cholesky([[1.0, 0.6], [0.6, 1.0]]).T.astype("f")
    expected = colored(jax.random.normal(key, (20, 3, 2)) @ mixing, 0.5)
    assert (mppi.noise(key, (3, 2), mixing, 0) == expected).all()


def update_in_numpy(config: Mppi, samples, costs) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sigma of the next plan, one sample at a time, in float64."""
    ranked = sorted((float(c), i) for i, c in enumerate(costs) if np.isfinite(c))
    ranked = ranked[: config.elites or config.samples]
    best, worst = ranked[0][0], ranked[-1][0]
    weights = [np.exp(-(c - best) / (config.temperature * max(worst - best, 1e-9))) for c, _ in ranked]
    mean, variance = np.zeros((3, 2)), np.zeros((3, 2))
    for w, (_, i) in zip(weights, ranked, strict=True):
        mean += w / sum(weights) * samples[i]
    for w, (_, i) in zip(weights, ranked, strict=True):
        variance += w / sum(weights) * (samples[i] - mean) ** 2
    sigma = (1 - config.adapt) * np.asarray(PLAN.sigma) + config.adapt * np.sqrt(variance)
    return mean, np.maximum(sigma, config.sigma_min * np.asarray(UPPER - LOWER))


@pytest.mark.parametrize(("elites", "adapt", "missing"), [(0, 0.0, 0), (1, 1.0, 3), (5, 0.3, 3), (2, 0.3, 19)])
def test_update_of_mppi_is_the_equation(elites: int, adapt: float, missing: int):
    config = Mppi(samples=20, temperature=0.2, sigma_min=0.05, elites=elites, adapt=adapt)
    for seed in range(3):
        samples, costs = drawn(seed)
        costs = 1000.0**seed * costs + np.float32(5 * seed)  # w . r has no natural unit
        gone = np.random.default_rng(seed).permutation(20)[:missing]
        costs[gone], samples[gone] = np.inf, 1e9
        new = config.update(PLAN, samples, costs, LOWER, UPPER)
        mean, sigma = update_in_numpy(config, samples, costs)
        np.testing.assert_allclose(new.mean, mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(new.sigma, sigma, rtol=1e-4, atol=1e-5)


def test_update_of_mppi_worked_by_hand():
    """Costs 0, 1, 2 at temperature 0.5: weights 1, e^-1, e^-2 over a range of 2, so values 0, 1, 2 give 0.4247.

    Equal costs weigh the same: values 0, 1, 5 give 2.
    """
    config, box = Mppi(samples=3, temperature=0.5), (jnp.array([0.0]), jnp.array([10.0]))
    plan = config.init(jnp.zeros((1, 1)), *box)
    new = config.update(plan, jnp.array([0.0, 1.0, 2.0])[:, None, None], jnp.array([0.0, 1.0, 2.0]), *box)
    np.testing.assert_allclose(new.mean, [[0.4247]], atol=1e-4)
    equal = config.update(plan, jnp.array([0.0, 1.0, 5.0])[:, None, None], jnp.full(3, 3.0), *box)
    np.testing.assert_allclose(equal.mean, [[2.0]], atol=1e-5)


@pytest.mark.parametrize("cost", [-np.inf, np.nan])
def test_costs_that_are_no_numbers_never_reach_the_plan(cost: float):
    samples, costs = drawn()
    costs[4] = np.inf
    expected = updated("mppi", samples, costs)
    costs[4] = cost
    np.testing.assert_array_equal(updated("mppi", samples, costs).mean, expected.mean)
    nothing = updated("mppi", samples, np.full(20, cost, "f"))
    np.testing.assert_array_equal(nothing.mean, PLAN.mean)


def test_known_samples_come_first_the_mean_what_is_held_and_what_was_at_the_start():
    held, home = jnp.full((3, 2), 0.5), jnp.full((3, 2), 0.25)
    noise = 5.0 * jax.random.normal(jax.random.key(0), (20, 3, 2))
    plain = np.clip(PLAN.mean + PLAN.sigma * noise, LOWER, UPPER)
    for keep in (0, 1, 2, 3):
        samples = rule("mppi", keep=keep).sample(PLAN, held, home, noise, LOWER, UPPER)
        np.testing.assert_array_equal(samples[0], PLAN.mean if keep >= 1 else plain[0])
        np.testing.assert_array_equal(samples[1], held if keep >= 2 else plain[1])
        np.testing.assert_array_equal(samples[2], home if keep >= 3 else plain[2])
        np.testing.assert_allclose(samples[3:], plain[3:], rtol=1e-6)
    beyond = rule("mppi").sample(PLAN, 100 * held, held, noise, LOWER, UPPER)
    np.testing.assert_array_equal(beyond[1], np.broadcast_to(UPPER, (3, 2)))


def test_init_clips_and_scales_by_the_range():
    plan = rule("mppi").init(jnp.full((3, 2), 1.5), LOWER, jnp.array([1.0, 4.0]))
    np.testing.assert_array_equal(plan.mean, np.tile([1.0, 1.5], (3, 1)))
    np.testing.assert_allclose(plan.sigma, np.tile([0.2, 0.4], (3, 1)), rtol=1e-6)


def test_predictive_sampling_takes_the_best_sample():
    samples, costs = drawn()
    costs[[4, 7]] = -np.inf, np.nan  # neither is a cost
    costs[11] = -9.0
    new = updated("predictive_sampling", samples, costs)
    np.testing.assert_array_equal(new.mean, samples[11])
    np.testing.assert_array_equal(new.sigma, PLAN.sigma)


@pytest.mark.parametrize(("elites", "adapt"), [(0, 0.0), (5, 0.0), (5, 0.4)])
def test_cem_takes_mean_and_deviation_of_the_elites(elites: int, adapt: float):
    samples, costs = drawn(1)
    costs[3] = np.inf
    new = updated("cem", samples, costs, elites=elites, adapt=adapt)
    best = samples[np.argsort(costs)[: elites or 2]].astype(np.float64)
    share = adapt or 1.0
    sigma = np.maximum((1 - share) * np.asarray(PLAN.sigma) + share * best.std(axis=0), 0.01 * 2.0)
    np.testing.assert_allclose(new.mean, best.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(new.sigma, sigma, rtol=1e-4)


def test_dial_weighs_by_standardised_costs_and_anneals_its_noise():
    # by hand: costs 0, 2 and a diverged one; mean 1, deviation 1; weights e^(1/0.5), e^(-1/0.5)
    samples, costs = drawn(2)[0][:3], np.array([0.0, 2.0, np.inf], np.float32)
    new = updated("dial", samples, costs, temperature=0.5)
    w = np.exp([2.0, -2.0]) / np.exp([2.0, -2.0]).sum()
    np.testing.assert_allclose(new.mean, w[0] * samples[0] + w[1] * samples[1], rtol=1e-5)
    key, given = jax.random.key(0), ((3, 2), np.eye(2, dtype="f"), 2)
    plain = rule("mppi", samples=4).noise(key, *given)
    noise = rule("dial", samples=4, anneal_updates=0.5, anneal_knots=0.8).noise(key, *given)
    expected = np.broadcast_to(0.25 * np.array([0.64, 0.8, 1.0])[:, None], (4, 3, 2))
    np.testing.assert_allclose(noise / plain, expected, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in RULES if n != "evosax"])
def test_without_a_finite_cost_a_plan_stays(name: str):
    new = updated(name, drawn()[0], np.full(20, np.inf, "f"))
    np.testing.assert_array_equal(new.mean, PLAN.mean)
    np.testing.assert_array_equal(new.sigma, PLAN.sigma)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_evolution_strategy_of_evosax_finds_the_least_cost(strategy: str):
    """That of a plan at (0.5, 1.2) everywhere."""
    pytest.importorskip("evosax", reason="the extra evosax is not installed")
    planning, at = rule("evosax", updates=80, sigma=0.2, strategy=strategy), jnp.array([0.5, 1.2])
    plan = planning.init(PLAN.mean, LOWER, UPPER)
    ask = jax.jit(lambda plan, noise: planning.sample(plan, plan.mean, plan.mean, noise, LOWER, UPPER))
    update = jax.jit(lambda *given: planning.update(*given, LOWER, UPPER))
    for number in range(80):
        samples = ask(plan, planning.noise(jax.random.key(number), (3, 2), np.eye(2, dtype="f"), number))
        cost = jnp.sum(jnp.square(samples - at), axis=(1, 2)).at[0].set(jnp.inf)
        plan = update(plan, samples, cost)
    assert shift(plan, 0.1).state is None
    assert float(jnp.abs(plan.mean - at).max()) < 0.15


def test_an_evolution_strategy_is_that_of_evosax():
    """One row at a time, with evosax alone: the planner asks with its state of before."""
    algorithms = pytest.importorskip("evosax.algorithms", reason="the extra evosax is not installed")
    mine, key = rule("evosax"), jax.random.key(7)
    evosax._strategy.cache_clear()  # a planner makes it while it traces, and uses it in several traces
    ask = lambda plan: mine.sample(plan, plan.mean, plan.mean, key, LOWER, UPPER)  # noqa: E731
    jax.jit(jax.vmap(ask))(jax.tree.map(lambda x: x[None], PLAN))
    es = algorithms.CMA_ES(20, jnp.zeros(6))
    state = es.init(jax.random.key(0), (PLAN.mean / PLAN.sigma).ravel(), es.default_params)
    population, state = es.ask(key, state, es.default_params)
    plans = np.clip(np.asarray(population).reshape(20, 3, 2) * PLAN.sigma, LOWER, UPPER)
    samples = ask(PLAN)
    np.testing.assert_allclose(samples, plans, rtol=1e-5, atol=1e-6)
    costs = drawn()[1]
    flat = (plans / PLAN.sigma).reshape(20, -1)
    state, _ = es.tell(jax.random.key(0), flat, costs, state, es.default_params)
    new = mine.update(PLAN, samples, costs, LOWER, UPPER)
    np.testing.assert_allclose(new.mean, np.clip(state.mean.reshape(3, 2) * PLAN.sigma, LOWER, UPPER), rtol=1e-4)


def test_splines_by_hand():
    knots, t = jnp.array([0.0, 1.0, 3.0, 2.0]), np.float32
    assert float(between(knots, t(0.15), 0.6)) == pytest.approx(0.75)  # linear: knots 0.2 s apart
    assert float(between(knots, t(0.15), 0.6, "zero")) == 1.0  # each is held for 0.15 s
    assert float(between(knots, t(0.149), 0.6, "zero")) == 0.0
    # between 1 and 3, slopes (3 - 0) / 2 and (2 - 1) / 2: 0.5 (1 + 3) + 0.125 (1.5 - 0.5)
    assert float(between(knots, t(0.3), 0.6, "cubic")) == pytest.approx(2.125)
    for spline in ("zero", "linear", "cubic"):
        assert float(between(knots, t(0.9), 0.6, spline)) == 2.0  # later, the last
        assert float(between(jnp.array([4.0]), t(0.2), 0.6, spline)) == 4.0


def test_risks_by_hand():
    costs = np.array([[3.0, 1.0, 2.0, 6.0], [1.0, np.inf, 0.0, 0.0]])
    assert RISKS["mean"](costs, 0.5).tolist() == [3.0, np.inf]
    assert RISKS["worst"](costs, 0.5).tolist() == [6.0, np.inf]
    assert RISKS["cvar"](costs, 0.5).tolist() == [4.5, np.inf]
    assert RISKS["cvar"](jnp.asarray(costs), 0.1).tolist() == [6.0, np.inf]


def test_settings_of_other_rules_are_ignored_and_unknown_ones_are_not():
    """A record of an earlier version holds the settings of all rules."""
    made = RULES.read({"rule": "best", "samples": 8, "anneal_knots": 0.5, "sigma": None}, "optimizer.mppi")
    assert RULES.record(made) | {"samples": 8, "sigma": 0.0} == RULES.record(made)
    assert RULES.name_of(made) == "predictive_sampling"
    with pytest.raises(UserError, match=r"optimizer\.mppi\.anneal'; did you mean 'optimizer\.mppi\.anneal"):
        RULES.read({"rule": "dial", "anneal": 0.5}, "optimizer.mppi")
    with pytest.raises(UserError, match=r"optimizer\.mppi\.density=2: it must be 0 or more and at most 1"):
        check_ranges(rule("mppi", density=2.0), "optimizer.mppi")


def test_a_plan_moves_on_with_time():
    """Worked by hand: knots 0, 10, 20 a quarter of the horizon later are 5, 15, and the last one."""
    mean = jnp.array([0.0, 10.0, 20.0])[:, None]
    plan = PlanDistribution(mean=mean, sigma=jnp.ones((3, 1)))
    for fraction, expected in ((0.0, [0, 10, 20]), (0.25, [5, 15, 20]), (0.5, [10, 20, 20]), (1.0, [20] * 3)):
        np.testing.assert_allclose(shift(plan, fraction).mean[:, 0], expected)
    constant = PlanDistribution(mean=jnp.array([[3.0]]), sigma=jnp.ones((1, 1)))
    assert shift(constant, 0.4).mean == 3.0
    # eight knots, each held for an eighth of the horizon
    steps = PlanDistribution(mean=jnp.array([0.0, 1, 2, 3, 4, 3, 2, 1])[:, None], sigma=jnp.ones((8, 1)))
    np.testing.assert_allclose(shift(steps, 1 / 8, "zero").mean[:, 0], [1, 2, 3, 4, 3, 2, 1, 1])
    np.testing.assert_allclose(shift(steps, 1 / 16, "zero").mean[:3, 0], [0.5, 1.5, 2.5])


def test_sparse_noise_changes_few_dimensions_in_all_knots():
    """A third of the dimensions of each sample, others in the next sample; what is changed is the given noise."""
    key = jax.random.key(0)
    white = jax.random.normal(key, (3000, 2, 3))
    noise = np.asarray(sparse(white, key, 1 / 3))
    changed = noise != 0
    np.testing.assert_array_equal(changed[:, 0], changed[:, 1])
    np.testing.assert_array_equal(noise[changed], np.asarray(white)[changed])
    np.testing.assert_allclose(np.cov(changed[:, 0].T), np.eye(3) * 2 / 9, atol=0.02)  # each by itself, p = 1/3
    np.testing.assert_allclose(changed.mean((0, 1)), 1 / 3, atol=0.03)
    np.testing.assert_array_equal(sparse(white, key, 1.0), white)


def test_samples_differ_in_the_size_of_their_noise():
    """From a third to three times, by the same factor from one sample to the next."""
    noise = np.asarray(spread_out(jnp.ones((5, 2, 3)), 3.0))
    for n, factor in enumerate((1 / 3, 3**-0.5, 1.0, 3**0.5, 3.0)):
        np.testing.assert_allclose(noise[n], factor, rtol=1e-5)
    np.testing.assert_array_equal(spread_out(jnp.ones((5, 2, 3)), 1.0), 1.0)


def test_smooth_noise_correlates_in_time_alone():
    """Of many draws: unit variance, smooth^k between knots k apart, nothing between dimensions."""
    white = jax.random.normal(jax.random.key(0), (20000, 4, 2))
    noise = np.asarray(colored(white, 0.8)).reshape(20000, 8)
    apart = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    np.testing.assert_allclose(np.cov(noise.T), np.kron(0.8**apart, np.eye(2)), atol=0.04)
    np.testing.assert_array_equal(colored(white, 0.0), white)
