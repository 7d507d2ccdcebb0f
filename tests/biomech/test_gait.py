"""Gait analysis of walks made of numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_walk import made_walk

from movlr_jax.biomech.gait import degenerate
from movlr_jax.biomech.gait.analysis import GaitAnalysis, active, analyse, correlation, overlap
from movlr_jax.biomech.gait.criteria import GaitCriteria
from movlr_jax.biomech.gait.events import Foot, ground_force, symmetry
from movlr_jax.biomech.gait.reference import PERCENT, human_gait


def analysed(**changes: float) -> GaitAnalysis:
    analysis = analyse(made_walk(**changes))
    assert analysis is not None
    return analysis


def test_hops_on_one_leg_and_then_on_the_other_do_not_alternate():
    time = 0.02 * np.arange(200)

    def hopping(*strikes: int) -> Foot:
        contact = np.zeros(200, bool)
        for at in strikes:
            contact[at : at + 8] = True
        return Foot(contact, np.array(strikes), np.zeros((200, 3)), np.zeros((200, 2)))

    com = np.stack([time, 0 * time, 0 * time + 1], axis=1)
    assert symmetry(time, com, hopping(10, 30, 50, 70), hopping(90, 110, 130, 150)) == 0.0
    assert symmetry(time, com, hopping(10, 50, 90, 130), hopping(30, 70, 110, 150)) > 0.9


def test_the_reference_has_the_values_of_its_sources():
    free = human_gait("free")
    knee, hip, ankle = (free.mean(a) for a in ("knee_flexion", "hip_flexion", "ankle_dorsiflexion"))
    assert 58 <= knee.max() <= 61  # Schwartz et al. (2008): 59 at free speed
    assert PERCENT[knee.argmax()] == 72
    assert hip[0] == pytest.approx(35.9, abs=0.5)
    assert hip.min() == pytest.approx(-5.8, abs=0.5)
    assert ankle.min() < -15
    assert [round(human_gait(c).mean("knee_flexion").max()) for c in ("very_slow", "slow")] == [45, 55]
    assert free.force[7] == pytest.approx(1.05)  # 14 % of the cycle
    assert free.force[15] == pytest.approx(0.80)  # 30 %
    assert free.force[24] == pytest.approx(1.14)  # 48 %
    assert PERCENT[free.active["soleus"]].tolist() == list(range(8, 51, 2))


def test_a_walk_that_follows_people_scores_one():
    found = analysed().measures()
    assert found["gait_r"] == pytest.approx(1.0, abs=1e-3)
    assert found["gait_rmse_deg"] < 0.5
    assert found["gait_within_sd"] == 1.0
    assert found["knee_swing_deg"] == pytest.approx(human_gait("free").mean("knee_flexion").max(), abs=0.5)
    assert found["stance_percent"] == pytest.approx(62, abs=1.5)
    assert found["double_support_percent"] == pytest.approx(24, abs=1.5)
    assert found["single_support_percent"] == pytest.approx(38, abs=1.5)
    assert found["alternation"] == 1.0
    assert found["cadence_steps_min"] == pytest.approx(2 * 60 / 1.1, rel=1e-2)
    assert found["step_length_m"] == pytest.approx(1.2 * 0.55, rel=2e-2)
    assert found["walk_ratio"] == pytest.approx(0.66 / (120 / 1.1), rel=2e-2)
    assert found["muscle_overlap"] > 0.9
    assert found["force_r"] > 0.9
    assert found["force_peak_1_bw"] == pytest.approx(1.05, abs=0.01)
    assert found["force_peak_2_bw"] == pytest.approx(1.14, abs=0.01)


def test_a_walk_is_compared_with_people_of_its_own_speed():
    slow = analysed(speed=0.5, speed_class="very_slow", stride_s=1.5)
    assert slow.human.speed_class == "very_slow"
    assert slow.measures()["gait_r"] == pytest.approx(1.0, abs=1e-3)


def test_the_first_two_strides_do_not_count():
    made = made_walk()
    angles = {a: values.copy() for a, values in made.angles.items()}
    for values in angles.values():
        values[:, : round(1.9 / 0.01)] = 200.0
    found = analyse(replace(made, angles=angles))
    assert found is not None
    assert found.measures()["gait_r"] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("seconds", [0.05, 1.0, 2.0])
def test_a_motion_without_enough_strides_has_no_analysis(seconds: float):
    assert analyse(made_walk(seconds=seconds)) is None


def test_measures_are_those_of_the_worse_leg_or_of_the_legs_that_are_asked_for():
    made = made_walk()
    angles = {a: values.copy() for a, values in made.angles.items()}
    angles["knee_flexion"][1] = 3.0  # the right knee is locked
    found = analyse(replace(made, angles=angles))
    assert found is not None
    assert found.measures()["knee_swing_deg"] == pytest.approx(3.0)
    assert found.measures()["gait_r"] == pytest.approx(2 / 3, abs=1e-3)  # a constant curve has r = 0
    assert found.measures(["left"])["gait_r"] == pytest.approx(1.0, abs=1e-3)


def test_correlation_and_overlap_by_hand():
    assert correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])) == pytest.approx(1.0)
    assert correlation(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    assert correlation(np.ones(3), np.array([1.0, 2.0, 3.0])) == 0.0
    assert overlap(np.array([1, 1, 0, 0], bool), np.array([0, 1, 1, 0], bool)) == pytest.approx(1 / 3)
    assert active(np.array([0.0, 0.05, 0.2, 1.0])).tolist() == [False, False, True, True]
    assert not active(np.full(4, 0.01)).any()


def test_a_swinging_foot_that_touches_the_other_leg_is_not_on_the_ground():
    """Heel contact with raised toes and push-off with a raised heel count; 200 N at 7 cm do not."""
    heel = np.array([0.05, 0.05, 0.05, 0.12, 0.25, 0.05])
    toes = np.array([0.10, 0.01, 0.01, 0.01, 0.08, 0.10])
    force = np.array([300.0, 700.0, 700.0, 600.0, 200.0, 300.0])
    assert ground_force(force, heel, toes).tolist() == [300.0, 700.0, 700.0, 600.0, 0.0, 300.0]
    raised = ground_force(force, heel + 2.0, toes + 2.0)  # bodies of another model lie higher in its feet
    assert raised.tolist() == [300.0, 700.0, 700.0, 600.0, 0.0, 300.0]


# What counts as a walk.

PEOPLE = {
    "gait_r": 0.97,
    "knee_swing_deg": 60.0,
    "symmetry": 0.95,
    "foot_clearance_m": 0.03,
    "single_support_percent": 39.0,
    "alternation": 1.0,
    "stance_percent": 61.0,
}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gait_r", 0.3, "0.30"),
        ("knee_swing_deg", 4.6, "knees stay locked: 5 degrees in swing, people 45-60"),
        ("foot_clearance_m", 0.004, "0.004 m"),
        ("stance_percent", 80.0, "80 %"),
        ("stance_percent", 40.0, "40 %"),
    ],
)
def test_each_criterion_is_missed_in_words_and_lowers_the_quality(name: str, value: float, words: str):
    missed = GaitCriteria().shortfalls(PEOPLE | {name: value})
    assert list(missed) == [name]
    assert words in missed[name]
    assert 0.7 < GaitCriteria().quality(PEOPLE | {name: value}) < 1.0


def test_locked_knees_are_told_with_their_number():
    made = made_walk()
    locked = replace(made, angles=made.angles | {"knee_flexion": np.full_like(made.angles["knee_flexion"], 5.0)})
    found = degenerate.faults(locked, GaitCriteria(), fell=False)
    assert found == {"locked_knees": "knees stay locked: 5 degrees in swing, people 45-60"}
    assert degenerate.faults(locked, GaitCriteria(knee_swing_deg=None), fell=False) == {}


def test_a_turn_that_was_asked_for_is_no_spin():
    made = made_walk(seconds=4.0)
    way = np.linspace(0.0, math.radians(350.0), len(made.time))
    turning = replace(made, facing=np.stack([np.cos(way), np.sin(way)], axis=-1))
    assert list(degenerate.faults(turning, GaitCriteria(), fell=False)) == ["spin"]
    assert "spin" not in degenerate.faults(turning, GaitCriteria(), fell=False, turn=math.radians(350.0))
