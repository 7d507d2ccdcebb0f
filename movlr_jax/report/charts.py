"""Charts of a report as inline SVG, with the colours and fonts of the page."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path as Curve
from matplotlib.ticker import MaxNLocator

# matplotlib draws with these placeholder colours, which are replaced by CSS variables for light and dark mode
INK, MUTED, GRID, ACCENT, BAD, PAPER = (f"#01010{i}" for i in range(1, 7))
SERIES = [f"#02020{i}" for i in range(8)]
DASHES = ["-", (0, (5, 2)), (0, (1.5, 1.5))]  # the eight colours repeat with other line styles
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    ACCENT: "--accent",
    BAD: "--bad",
    PAPER: "--card",
}
_VARIABLES |= {colour: f"--c{i}" for i, colour in enumerate(SERIES)}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "movlr",  # makes the output reproducible
    "text.parse_math": False,  # term names may contain $
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
}


@dataclass(frozen=True)
class Dot:
    """One program in a chart, with the tooltip `tip`. It links to the table row of the program."""

    name: str
    generation: int
    index: int
    tip: str
    failed: bool = False
    parent: str | None = None
    value: float = math.nan


def measure_chart(
    key: str, label: str, unit: str, dots: Sequence[Dot], best: Sequence[tuple[int, Dot]]
) -> Markup:
    """Draw programs as dots, failed ones as crosses at the bottom, and `best` (generation, best so far) as a line."""
    span = max((dot.index for dot in dots), default=0) or 1
    x = {dot.name: dot.generation + 0.4 * (dot.index / span - 0.5) for dot in dots}
    line = [(x[d.name] if d.generation == g else g, d.value) for g, d in best if math.isfinite(d.value)]
    with rc_context(STYLE):
        figure, ax = axes_of(4.6, 2.9)
        floor = ax.get_xaxis_transform()
        for dot in dots:
            if math.isfinite(dot.value) and not dot.failed:
                _mark(ax, x[dot.name], dot.value, dot, marker="o", color=ACCENT, alpha=0.45, markersize=5.5)
            else:
                _mark(ax, x[dot.name], 0.0, dot, marker="x", color=BAD, markersize=4, transform=floor)
        ax.plot([x for x, _ in line], [y for _, y in line], color=INK, linewidth=1.5, zorder=1.5)
        ax.set_xlim(-0.4, max((dot.generation for dot in dots), default=0) + 0.4)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        ax.tick_params(axis="x", pad=7)
        ax.set_xlabel("generation")
        ax.set_ylabel(unit)
        ax.margins(y=0.1)
        return svg(figure, key, f"{label} of every program over generations", dots)


def spread_chart(
    key: str, label: str, unit: str, groups: Sequence[Sequence[Sequence[tuple[int, float]]]]
) -> Markup:
    """Draw the mean of each group over generations as a line in its colour, and its range as a band.

    groups: for each group its runs, each a list of (generation, value). A run that ended early keeps its last value.
    """
    with rc_context(STYLE):
        figure, ax = axes_of(4.6, 2.9)
        for i, runs in enumerate(groups):
            known = [dict(run) for run in runs if run]
            if not known:
                continue
            x = sorted({generation for run in known for generation in run})
            values = np.array([[_latest(run, generation) for generation in x] for run in known])
            some = np.isfinite(values).any(axis=0)
            values, x = values[:, some], np.array(x)[some]
            colour, dashes = SERIES[i % len(SERIES)], DASHES[(i // len(SERIES)) % len(DASHES)]
            ax.plot(x, np.nanmean(values, axis=0), color=colour, linestyle=dashes, marker="o", markersize=3.5)
            if len(known) > 1:
                low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
                ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        ax.set_xlabel("generation")
        ax.set_ylabel(unit)
        ax.margins(y=0.1)
        return svg(figure, key, f"{label} of the best program over generations, mean and range of each group")


def _latest(run: Mapping[int, float], generation: int) -> float:
    """Return the value of a run after `generation`, NaN before its first."""
    return next((run[g] for g in range(generation, -1, -1) if g in run), math.nan)


def weight_heatmap(key: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> Markup:
    """Draw the weight share of each term (columns) in the best program after each generation (rows)."""
    terms = list(dict.fromkeys(term for _, shares in rows for term in shares))
    longest = min(max(len(term) for term in terms), 40)
    cell = min(max(8.6 / len(terms), 0.6), 1.3)  # inches, as all sizes here
    crowded = 0.085 * longest > cell
    side, head, foot = 1.1, 0.25 + (0.05 * longest if crowded else 0.0), 0.27 * len(rows)
    width, height = side + cell * len(terms) + (0.06 * longest if crowded else 0.05), head + foot
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        ax = figure.add_axes((side / width, 0.0, cell * len(terms) / width, foot / height))
        for y, (_, shares) in enumerate(rows):
            for x, term in enumerate(terms):
                _cell(ax, x, y, shares.get(term))
        ax.set(xlim=(0, len(terms)), ylim=(len(rows), 0))
        ax.set_yticks([y + 0.5 for y in range(len(rows))], [label for label, _ in rows])
        ax.xaxis.tick_top()
        turned = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"} if crowded else {}
        ax.set_xticks([x + 0.5 for x in range(len(terms))], [t[:40] for t in terms], **turned)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        return svg(figure, key, "share of each term's weight after each generation", scale=1.45)


def _cell(ax: Axes, x: int, y: int, share: float | None) -> None:
    if share is None:  # the program has no such term
        ax.text(x + 0.5, y + 0.5, "·", ha="center", va="center", color=MUTED)
        return
    # pale enough for readable text on light and dark pages
    look = {"facecolor": ACCENT, "alpha": 0.05 + 0.5 * share, "linewidth": 0}
    ax.add_patch(Rectangle((x + 0.03, y + 0.05), 0.94, 0.9, **look))
    ax.text(x + 0.5, y + 0.53, f"{100 * share:.0f} %", ha="center", va="center", fontsize=8)


def curve_chart(
    key: str, time: Sequence[float], curves: Mapping[str, Sequence[float]], x: str = "time (s)"
) -> Markup:
    """Draw the weighted value of each term against time, or against `x`; line i has colour i of SERIES."""
    with rc_context(STYLE):
        figure, ax = axes_of(10.2, 3.3)
        for i, values in enumerate(curves.values()):
            n = min(len(time), len(values))
            dashes = DASHES[(i // len(SERIES)) % len(DASHES)]
            ax.plot(time[:n], values[:n], color=SERIES[i % len(SERIES)], linewidth=1.6, linestyle=dashes)
        ax.axhline(0.0, color=GRID, linewidth=1.0, zorder=0.5)
        ax.margins(x=0.01)
        ax.set_xlabel(x)
        ax.set_ylabel("weight × term")
        return svg(figure, key, f"weighted value of each term against {x.split(' (')[0]}")


def motion_chart(
    key: str,
    label: str,
    unit: str,
    time: Sequence[float],
    lines: Sequence[Sequence[float]],
    reference: tuple[Sequence[float], Sequence[float]] | None = None,
    x: str = "time (s)",
) -> Markup:
    """Draw curves of one motion against time, line i in colour i, and `reference` (time, curve) as a dotted line."""
    with rc_context(STYLE):
        figure, ax = axes_of(3.45, 1.75)
        if reference:
            n = min(map(len, reference))
            ax.plot(reference[0][:n], reference[1][:n], color=MUTED, linewidth=1.1, linestyle=(0, (1.2, 1.6)))
        for i, values in enumerate(lines):
            n = min(len(time), len(values))
            ax.plot(time[:n], values[:n], color=SERIES[i % len(SERIES)], linewidth=1.5)
        low, high = ax.get_ylim()
        positive = not any(v < 0 for values in lines for v in values)
        if positive and (low < 0.5 * high or unit == "%"):
            ax.set_ylim(bottom=0.0)
        known = [t for t in time if math.isfinite(t)]
        if known:
            ax.set_xlim(min(0.0, *known), max(known) + 1e-9)
        ax.yaxis.set_major_locator(MaxNLocator(nbins=4))
        ax.set_xlabel(x)
        ax.set_ylabel(unit)
        return svg(figure, key, label)


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
            points.append(
                f"{pen}{600 * i / max(len(values) - 1, 1):.0f} {116 - 112 * ((v - low) / span):.0f}"
            )
            pen = "L"
        paths.append(f'<path d="{"".join(points)}" style="stroke: var(--c{colour % len(SERIES)})"/>')
    return Markup(
        f'<svg class="spark" role="img" aria-label="{escape(label)}" viewBox="0 0 600 120" '
        f'preserveAspectRatio="none">{"".join(paths)}</svg>'
    )


def lineage_chart(key: str, dots: Sequence[Dot], ancestry: Sequence[str]) -> Markup:
    """Draw edges from parents to children, generations from left to right; `ancestry` leads to the best program."""
    place = {dot.name: (dot.generation, dot.index) for dot in dots}
    columns, rows = max(x for x, _ in place.values()) + 1, max(y for _, y in place.values()) + 1
    width, height = min(max(10.4 / columns, 1.0), 2.0) * columns, 0.4 + 0.34 * rows
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        ax = figure.add_axes((0.0, 0.0, 1.0, 1 - 0.3 / height))
        for dot in dots:
            if dot.parent in place:
                chosen = dot.name in ancestry and dot.parent in ancestry
                _edge(ax, place[dot.parent], place[dot.name], chosen)
        for dot in dots:
            x, y = place[dot.name]
            chosen = dot.name in ancestry
            look = {"marker": "x", "color": BAD, "markersize": 5} if dot.failed else {"marker": "o"}
            if not dot.failed:
                look |= {"color": ACCENT if chosen else MUTED, "markersize": 8 if chosen else 5.5}
            _mark(ax, x, y, dot, **look)
            ax.text(
                x + 8.5 * columns / (72 * width),  # from points to data units
                y,
                f"k{dot.index:02d}",
                va="center",
                fontsize=7.5,
                color=INK if chosen else MUTED,
                weight="bold" if chosen else "normal",
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.0},
            )
        for x in range(0, columns, 1 + columns // 1000):
            ax.text(x, 1.02, f"g{x:02d}", ha="center", color=MUTED, transform=ax.get_xaxis_transform())
        ax.set(xlim=(-0.15, columns - 0.5), ylim=(rows - 0.4, -0.6))
        ax.set_axis_off()
        return svg(figure, key, "lineage of the programs", dots, scale=1.35)


def _edge(ax: Axes, start: tuple[int, int], end: tuple[int, int], chosen: bool) -> None:
    middle = (start[0] + end[0]) / 2
    path = Curve([start, (middle, start[1]), (middle, end[1]), end], [1, 4, 4, 4])
    look = {"edgecolor": ACCENT, "linewidth": 2.2} if chosen else {"edgecolor": GRID, "linewidth": 1.1}
    ax.add_patch(PathPatch(path, fill=False, zorder=1.2 if chosen else 1, **look))


def axes_of(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    ax.grid(axis="y", color=GRID, linewidth=0.7)
    ax.tick_params(length=0)
    ax.spines["left"].set_visible(False)
    return figure, ax


def _mark(ax: Axes, x: float, y: float, dot: Dot, **look) -> None:
    marks = ax.plot([x], [y], linestyle="none", clip_on=False, zorder=3, **look)
    marks[0].set_gid(f"dot-{dot.name}")
    marks[0].set_url(f"@{dot.name}")


def svg(figure: Figure, key: str, label: str, dots: Sequence[Dot] = (), scale: float = 1.4) -> Markup:
    """Return the figure as an <svg> element without fixed colours or external references; ids start with `key`-."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib's font may lack characters of a term name
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(["Creator", "Date", "Format", "Type"]),
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    for dot in dots:
        svg = svg.replace(f'id="dot-{dot.name}">', f'id="dot-{dot.name}"><title>{escape(dot.tip)}</title>', 1)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'id="', f'id="{key}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", svg).replace('href="@', 'href="#')
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    width, height = (72 * float(inches) for inches in figure.get_size_inches())
    opening = (
        f'<svg class="chart" role="img" aria-label="{escape(label)}" viewBox="0 0 {width:.1f} {height:.1f}" '
        f'style="--width: {scale * width:.0f}px">'
    )
    return Markup(re.sub(r"^<svg.*?>", lambda _: opening, svg, count=1, flags=re.DOTALL))
