"""Weights and likelihoods from comparisons: planted weights are recovered, and uncertainty is kept."""

from __future__ import annotations

import numpy as np
import pytest

from movlr_jax.evolution.parents import behaviours
from movlr_jax.evolution.preferences import Pairs, agreeing, fit_weights, log_likelihood

TERMS = list("abcdef")


def planted(
    seed: int, comparisons: int = 60, motions: int = 40
) -> tuple[dict[str, np.ndarray], np.ndarray, Pairs]:
    """Return term returns of different sizes, the weights that compare the motions, and noise-free comparisons."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(6, motions)) * np.exp(1.5 * rng.normal(size=(6, 1)))
    weights = np.exp(rng.normal(size=6)) * rng.choice([-1.0, 1.0], 6) / values.std(axis=1)
    total = weights @ values
    pairs = np.array([rng.choice(motions, 2, replace=False) for _ in range(comparisons)])
    first = total[pairs[:, 0]] > total[pairs[:, 1]]
    return dict(zip(TERMS, values, strict=True)), weights, Pairs(*pairs.T, first.astype(float))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("seed", range(20))
def test_planted_weights_are_recovered_from_60_comparisons(seed: int):
    """The written weights know only the signs: their cosine with the planted ones is 0.8 in the median."""
    values, weights, pairs = planted(seed)
    scale = np.array([values[t].std() for t in TERMS])
    written = dict(zip(TERMS, np.sign(weights) / scale, strict=True))
    fit = fit_weights(values, written, pairs, np.random.default_rng(0))
    found = np.array([fit.weights[t] for t in TERMS])
    assert cosine(found * scale, weights * scale) >= 0.95
    assert np.linalg.norm(found * scale) == pytest.approx(np.sqrt(6), rel=1e-3), (
        "the size is that of the written"
    )


def test_more_comparisons_are_nearer_and_surer():
    values, weights, few = planted(0, 5)
    *_, many = planted(0, 200)
    scale = np.array([values[t].std() for t in TERMS])
    written = dict(zip(TERMS, np.sign(weights) / scale, strict=True))
    fits = [fit_weights(values, written, p, np.random.default_rng(0), draws=200) for p in (few, many)]
    near = [cosine(np.array([f.weights[t] for t in TERMS]) * scale, weights * scale) for f in fits]
    assert near[0] < near[1]
    spread = [
        np.mean([1 - cosine(np.array([d[t] for t in TERMS]) * scale, weights * scale) for d in f.draws])
        for f in fits
    ]
    assert spread[1] < spread[0]
    assert all(fits[1].deviation[t] < fits[0].deviation[t] for t in TERMS)


def test_no_comparison_keeps_the_written_weights():
    values, *_ = planted(0)
    written = dict.fromkeys(TERMS, 2.0)
    nothing = Pairs(np.zeros(0, int), np.zeros(0, int), np.zeros(0))
    fit = fit_weights(values, written, nothing, np.random.default_rng(0), draws=1)
    assert fit.weights == written
    assert fit.draws == [written]


def test_a_fit_keeps_signs_and_the_weight_of_a_constant_term():
    """Comparisons that contradict a term shrink it; nothing is known about one that is the same in all motions."""
    rng = np.random.default_rng(0)
    values = {"good": rng.normal(size=30), "bad": rng.normal(size=30), "same": np.full(30, 3.0)}
    pairs = rng.integers(0, 30, (80, 2))
    total = values["good"] - values["bad"]
    share = (total[pairs[:, 0]] > total[pairs[:, 1]]).astype(float)
    fit = fit_weights(values, {"good": 1.0, "bad": 1.0, "same": 7.0}, Pairs(*pairs.T, share), rng)
    assert 0 < fit.weights["bad"] < 0.2 * fit.weights["good"]
    assert fit.weights["same"] == 7.0
    assert fit.deviation["same"] == 0.0


def test_a_term_that_hardly_varied_does_not_grow_beyond_all_bounds():
    """A term that was near zero on all motions but the preferred one would get a weight of millions."""
    rng = np.random.default_rng(0)
    terms = {"distance": rng.normal(size=8), "arrival": np.array([1e-7, *np.zeros(7)])}
    pairs = Pairs(np.zeros(7, int), np.arange(1, 8), np.ones(7))
    fit = fit_weights(terms, {"distance": 1.0, "arrival": 2.0}, pairs, rng, draws=20)
    assert max(w["arrival"] for w in [fit.weights, *fit.draws]) <= 20.0
    near_the_limit = fit_weights(terms, {"distance": 1.0, "arrival": 9e5}, pairs, rng)
    assert near_the_limit.weights["arrival"] <= 1e6


def test_likelihood_of_one_comparison_by_hand():
    """Two motions have standardised returns +1 and -1, so the logit is 2 beta; the mean is over beta."""
    pairs = Pairs(np.array([0]), np.array([1]), np.array([1.0]))
    sigmoid = [1 / (1 + np.exp(-2 * beta)) for beta in (0.5, 1, 2, 4, 8)]
    right, wrong, blind = log_likelihood(np.array([[5.0, 3.0], [-1.0, 9.0], [4.0, 4.0]]), pairs)
    assert right == pytest.approx(np.log(np.mean(sigmoid)), abs=1e-6)
    assert wrong == pytest.approx(np.log(np.mean([1 - s for s in sigmoid])), abs=1e-6)
    assert blind == pytest.approx(np.log(0.5), abs=1e-6)


def test_equal_returns_agree_with_no_decided_comparison():
    first, second = np.array([0, 1, 0]), np.array([1, 0, 1])
    pairs = Pairs(first, second, np.array([1.0, 0.0, 0.5]))  # in both orders motion 0 won; a tie
    assert agreeing(np.array([[4.0, 4.0], [5.0, 3.0], [3.0, 5.0]]), pairs).tolist() == [0, 2, 0]


def test_the_scale_of_a_reward_does_not_count():
    rng = np.random.default_rng(0)
    returns, pairs = rng.normal(size=(1, 9)), rng.integers(0, 9, (20, 2))
    known = Pairs(*pairs.T, rng.integers(0, 2, 20).astype(float))
    once, thousand = (log_likelihood(s * returns + o, known)[0] for s, o in ((1, 0), (1e3, -4e3)))
    assert once == pytest.approx(thousand)
    assert agreeing(returns, known) == agreeing(1e3 * returns, known)


def test_motions_are_compared_by_one_measure_that_all_have():
    walks = [{"gait_r": 0.9, "distance_m": 6.0, "effort": 0.1}, {"distance_m": 0.3, "effort": 0.2}]
    assert behaviours(walks) == [(6.0, 0.1), (0.3, 0.2)], "the second has no stride, so no gait_r"
    assert behaviours(walks[:1]) == [(0.9, 0.1)]
    assert behaviours([{"success": 1.0, "effort": 0.1}, {"success": 0.0, "tip_m": 2.0}]) == [
        (0.0, 0.1),
        (0.0, 0.0),
    ]
