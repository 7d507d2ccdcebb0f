"""Metrics formatted for people, in the same way in the terminal, in films and in the report."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

_UNITS = {
    "m_s": "m/s",
    "m": "m",
    "rad": "rad",
    "s": "s",
    "hz": "Hz",
    "n": "N",
    "fraction": "%",
    "percent": "% of the cycle",
    "deg": "deg",
    "steps_min": "steps/min",
    "bw": "body weights",
}  # longest first
_YES_NO = ("success", "fell", "dropped", "terminated")
RETURNS = ("return", "environment_return")  # the sum of the rewards of an environment, which is what it is about
_OF_MOTION = (
    "heading_error_rad", "turned_rad", "rise_m", "raised_m", "down_m", "down_and_up_m", "drift_error_m",
    "upright_fraction",
)  # fmt: skip
_OF_PARTS = (
    "_raised_m", "_lowered_m", "_bent_rad", "_straightened_rad", "_tilt_error_rad", "_direction_error_rad",
    "_error_m", "_waves_hz",
)  # fmt: skip
ENDS = {"time_to_fall_s": "fell", "terminated_s": "was ended by the environment"}
_OWN = 2  # measures of a task that a summary has room for, besides those that all tasks share


def unit(metric: str) -> str:
    """Return the unit that a metric's name ends in, "" if there is none."""
    if metric in _YES_NO:
        return "%"
    return _UNITS.get(_unit_end(metric), "")


def human(name: str) -> str:
    """Return a metric's name in words: `object_position_error_m` -> `object position error`."""
    end = _unit_end(name)
    return name.removesuffix("" if end == "fraction" else f"_{end}").replace("_", " ").strip()


def _unit_end(metric: str) -> str:
    """Return the unit suffix of a name: `m_s` of `mean_speed_m_s`; a rate (`steps_per_s`) has none."""
    ends = (end for end in _UNITS if metric.endswith(f"_{end}") and "_per_" not in metric)
    return next(ends, "")


def chance_of(p: float) -> str:
    """Return a probability with two decimals, which does not reach a threshold by rounding."""
    return f"{math.floor(100 * p + 1e-9) / 100:.2f}"


def counted(n: int, noun: str) -> str:
    """Return a number of things in words: 1 trial, 2 trials."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with `digits` significant digits; None is a dash and inf and nan are "not finite"."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not finite"
    shown = f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
    return shown.replace("-", "−")


def quantity(value: float | None, metric: str) -> str:
    """Format a metric's value with its unit: `4.1 cm`, `6.64 m`, `11°`, `yes`.

    Lengths below 1 m are in cm, except the distance travelled.
    """
    if value is None or not math.isfinite(value):
        return number(value)
    if metric in _YES_NO and value in (0, 1):
        return "yes" if value else "no"
    match unit(metric):
        case "%":
            return f"{number(100 * value)} %"
        case "rad":
            return f"{number(math.degrees(value), 2)}°"
        case "m" if abs(value) < 1 and metric != "distance_m":
            return f"{100 * value:z.1f} cm".replace("-", "−")
        case unit_name:
            return f"{number(value)} {unit_name}".strip()


def span(low: float, high: float, metric: str, beside: Sequence[float] = ()) -> str:
    """Format a range with one unit: `90 to 110 cm`, `at least 0.7 m/s`, `any`; two equal values are one.

    beside: Values that are written next to it, with which it shares the unit.
    """
    finite = [abs(v) for v in (low, high, *beside) if math.isfinite(v)]
    in_m = unit(metric) == "m" and max(finite, default=0.0) >= 1
    first, last = (f"{number(v)} m" if in_m else quantity(v, metric) for v in (low, high))
    if low == -math.inf:
        return "any" if high == math.inf else f"at most {last}"
    if high == math.inf:
        return f"at least {first}"
    end = re.sub(r"^[−\d.,]+", "", last)
    return first if first == last else f"{first.removesuffix(end) if end else first} to {last}"


def leading(metrics: Mapping[str, float]) -> list[str]:
    """Return what a task is about: the measures before its success, or those of a motion that words describe."""
    if "success" not in metrics:
        of_parts = [name for name in metrics if name not in _OF_MOTION and name.endswith(_OF_PARTS)]
        return of_parts + [name for name in _OF_MOTION if name in metrics]
    names = list(metrics)
    return [name for name in names[: names.index("success")] if name not in _YES_NO]


def measures(metrics: Mapping[str, float], between: Mapping[str, tuple[float, float]] | None = None) -> list[str]:
    """Return what a task is about in words, each measure with its unit.

    between: Intervals of returns of environments, by their names.
    """
    errors = ("object_position_error_m", "object_orientation_error_rad")
    parts = [quantity(metrics[name], name) for name in errors if name in metrics]
    parts = [f"{', '.join(parts)} off"] if parts else []
    intervals = {name: f" ({number(low)} to {number(high)})" for name, (low, high) in (between or {}).items()}
    parts += [
        f"{human(name)} {number(metrics[name])}{intervals.get(name, '')}" for name in RETURNS if name in metrics
    ]
    if "distance_m" in metrics:
        gait = f", gait r {number(metrics['gait_r'], 2)}" if "gait_r" in metrics else ""
        parts.append(f"moved {quantity(metrics['distance_m'], 'distance_m')}{gait}")
    told = (*errors, *RETURNS, "distance_m", "gait_r", "knee_swing_deg", "time_to_fall_s", "terminated_s")
    own = [name for name in leading(metrics) if name not in told]
    parts += [f"{human(name)} {quantity(metrics[name], name)}" for name in own[:_OWN]]
    return early(metrics) + parts


def early(metrics: Mapping[str, float]) -> list[str]:
    """Return when a motion ended early: by a fall, or where its environment ended it."""
    return [f"{words} at {quantity(metrics[name], name)}" for name, words in ENDS.items() if name in metrics]


def summary(metrics: Mapping[str, float]) -> str:
    """Return the success measure in one line, short enough for the caption of a film."""
    parts = measures(metrics)
    if "success" in metrics:
        parts.append("success" if metrics["success"] else "no success")
    return ": ".join(parts)
