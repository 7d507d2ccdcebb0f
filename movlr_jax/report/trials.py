"""Strips of trials: a row for each program, a dot for each of its trials, and what the trials come to."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from movlr_jax._util import quantities
from movlr_jax._util.intervals import mean_interval
from movlr_jax.evolution.gates import fault
from movlr_jax.evolution.journal import CONFIRM
from movlr_jax.evolution.trials import HAND_WRITTEN, claim_of
from movlr_jax.records import Claim, Generation, Ranking, Trial
from movlr_jax.report import text as report_text
from movlr_jax.report.data import FIRST, Run, direction, key_metrics, ranking_rows

_MOST_TRACKS = 2  # measures with a track of their own in the head
_WIDTH = 4.5  # % of a track that a dot takes
_EDGE = 3.0  # % of a track left free at both ends
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between the marks of an axis
# the axis where nothing is measured
_ORDER = {
    "metric": "", "label": "trials, in their order", "unit": "", "factor": 1.0, "low": 0.0, "hint": "", "marks": (),
}  # fmt: skip
_ENDED = 2  # of `gates.fault`: a fall, a dropped object, or a simulation that diverged

Numbered = Mapping[int, Trial]


def head(run: Run) -> dict[str, Any] | None:
    """Return the claim of the run with its trials: the fresh ones, else those of the search; None without any."""
    measures = [name for name in key_metrics(run) if name != "success"][:_MOST_TRACKS]
    if confirmed := run.confirmed:
        fresh = run.trials.get(CONFIRM, {})
        rows = [
            _row(run, name, _role(name, confirmed.champion, confirmed.first), fresh.get(name, {}), claim)
            for name, claim in confirmed.claims.items()
        ]
        return _strip(run, rows, measures) | {"fresh": True, "single": False}
    best = run.best.name if run.best else None
    names = [*([best] if best else []), FIRST, "initial", HAND_WRITTEN]
    tried = {name: dict(enumerate(run.searched(name))) for name in names}
    rows = [_row(run, name, _role(name, best, FIRST), trials) for name, trials in tried.items() if trials]
    if not rows:
        return None
    return _strip(run, rows, measures) | {"fresh": False, "single": all(r["claim"].n == 1 for r in rows)}


def hero(run: Run, films: Collection[Path]) -> list[dict[str, Any]]:
    """Return caption, outcome and film of what the page opens with: the best program, then the first one."""
    best, first = run.best, run.candidates.get(FIRST)
    captioned = [(best, "Champion and first program" if best is first else "Champion")]
    captioned += [(first, "First program")] if first is not best else []
    shown = []
    for c, caption in captioned:
        if c and c.film and c.film in films:
            n, result = run.claims[c.name].n, quantities.summary(c.metrics)
            result = f"one of {n} trials: {result}" if n > 1 else result
            shown.append({"name": c.name, "caption": caption, "result": result, "film": c.film})
    return shown


def _role(name: str, champion: str | None, first: str) -> str:
    if name == champion:
        return "champion and first program" if name == first else "champion"
    return {first: "first program", "initial": "first program", HAND_WRITTEN: "program of the task"}.get(name, "")


def contest(run: Run, g: Generation) -> dict[str, Any] | None:
    """Return the trials of a generation: its entrants, the best first, and what they decided; None without trials."""
    entered = run.trials.get(g.index)
    if not entered:
        return None
    ranked = ranking_rows(g.ranking)
    strengths = {name: strength for name, strength, *_ in ranked if strength is not None and math.isfinite(strength)}
    before = champion_before(run, g)
    rows = []
    for name in sorted(entered, key=lambda name: strengths.get(name, -math.inf), reverse=True):
        role = "champion" if name == g.best else "champion before" if name == before else ""
        rows.append(_row(run, name, role, entered[name]))
    measures = [name for name in key_metrics(run) if name != "success"][:1]
    everywhere = [t for of in run.trials.values() for numbered in of.values() for t in numbered.values()]
    return _strip(run, rows, measures, everywhere) | {"decided": decided(run, g)}


def champion_before(run: Run, g: Generation) -> str | None:
    """Return the champion that a generation had to beat."""
    earlier = [other.best for other in run.generations if other.index < g.index and other.best]
    return earlier[-1] if earlier else FIRST if g.index == 0 and FIRST in run.trials.get(0, {}) else None


def decided(run: Run, g: Generation) -> str:
    """Return what a generation decided between the champion and its best challenger, in a sentence."""
    ranking, before = g.ranking or Ranking(), champion_before(run, g)
    rival, p, best = ranking.rival, ranking.p_better, g.best
    if not best or not rival or not before or p is None or not math.isfinite(p):
        return f"{best} is the first champion." if best and not before else ""
    chance = "P > 0.99" if p > 0.99 else f"P = {quantities.chance_of(p)}"
    if best != before:
        return f"{best} is better than {before} with {chance} and replaces it."
    needed = (run.about.get("settings") or {}).get("certainty")
    few = f"{needed:g} is needed, so " if isinstance(needed, int | float) and p < needed else ""
    return f"{rival} is better than {best} with {chance}; {few}{best} stays."


def noise(run: Run, g: Generation) -> float | None:
    """Return the standard deviation of the difference of two equal programs in one trial, in the score's unit."""
    value = g.ranking.noise if g.ranking else None
    return value if run.scored and value is not None and math.isfinite(value) else None


def _row(run: Run, name: str, role: str, trials: Numbered, claim: Claim | None = None) -> dict[str, Any]:
    """Return what a strip shows of a program; its claim is that of the trials unless one is recorded."""
    claim = claim or claim_of(run.motion, list(trials.values()))
    low, high = claim.interval
    return {
        "name": name,
        "role": role,
        "link": name in run.candidates,
        "trials": dict(sorted(trials.items())),
        "claim": claim,
        "rate": None if claim.successes is None else f"{claim.successes} of {claim.n}",
        "between": f"{100 * low:.0f}–{100 * high:.0f} %",
    }


def _strip(
    run: Run, rows: Sequence[dict[str, Any]], measures: Sequence[str], scale_of: Sequence[Trial] = ()
) -> dict[str, Any]:
    """Return columns (a track each), rows and the table of all trials.

    scale_of: trials that the axes have room for; by default those of the rows.
    """
    own = [trial for row in rows for trial in row["trials"].values()]
    columns = [_column(name, scale_of or own) for name in measures if _finite(own, name)]
    if not columns:
        most = max((len(row["trials"]) for row in rows), default=1)
        columns = [_ORDER | {"span": max(most - 1.0, 12.0)}]
    for row in rows:
        row["cells"] = [_cell(run, row, column) for column in columns]
    return {
        "columns": columns,
        "rows": rows,
        "succeeds": any(row["rate"] for row in rows),
        "measures": [name for name in key_metrics(run) if name != "success"][:3],
        "table": [_told(run, row, number, trial) for row in rows for number, trial in row["trials"].items()],
        "crossed": any(_kind(run, trial) == "cross" for trial in own),
    }


def _finite(trials: Sequence[Trial], metric: str) -> list[float]:
    return [v for t in trials if math.isfinite(v := t.metrics.get(metric, math.nan))]


def _column(metric: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the axis of a measure: its ends, and its marks in the unit that is shown."""
    values = _finite(trials, metric)
    unit, factor = report_text.scale(metric)
    if unit == "m" and metric != "distance_m" and max(map(abs, values)) < 1:
        unit, factor = "cm", 100.0
    low, high = (factor * end for end in (min(values), max(values)))
    if high == low:
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    step = _step(high - low)
    marks = [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    column = {
        "metric": metric, "label": quantities.human(metric), "unit": unit, "factor": factor,
        "low": low, "span": high - low,
        "hint": {1: "higher is better", -1: "lower is better"}.get(direction(metric), ""),
    }  # fmt: skip
    column["marks"] = [(_left(column, mark), quantities.number(round(mark, 12))) for mark in marks]
    return column


def _step(span: float) -> float:
    """Return a round step that gives an axis four to eight marks or so."""
    size = 10.0 ** math.floor(math.log10(span / 4))
    return next((size * s for s in _STEPS if size * s >= span / 5), 10 * size)


def _left(column: Mapping[str, Any], value: float) -> float:
    """Return the position of a shown value on a track, in %; values beyond its ends are at the ends."""
    share = (value - column["low"]) / column["span"]
    return round(_EDGE + (100 - 2 * _EDGE) * min(1.0, max(0.0, share)), 2)


def _cell(run: Run, row: Mapping[str, Any], column: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dots of a program on a track, and the mean of its trials with the 95 % interval."""
    metric, factor, trials = column["metric"], column["factor"], row["trials"]
    at = {}
    for place, (number, trial) in enumerate(trials.items()):
        value = factor * trial.metrics.get(metric, math.nan) if metric else float(place)
        at[number] = _left(column, value) if math.isfinite(value) else 0.0
    dots, ends = [], list[float]()
    for number, left in sorted(at.items(), key=lambda pair: pair[1]):
        lane = next((i for i, end in enumerate(ends) if left - end >= _WIDTH), len(ends))
        ends[lane : lane + 1] = [left]
        dots.append(
            {
                "left": left,
                "lane": lane,
                "kind": _kind(run, trials[number]),
                "tip": _tip(run, row["name"], number, trials[number]),
                "film": film_of(run, row["name"], trials[number]),
            }
        )
    values, mean = _finite(list(trials.values()), metric), row["claim"].metrics.get(metric, math.nan)
    cell = {"dots": dots, "lanes": max(len(ends), 1), "mean": None, "bar": None, "said": "", "between": ""}
    if not metric or not math.isfinite(mean):
        return cell
    low, high = mean_interval(values)
    cell |= {"mean": _left(column, factor * mean), "said": quantities.quantity(mean, metric)}
    if math.isfinite(low) and math.isfinite(high):
        left, right = _left(column, factor * low), _left(column, factor * high)
        between = " to ".join(quantities.quantity(end, metric) for end in (low, high))
        cell |= {"bar": (left, round(right - left, 2)), "between": between}
    return cell


def _kind(run: Run, trial: Trial) -> str:
    if trial.failed or fault(trial)[0] >= _ENDED:
        return "cross"
    success = run.succeeded(trial)
    return "ran" if success is None else "success" if success else "miss"


def _outcome(run: Run, trial: Trial) -> str:
    if trial.failed:
        return f"failed: {trial.reason}"[:200]
    said = {True: "success", False: "no success", None: ""}[run.succeeded(trial)]
    return ", ".join(filter(None, [said, fault(trial)[1]]))


def _tip(run: Run, name: str, number: int, trial: Trial) -> str:
    seed = f", seed {trial.seed}" if trial.seed is not None else ""
    metrics = {key: value for key, value in trial.metrics.items() if key != "success"}
    told = [_outcome(run, trial), "" if trial.failed else quantities.summary(metrics)]
    return ": ".join(filter(None, [f"{name}, trial {number + 1}{seed}", "; ".join(filter(None, told))]))


def _told(run: Run, row: Mapping[str, Any], number: int, trial: Trial) -> dict[str, Any]:
    return {
        "name": row["name"],
        "number": number + 1,
        "seed": trial.seed,
        "outcome": _outcome(run, trial) or "ran",
        "metrics": trial.metrics,
        "film": film_of(run, row["name"], trial),
    }


def film_of(run: Run, name: str, trial: Trial) -> Path | None:
    """Return the path of a trial's film in the run directory, which may be that of the candidate it stands for."""
    shown = run.candidates.get(name)
    if shown and shown.film and shown.seed is not None and shown.seed == trial.seed:
        return shown.film
    filmed = run.filmed and trial.stem.startswith("confirmation/")
    return Path(f"{trial.stem}.mp4") if filmed else None


def fresh_films(run: Run) -> dict[Path, str]:
    """Return the films of the fresh trials with their captions, in the order of the head's rows."""
    shown, found = run.confirmed, {}
    for name in shown.claims if shown else ():
        for number, trial in sorted(run.trials.get(CONFIRM, {}).get(name, {}).items()):
            if path := film_of(run, name, trial):
                found[path] = _tip(run, name, number, trial)
    return found
