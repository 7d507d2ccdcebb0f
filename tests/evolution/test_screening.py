"""Screening by returns: agreement, gates and difference, each on returns that were made up."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from movlr_jax.evolution.preferences import Pairs
from movlr_jax.evolution.screening import (
    OTHER,
    Choice,
    directions,
    expected_worth,
    gate_pairs,
    likeness,
    represent,
)
from movlr_jax.evolution.screening import screen as screen_rewards

NOTHING = Pairs(np.zeros(0, int), np.zeros(0, int), np.zeros(0))
SOUND = np.zeros(6, int)


def screen(returns: np.ndarray, *rest, **options) -> Choice:
    """Screen programs on motions that have one state each."""
    return screen_rewards(returns, returns, *rest, **options)


def returns(*rows: list[float]) -> np.ndarray:
    return np.array(rows, float)


def test_without_comparisons_programs_that_differ_are_chosen():
    """Two pairs of copies, at different scales: one of each pair is an idea of its own."""
    up, zigzag = np.arange(6.0), np.array([0, 1, 0, 1, 0, 1.0])
    found = screen(np.stack([up, 10 * up - 3, zigzag, 2 * zigzag]), 2, NOTHING, SOUND)
    assert found.chosen == [0, 2]
    assert f"only 0 % of what it rewards is new beside {OTHER}" in found.reasons[1]
    assert (found.beside[1], found.beside[3]) == (0, 2)


def test_a_first_generation_stands_for_all_proposals():
    """Two crowds and an odd program: of two, one from each crowd, the one nearest to its others."""
    rng = np.random.default_rng(0)
    crowds, odd, away = rng.normal(size=(2, 200)), rng.normal(size=(1, 200)), 0.2 * rng.normal(size=200)
    first, second = crowds[0] + np.arange(-2, 3)[:, None] * away, crowds[1] + np.array([[0.0], [0.1]]) * away
    rows = np.concatenate([first, odd, second])
    found = represent(rows, 2)
    assert found.chosen[0] == 2
    assert found.chosen[1] in (6, 7)
    assert found.reasons[2] in [f"it stands for {n} of 8 proposals" for n in (5, 6)]
    correlation = np.corrcoef(rows[0], rows[2])[0, 1]
    assert found.beside[0] == 2
    assert found.reasons[0] == f"{OTHER} stands for it: their rewards correlate at {correlation:.2f}"
    kept = represent(rows, 2, kept=[5])
    assert kept.chosen == [5, 2]
    assert kept.reasons[5].startswith("it is always evaluated; it stands for ")


def test_a_first_generation_is_near_the_best_of_all_choices():
    """Three crowds of unequal size: of all choices of three, few come near the best, and this one does."""
    rng = np.random.default_rng(3)
    crowds = rng.normal(size=(3, 60))
    rows = np.concatenate(
        [crowd + 0.05 * rng.normal(size=(n, 60)) for crowd, n in zip(crowds, (6, 3, 3), strict=True)]
    )
    alike = likeness(directions(rows))
    worth = {picked: alike[list(picked)].max(axis=0).sum() for picked in combinations(range(12), 3)}
    best = max(worth.values())
    assert np.mean(np.array(list(worth.values())) < 0.9 * best) > 0.5
    assert worth[tuple(sorted(represent(rows, 3).chosen))] > 0.98 * best


def test_a_first_generation_passes_over_programs_that_are_the_same_everywhere():
    same, up, down = np.full(6, 7.0), np.arange(6.0), np.array([3, 0, 2, 5, 1, 4.0])
    found = represent(np.stack([same, up, down]), 2)
    assert sorted(found.chosen) == [1, 2]
    assert found.reasons == [
        "its reward is the same at all states",
        *["it stands for 1 of 3 proposals"] * 2,
    ]
    assert represent(np.stack([same, up, up]), 2).chosen == [1, 2], "a copy says more than nothing"
    assert (
        represent(np.stack([same, same]), 1, kept=[0]).reasons == ["its reward is the same at all states"] * 2
    )


@pytest.mark.parametrize("choose", [represent, lambda rows, k: screen(rows, k, NOTHING, SOUND[:5])])
def test_nothing_that_could_be_scored_is_no_choice(choose):
    assert choose(np.zeros((0, 5)), 2) == Choice([], [])
    assert choose(np.arange(5.0)[None], 3).chosen == [0]


def test_programs_that_agree_with_the_comparisons_are_chosen_first():
    """Motion 5 won against all others: the program that gives it the most is first."""
    won = Pairs(np.full(5, 5), np.arange(5), np.ones(5))
    against, partly, right = [9, 8, 7, 6, 5, 0], [9, 0, 0, 0, 0, 5], [0, 1, 0, 1, 0, 9]
    found = screen(returns(against, partly, right), 1, won, SOUND)
    assert found.chosen == [2]
    assert found.reasons[2].startswith("its returns agree with 5 of 5 comparisons")
    assert found.reasons[0].startswith("its returns agree with 0 of 5 comparisons")
    assert found.reasons[1].startswith("its returns agree with 4 of 5 comparisons")


def test_ties_and_wrong_answers_count_as_they_should():
    """A tie is no evidence for an order; of 10 answers, the two wrong ones do not outweigh the others."""
    tied = Pairs(np.array([0]), np.array([1]), np.array([0.5]))
    near, far = [1, 1.1, 0, 5, 2, 0], [9, 0, 4, 5, 2, 0]
    assert screen(returns(far, near), 1, tied, SOUND).chosen == [1]
    share = np.ones(10)
    share[:2] = 0.0
    noisy = Pairs(np.full(10, 5), np.arange(10) % 5, share)
    assert screen(returns([5, 4, 3, 2, 1, 0], [0, 1, 2, 1, 0, 9]), 1, noisy, SOUND).chosen == [1]


def test_a_program_that_prefers_caught_motions_is_rejected():
    caught = np.array([0, 0, 0, 2, 2, 3])
    falls, stays = [0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]
    found = screen(returns(falls, stays), 1, NOTHING, caught)
    assert found.chosen == [1]
    assert "put 11 of 11 pairs of a sound and a faulty motion in order" in found.reasons[1]
    assert "put 0 of 11" in found.reasons[0]
    assert len(gate_pairs(caught)) == 3 * 3 + 2


def test_what_is_kept_counts_and_others_differ_from_it():
    up, zigzag = np.arange(6.0), np.array([0, 1, 0, 1, 0, 1.0])
    found = screen(np.stack([up, up, zigzag]), 2, NOTHING, SOUND, kept=[0])
    assert found.chosen == [0, 2]
    assert found.reasons[0] == "it is always evaluated"


def test_a_program_that_is_the_same_everywhere_is_last():
    up, down = np.arange(6.0), np.array([3, 0, 2, 5, 1, 4.0])
    found = screen(np.stack([np.full(6, 7.0), up, down]), 2, NOTHING, SOUND)
    assert sorted(found.chosen) == [1, 2]
    assert found.reasons[0] == "its reward is the same at all states"


def test_worth_is_that_of_programs_that_reward_the_same():
    """Copies of the best and of a bad one of three programs at other scales, and one unlike all of them."""
    states = np.random.default_rng(0).normal(size=(4, 40))
    strengths = np.array([2.0, -1.0, -1.0])
    found = expected_worth(np.stack([5 * states[0] - 3, 2 * states[1], states[3]]), states[:3], strengths)
    assert found[0] > 0.3
    assert found[1] < -0.15
    assert found[0] > found[2] > found[1]
    assert not expected_worth(states, states, np.ones(4)).any(), "equal strengths say nothing"


@pytest.mark.parametrize("shared", [0.0, 10.0])
def test_worth_recovers_a_planted_optimum_from_few_programs(shared: float):
    """Rewards are mixtures of four terms and the worth is a direction in them, known for 8 programs with noise.

    With a large term that all of them share, as the distance from a goal, correlations between programs are 0.99.
    """
    rng = np.random.default_rng(1)
    terms, direction = rng.normal(size=(4, 60)), np.array([0.8, -0.4, 0.4, 0.2])
    weights = rng.normal(size=(208, 4))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    worth, rewards = weights @ direction, weights @ terms + shared * rng.normal(size=60)
    found = expected_worth(rewards[8:], rewards[:8], worth[:8] + 0.2 * rng.normal(size=8))
    assert np.corrcoef(found, worth[8:])[0, 1] > 0.8
    assert found.std() > 0.2, "in standard deviations, else it would not count beside difference"


def test_three_good_motions_of_one_reward_outweigh_a_slightly_better_one_of_another():
    """Three copies of a reward and one unlike them, worth 1, 1, 1 and 1.2, and one of -1: solved by hand."""
    one, other, bad = np.random.default_rng(2).normal(size=(3, 4000))
    programs, worth = np.stack([one, one, one, other, bad]), np.array([1.0, 1.0, 1.0, 1.2, -1.0])
    found = expected_worth(programs, programs, worth)
    # all distances but those of the copies are equal up to chance: covariance exp(-1) between unlike programs
    k = np.exp(-1)
    covariance = np.array(
        [[1, 1, 1, k, k], [1, 1, 1, k, k], [1, 1, 1, k, k], [k, k, k, 1, k], [k, k, k, k, 1]]
    )
    by_hand = covariance @ np.linalg.solve(covariance + np.eye(5), (worth - worth.mean()) / worth.std())
    np.testing.assert_allclose(found, by_hand, atol=0.02)
    assert found[0] > found[3] > found[4]


def test_a_program_of_more_expected_worth_is_chosen():
    rows = returns([0, 1, 2, 3, 4, 5], [3, 0, 2, 5, 1, 4], [5, 0, 5, 0, 5, 0])
    found = screen(rows, 1, NOTHING, SOUND, np.array([-1.0, 1.0, 0.0]))
    assert found.chosen == [1]
    assert found.reasons[0].startswith("its motion is expected to be worth -1.0 (0 is the mean so far")
