"""What makes a motion a walk, and how close a motion is to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from movlr_jax.errors import UserError, unknown_name

LEGS = {"both": ("left", "right"), "healthy": ("left", "right"), "left": ("left",), "right": ("right",)}


@dataclass(frozen=True)
class GaitCriteria:
    """Limits of a walk; null means that a limit does not apply."""

    gait_r: float | None = 0.7  # at least; correlation of joint angles over the cycle with people's
    knee_swing_deg: float | None = 30.0  # at least; largest knee flexion in swing, 60 in people
    symmetry: float | None = 0.8  # at least; 1 for equal legs
    clearance_m: float | None = 0.01  # at least; height of the feet in swing
    stance_percent: tuple[float, float] | None = (50.0, 70.0)  # of the cycle in contact, 60 in people
    single_support_percent: float | None = 20.0  # at least; of the cycle on each leg alone, 40 in people
    alternation: float | None = 0.9  # at least; share of foot strikes that follow one of the other foot
    trunk_tilt_deg: float | None = None  # at most; mean angle between the trunk and its start orientation
    legs: str = "both"  # whose joint angles and stance count: both, left, right, or healthy if one is injured

    def __post_init__(self) -> None:
        if self.legs not in LEGS:
            raise UserError(unknown_name("task.settings.walk.legs", self.legs, LEGS))
        for name, value in vars(self).items():
            if isinstance(value, float) and value <= 0:
                raise UserError(f"task.settings.walk.{name}={value:g}: it must be more than 0, or null for no limit")

    @property
    def sides(self) -> tuple[str, ...]:
        return LEGS[self.legs]

    def without_angles(self) -> GaitCriteria:
        """Return the criteria for a model whose joints cannot be compared with people's."""
        return replace(self, gait_r=None, knee_swing_deg=None)

    def texts(self) -> list[str]:
        """Return the limits in words."""
        low, high = self.stance_percent or (None, None)
        known = (
            (self.knee_swing_deg, "knees that bend by {:g} degrees or more in swing"),
            (self.gait_r, "joint angles over the stride as those of people (r of {:g} or more)"),
            (self.symmetry, "legs alike ({:g} of 1 or more)"),
            (self.clearance_m, "feet {:g} m or more above the ground in swing"),
            (low, "feet on the ground for {:g} % of the stride or more"),
            (high, "and {:g} % or less"),
            (self.single_support_percent, "{:g} % of the stride or more on each leg alone"),
            (self.alternation, "left and right steps in turn ({:g} of 1 or more)"),
            (self.trunk_tilt_deg, "a trunk that tilts by {:g} degrees at most"),
        )
        return [words.format(limit) for limit, words in known if limit is not None]

    def shortfalls(self, measured: Mapping[str, float]) -> dict[str, str]:
        """Return criterion -> what is wrong in words, for each that `measured` does not meet.

        A measure that is missing, because the motion has too few strides, is not met.
        """
        return {name: words for name, words, reached in self._checked(measured) if reached < 1}

    def quality(self, measured: Mapping[str, float]) -> float:
        """Return the mean over the criteria of how far each is met, 0 to 1; 1 for a walk."""
        reached = [part for _, _, part in self._checked(measured)]
        return sum(reached) / len(reached) if reached else 1.0

    def _checked(self, measured: Mapping[str, float]) -> list[tuple[str, str, float]]:
        """Return name, words and the part that is reached (1: met) of each criterion."""
        found = []
        for limit, name, words in _LEAST:
            if (least := getattr(self, limit)) is not None:
                value = measured.get(name)
                part = 0.0 if value is None else float(np.clip(value / least, 0.0, 1.0))
                found.append((name, _TOO_SHORT if value is None else words(value), part))
        if self.stance_percent is not None:
            low, high = self.stance_percent
            value = measured.get("stance_percent")
            off = 100.0 if value is None else max(low - value, value - high, 0.0)
            words = _TOO_SHORT if value is None else f"each foot stands {value:.0f} % of the cycle, people 60"
            found.append(("stance_percent", words, max(0.0, 1.0 - off / 20.0)))
        if self.trunk_tilt_deg is not None:
            value = measured.get("trunk_tilt_deg")
            part = 0.0 if value is None else min(1.0, self.trunk_tilt_deg / max(value, 1e-6))
            words = "the model has no trunk" if value is None else f"the trunk tilts by {value:.0f} degrees"
            found.append(("trunk_tilt_deg", words, part))
        return found


def locked_knees(swing_deg: float) -> str:
    """Return what is wrong with knees that bend by `swing_deg` in swing."""
    return f"knees stay locked: {swing_deg:.0f} degrees in swing, people 45-60"


_TOO_SHORT = "too few complete strides to judge the gait"
_LEAST: tuple[tuple[str, str, Callable[[float], str]], ...] = (  # limit, what is measured, what is wrong in words
    ("gait_r", "gait_r", "joint angles follow people's with r = {:.2f}".format),
    ("knee_swing_deg", "knee_swing_deg", locked_knees),
    ("symmetry", "symmetry", "legs do not alternate symmetrically: symmetry {:.2f} of 1".format),
    ("clearance_m", "foot_clearance_m", "feet drag: {:.3f} m above the ground in swing".format),
    ("single_support_percent", "single_support_percent", "{:.0f} % of the cycle on one leg, people 40".format),
    ("alternation", "alternation", "{:.2f} of the foot strikes alternate".format),
)
