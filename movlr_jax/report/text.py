"""Text, numbers and source code of a report as strings and HTML."""

from __future__ import annotations

import base64
import difflib
import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from movlr_jax._util.quantities import counted, human, unit
from movlr_jax.report.data import FIRST, Run, key_metrics

_TITLES = {  # titles of curves whose names are not clear enough
    "effort": "effort: mean squared activation, or share of the range of a motor",
    "joint_limit_fraction": "joints at their limits",
    "speed_m_s": "speed of the centre of mass",
    "foot_force_n": "force under the feet",
    "foot_height_m": "height of the heels",
}

_SCHEMES = {"print, (prefers-color-scheme: light)": "xcode", "screen and (prefers-color-scheme: dark)": "github-dark"}


def title(series: str) -> str:
    """Return the title of a motion curve."""
    return _TITLES.get(series, human(series))


def scale(metric: str) -> tuple[str, float]:
    """Return the unit of a measure or curve in a chart, and the factor to it: degrees for rad, % for shares."""
    shown = "" if metric == "success" else unit(metric)
    return {"rad": ("°", math.degrees(1)), "%": ("%", 100.0)}.get(shown, (shown, 1.0))


def duration(seconds: float | None) -> str:
    """Format a duration: `0.4 s`, `45 s`, `3 min 12 s`, `1 h 04 min`."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def percent(share: float | None) -> str:
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.0f} %"


def plain(value: Any) -> str:
    """Format the value of a setting for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + ", ".join(plain(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {plain(v)}" for k, v in value.items())
    return str(value)


def data_address(content: bytes, kind: str) -> Markup:
    """Return the address of `content` inside the page itself: data:KIND;base64,..."""
    return Markup(f"data:{kind};base64,") + base64.b64encode(content).decode()


def claim(run: Run) -> str:
    """Return what the run may claim, in one sentence without a full stop; "" before the first ranking."""
    if run.confirmed:
        verdict = run.confirmed.verdict
        return verdict if verdict.startswith(run.confirmed.champion) else verdict[:1].upper() + verdict[1:]
    if run.best is None:
        return ""
    first = " so far" if run.state != "finished" else ""
    if run.best.name == FIRST:
        return f"Not confirmed: no better program than the first was found{first}"
    return f"Not confirmed: {run.best.name} is the champion{first}"


def result_sentence(run: Run) -> str:
    """Return what the claim rests on: the trials, and how many programs were tried."""
    best, first, tried = run.best, run.candidates.get(FIRST), len(run.candidates)
    if best is None:
        if not tried:
            return "No program has been evaluated yet."
        ran = sum(not c.failed for c in run.candidates.values())
        return f"{counted(tried, 'program')} evaluated so far, {ran} of them ran; none is ranked yet."
    ranked = [g.ranking.comparisons for g in run.generations if g.ranking and g.ranking.comparisons]
    more = f" {reading[0].upper()}{reading[1:]}." if (reading := str(run.about.get("reading") or "")) else ""
    if ranked and all(c.winner == "tie" for c in ranked[-1]):
        more += " All comparisons of the last generation are ties, so the order of its programs means nothing."
    generations = sum(not g.final for g in run.generations)
    after = f"After {counted(tried, 'program')} in {counted(generations, 'generation')}"
    unknown = "" if any(name in best.metrics for name in key_metrics(run)) else "; no success measure is recorded"
    if best.name == FIRST:
        return f"{after}, the first program, {FIRST}, is still the best{unknown}.{more}"
    if first and first.failed:
        return f"{after}, the best is {best.name}{unknown}; the first program, {FIRST}, could not run.{more}"
    return f"{after}, the best is {best.name}{unknown}.{more}"


def worth(run: Run) -> dict[str, str]:
    """Return what the number of a ranking is called, and what it means."""
    if run.scored:
        meaning = "posterior mean ± standard deviation of the task's score, in the unit of the score"
        return {"label": "mean score", "meaning": f"{meaning}, from all trials of the search"}
    meaning = "posterior mean ± standard deviation in units of a trial's noise"
    return {"label": "worth", "meaning": f"{meaning}, from the judge's answers about films of trials"}


def highlight(source: str) -> Markup:
    """Convert Python source to HTML with syntax colours."""
    from pygments import highlight as colour
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    # pygments escapes the source itself
    return Markup(colour(source, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)))


def highlight_css() -> Markup:
    """Return the CSS colours of `highlight` for light and dark mode and for paper."""
    from pygments.formatters import HtmlFormatter

    blocks = []
    for media, style in _SCHEMES.items():
        rules = "\n".join(HtmlFormatter(style=style).get_token_style_defs(".code"))
        blocks.append(f"@media {media} {{\n{rules}\n}}")
    return Markup("\n".join(blocks))


def diff(parent: str, child: str, parent_name: str, child_name: str) -> list[tuple[str, str]]:
    """Return the unified diff as (kind, line); kind is add, del, hunk, file or same."""
    lines = difflib.unified_diff(parent.splitlines(), child.splitlines(), parent_name, child_name, lineterm="")
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    # the first two lines name the files; later lines may also begin with +++
    return [("file" if i < 2 else kinds.get(line[:1], "same"), line) for i, line in enumerate(lines)]
