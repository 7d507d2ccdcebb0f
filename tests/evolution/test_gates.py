"""What a task's numbers overrule a judge with, and what they leave to it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from movlr_jax.evolution.calibration import recorded_verdicts
from movlr_jax.evolution.gates import by_gates, gated
from movlr_jax.evolution.pairwise import Presentation
from movlr_jax.evolution.rank import compare_all
from movlr_jax.records import Comparison, Evaluation, Preference, Ranking

FAULTS = {"it fell": {"fell": 1.0}, "it fell after 2.3 s": {"fell": 1.0, "time_to_fall_s": 2.26},
          "it dropped the object": {"dropped": 1.0},
          "the simulation diverged": {"diverged_fraction": 0.5}}  # fmt: skip


def candidate(k: int, **metrics: float) -> Evaluation:
    return Evaluation(0, k, "", metrics={"fell": 0.0, "dropped": 0.0, "diverged_fraction": 0.0, **metrics})


@pytest.mark.parametrize("why", FAULTS)
@pytest.mark.parametrize("said", ["first", "tie"])
def test_who_has_a_fault_does_not_win_and_the_disagreement_is_kept(why: str, said):
    result = gated(Preference(said, "more natural"), candidate(0, **FAULTS[why]), candidate(1))
    assert (result.winner, result.reason) == ("second", f"g00k00: {why}")
    assert result.overruled == f"the judge answered {said}: more natural"
    other = gated(Preference({"first": "second"}.get(said, said), ""), candidate(1), candidate(0, **FAULTS[why]))
    assert other.winner == "first"
    assert other.overruled


@pytest.mark.parametrize(("metrics", "said"), [({}, "first"), ({"fell": 1.0}, "second"), ({"dropped": 1.0}, "tie")])
def test_between_equals_and_where_they_agree_the_judge_has_the_last_word(metrics: dict[str, float], said):
    preference = Preference(said, "as it looks")
    assert gated(preference, candidate(0, **metrics), candidate(1, **metrics)) is preference
    right = Preference("second", "it stands")
    assert gated(right, candidate(0, fell=1.0), candidate(1)) is right


def walker(k: int, **faults: str) -> Evaluation:
    return Evaluation(0, k, "", metrics={"fell": 0.0}, faults=faults)


def test_a_degenerate_walk_does_not_win_against_a_walk_and_a_fall_not_against_either():
    said = Preference("first", "it is faster")
    locked = walker(0, locked_knees="knees stay locked: 5 degrees in swing, people 45-60")
    result = gated(said, locked, walker(1))
    assert (result.winner, result.reason) == ("second", f"g00k00: {locked.faults['locked_knees']}")
    assert gated(said, candidate(0, fell=1.0), replace(locked, candidate=1)).winner == "second"
    assert gated(said, locked, walker(1, drag="it drags the left foot")) is said
    assert gated(said, locked, candidate(1, diverged_fraction=0.5)) is said


def test_a_pair_that_a_gate_decides_before_a_person_is_asked_is_no_verdict_of_theirs():
    context: Any = SimpleNamespace(
        config=SimpleNamespace(gates=True),
        roles=SimpleNamespace(showing=Presentation(1, 2, gates_first=True), judge=None),
        task=None,
    )
    (decided,) = compare_all(context, [(candidate(0, fell=1.0), candidate(1))], [0])
    assert decided.winner == "second"
    assert recorded_verdicts([Ranking(comparisons=[Comparison.of("g00k00", "g00k01", decided)])]) == {}


def test_an_early_end_is_worth_what_the_return_of_the_environment_says():
    fallen, standing = candidate(0, environment_return=700.0, fell=1.0), candidate(1, environment_return=20.0)
    assert by_gates(fallen, standing) is None
    assert by_gates(candidate(0, fell=1.0), candidate(1)) == Preference("second", "g00k00: it fell")
    diverged = candidate(0, environment_return=900.0, diverged_fraction=0.1)
    assert by_gates(diverged, standing) == Preference("second", "g00k00: the simulation diverged")
