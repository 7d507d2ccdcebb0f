"""Worth of programs from trials and answers: hand-worked cases, invariances, and beliefs as right as they say."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import t as student

from movlr_jax._util.intervals import mean_interval, rate_interval
from movlr_jax.evolution.worth import (
    Answer,
    Posterior,
    TrialScore,
    final_choice,
    from_answers,
    from_scores,
    halving,
    next_champion,
    replaces,
    trial_values,
    undecided,
)

BINS = ((0.0, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 1.01))


def of_matrix(values: Sequence[Sequence[float]] | np.ndarray) -> Posterior:
    """The posterior from values [P, T] of every program in every trial."""
    values = np.asarray(values, float)
    program, trial = np.indices(values.shape)
    return from_scores(len(values), program.ravel().tolist(), trial.ravel().tolist(), values.ravel().tolist())


def drawn(rng: np.random.Generator, n: int, trials: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """True worths [n] and values [n, trials] with noise 1 and a shift of each trial."""
    worth = spread * rng.normal(size=n)
    return worth, worth[:, None] + rng.normal(size=(n, trials)) + rng.normal(size=trials)


def asked(rng: np.random.Generator, values: np.ndarray, pairs: int, wrong: float) -> list[Answer]:
    """Answers about `pairs` pairs of each trial in both orders; a share `wrong` of them names the worse film."""
    answers: list[Answer] = []
    for trial in range(values.shape[1]):
        for _ in range(pairs):
            i, j = rng.choice(len(values), 2, replace=False).tolist()
            for a, b in ((i, j), (j, i)):
                first = (values[a, trial] > values[b, trial]) != (rng.random() < wrong)
                answers.append((a, b, trial, "first" if first else "second"))
    return answers


def errors(believed: np.ndarray, true: np.ndarray) -> list[tuple[float, float, int]]:
    """Mean belief, share that was true, and number of beliefs, in each bin that has some."""
    bins = [(believed >= low) & (believed < high) for low, high in BINS]
    return [(float(believed[b].mean()), float(true[b].mean()), int(b.sum())) for b in bins if b.sum() >= 40]


def assert_calibrated(believed: list[float], true: list[bool], within: float = 0.05) -> None:
    """The share that was true is within 5 points of the belief and twice its standard error."""
    for belief, share, count in errors(np.array(believed), np.array(true)):
        error = math.sqrt(belief * (1 - belief) / count)
        assert abs(belief - share) <= within + 2 * error, (belief, share, count)


# --- scores


def test_two_programs_in_one_trial_say_little_and_nothing_about_the_size_of_the_difference():
    small, large = of_matrix([[0.0], [1.0]]), of_matrix([[0.0], [1000.0]])
    assert 0.6 < small.p_better(1, 0) < 0.85
    assert large.p_better(1, 0) == pytest.approx(small.p_better(1, 0))
    assert large.mean[1] - large.mean[0] == pytest.approx(1000 * (small.mean[1] - small.mean[0]))


def test_many_trials_give_the_mean_difference_and_the_probability_of_the_paired_t_test():
    rng = np.random.default_rng(0)
    _, values = drawn(rng, 2, 40, 0.0)
    values[1] += 0.3
    posterior = of_matrix(values)
    difference = values[1] - values[0]
    t = difference.mean() / (difference.std(ddof=1) / math.sqrt(40))
    assert posterior.mean[1] - posterior.mean[0] == pytest.approx(difference.mean(), rel=0.25)  # shrunk
    assert posterior.p_better(1, 0) == pytest.approx(student.cdf(t, 39), abs=0.05)
    assert posterior.noise == pytest.approx(difference.std(ddof=1), rel=0.15)


def test_differences_of_a_trial_count_and_not_how_hard_it_is():
    """The trials differ by 100, the programs by 1 with a noise of 0.1."""
    hard = np.array([0.0, 100.0, 50.0, 200.0])
    e = np.array([[0.1, 0.0, -0.1, 0.0], [0.0, 0.1, 0.0, -0.1]])
    posterior = of_matrix(np.array([hard, hard + 1.0]) + e)
    assert posterior.p_better(1, 0) > 0.97
    assert posterior.mean[1] - posterior.mean[0] == pytest.approx(1.0, abs=0.1)
    assert posterior.noise < 0.5


def test_a_third_program_links_two_that_never_met():
    """Program 1 beats program 0 by 2 in some trials, program 2 beats 1 by 2 in others, 50 higher."""
    noise = np.random.default_rng(0).normal(size=(4, 6)) / 5
    programs, trials, values = [], [], []
    for trial in range(6):
        for p, value in ((0, 0.0), (1, 2.0)):
            programs, trials = [*programs, p], [*trials, ("a", trial)]
            values.append(value + noise[p, trial])
        for p, value in ((1, 50.0), (2, 52.0)):
            programs, trials = [*programs, p], [*trials, ("b", trial)]
            values.append(value + noise[p + 1, trial])
    posterior = from_scores(3, programs, trials, values)
    assert posterior.p_better(2, 0) > 0.95
    assert posterior.mean[2] - posterior.mean[0] == pytest.approx(4.0, abs=0.6)


def test_order_of_the_items_and_unit_of_the_score_change_no_probability():
    """A shift of one trial changes hardly one."""
    rng = np.random.default_rng(1)
    _, values = drawn(rng, 5, 3, 1.0)
    plain, order = of_matrix(values), rng.permutation(5)
    turned, other = of_matrix(values[order]), of_matrix(1e4 * values - 7e5)
    np.testing.assert_allclose(turned.mean, plain.mean[order])
    np.testing.assert_allclose(turned.better, plain.better[np.ix_(order, order)])
    np.testing.assert_allclose(turned.p_best, plain.p_best[order], atol=0.03)  # by draws
    np.testing.assert_allclose(other.better, plain.better, atol=1e-6)
    assert other.noise == pytest.approx(1e4 * plain.noise)
    shifted = of_matrix(values + np.array([0.0, 5.0, -9.0]))
    np.testing.assert_allclose(shifted.better, plain.better, atol=0.05)


def test_equal_values_or_none_say_nothing():
    for posterior in (of_matrix(np.full((3, 2), 7.0)), from_scores(3, [], [], [])):
        np.testing.assert_allclose(posterior.better, 0.5, atol=1e-6)
        np.testing.assert_allclose(posterior.p_best, 1 / 3, atol=0.03)
    assert of_matrix([[3.0, 5.0]]).p_best.tolist() == [1.0]


def test_a_program_without_a_trial_is_known_least():
    posterior = from_scores(3, [0, 1, 0, 1], [0, 0, 1, 1], [1.0, 0.0, 1.2, 0.1])
    assert np.argmax(np.diag(posterior.covariance)) == 2
    assert posterior.p_better(0, 1) > max(posterior.p_better(0, 2), posterior.p_better(2, 1))


@pytest.mark.parametrize(("n", "trials"), [(4, 5), (8, 2)])
def test_beliefs_from_scores_are_right_as_often_as_they_say(n: int, trials: int):
    rng = np.random.default_rng(n + trials)
    best, is_best, better, is_better = [], [], [], []
    for search in range(120):
        worth, values = drawn(rng, n, trials, (0.3, 0.6, 1.0, 2.0)[search % 4])
        posterior = of_matrix(values)
        best += posterior.p_best.tolist()
        is_best += (worth == worth.max()).tolist()
        i, j = np.nonzero(posterior.better > 0.5)
        better += posterior.better[i, j].tolist()
        is_better += (worth[i] > worth[j]).tolist()
    assert_calibrated(best, is_best)
    assert_calibrated(better, is_better)
    sure = np.array(better) >= 0.9
    assert np.mean(np.array(is_better)[sure]) >= 0.9


# --- answers


def test_a_hundred_answers_about_one_trial_say_less_than_a_few_about_many():
    one = from_answers(2, [(0, 1, 0, "first"), (1, 0, 0, "second")] * 50)
    many = from_answers(2, [a for t in range(8) for a in ((0, 1, t, "first"), (1, 0, t, "second"))])
    assert one.p_better(0, 1) < 0.85
    assert many.p_better(0, 1) > 0.95


def test_answers_by_position_ties_and_no_answers_say_nothing_about_the_order():
    posterior = from_answers(2, [a for t in range(4) for a in ((0, 1, t, "first"), (1, 0, t, "first"))])
    assert posterior.p_better(0, 1) == pytest.approx(0.5, abs=1e-6)
    posterior = from_answers(3, [(0, 1, 0, "tie"), (1, 0, 0, "tie"), (1, 2, 0, "tie"), (2, 1, 0, "tie")])
    np.testing.assert_allclose(posterior.better[[0, 1], [1, 2]], 0.5, atol=1e-6)
    np.testing.assert_allclose(from_answers(3, []).better, 0.5)
    assert from_answers(1, []).p_best.tolist() == [1.0]


def test_answers_against_each_other_make_every_answer_weaker():
    """Two programs that nobody doubts, and two about which the judge contradicts itself."""
    clear: list[Answer] = [(0, 1, 0, "first"), (1, 0, 0, "second")]
    doubtful: list[Answer] = [a for t in range(1, 7) for a in ((2, 3, t, "first"), (3, 2, t, "first"))]
    assert from_answers(4, clear).p_better(0, 1) > from_answers(4, clear + doubtful).p_better(0, 1) > 0.5


def test_answers_in_another_order_give_the_same_belief():
    rng = np.random.default_rng(0)
    _, values = drawn(rng, 4, 3, 1.0)
    answers = asked(rng, values, 3, 0.1)
    plain, turned = from_answers(4, answers), from_answers(4, answers[::-1])
    np.testing.assert_allclose(turned.better, plain.better, atol=1e-9)
    exchanged = [(3 - a, 3 - b, t, w) for a, b, t, w in answers]
    np.testing.assert_allclose(from_answers(4, exchanged).better, plain.better[::-1, ::-1], atol=1e-9)


@pytest.mark.parametrize("wrong", [0.0, 0.2])
def test_beliefs_from_answers_are_right_as_often_as_they_say(wrong: float):
    rng = np.random.default_rng(round(100 * wrong))
    best, is_best = [], []
    for search in range(60):
        worth, values = drawn(rng, 5, 4, (0.5, 1.0, 2.0)[search % 3])
        best += from_answers(5, asked(rng, values, 4, wrong)).p_best.tolist()
        is_best += (worth == worth.max()).tolist()
    assert_calibrated(best, is_best)


# --- values of trials


def test_a_trial_with_a_fault_lies_below_every_sound_one_and_keeps_its_order():
    trials = [
        TrialScore(0, None, 1.0),
        TrialScore(2, None, 50.0),
        TrialScore(0, True, 3.0),
        TrialScore(2, None, 40.0),
        TrialScore(3, None, 99.0),
        TrialScore(1, None, 2.0),
    ]
    sound, fall, best, early, diverged, odd = trial_values(trials).tolist()
    assert (sound, best) == (1.0, 3.0)
    assert diverged < early < fall < odd < sound
    assert fall - early == pytest.approx(10.0)


def test_a_score_that_is_not_finite_counts_as_the_lowest_of_its_kind():
    values = trial_values([TrialScore(0, None, s) for s in (2.0, -math.inf, math.nan, 5.0)])
    assert values.tolist() == [2.0, 2.0, 2.0, 5.0]
    failures = trial_values([TrialScore(3, None, -math.inf)] * 3)
    assert np.isfinite(failures).all()
    assert np.ptp(failures) == 0.0


def test_successes_count_if_nothing_has_a_score():
    values = trial_values([TrialScore(0, True, math.nan), TrialScore(0, False, math.nan)])
    assert values[0] > values[1]


# --- intervals and rules


def test_intervals_are_wilsons_and_that_of_the_t_distribution():
    """7 of 8: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with z = 1.96.

    Mean 2, deviation 1, n = 3: 2 +- 4.303 / sqrt(3).
    """
    assert rate_interval(7, 8) == (pytest.approx(0.529, abs=1e-3), pytest.approx(0.978, abs=1e-3))
    assert rate_interval(0, 0) == (0.0, 1.0)
    assert mean_interval([1.0, 2.0, 3.0]) == (pytest.approx(-0.484, abs=1e-3), pytest.approx(4.484, abs=1e-3))
    assert mean_interval([1.0]) == (-math.inf, math.inf)


def believed(mean: Sequence[float], deviation: float) -> Posterior:
    """A belief from many trials with these means, and noise of this size."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(len(mean), 12))
    noise -= noise.mean(axis=1, keepdims=True)
    return of_matrix(np.array(mean)[:, None] + deviation * noise)


def test_the_better_half_goes_on_and_the_champion_always():
    posterior = believed([0.0, 3.0, 1.0, 2.0, 4.0], 0.5)
    assert halving(posterior, [0, 1, 2, 3, 4], champion=0) == [0, 4, 1]
    assert halving(posterior, [0, 1, 2, 3], champion=0) == [0, 1, 3]
    assert halving(posterior, [0], champion=0) == [0]


def test_a_champion_stays_until_another_is_clearly_better():
    clear, open_ = believed([0.0, 1.0, 3.0], 0.5), believed([0.0, 0.1, 0.3], 1.0)
    assert replaces(clear, 2, 0)
    assert not replaces(open_, 2, 0)
    assert next_champion(clear, [0, 1, 2], 0) == 2
    assert next_champion(open_, [0, 1, 2], 0) == 0
    assert undecided(clear, [0, 1, 2], 0) == []
    assert undecided(open_, [0, 1, 2], 0) == [0, 2]
    assert undecided(clear, [0], 0) == []


def test_the_final_choice_is_the_best_of_those_clearly_better_than_the_first():
    """Program 2 is hardly better than the champion 1, so it does not replace it, but it keeps the promise."""
    posterior = believed([0.0, 3.0, 3.1, -1.0], 0.5)
    assert next_champion(posterior, [1, 2], 1) == 1
    assert final_choice(posterior, [0, 1, 2, 3], champion=1, first=0) == 2
    assert final_choice(posterior, [0, 3], champion=0, first=0) == 0
