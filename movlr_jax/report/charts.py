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
    values: Values  # one for each x; not finite where there is none
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


@dataclass(frozen=True)
class Dot:
    """One program in a chart, with the tooltip `tip`. It links to the table row of the program."""

    name: str
    generation: int
    index: int
    tip: str
    failed: bool = False
    value: float = math.nan


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
    n = min([len(x), *(len(line.values) for line in lines)])
    rows, latest = [], -math.inf
    for i in range(n):  # uPlot needs increasing numbers
        if math.isfinite(x[i]) and x[i] > latest:
            rows.append(i)
            latest = x[i]

    drawn = [float(v) for line in lines if line.colour != "bad" for v in line.values if math.isfinite(v)]

    def of(values: Values) -> list[float | None]:
        return short([float(values[i]) for i in rows])

    return {
        "label": label,
        "x": short([float(x[i]) for i in rows], 7),
        "xlabel": x_label,
        "unit": unit,
        "height": height,
        "clock": clock,
        "zero": _from_zero(drawn, unit),
        "lines": [
            {
                "name": line.name,
                "y": of(line.values),
                "colour": line.colour,
                "dash": line.dash,
                "points": line.points,
                "width": line.width,
            }
            for line in lines
        ],
        "bands": [{"low": of(b.low), "high": of(b.high), "colour": b.colour} for b in bands],
    }


def _from_zero(values: Values, unit: str) -> bool:
    """Whether an axis starts at 0: for shares, for yes and no, and if the least value is nearer to 0 than to the
    greatest."""
    least, most = min(values, default=0.0), max(values, default=0.0)
    return least >= 0 and (unit == "%" or {*values} <= {0.0, 1.0} or least <= 0.5 * most)


def short(values: Values, digits: int = 5) -> list[float | None]:
    """Return numbers for JSON, with `digits` significant digits; those that are not finite are None."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in map(float, values)]


def look(i: int) -> dict[str, Any]:
    """Return colour and dash of the line number `i`."""
    return {"colour": f"c{i % COLOURS}", "dash": i // COLOURS % 3}


def measure_chart(label: str, unit: str, dots: Sequence[Dot], best: Sequence[tuple[int, Dot]]) -> Chart:
    """Chart programs as points, failed ones at the bottom, and `best` (generation, best so far) as a line."""
    span = max((dot.index for dot in dots), default=0) or 1
    place = {dot.name: dot.generation + 0.4 * (dot.index / span - 0.5) for dot in dots}
    at = {place[d.name] if d.generation == g else float(g): d.value for g, d in best}
    x = sorted({*place.values(), *at})
    row = {value: i for i, value in enumerate(x)}
    ran, failed, leading = (np.full(len(x), np.nan) for _ in range(3))
    names, tips = [""] * len(x), [""] * len(x)
    for dot in dots:
        i = row[place[dot.name]]
        names[i], tips[i] = dot.name, dot.tip
        if math.isfinite(dot.value) and not dot.failed:
            ran[i] = dot.value
        else:
            failed[i] = 0.0
    for where, value in at.items():
        leading[row[where]] = value
    lines = [Line("best so far", leading, "ink"), Line("a program", ran, "accent", points=True)]
    if any(np.isfinite(failed)):
        lines.append(Line("failed", failed, "bad", points=True))
    made = chart(f"{label} of every program over generations", x, lines, unit=unit, x_label="generation", height=250)
    last = max((dot.generation for dot in dots), default=0)
    return made | {"names": names, "tips": tips, "range": [-0.4, last + 0.4]}


def spread_chart(label: str, unit: str, groups: Mapping[str, Sequence[Sequence[tuple[int, float]]]]) -> Chart:
    """Chart the mean of each group over generations as a line in its colour, and its range as a band.

    groups: name -> its runs, each a list of (generation, value). A run that ended early keeps its last value.
    """
    x = sorted({g for runs in groups.values() for run in runs for g, _ in run})
    lines, bands = [], []
    for i, (name, runs) in enumerate(groups.items()):
        known = [dict(run) for run in runs if run]
        values = np.array([[_latest(run, g) for g in x] for run in known]) if known else np.zeros((0, len(x)))
        some = np.isfinite(values).any(axis=0) if len(values) else np.zeros(len(x), bool)
        middle, low, high = (np.full(len(x), np.nan) for _ in range(3))
        if some.any():
            middle[some], low[some], high[some] = (
                f(values[:, some], axis=0) for f in (np.nanmean, np.nanmin, np.nanmax)
            )
        lines.append(Line(name or f"group {i + 1}", middle, **look(i)))
        if len(known) > 1:
            bands.append(Band(low, high, f"c{i % COLOURS}"))
    whole = f"{label} of the best program over generations, mean and range of each group"
    return chart(whole, x, lines, unit=unit, x_label="generation", bands=bands, height=250)


def _latest(run: Mapping[int, float], generation: int) -> float:
    """Return the value of a run after `generation`, NaN before its first."""
    return next((run[g] for g in range(generation, -1, -1) if g in run), math.nan)


def term_chart(
    time: Sequence[float], curves: Mapping[str, Sequence[float]], x_label: str = TIME, clock: bool = False
) -> Chart:
    """Chart the weighted value of each term against time, or against `x_label`; line i has the look i."""
    n = len(time)
    lines = [
        Line(name, [*values, *[math.nan] * (n - len(values))], **look(i))
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
        drawn.append(Line(name, resampled(time, other, values), "muted", dash=2))
    return chart(label, time, drawn, unit=unit, x_label=x_label, clock=clock)


def resampled(time: Values, other: Values, values: Values) -> np.ndarray:
    """Return `values` at the times `other` interpolated at `time`; NaN outside of them."""
    n = min(len(other), len(values))
    known = [(t, v) for t, v in zip(other[:n], values[:n], strict=True) if math.isfinite(t)]
    if not known:
        return np.full(len(time), np.nan)
    t, v = np.array(sorted(known, key=lambda pair: pair[0])).T
    return np.interp(np.asarray(time, float), t, v, left=np.nan, right=np.nan)


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
