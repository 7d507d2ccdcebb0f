"""How people walk: joint angles over the gait cycle by speed, muscle phases, vertical force.

The numbers and their sources are in assets/gait_reference.json.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from movlr_jax._util.resources import resource_text
from movlr_jax.biomech.world import EARTH

ANGLES = ("hip_flexion", "knee_flexion", "ankle_dorsiflexion")
PERCENT = np.linspace(0.0, 100.0, 51)  # of the gait cycle; every curve is sampled here
# muscle groups of the models, by their names in the table of phases, except the vasti
MUSCLES = ("gluteus_maximus", "gluteus_medius", "iliacus", "rectus_femoris", "vasti", "biceps_femoris")
MUSCLES += ("gastrocnemius", "soleus", "tibialis_anterior")


@dataclass(frozen=True)
class HumanGait:
    """Curves of people at one class of speed, at PERCENT of the gait cycle, which begins with the foot strike."""

    speed_class: str
    low: Mapping[str, np.ndarray]  # angle -> [51] deg, one standard deviation below the mean
    high: Mapping[str, np.ndarray]  # angle -> [51] deg, one standard deviation above the mean
    force: np.ndarray  # [51] vertical force in body weights, at 1.2 m/s
    active: Mapping[str, np.ndarray]  # muscle group -> [51] bool, whether it is active

    def mean(self, angle: str) -> np.ndarray:
        """Return the mean curve [51] of `angle` in deg, flexion and dorsiflexion positive."""
        return 0.5 * (self.low[angle] + self.high[angle])


@functools.cache
def _table() -> dict:
    return json.loads(resource_text("assets", "gait_reference.json"))


def speed_classes() -> Mapping[str, float]:
    """Return class -> largest dimensionless speed v / sqrt(g L) of it, from slow to fast."""
    return _table()["speed_classes"]


def class_of_speed(speed_m_s: float, leg_length_m: float, gravity: float = EARTH) -> str:
    """Return the class of a walking speed. People of `leg_length_m` (hip to ground) walk so; faster ones run.

    gravity: m/s^2.
    """
    dimensionless = speed_m_s / np.sqrt(gravity * leg_length_m)
    classes = speed_classes()
    return next((name for name, most in classes.items() if dimensionless < most), list(classes)[-1])


@functools.cache
def human_gait(speed_class: str) -> HumanGait:
    """Return the curves of people at a class of speed: very_slow, slow, free or fast."""
    from scipy.interpolate import PchipInterpolator  # slow to import

    table = _table()
    phases = {**table["active_percent"], "vasti": table["active_percent"]["vastus_lateralis"]}
    bounds = {
        side: {a: np.asarray(table["angles"][speed_class][a][side], float) for a in ANGLES}
        for side in ("low", "high")
    }
    force = table["vertical_force"]
    return HumanGait(
        speed_class,
        bounds["low"],
        bounds["high"],
        PchipInterpolator(force["percent"], force["body_weights"])(PERCENT),
        {
            group: np.any([(on <= PERCENT) & (off >= PERCENT) for on, off in phases[group]], axis=0)
            for group in MUSCLES
        },
    )
