"""Which weights of a program are adopted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from movlr_jax.evolution.weight_variants import adopt
from movlr_jax.language.base import Evaluation

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
