"""Which weights of a program are adopted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from movlr_jax.evolution.weight_variants import adopt, rescaled, with_variants
from movlr_jax.language.base import Evaluation
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.vet import Verdict

TASK: Any = SimpleNamespace(score=lambda metrics: metrics["distance_m"])


def row(distance_m: float, **more: Any) -> Evaluation:
    return Evaluation(0, 0, "", weights={"w": distance_m}, metrics={"distance_m": distance_m}, **more)


def adopted(*rows: Evaluation) -> float:
    best, told = adopt(TASK, rows, 0, 1)
    assert told is not None
    assert told["tried"][told["adopted"]]["weights"] == best.weights
    return best.weights["w"]


def test_the_highest_score_is_adopted_and_of_equals_the_first():
    assert adopted(row(1.0), row(3.0), row(2.0)) == 3.0
    best, _ = adopt(TASK, (row(3.0, curve_time=[0.0]), row(3.0)), 0, 1)
    assert best.curve_time == [0.0]


def test_a_degenerate_motion_is_not_adopted_for_its_distance():
    locked = {"locked_knees": "knees stay locked: 2 degrees in swing, people 45-60"}
    assert adopted(row(1.0), row(6.0, faults=locked)) == 1.0
    assert adopted(row(1.0, reason="it diverged", stage="run"), row(0.5, faults=locked)) == 0.5


def test_candidates_of_one_batch_are_told_apart():
    best, _ = adopt(TASK, (row(1.0), row(9.0), row(2.0), row(8.0)), 0, 2)
    assert best.weights == {"w": 2.0}


PROGRAM = 'WEIGHTS = {weights}\n\n\ndef reward(state, action):\n    return {{"a": 1.0, "b": state.time}}\n'


@pytest.mark.parametrize(
    ("weights", "limits", "expected"),
    [
        ('{"a": 200.0, "b": 50.0}', (0.0, 1.0), '{"a": 1, "b": 0.25}'),
        ('{"a": 0.5, "b": 1.0}', (0.0, 1.0), '{"a": 0.5, "b": 1.0}'),  # as it was written
        ('{"a": 200.0, "b": 50.0}', None, '{"a": 200.0, "b": 50.0}'),
        ('{"a": -4.0, "b": 1.0}', (0.0, 2.0), '{"a": -2, "b": 0.5}'),  # no scale makes it positive
    ],
)
def test_a_given_program_keeps_the_ratios_of_its_weights(weights: str, limits, expected: str):
    assert rescaled(PROGRAM.format(weights=weights), limits) == PROGRAM.format(weights=expected)


def test_a_given_program_that_is_not_python_is_left_to_vetting():
    assert rescaled("x = = 1", (0.0, 1.0)) == "x = = 1"


def test_variants_stay_in_the_range_of_the_method():
    source = PROGRAM.format(weights='{"a": 1.0, "b": 0.9}')
    program = RewardProgram(source, "", {"a": 1.0, "b": 0.9}, "", None)  # pyright: ignore
    verdict = Verdict("probe", None, 0.0, program)
    free, kept = (with_variants([verdict], 20, 0, 0, limits)[1:] for limits in (None, (0.0, 1.0)))
    assert any(max(v.program.weights.values()) > 1 for v in free), "the range is what keeps them in"
    assert all(0 < w <= 1 for v in kept for w in v.program.weights.values())
    ratios = [[v.program.weights["a"] / v.program.weights["b"] for v in rows] for rows in (free, kept)]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-3)
