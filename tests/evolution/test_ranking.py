"""Bradley-Terry strengths against choix, and who is found best by good, biased and noisy judges."""

from __future__ import annotations

from collections.abc import Callable

import choix
import numpy as np
import pytest

from movlr_jax.errors import UserError
from movlr_jax.evolution import pairwise
from movlr_jax.evolution.pairwise import Strengths, fit, flip_rate, to_people
from movlr_jax.records import Comparison, Preference

Compare = Callable[[int, int], Preference]


def rank(n: int, compare: Compare, *settings, **more) -> Strengths:
    """With a judge that is asked one by one."""
    return pairwise.rank(range(n), lambda pairs: [compare(i, j) for i, j in pairs], *settings, **more)


class Judge:
    """Prefers the stronger with probability 1 / (1 + exp(-slope * difference)), the first shown by `bias` more."""

    def __init__(self, strengths, slope: float = np.inf, bias: float = 0.0, seed: int = 0):
        self.strengths, self.slope, self.bias = np.asarray(strengths, float), slope, bias
        self.rng, self.calls = np.random.default_rng(seed), []

    def __call__(self, first: int, second: int) -> Preference:
        self.calls.append((first, second))
        difference = self.strengths[first] - self.strengths[second]
        if np.isinf(self.slope):
            return Preference("first" if difference > 0 else "second", "it is better")
        chance = 1 / (1 + np.exp(-(self.slope * difference + self.bias)))
        return Preference("first" if self.rng.random() < chance else "second", "")


def tournament(n: int, games: int, seed: int) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Random games as (winner, loser), and as wins [n, n]."""
    rng = np.random.default_rng(seed)
    strengths, data, wins = rng.normal(size=n), [], np.zeros((n, n))
    for _ in range(games):
        i, j = rng.choice(n, 2, replace=False)
        if rng.random() > 1 / (1 + np.exp(strengths[j] - strengths[i])):
            i, j = j, i
        data.append((int(i), int(j)))
        wins[i, j] += 1
    return data, wins


@pytest.mark.parametrize(("n", "games", "variance"), [(2, 5, 4.0), (5, 12, 0.5), (8, 200, 4.0)])
def test_fit_is_that_of_choix(n: int, games: int, variance: float):
    """choix penalises alpha * |s|^2, which is a Gaussian prior of variance 1 / (2 alpha)."""
    data, wins = tournament(n, games, seed=n)
    strengths, _ = fit(n, wins, variance)
    expected = choix.opt_pairwise(n, data, alpha=1 / (2 * variance), tol=1e-14, max_iter=5000)
    np.testing.assert_allclose(strengths - strengths.mean(), expected - expected.mean(), atol=1e-6)
    assert abs(strengths.sum()) < 1e-8, "the prior centres them"


def log_posterior(s: np.ndarray, wins: np.ndarray, variance: float) -> float:
    likelihood = -sum(wins[i, j] * np.log1p(np.exp(s[j] - s[i])) for i in range(len(s)) for j in range(len(s)))
    return likelihood - 0.5 * (s**2).sum() / variance


def test_fit_is_the_top_of_the_posterior_and_the_covariance_its_curvature():
    """By finite differences of the log posterior; halves (ties) included."""
    _, wins = tournament(4, 15, seed=3)
    wins[0, 1] += 0.5
    wins[1, 0] += 0.5
    s, covariance = fit(4, wins, 2.0)
    h, basis = 1e-4, np.eye(4)

    def at(*steps: np.ndarray) -> float:
        return log_posterior(s + h * np.sum(steps, axis=0), wins, 2.0)

    gradient = [(at(e) - at(-e)) / (2 * h) for e in basis]
    np.testing.assert_allclose(gradient, 0, atol=1e-6)
    curvature = [[(at(a, b) - at(a, -b) - at(-a, b) + at(-a, -b)) / (4 * h * h) for a in basis] for b in basis]
    np.testing.assert_allclose(np.linalg.inv(covariance), -np.array(curvature), atol=1e-5)


@pytest.mark.parametrize("scheme", ["active", "round_robin"])
def test_a_judge_who_answers_by_position_gives_ties(scheme: str):
    result = rank(4, lambda first, second: Preference("first", "it came first"), scheme)
    np.testing.assert_allclose(result.strengths, 0, atol=1e-9)
    assert flip_rate(result.comparisons) == 1
    assert result.order == [0, 1, 2, 3]
    assert result.p_best.max() < 0.5


SILENT = Preference("none", "the answer is empty", answered=False)


@pytest.mark.parametrize(("scheme", "calls"), [("active", 6), ("round_robin", 12), ("knockout", 6), ("paper", 3)])
def test_silence_ranks_nobody_and_keeps_who_stood(scheme: str, calls: int):
    """Who stands is the first entrant. Once everybody has met and nobody has heard an answer, asking ends."""
    asked = []

    def silent(first: int, second: int) -> Preference:
        asked.append((first, second))
        return SILENT

    result = rank(4, silent, scheme, entrants=[2, 0, 1, 3])
    assert result.order[0] == 2
    assert result.unranked == {0, 1, 2, 3}
    assert len(asked) == calls
    assert flip_rate(result.comparisons) == 0


def test_each_meeting_of_a_pair_is_a_flip_or_none():
    """`first` and `second` are what the judge says; 0 wins the first meeting, 1 the second, in both orders."""
    meetings = [(0, 1, "first"), (1, 0, "second"), (0, 1, "second"), (1, 0, "first")]
    assert flip_rate([Comparison.of(i, j, Preference(said, "")) for i, j, said in meetings]) == 0
    one_order = [(0, 1, "first"), (0, 1, "second")]
    assert flip_rate([Comparison.of(i, j, Preference(said, "")) for i, j, said in one_order]) == 0
    flipped = [*meetings, (0, 1, "first"), (1, 0, "first")]
    assert flip_rate([Comparison.of(i, j, Preference(said, "")) for i, j, said in flipped]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("n", [2, 5, 13])
def test_a_perfect_judge_finds_the_best_within_the_budget(n: int):
    strengths = np.random.default_rng(n).permutation(n)
    judge = Judge(strengths)
    result = rank(n, judge)
    assert result.order[0] == strengths.argmax()
    assert len(judge.calls) == len(result.comparisons) <= 4 * n
    assert flip_rate(result.comparisons) == 0


def test_the_paper_shows_each_newcomer_first_and_once():
    judge = Judge([1, 3, 2, 5])
    assert rank(4, judge, "paper").order[0] == 3
    assert judge.calls == [(1, 0), (2, 1), (3, 1)]


def test_what_was_compared_before_counts():
    """Four are known, two are new: nobody old meets anybody old again, unless for the lead."""
    strengths = np.array([1.0, 3.0, 2.0, 0.0, 5.0, 4.0])
    before = rank(4, Judge(strengths), "round_robin")
    judge = Judge(strengths)
    result = rank(6, judge, earlier=before.comparisons, entrants=[1, 4, 5])
    assert result.order[0] == 4
    assert {frozenset(pair) for pair in judge.calls[:4]} == {frozenset((1, 4)), frozenset((4, 5))}
    assert all(4 in pair for pair in judge.calls[2:]), "then the leader meets the likeliest challengers"
    assert len(judge.calls) <= 12
    assert flip_rate(result.comparisons) == 0
    together = fit(6, pairwise.wins_of(range(6), [*before.comparisons, *result.comparisons]))[0]
    np.testing.assert_array_equal(result.strengths, together)


def test_top_1_of_ten_with_a_biased_judge():
    """200 trials, first shown favoured by 0.8 logits: active pairs in both orders find the best most often."""
    found: dict[str, int] = dict.fromkeys(("active", "knockout", "paper"), 0)
    for seed in range(200):
        strengths = np.random.default_rng(seed).normal(size=10)
        for scheme in found:
            judge = Judge(strengths, slope=1.5, bias=0.8, seed=10_000 + seed)
            result = rank(10, judge, scheme, 40 if scheme == "active" else None)
            found[scheme] += result.order[0] == strengths.argmax()
            assert len(judge.calls) <= {"active": 40, "knockout": 18, "paper": 9}[scheme]
    assert found["active"] > 0.66 * 200, found
    assert found["active"] > found["knockout"] + 15 > found["paper"] + 15, found


@pytest.mark.parametrize(("raters", "scheme"), [(1, "round_robin"), (2, "active"), (3, "knockout")])
def test_each_pair_is_shown_to_every_rater(raters: int, scheme: str):
    judge = Judge(np.arange(5), slope=1.0)
    rank(5, judge, scheme, presentation=to_people(raters))
    meetings = [judge.calls[i : i + raters] for i in range(0, len(judge.calls), raters)]
    assert all(len({frozenset(call) for call in meeting}) == 1 for meeting in meetings)
    assert all(len({*meeting}) == min(raters, 2) for meeting in meetings), "the places change"
    with pytest.raises(UserError, match=f"at least {4 * raters} comparisons"):
        rank(5, judge, budget=4 * raters - 1, presentation=to_people(raters))
