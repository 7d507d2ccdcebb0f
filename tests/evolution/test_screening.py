"""Screening by returns: agreement, gates and difference, each on returns that were made up."""

from __future__ import annotations

import numpy as np

from movlr_jax.evolution.preferences import Pairs
from movlr_jax.evolution.screening import gate_pairs, screen

NOTHING = Pairs(np.zeros(0, int), np.zeros(0, int), np.zeros(0))
SOUND = np.zeros(6, int)


def returns(*rows: list[float]) -> np.ndarray:
    return np.array(rows, float)


def test_without_comparisons_programs_that_differ_are_chosen():
    """Two pairs of copies, at different scales: one of each pair is an idea of its own."""
    up, zigzag = np.arange(6.0), np.array([0, 1, 0, 1, 0, 1.0])
    found = screen(np.stack([up, 10 * up - 3, zigzag, 2 * zigzag]), 2, NOTHING, SOUND)
    assert found.chosen == [0, 2]
    assert "only 0 % of its profile of returns is new beside proposal 0" in found.reasons[1]
    assert "beside proposal 2" in found.reasons[3]


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
    assert found.reasons[0] == "its return is the same for all motions"
