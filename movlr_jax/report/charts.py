"""Charts of a report, as data that the page draws with uPlot, and sparklines as SVG.

A chart is a dict that can be written as JSON; `assets/report/charts.js` draws it with the colours of the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

COLOURS = 8  # --c0 to --c7 of the page; further lines repeat them with other dashes
TIME = "time (s)"
Chart = dict[str, Any]
Values = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str  # as the legend shows it
    y: Values  # one for each x; not finite where there is none
    colour: str = "c0"  # variable of the page without its dashes, as c0, muted, ink or bad
    dash: int = 0  # 0 solid, 1 dashed, 2 dotted
    points: bool = False  # whether it is drawn as points and not as a line
    width: float = 1.6  # px


@dataclass(frozen=True)
class Band:
    """The area between two values at each x, behind the lines."""

    low: Values
    high: Values
    colour: str = "muted"


def chart(
    label: str,
    x: Values,
    lines: Sequence[Line],
    *,
    unit: str = "",
    x_label: str = TIME,
    bands: Sequence[Band] = (),
    height: int = 180,
    clock: bool = False,
) -> Chart:
    """Return a chart of lines over a common x. Its axis starts at 0 unless that would hide how values differ.

    label: Says to a screen reader what it shows. clock: Whether x is the time of the film, which the chart follows.
    """
    n = min([len(x), *(len(line.y) for line in lines)])
    rows, latest = [], -math.inf
    for i in range(n):  # uPlot needs increasing numbers
        if math.isfinite(x[i]) and x[i] > latest:
            rows.append(i)
            latest = x[i]

    drawn = [float(v) for line in lines if line.colour != "bad" for v in line.y if math.isfinite(v)]
    least, most = min(drawn, default=0.0), max(drawn, default=0.0)
    near = unit == "%" or {*drawn} <= {0.0, 1.0} or least <= 0.5 * most

    def of(values: Values) -> list[float | None]:
        return short([float(values[i]) for i in rows])

    return {
        "label": label,
        "x": short([float(x[i]) for i in rows], 7),
        "xlabel": x_label,
        "unit": unit,
        "height": height,
        "clock": clock,
        "zero": least >= 0 and near,
        "lines": [vars(line) | {"y": of(line.y)} for line in lines],
        "bands": [{"low": of(b.low), "high": of(b.high), "colour": b.colour} for b in bands],
    }


def short(values: Values, digits: int = 5) -> list[float | None]:
    """Return numbers for JSON, with `digits` significant digits; those that are not finite are None."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in map(float, values)]


def look(i: int) -> dict[str, Any]:
    """Return colour and dash of the line number `i`."""
    return {"colour": f"c{i % COLOURS}", "dash": i // COLOURS % 3}


def spread_chart(label: str, unit: str, groups: Mapping[str, Sequence[Mapping[int, float]]]) -> Chart:
    """Chart the mean of each group over generations as a line in its colour, and its range as a band.

    groups: name -> its runs, each generation -> value. A run that ended early keeps its last value.
    """
    x = sorted({g for runs in groups.values() for run in runs for g in run})
    lines, bands = [], []
    for i, (name, runs) in enumerate(groups.items()):
        known = [run for run in runs if run]
        rows = [[run[max(g for g in run if g <= at)] if min(run) <= at else math.nan for at in x] for run in known]
        values = np.ma.masked_invalid([[math.nan] * len(x), *rows])  # the first row is for a group without runs
        middle, low, high = (f(values, axis=0).filled(np.nan) for f in (np.ma.mean, np.ma.min, np.ma.max))
        lines.append(Line(name or f"group {i + 1}", middle, **look(i)))
        if len(known) > 1:
            bands.append(Band(low, high, f"c{i % COLOURS}"))
    whole = f"{label} of the best program over generations, mean and range of each group"
    return chart(whole, x, lines, unit=unit, x_label="generation", bands=bands, height=250)


def term_chart(
    time: Sequence[float], curves: Mapping[str, Sequence[float]], x_label: str = TIME, clock: bool = False
) -> Chart:
    """Chart the weighted value of each term against time, or against `x_label`; line i has the look i."""
    lines = [
        Line(name, [*values, *[math.nan] * (len(time) - len(values))], **look(i))
        for i, (name, values) in enumerate(curves.items())
    ]
    about = f"weighted value of each term against {x_label.split(' (')[0]}"
    return chart(about, time, lines, unit="weight × term", x_label=x_label, height=300, clock=clock)


def motion_chart(
    label: str,
    unit: str,
    time: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    reference: tuple[str, Sequence[float], Sequence[float]] | None = None,
    x_label: str = TIME,
    clock: bool = False,
) -> Chart:
    """Chart curves of one motion, and `reference` (name, time, curve) as a dotted line; line i has the look i."""
    drawn = [Line(name, values, **look(i)) for i, (name, values) in enumerate(lines.items())]
    if reference:
        name, other, values = reference
        known = sorted((t, v) for t, v in zip(other, values, strict=False) if math.isfinite(t)) or [(math.nan,) * 2]
        at = np.interp(np.asarray(time, float), *np.transpose(known), left=np.nan, right=np.nan)
        drawn.append(Line(name, at, "muted", dash=2))
    return chart(label, time, drawn, unit=unit, x_label=x_label, clock=clock)


def sparkline(label: str, lines: Sequence[tuple[int, Sequence[float]]]) -> Markup:
    """Draw curves, given as (colour index, values), on a common scale without axes."""
    finite = [v for _, values in lines for v in values if math.isfinite(v)]
    if not finite:
        return Markup("")
    low, span = min(finite), (max(finite) - min(finite)) or 1.0
    paths = []
    for colour, values in lines:
        points, pen = [], "M"
        for i, v in enumerate(values):
            if not math.isfinite(v):
                pen = "M"  # a gap
                continue
            points.append(f"{pen}{600 * i / max(len(values) - 1, 1):.0f} {116 - 112 * ((v - low) / span):.0f}")
            pen = "L"
        paths.append(f'<path d="{"".join(points)}" style="stroke: var(--c{colour % COLOURS})"/>')
    return Markup(
        f'<svg class="spark" role="img" aria-label="{escape(label)}" viewBox="0 0 600 120" '
        f'preserveAspectRatio="none">{"".join(paths)}</svg>'
    )
