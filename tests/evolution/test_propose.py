"""What a request for programs tells of those that were tried before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from movlr_jax.evolution.population import Population
from movlr_jax.evolution.propose import Brief, losses, results
from movlr_jax.records import Comparison, Evaluation, Trial


def tried(generation: int, index: int, **given: Any) -> Evaluation:
    return Evaluation(generation, index, "", **given)


def test_programs_of_all_generations_are_told_with_the_latest_first_and_why_each_lost():
    parent = tried(0, 1)
    history = [tried(0, 0), parent, tried(0, 2, reason="it diverged"), tried(1, 0), tried(1, 1)]
    lost = Comparison("first", "it stays on its feet", first="g00k01", second="g00k00")
    again = Comparison("second", "the arm hangs", first="g01k01", second="g00k01")
    compared = [lost, again]  # one in each generation
    context: Any = SimpleNamespace(
        journal=SimpleNamespace(comparisons=lambda before: compared[:before], notes=lambda: {"g01k00": "lifts more"}),
        scored=False,
        task=SimpleNamespace(scoring=SimpleNamespace(motion=None)),
    )
    told = losses(context, 2, parent, Brief(parent, None, history), Population())
    assert [loss.note for loss in told] == ["", "lifts more", "", ""]
    assert [(loss.candidate.name, loss.reason) for loss in told] == [
        ("g01k01", "as the first motion it lost against the second: the arm hangs"),
        ("g01k00", "it is not the best program"),
        ("g00k02", "it diverged"),
        ("g00k00", "as the second motion it lost against the first: it stays on its feet"),
    ]


def test_results_of_an_environment_have_the_spread_of_its_return_and_both_ends():
    """Of 10, 20 and 60: mean 30, standard deviation sqrt(700), standard error of the mean 15.3."""
    scoring = SimpleNamespace(motion=None, score=lambda metrics: metrics["return"])
    context: Any = SimpleNamespace(scored=True, task=SimpleNamespace(scoring=scoring))
    trials = [Trial(metrics={"return": value}) for value in (20.0, 60.0, 10.0)]
    assert results(context, trials) == (
        "3 trials: return 30 (standard error of the return 15); the poorest: return 10; the best: return 60"
    )
    assert results(context, trials[:1]) == "1 trial: return 20"
    assert results(context, []) == ""
