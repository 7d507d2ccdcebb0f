"""Charts and tables of a gait analysis: joint angles, force and muscle phases over the cycle, next to people's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from movlr_jax.biomech.gait.analysis import SIDES, active
from movlr_jax.biomech.gait.reference import ANGLES, PERCENT, HumanGait, human_gait, speed_classes
from movlr_jax.report.charts import Band, Chart, Line, chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# rows of the table: measure -> value of people at their preferred speed, if there is one
PEOPLE = {
    "gait_r": "1",
    "gait_rmse_deg": "0",
    "gait_within_sd": "0.68",
    "knee_swing_deg": "60",
    "stance_percent": "60",
    "double_support_percent": "20",
    "single_support_percent": "40",
    "cadence_steps_min": "109",
    "step_length_m": "0.66-0.70",
    "walk_ratio": "0.0065",
    "force_r": "1",
    "force_peak_1_bw": "1.05",
    "force_peak_2_bw": "1.14",
    "muscle_overlap": "1",
}
LABELS = {
    "gait_r": "r of joint angles with people's",
    "gait_rmse_deg": "distance of joint angles from people's (deg)",
    "gait_within_sd": "share of the cycle within one SD",
    "knee_swing_deg": "knee flexion in swing (deg)",
    "stance_percent": "stance (% of cycle)",
    "double_support_percent": "double support (% of cycle)",
    "single_support_percent": "single support (% of cycle)",
    "cadence_steps_min": "cadence (steps/min)",
    "step_length_m": "step length (m)",
    "walk_ratio": "walk ratio (m/(steps/min))",
    "force_r": "r of vertical force with people's",
    "force_peak_1_bw": "first force peak (body weights)",
    "force_peak_2_bw": "second force peak (body weights)",
    "muscle_overlap": "overlap of muscle phases with people's",
}


PEOPLE_COLOUR, LEG_COLOURS = "0.55", {"left": "C0", "right": "C3"}  # of a picture for a file


def readable(record: Mapping[str, Any]) -> bool:
    """Return whether a record that fits the schema can be drawn: every curve has a value at each of PERCENT."""
    legs = list((record.get("legs") or {}).values())
    if record.get("speed_class") not in speed_classes() or not legs or not all(legs):
        return False
    curves = [leg.get("force") for leg in legs]
    curves += [c for leg in legs for c in (leg.get("activity") or {}).values()]
    curves += [(a or {}).get(k) for leg in legs for a in (leg.get("angles") or {}).values() for k in ("mean", "sd")]
    return all(c is not None and len(c) == len(PERCENT) and None not in c for c in curves)


def charts(record: Mapping[str, Any]) -> list[tuple[str, Chart]]:
    """Return title and chart of each curve of a record of `GaitAnalysis.record`, next to those of people."""
    human, legs, found = human_gait(record["speed_class"]), _legs(record), []
    for angle in _angles(legs):
        lines, bands = [], [Band(human.low[angle], human.high[angle])]
        for side, leg in legs.items():
            colour = f"c{SIDES.index(side)}"
            mean, sd = (np.asarray(leg["angles"][angle][kind], float) for kind in ("mean", "sd"))
            lines.append(Line(side, mean, colour))
            bands.append(Band(mean - sd, mean + sd, colour))
        name = angle.replace("_", " ")
        found.append((f"{name} (deg)", _cycle(name, "deg", lines, bands)))
    lines = [Line("people", human.force, "muted", width=4)]  # behind the legs
    lines += [Line(side, leg["force"], f"c{SIDES.index(side)}") for side, leg in legs.items()]
    found.append(("vertical force (body weights)", _cycle("vertical force", "body weights", lines)))
    return found


def _cycle(name: str, unit: str, lines: Sequence[Line], bands: Sequence[Band] = ()) -> Chart:
    label = f"{name} over the gait cycle"
    return chart(label, PERCENT, lines, unit=unit, x_label="gait cycle (%)", bands=bands, height=200)


def phases(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each muscle group with the phases of people and of each leg, as (start, width) in % of the cycle."""
    human, legs = human_gait(record["speed_class"]), _legs(record)
    return [
        {
            "muscle": muscle.replace("_", " "),
            "people": _spans(human.active[muscle]),
            "legs": {side: _spans(active(np.asarray(leg["activity"][muscle]))) for side, leg in legs.items()},
        }
        for muscle in _muscles(human, legs)
    ]


def picture(record: Mapping[str, Any], title: str) -> Figure:
    """Return one figure with all charts, for a file."""
    from matplotlib.figure import Figure  # slow to import

    drawn = list(_panels(record))
    heights = [1.0 if rows == 1 else 0.2 * rows for _, rows, _ in drawn]
    figure = Figure(figsize=(4.5, 1.7 * sum(heights) + 0.8), layout="constrained")
    axes = figure.subplots(len(drawn), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for ax, (name, rows, draw) in zip(axes, drawn, strict=True):
        draw(ax)
        if rows == 1:
            ax.set_ylabel(name.replace(" (", "\n("), fontsize=9)
    axes[0].legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    axes[-1].set_xlabel("gait cycle (%), from foot strike")
    axes[-1].set_xlim(0, 100)
    figure.suptitle(title, fontsize=9, wrap=True)
    return figure


def _legs(record: Mapping[str, Any]) -> dict[str, Any]:
    return {side: record["legs"][side] for side in SIDES if side in record["legs"]}


def _angles(legs: Mapping[str, Any]) -> list[str]:
    """Return the angles that all legs have."""
    return [a for a in ANGLES if all(a in (leg.get("angles") or {}) for leg in legs.values())]


def _muscles(human: HumanGait, legs: Mapping[str, Any]) -> list[str]:
    """Return the muscle groups that people and all legs have."""
    return [m for m in human.active if all(m in (leg.get("activity") or {}) for leg in legs.values())]


def _panels(record: Mapping[str, Any]) -> Iterator[tuple[str, int, Callable[[Any], None]]]:
    """Yield name, number of rows and the function that draws on an axis, of each panel of a picture."""
    human, legs = human_gait(record["speed_class"]), _legs(record)
    for angle in _angles(legs):
        yield f"{angle.replace('_', ' ')} (deg)", 1, partial(_draw_angle, human, legs, angle)
    yield "vertical force (body weights)", 1, partial(_draw_force, human, legs)
    muscles = _muscles(human, legs)
    if muscles:
        yield "active muscles", len(muscles), partial(_draw_muscles, human, legs, muscles)


def _draw_angle(human: HumanGait, legs: Mapping[str, Any], angle: str, ax: Any) -> None:
    low, high = human.low[angle], human.high[angle]
    ax.fill_between(PERCENT, low, high, color=PEOPLE_COLOUR, alpha=0.3, linewidth=0, label="people, mean ± SD")
    for side, leg in legs.items():
        mean, sd = (np.asarray(leg["angles"][angle][kind]) for kind in ("mean", "sd"))
        ax.fill_between(PERCENT, mean - sd, mean + sd, color=LEG_COLOURS[side], alpha=0.2, linewidth=0)
        ax.plot(PERCENT, mean, color=LEG_COLOURS[side], linewidth=1.6, label=side)


def _draw_force(human: HumanGait, legs: Mapping[str, Any], ax: Any) -> None:
    ax.plot(PERCENT, human.force, color=PEOPLE_COLOUR, linewidth=4, alpha=0.3)
    for side, leg in legs.items():
        ax.plot(PERCENT, leg["force"], color=LEG_COLOURS[side], linewidth=1.6)


def _draw_muscles(human: HumanGait, legs: Mapping[str, Any], muscles: Sequence[str], ax: Any) -> None:
    for row, muscle in enumerate(muscles):
        people = {"color": PEOPLE_COLOUR, "alpha": 0.3, "linewidth": 0}
        ax.broken_barh(_spans(human.active[muscle]), (row + 0.05, 0.9), **people)
        for i, (side, leg) in enumerate(legs.items()):
            on = active(np.asarray(leg["activity"][muscle]))
            ax.broken_barh(_spans(on), (row + 0.2 + 0.32 * i, 0.26), color=LEG_COLOURS[side], linewidth=0)
    ax.set_yticks([row + 0.5 for row in range(len(muscles))], [m.replace("_", " ") for m in muscles])
    ax.set_ylim(len(muscles), 0)
    ax.grid(visible=False)


def table(record: Mapping[str, Any]) -> list[tuple[str, Sequence[float | None], str]]:
    """Return label, value of each leg (one of the walk, if legs do not differ) and people's value of each measure."""
    rows = []
    for name, people in PEOPLE.items():
        legs = [((record["legs"].get(side) or {}).get("measures") or {}).get(name) for side in SIDES]
        if any(value is not None for value in legs):
            rows.append((LABELS[name], legs, people))
        elif (value := (record.get("measures") or {}).get(name)) is not None:
            rows.append((LABELS[name], [value], people))
    return rows


def _spans(on: np.ndarray) -> list[tuple[float, float]]:
    """Return (start, width) in % of the cycle of each part of `on` [51] that is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(int)))
    step = PERCENT[1]
    spans = [(max(0.0, step * (a - 0.5)), min(100.0, step * (b - 0.5))) for a, b in edges.reshape(-1, 2)]
    return [(float(a), float(b - a)) for a, b in spans]
