"""Charts and tables of a gait analysis: joint angles, force and muscle phases over the cycle, next to people's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from movlr_jax.biomech.gait.analysis import SIDES, active
from movlr_jax.biomech.gait.reference import ANGLES, PERCENT, human_gait
from movlr_jax.report.charts import Band, Chart, Line, chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# rows of the table: measure -> its label, and its value in people at their preferred speed
MEASURES = {
    "gait_r": ("r of joint angles with people's", "1"),
    "gait_rmse_deg": ("distance of joint angles from people's (deg)", "0"),
    "gait_within_sd": ("share of the cycle within one SD", "0.68"),
    "knee_swing_deg": ("knee flexion in swing (deg)", "60"),
    "stance_percent": ("stance (% of cycle)", "60"),
    "double_support_percent": ("double support (% of cycle)", "20"),
    "single_support_percent": ("single support (% of cycle)", "40"),
    "cadence_steps_min": ("cadence (steps/min)", "109"),
    "step_length_m": ("step length (m)", "0.66-0.70"),
    "walk_ratio": ("walk ratio (m/(steps/min))", "0.0065"),
    "force_r": ("r of vertical force with people's", "1"),
    "force_peak_1_bw": ("first force peak (body weights)", "1.05"),
    "force_peak_2_bw": ("second force peak (body weights)", "1.14"),
    "muscle_overlap": ("overlap of muscle phases with people's", "1"),
}
_PEOPLE, _LEGS = "muted", {side: f"c{i}" for i, side in enumerate(SIDES)}  # colours of the page
_IN_FILE = {"muted": "0.55", "c0": "C0", "c1": "C3"}  # those colours in a picture for a file


def charts(record: Mapping[str, Any]) -> list[tuple[str, Chart]]:
    """Return title and chart of each curve of a record of `GaitAnalysis.record`, next to those of people."""
    human, legs, found = human_gait(record["speed_class"]), _legs(record), []
    for angle in (a for a in ANGLES if all(a in (leg.get("angles") or {}) for leg in legs.values())):
        lines, bands = [], [Band(human.low[angle], human.high[angle], _PEOPLE)]
        for side, leg in legs.items():
            colour = _LEGS[side]
            mean, sd = (np.asarray(leg["angles"][angle][kind], float) for kind in ("mean", "sd"))
            lines.append(Line(side, mean, colour))
            bands.append(Band(mean - sd, mean + sd, colour))
        name = angle.replace("_", " ")
        found.append((f"{name} (deg)", _cycle(name, "deg", lines, bands)))
    lines = [Line("people", human.force, _PEOPLE, width=4)]  # behind the legs
    lines += [Line(side, leg["force"], _LEGS[side]) for side, leg in legs.items()]
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
        for muscle in human.active
        if all(muscle in (leg.get("activity") or {}) for leg in legs.values())
    ]


def picture(record: Mapping[str, Any], title: str) -> Figure:
    """Return one figure with all charts, for a file."""
    from matplotlib.figure import Figure  # slow to import

    drawn, muscles = charts(record), phases(record)
    heights = [1.0] * len(drawn) + ([0.2 * len(muscles)] if muscles else [])
    figure = Figure(figsize=(4.5, 1.7 * sum(heights) + 0.8), layout="constrained")
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for ax, (name, curves) in zip(axes, drawn, strict=False):  # the last one may be that of the muscles
        _draw_curves(ax, curves)
        ax.set_ylabel(name.replace(" (", "\n("), fontsize=9)
    if muscles:
        _draw_phases(axes[-1], muscles)
    axes[0].legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    axes[-1].set_xlabel("gait cycle (%), from foot strike")
    axes[-1].set_xlim(0, 100)
    figure.suptitle(title, fontsize=9, wrap=True)
    return figure


def _legs(record: Mapping[str, Any]) -> dict[str, Any]:
    return {side: record["legs"][side] for side in SIDES if side in record["legs"]}


def _draw_curves(ax: Any, curves: Chart) -> None:
    x = curves["x"]
    for band in curves["bands"]:
        label, alpha = ("people, mean ± SD", 0.3) if band["colour"] == _PEOPLE else (None, 0.2)
        low, high = (np.asarray(band[end], float) for end in ("low", "high"))
        ax.fill_between(x, low, high, color=_IN_FILE[band["colour"]], alpha=alpha, linewidth=0, label=label)
    for line in curves["lines"]:
        label, alpha = (None, 0.3) if line["colour"] == _PEOPLE else (line["name"], 1.0)
        ax.plot(x, line["y"], color=_IN_FILE[line["colour"]], alpha=alpha, linewidth=line["width"], label=label)


def _draw_phases(ax: Any, muscles: Sequence[Mapping[str, Any]]) -> None:
    for row, muscle in enumerate(muscles):
        ax.broken_barh(muscle["people"], (row + 0.05, 0.9), color=_IN_FILE[_PEOPLE], alpha=0.3, linewidth=0)
        for i, (side, spans) in enumerate(muscle["legs"].items()):
            ax.broken_barh(spans, (row + 0.2 + 0.32 * i, 0.26), color=_IN_FILE[_LEGS[side]], linewidth=0)
    ax.set_yticks([row + 0.5 for row in range(len(muscles))], [muscle["muscle"] for muscle in muscles])
    ax.set_ylim(len(muscles), 0)
    ax.grid(visible=False)


def table(record: Mapping[str, Any]) -> list[tuple[str, Sequence[float | None], str]]:
    """Return label, value of each leg (one of the walk, if legs do not differ) and people's value of each measure."""
    rows = []
    for name, (label, people) in MEASURES.items():
        legs = [((record["legs"].get(side) or {}).get("measures") or {}).get(name) for side in SIDES]
        if any(value is not None for value in legs):
            rows.append((label, legs, people))
        elif (value := (record.get("measures") or {}).get(name)) is not None:
            rows.append((label, [value], people))
    return rows


def _spans(on: np.ndarray) -> list[tuple[float, float]]:
    """Return (start, width) in % of the cycle of each part of `on` [51] that is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(int)))
    step = PERCENT[1]
    spans = [(max(0.0, step * (a - 0.5)), min(100.0, step * (b - 0.5))) for a, b in edges.reshape(-1, 2)]
    return [(float(a), float(b - a)) for a, b in spans]
