"""Rules of planning, splines and risks against hand-worked numbers and loops in plain numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from movlr_jax._util.parts import check_ranges
from movlr_jax.control.mpc.knots import between
from movlr_jax.control.mpc.rules import RULES, Mppi, PlanDistribution, PlanningRule, evosax, shift
from movlr_jax.control.mpc.rules.base import RISKS, colored
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


def sought(name: str, updates: int, **settings) -> float:
    """Return how far from the least cost, a plan at (0.5, 1.2) everywhere, a rule ends."""
    planning, at = rule(name, updates=updates, sigma=0.2, **settings), jnp.array([0.5, 1.2])
    plan = planning.init(PLAN.mean, LOWER, UPPER)
    ask = jax.jit(lambda plan, noise: planning.sample(plan, plan.mean, plan.mean, noise, LOWER, UPPER))
    update = jax.jit(lambda *given: planning.update(*given, LOWER, UPPER))
    for number in range(updates):
        samples = ask(plan, planning.noise(jax.random.key(number), (3, 2), np.eye(2, dtype="f"), number))
        cost = jnp.sum(jnp.square(samples - at), axis=(1, 2)).at[0].set(jnp.inf if name == "evosax" else 9.0)
        plan = update(plan, samples, cost)
    assert shift(plan, 0.1).state is None
    return float(jnp.abs(plan.mean - at).max())


@pytest.mark.parametrize("name", [n for n in RULES if n != "evosax"])
def test_updates_come_closer(name: str):
    more = {"mppi": {"adapt": 0.5, "temperature": 0.1}, "dial": {"anneal_updates": 0.9}}.get(name, {})
    assert sought(name, 12, **more) < 0.7 * sought(name, 1, **more)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_evolution_strategy_of_evosax_finds_it(strategy: str):
    pytest.importorskip("evosax", reason="the extra evosax is not installed")
    assert sought("evosax", 80, strategy=strategy) < 0.15


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
