"""Gait analysis of one episode: curves over the cycle of each leg, and measures next to people's.

Curves, phases and speed are those of the complete strides after the first two of each leg, so that the start does not
count. Cadence, sizes of the steps and alternation are those of the whole episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from movlr_jax.biomech.gait import events
from movlr_jax.biomech.gait.events import Foot
from movlr_jax.biomech.gait.reference import ANGLES, PERCENT, HumanGait, class_of_speed, human_gait
from movlr_jax.biomech.world import EARTH

SIDES = ("left", "right")
SKIPPED = 2  # strides of each leg at the start that do not count
ON = 0.2  # share of its peak above which a muscle group is active
SILENT = 0.02  # a group whose peak activation is lower is never active


@dataclass(frozen=True)
class GaitRecording:
    """What gait analysis needs of one episode of T control steps; pairs are (left, right)."""

    time: np.ndarray  # [T] s
    com: np.ndarray  # [T, 3] m
    feet: tuple[Foot, Foot]
    force: np.ndarray  # [2, T] N, normal force of the feet
    weight: float  # N
    leg_length: float | None = None  # m, from hip to ground
    gravity: float = EARTH  # m/s^2
    angles: Mapping[str, np.ndarray] = field(default_factory=dict)  # one of ANGLES -> [2, T] deg
    activity: Mapping[str, np.ndarray] = field(default_factory=dict)  # muscle group -> [2, T] activation
    facing: np.ndarray | None = None  # [T, 2] unit vector of the direction in which the pelvis faces


@dataclass(frozen=True)
class LegGait:
    """n strides of one leg, each sampled at PERCENT of its cycle."""

    angles: Mapping[str, np.ndarray]  # angle -> [n, 51] deg
    force: np.ndarray  # [n, 51] vertical force in body weights
    activity: Mapping[str, np.ndarray]  # muscle group -> [n, 51]
    stance: np.ndarray  # [n] share of the cycle in contact
    swing_knee: np.ndarray | None  # [n] deg, largest knee flexion in swing

    def against(self, human: HumanGait) -> dict[str, float]:
        """Return gait_r, gait_rmse_deg, gait_within_sd, knee_swing_deg, stance and force measures, muscle overlap."""
        found = {"stance_percent": 100.0 * float(self.stance.mean())}
        if set(ANGLES) <= set(self.angles):
            mean = {a: self.angles[a].mean(axis=0) for a in ANGLES}
            found["gait_r"] = float(np.mean([correlation(mean[a], human.mean(a)) for a in ANGLES]))
            errors = [np.sqrt(np.mean(np.square(mean[a] - human.mean(a)))) for a in ANGLES]
            found["gait_rmse_deg"] = float(np.mean(errors))
            inside = [(mean[a] >= human.low[a]) & (mean[a] <= human.high[a]) for a in ANGLES]
            found["gait_within_sd"] = float(np.mean(inside))
        if self.swing_knee is not None:
            found["knee_swing_deg"] = float(self.swing_knee.mean())
        force = self.force.mean(axis=0)
        early, late = PERCENT <= 30, (PERCENT > 30) & (PERCENT <= 70)
        found |= {
            "force_r": correlation(force, human.force),
            "force_peak_1_bw": float(force[early].max()),
            "force_peak_2_bw": float(force[late].max()),
        }
        overlaps = [overlap(active(self.activity[m].mean(axis=0)), human.active[m]) for m in self.activity]
        if overlaps:
            found["muscle_overlap"] = float(np.mean(overlaps))
        return found


@dataclass(frozen=True)
class GaitAnalysis:
    """The gait of one episode. A leg without a complete stride after the start is None."""

    legs: tuple[LegGait | None, LegGait | None]
    human: HumanGait  # people at the same class of speed
    speed_m_s: float  # over the strides that count
    walk: Mapping[str, float]  # measures of both legs together

    def record(self) -> dict[str, Any]:
        """Return the analysis as plain numbers, for the record of a run and for charts.

        speed_m_s, speed_class, measures, and legs: side -> strides, measures, angles (angle -> mean and sd [51] deg),
        force (mean [51] in body weights) and activity (muscle group -> mean activation [51]).
        """
        legs = {}
        for side, leg in zip(SIDES, self.legs, strict=True):
            if leg is None:
                continue
            legs[side] = {
                "strides": len(leg.stance),
                "measures": {name: _short(value) for name, value in leg.against(self.human).items()},
                "angles": {
                    name: {"mean": _short(curves.mean(axis=0)), "sd": _short(curves.std(axis=0))}
                    for name, curves in leg.angles.items()
                },
                "force": _short(leg.force.mean(axis=0)),
                "activity": {name: _short(curves.mean(axis=0)) for name, curves in leg.activity.items()},
            }
        return {
            "speed_m_s": _short(self.speed_m_s),
            "speed_class": self.human.speed_class,
            "measures": {name: _short(value) for name, value in self.measures().items()},
            "legs": legs,
        }

    def measures(self, sides: Sequence[str] = SIDES) -> dict[str, float]:
        """Return the measures of the walk; those of a leg are of the one of `sides` that is farther from people.

        gait_r (mean over hip, knee and ankle of Pearson's r between the mean curve and people's), gait_rmse_deg,
        gait_within_sd (share of the cycle within one standard deviation), knee_swing_deg (largest knee flexion in
        swing), stance_percent, force_r, force_peak_1_bw, force_peak_2_bw, muscle_overlap (Jaccard index of the
        phases of activity), cadence_steps_min, step_length_m, step_width_m, walk_ratio
        (step length over cadence, m/(steps/min)), gait_speed_m_s, double_support_percent,
        single_support_percent, alternation, gait_strides.
        """
        found = dict(self.walk)
        legs = [self.legs[SIDES.index(side)] for side in sides]
        of_legs = [leg.against(self.human) for leg in legs if leg]
        for name in sorted(set().union(*of_legs)):
            values = [leg[name] for leg in of_legs if name in leg]
            found[name] = max(values, key=lambda v, n=name: abs(v - _BEST[n]) if n in _BEST else -v)
        return found


# the value of people, from which the worse leg is farther; of other measures, less is worse
_BEST = {"stance_percent": 60.0, "gait_rmse_deg": 0.0, "force_peak_1_bw": 1.05, "force_peak_2_bw": 1.14}


def analyse(recording: GaitRecording) -> GaitAnalysis | None:
    """Analyse the gait of an episode; None if no leg completes a stride after the first two."""
    strides = [foot.strides[SKIPPED:] for foot in recording.feet]
    counted = [stride for leg in strides for stride in leg]
    if not counted:
        return None
    begin, end = min(a for a, _ in counted), max(b for _, b in counted)
    time, contact = recording.time, np.stack([foot.contact for foot in recording.feet])
    # of each leg over its own strides, so that every part of the cycle counts equally
    spans = [(side, slice(own[0][0], own[-1][1])) for side, own in enumerate(strides) if own]
    double = [float(contact[:, span].all(axis=0).mean()) for _, span in spans]
    single = [float((contact[side, span] & ~contact[1 - side, span]).mean()) for side, span in spans]
    seconds = float(time[end] - time[begin])
    speed = float(np.linalg.norm((recording.com[end] - recording.com[begin])[:2])) / seconds
    human = human_gait(class_of_speed(speed, recording.leg_length or 0.9, recording.gravity))
    legs = tuple(_leg(recording, side, strides[side]) if strides[side] else None for side in (0, 1))
    left, right = recording.feet
    _, sides = events.strikes_in_order(left, right)
    walk = {
        "gait_strides": float(min(len(leg) for leg in strides)),
        "gait_speed_m_s": speed,
        "double_support_percent": 100.0 * float(np.mean(double)),
        "single_support_percent": 100.0 * min(single),
        "alternation": float(np.mean(sides[1:] != sides[:-1])) if len(sides) > 1 else 0.0,
    }
    cadence = events.cadence(time, left, right)
    length, width = events.step_size(time, recording.com, left, right)
    if cadence:
        walk["cadence_steps_min"] = cadence
    if length is not None and width is not None:
        walk |= {"step_length_m": length, "step_width_m": width}
        if cadence:
            walk["walk_ratio"] = length / cadence
    return GaitAnalysis((legs[0], legs[1]), human, speed, walk)


def _leg(recording: GaitRecording, side: int, strides: list[tuple[int, int]]) -> LegGait:
    foot, time = recording.feet[side], recording.time

    def cycles(values: np.ndarray) -> np.ndarray:
        """Return [n, 51] of `values` [T]."""
        at = [time[a] + (time[b] - time[a]) * PERCENT / 100.0 for a, b in strides]
        return np.array([np.interp(t, time, values) for t in at])

    lifts = [foot.lift(a, b) for a, b in strides]
    knee = recording.angles.get("knee_flexion")
    return LegGait(
        angles={name: cycles(values[side]) for name, values in recording.angles.items()},
        force=cycles(recording.force[side]) / recording.weight,
        activity={name: cycles(values[side]) for name, values in recording.activity.items()},
        stance=np.array(
            [(time[lift] - time[a]) / (time[b] - time[a]) for (a, b), lift in zip(strides, lifts, strict=True)]
        ),
        swing_knee=None if knee is None else foot.peaks_in_swing(knee[side], strides),
    )


def _short(values: Any) -> Any:
    """Return numbers with four significant digits, as a list if there are several."""
    if np.ndim(values):
        return [_short(v) for v in values]
    return float(f"{float(values):.4g}")


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Pearson's r of two curves; 0 if one of them is constant."""
    x, y = x - x.mean(), y - y.mean()
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / size if size > 1e-9 else 0.0


def active(activation: np.ndarray) -> np.ndarray:
    """Return whether [51] a muscle group is active: above ON of its peak, if that is not below SILENT."""
    peak = float(activation.max())
    return (activation >= ON * peak) & (peak >= SILENT)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Return the Jaccard index of two phases of activity [51] bool: shared over total duration."""
    either = float(np.sum(a | b))
    return float(np.sum(a & b)) / either if either else 1.0
