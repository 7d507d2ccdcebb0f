"""The data of each section of a report, for the templates."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from movlr_jax._util import quantities
from movlr_jax.evolution.pairwise import meetings
from movlr_jax.records import Comparison, Critique, Evaluation, Generation, Proposal, Ranking
from movlr_jax.report import charts as report_charts
from movlr_jax.report import gait as report_gait
from movlr_jax.report import text as report_text
from movlr_jax.report import trials as report_trials
from movlr_jax.report.data import FIRST, Run, direction, ranking_rows, weight_shares
from movlr_jax.storage.events import numbers

# the stages of a generation
_STAGES = ("propose", "vet", "optimise", "film", "describe", "rank", "criticise")
_SHORT = 300  # characters of a message that is repeated each time
_ABOUT = ("task", "description", "model", "method", "seed", "hardware", "goals")


def used(run: Run) -> dict[str, Any]:
    """Return the settings, versions, backends, model calls and timings of the run."""
    about = run.about
    backends, settings = [], about.get("settings") or {}
    for role, text in (about.get("backends") or {}).items():
        if role == "sandbox" and settings.get("sandbox") == "process" and not str(text).startswith("process"):
            text = f"process: as the settings say; the record says {text}"
        name, _, why = str(text).partition(":")
        backends.append((role, name.strip(), why.strip()))
    timings = [(g.index, _timing(g)) for g in run.generations if g.timing]
    total = {stage: sum(timing[stage] for _, timing in timings) for stage in _STAGES}
    models = str(about.get("models_used") or "")
    task = str(about.get("task") or run.root.resolve().parent.name).replace("_", " ")
    return {
        **{key: about.get(key) for key in _ABOUT},
        "title": str(about.get("description") or "").strip() or task,
        "task": task,
        "model_notes": about.get("model_notes") or [],
        "versions": about.get("versions") or {},
        "settings": settings,
        "tuned": about.get("tuned_settings") or {},
        "backends": backends,
        "models": models,
        "no_models": models.lower().startswith("no "),
        "calls": (calls := _calls(run)),
        "cost": _cost(calls),
        "stages": _STAGES,
        "timings": timings,
        "total": total,
        "steps": sum(timing["physics_steps"] for _, timing in timings),
        "wall_s": run.wall_s or sum(total.values()) or None,
    }


def _calls(run: Run) -> list[dict[str, Any]]:
    """Return a row of the table of calls for each purpose and model; the cost is None if one is not known."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for call in run.calls:
        groups.setdefault((str(call.get("purpose")), f"{call.get('provider')} {call.get('model')}"), []).append(call)
    rows = []
    for (purpose, model), made in groups.items():
        states = Counter(call["state"] for call in made)
        prices: list[Any] = [call.get("cost_usd") for call in made if call.get("sent")]
        rows.append(
            {
                "purpose": purpose,
                "model": model,
                "versions": ", ".join(sorted({str(c["model_version"]) for c in made if c.get("model_version")})),
                "sent": sum(bool(c.get("sent")) and not c.get("replayed") for c in made),
                "failed": states["failed"],  # and repeated
                "lost": states["lost"],  # in progress when the process died; counted with their maximum cost
                "refused": states["refused"],  # without a valid answer after all attempts
                "tokens_in": sum(c.get("tokens_in") or 0 for c in made),
                "tokens_out": sum(c.get("tokens_out") or 0 for c in made),
                "cost_usd": None if None in prices else sum(prices),
            }
        )
    return rows


def _cost(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return the calls of models with their cost, "" if there were none."""
    sent = sum(c["sent"] for c in calls)
    prices = [c["cost_usd"] for c in calls if c["sent"]]
    price = "at unknown cost" if None in prices else f"for {sum(prices):.2f} USD"
    return f"{quantities.counted(sent, 'model call')} {price}" if sent else ""


def program(run: Run) -> dict[str, Any] | None:
    """Return the best program, its diff from its parent, and its terms."""
    best = run.best
    if best is None:
        return None
    parent = run.candidates.get(best.parent or "")
    return {
        "best": best,
        "parent": parent,
        "diff": report_text.diff(parent.source, best.source, parent.name, best.name) if parent else [],
        "terms": [_term(best, i, name) for i, name in enumerate(best.weights)],
    }


def _term(best: Evaluation, i: int, name: str) -> dict[str, Any]:
    term = best.terms.get(name, {})
    curve = numbers(term.get("curve"))
    return {
        "name": name,
        "colour": i,
        "weight": best.weights[name],
        "share": weight_shares(best.weights)[name],
        "mean": _number(term.get("mean")),
        "weighted_mean": _number(term.get("weighted_mean")),
        "nonfinite": sum(_number(term.get(kind)) or 0 for kind in ("nonfinite", "nonfinite_planned")),
        "spark": report_charts.sparkline(f"{name} over time", [(i, curve)]) if len(curve) > 1 else "",
    }


def charts(run: Run, metrics: Sequence[str]) -> dict[str, Any]:
    """Return all charts; None where there is nothing to draw yet."""
    best = run.best
    return {
        "measures": [_measure(run, name) for name in metrics],
        "failed": sum(c.failed for c in run.candidates.values()),
        "heatmap": _heatmap(run),
        "curves": _curves(best) if best else None,
    }


def _heatmap(run: Run) -> dict[str, Any] | None:
    """Return the terms, and the share of each in the best program after each generation (None if it has no such)."""
    final = {g.index for g in run.generations if g.final}
    terms = list(dict.fromkeys(term for _, c in run.stages for term in c.weights))
    rows = []
    for g, c in run.stages:
        shares = weight_shares(c.weights)
        cells = [{"share": shares[t], "weight": c.weights[t]} if t in shares else None for t in terms]
        rows.append({"generation": "final" if g in final else g, "name": c.name, "cells": cells})
    return {"terms": terms, "rows": rows} if rows else None


def _measure(run: Run, metric: str) -> tuple[str, int, report_charts.Chart]:
    """Return measure, direction and chart: programs as points, failed ones at the bottom, and the best as a line."""
    unit, scale = report_text.scale(metric)
    programs = run.candidates.values()
    span = max((c.candidate for c in programs), default=0) or 1
    place = {c.name: c.generation + 0.4 * (c.candidate / span - 0.5) for c in programs}
    value = {name: scale * claim.metrics.get(metric, math.nan) for name, claim in run.claims.items()}
    best = {place[c.name] if c.generation == g else float(g): value[c.name] for g, c in run.course.items()}
    at = {place[c.name]: c for c in programs}
    x = sorted({*at, *best})
    shown = [at.get(v) for v in x]
    ran = [math.nan if c is None or c.failed else value[c.name] for c in shown]
    failed = [0.0 if c and not math.isfinite(v) else math.nan for c, v in zip(shown, ran, strict=True)]
    lines = [
        report_charts.Line("best so far", [best.get(v, math.nan) for v in x], "ink"),
        report_charts.Line("a program", ran, "accent", points=True),
    ]
    if 0.0 in failed:
        lines.append(report_charts.Line("failed", failed, "bad", points=True))
    label = f"{quantities.human(metric)} of every program over generations"
    made = report_charts.chart(label, x, lines, unit=unit, x_label="generation", height=250)
    made["names"] = [c.name if c else "" for c in shown]  # a click leads to the row of the program
    made["tips"] = [_tip(run, c, metric) if c else "" for c in shown]
    made["range"] = [-0.4, max((c.generation for c in programs), default=0) + 0.4]
    return metric, direction(metric), made


def _tip(run: Run, c: Evaluation, metric: str) -> str:
    if c.failed:
        return f"{c.name} " + f"failed: {c.reason}"[:200]
    claim = run.claims[c.name]
    several = f"mean of {claim.n} trials " if claim.n > 1 else ""
    return f"{c.name}: {several}{quantities.quantity(claim.metrics.get(metric, math.nan), metric)}"


def _curves(best: Evaluation) -> report_charts.Chart | None:
    curves = {name: numbers(best.terms.get(name, {}).get("curve")) for name in best.weights}
    if len(best.curve_time) < 2 or not any(curves.values()):
        return None
    return report_charts.term_chart(best.curve_time, curves, clock=True)


def motion(run: Run) -> list[dict[str, Any]]:
    """Return a chart of each motion curve of the best program, with the first program dotted for comparison.

    Left and right are drawn together. The first program is drawn only in charts with a single line.
    """
    best, first = run.best, run.candidates.get(FIRST)
    if best is None or len(best.curve_time) < 2:
        return []
    others = _panels(first) if first and first is not best and not first.failed else {}
    shown = []
    for name, lines in _panels(best).items():
        other = others.get(name, {}).get("")
        title = report_text.title(name)
        chart = report_charts.motion_chart(
            f"{title} against time",
            report_text.scale(name)[0],
            best.curve_time,
            {side or best.name: values for side, values in lines.items()},
            (first.name, first.curve_time, other) if first and other else None,
            clock=True,
        )
        shown.append({"title": title, "chart": chart})
    return shown


def messages(run: Run) -> list[dict[str, Any]]:
    """Return all calls of models; a long message that an earlier call had is named by the number of that call."""
    seen: dict[str, int] = {}
    shown = []
    for number, call in enumerate(run.calls, 1):
        parts = []
        for role, text in _parts(call):
            known = seen.setdefault(text, number) if len(text) > _SHORT else number
            parts.append((role, text, known if known != number else None))
        shown.append(
            {
                "number": number,
                "purpose": str(call.get("purpose") or ""),
                "about": str(call.get("about") or ""),
                "model": " ".join(str(call.get(key) or "") for key in ("provider", "model")).strip(),
                "state": "replayed" if call.get("replayed") else call["state"],
                "parts": parts,
                "answer": str(call.get("answer") or call.get("error") or ""),
                "seconds": _number(call.get("seconds")),
            }
        )
    return shown


def _parts(call: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the role and the text of each part of a message; films and pictures by their kind and size."""
    messages = call.get("messages")
    for message in messages if isinstance(messages, list) else ():
        parts = message.get("parts") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                part = f"[{part.get('media')}, {(_number(part.get('bytes')) or 0.0) / 1000:,.0f} kB]"
            yield str(message.get("role") or ""), str(part)


def gait(run: Run) -> dict[str, Any] | None:
    """Return charts, table and faults of the gait of the best program; None if it does not walk."""
    best = run.best
    if best is None or not (best.gait or best.faults):
        return None
    parts = {"charts": report_gait.charts, "phases": report_gait.phases, "table": report_gait.table}
    try:
        drawn = {name: part(best.gait) for name, part in parts.items()}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # a record may hold anything
        drawn = dict.fromkeys(parts, ())
    return {
        "name": best.name,
        "faults": list(best.faults.values()),
        "speed": best.gait.get("speed_m_s"),
        "speed_class": str(best.gait.get("speed_class", "")).replace("_", " "),
        **drawn,
    }


def _panels(c: Evaluation) -> dict[str, dict[str, list[float]]]:
    """Group curves by chart: name without side -> side ("left", "right" or "") -> curve. Fractions are in %."""
    panels: dict[str, dict[str, list[float]]] = {}
    for name, values in c.series.items():
        side = next((side for side in ("left", "right") if name.startswith(f"{side}_")), "")
        name = name.removeprefix(f"{side}_") if side else name
        scale = report_text.scale(name)[1]
        curve = [scale * v for v in numbers(values)]
        if any(map(math.isfinite, curve)):
            panels.setdefault(name, {})[side] = curve
    return {name: dict(sorted(lines.items())) for name, lines in panels.items()}


def _sparklines(c: Evaluation | None) -> list[dict[str, Any]]:
    """Return the same curves of any program as sparklines, with title, minimum and maximum."""
    shown = []
    for name, lines in (_panels(c) if c else {}).items():
        finite = [v for values in lines.values() for v in values if math.isfinite(v)]
        title, unit = report_text.title(name), report_text.scale(name)[0]
        spark = report_charts.sparkline(f"{title} over time", list(enumerate(lines.values())))
        shown.append({"title": title, "unit": unit, "low": min(finite), "high": max(finite), "spark": spark})
    return shown


def latest(generations: Sequence[Generation], most: int = 1000) -> list[Generation]:
    """Return the generations whose details are shown: the latest, with about `most` programs."""
    sizes = itertools.accumulate(1 + len(g.candidates) for g in reversed(generations))
    return list(generations[-max(1, sum(size <= most for size in sizes)) :])


def generation(run: Run, g: Generation) -> dict[str, Any]:
    """Return the table rows of a generation, the strongest first, with comparisons and critique."""
    ranking, proposal = g.ranking or Ranking(), g.proposal or Proposal()
    new = {c.name: c for c in g.candidates}
    compared = {name for c in ranking.comparisons for name in (c.first, c.second)}
    shown = {*new, *compared, *run.trials.get(g.index, {}), g.best}  # a ranking contains all programs of the run
    ranked = [entry for entry in ranking_rows(ranking) if entry[0] in shown]
    unranked = [(name,) for name in new if name not in {entry[0] for entry in ranked}]
    rows = _rows(run, g, [*ranked, *unranked], dict(enumerate(proposal.notes)))
    failed = {name for name, c in new.items() if c.failed}
    return {
        "index": g.index,
        "title": g.title,
        "final": g.final,
        "strip": report_trials.contest(run, g),
        "noise": report_trials.noise(run, g),
        "rows": [row for row in rows if row["name"] not in failed],
        "failed": [row for row in rows if row["name"] in failed],
        "best": g.best,
        "proposed": len(proposal.sources),
        "evaluated": len(new),
        "seconds": sum(_timing(g)[stage] for stage in _STAGES) or None,
        "flip_rate": _number(ranking.flip_rate),
        "overruled": sum(bool(c.overruled) for c in ranking.comparisons),
        "unanswered": ranking.unanswered,
        "comparisons": _comparisons(ranking.comparisons),
        "critique": _critique(g.critique),
    }


def last_ranking(run: Run) -> list[dict[str, Any]]:
    """Return all programs of the last ranking, which uses all comparisons of the run; the strongest first."""
    last = next((g for g in reversed(run.generations) if g.ranking), None)
    return [r for r in _rows(run, last, ranking_rows(last.ranking)) if r["strength"] is not None] if last else []


def _rows(
    run: Run, g: Generation, ranked: Sequence[tuple], notes: Mapping[int, str | None] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a table of programs (name, strength, deviation, probability of being the best)."""
    rows = [_row(run, g, notes or {}, *entry) for entry in ranked]
    rows.sort(key=lambda row: (row["strength"] is None, -(row["strength"] or 0.0), row["name"]))
    with_bar = [row for row in rows if row["strength"] is not None]
    ends = [row["strength"] + sign * row["deviation"] for row in with_bar for sign in (-1, 1)]
    low, span = min(ends, default=0.0), (max(ends, default=0.0) - min(ends, default=0.0)) or 1.0
    for row in with_bar:
        left, middle, right = (row["strength"] + sign * row["deviation"] for sign in (-1, 0, 1))
        row["bar"] = [round(100 * x / span, 1) for x in (left - low, middle - low, right - left)]  # % of all bars
    return rows


def _row(
    run: Run,
    g: Generation,
    notes: Mapping[int, str | None],
    name: str,
    strength: Any = None,
    deviation: Any = None,
    p_best: Any = None,
) -> dict[str, Any]:
    c, claim = run.candidates.get(name), run.claims.get(name)
    new = c is not None and c.generation == g.index
    return {
        "metrics": claim.metrics if claim else {},
        "trials": claim.n if claim else None,
        "rate": None if claim is None or claim.successes is None else f"{claim.successes} of {claim.n}",
        "name": name,
        "new": new,  # from this generation, not from an earlier one
        "candidate": c,
        "strength": _number(strength),
        "deviation": _number(deviation) or 0.0,
        "p_best": _number(p_best),
        "best": name == g.best,
        "sparklines": _sparklines(c) if new else [],
        "note": notes.get(c.candidate) if c and new else None,
    }


def _comparisons(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the answers of the judge. `flipped` marks those whose winner depends on the order."""
    answers = [
        vars(c) | {"winner": (c.preferred or "tie") if c.decided else "not answered", "flipped": False}
        for c in comparisons
    ]
    given = [a for a in answers if a["winner"] != "not answered"]
    for i, j in meetings([(a["first"], a["second"]) for a in given]):
        given[i]["flipped"] = given[j]["flipped"] = given[i]["winner"] != given[j]["winner"]
    return answers


def _critique(critique: Critique | None) -> dict[str, Any] | None:
    if critique is None:
        return None
    advice = [{**vars(a), "weight": _number(a.weight)} for a in critique.advice]
    return {**vars(critique), "advice": advice, "alignment": _number(critique.alignment)}


def _timing(g: Generation) -> dict[str, float]:
    """Return the seconds of each stage and the physics steps; 0 if not recorded."""
    return {key: _number(g.timing.get(key)) or 0.0 for key in (*_STAGES, "physics_steps")}


def _number(value: Any) -> float | None:
    """Return a finite number, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
