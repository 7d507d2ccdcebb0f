"""One page for all runs of a folder: the jobs of a sweep, or the methods of a comparison."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from urllib.parse import quote

from movlr_jax._util import quantities
from movlr_jax._util.intervals import rate_interval
from movlr_jax._util.settings import CONFIG_BYTES, read_yaml
from movlr_jax.errors import UserError
from movlr_jax.records import Claim
from movlr_jax.report.charts import spread_chart
from movlr_jax.report.data import Run, direction, key_metrics, read_run
from movlr_jax.report.page import PAGE, embedded, rendered
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.events import numbers
from movlr_jax.storage.inside import read_inside
from movlr_jax.storage.writing import write_atomically

JOB = "job.yaml"  # in the folder of each job of a sweep: its overrides, exit status and error
_TUNED = ("optimizer.", "episode_s")  # settings that a task and a model bring along
# settings that differ between runs without a meaning for their results
_MEANINGLESS = ("run_dir", "resume", "trust", "films", "preview", "reward", "tracker.", "workers.")


@dataclass(frozen=True)
class Member:
    """One run of the folder, or a job that ended without one."""

    name: str  # its folder, relative to that of the sweep
    run: Run | None
    error: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)  # those that differ between the runs
    seed: int | None = None

    @property
    def group(self) -> str:
        """The settings that differ, without the seed."""
        return " ".join(_word(k, v) for k, v in self.settings.items() if k != "seed" and v is not None)

    @property
    def score(self) -> float:
        """Mean score of the best program over its trials in the search; NaN before the first ranking.

        Where a judge watched films, it is that of one motion of the finished run.
        """
        run = self.run
        if run and run.best and run.scored:
            return run.strengths.get(run.best.name, {}).get("strength", math.nan)
        return numbers([((run and run.finished) or {}).get("score")])[0]

    @property
    def fresh(self) -> Claim | None:
        """What the fresh trials of the champion came to; None if the run is not confirmed."""
        found = self.run.confirmed if self.run else None
        return found.claims[found.champion] if found else None

    @property
    def metrics(self) -> Mapping[str, float]:
        """Mean measures of the best program in fresh trials, else in those of the search."""
        claim = self.fresh or (self.run.claims[self.run.best.name] if self.run and self.run.best else None)
        return claim.metrics if claim else {}


def _rate(members: Sequence[Member]) -> str:
    """Return successes in all fresh trials with their 95 % interval, as in "7 of 8 (53–98 %)"; "–" without any."""
    known = [m.fresh for m in members if m.fresh and m.fresh.successes is not None]
    if not known:
        return "–"
    successes, n = sum(claim.successes or 0 for claim in known), sum(claim.n for claim in known)
    low, high = rate_interval(successes, n)
    return f"{successes} of {n} ({100 * low:.0f}–{100 * high:.0f} %)"


def _word(name: str, value: Any) -> str:
    """Return a setting as on the command line."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name.removesuffix('.name')}={repr(text) if ' ' in text else text}"


def write_sweep_page(folder: Path) -> Path:
    """Write report.html for all runs below `folder` and return its path. Raises UserError if there is none."""
    members = read_members(folder)
    if not any(m.run for m in members):
        raise UserError(f"{folder} is neither a run directory nor a folder with runs: there is no run.db in it")
    return write_atomically(folder / PAGE, render(folder, members).encode("utf-8", "backslashreplace"))


def read_members(folder: Path) -> list[Member]:
    """Return the runs below `folder` in the order of their numbers or names, and the jobs that left no run."""
    places = {path.parent for name in ("run.db", JOB) for path in folder.rglob(name)} - {folder}
    found = [_read(folder, place) for place in sorted(places, key=_order)]
    different = _different([m.run for m in found if m.run])
    for i, m in enumerate(found):
        if m.run:
            settings = {k: v for k, v in (m.run.about.get("settings") or {}).items() if k in different}
            found[i] = replace(m, settings=settings, seed=m.run.about.get("seed"))
    return found


def _read(folder: Path, place: Path) -> Member:
    name = str(place.relative_to(folder))
    job: Any = {}
    with contextlib.suppress(UserError, ValueError):
        job = read_yaml((read_inside(place, JOB, CONFIG_BYTES) or b"").decode()) or {}
    error = str(job.get("error") or "") if isinstance(job, dict) else ""
    if error and isinstance(job.get("overrides"), list):
        error = f"{' '.join(map(str, job['overrides']))}: {error}"
    try:
        with Archive.open(place, write=False) as archive:
            return Member(name, read_run(archive), error)
    except UserError as unreadable:
        return Member(name, None, error or str(unreadable))


def _order(path: Path) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in path.parts]


def _different(runs: Sequence[Run]) -> list[str]:
    """Return the settings that differ between the runs."""
    all_settings = [run.about.get("settings") or {} for run in runs]
    names = dict.fromkeys(name for settings in all_settings for name in settings)
    different = [n for n in names if len({repr(s.get(n)) for s in all_settings}) > 1]
    meaningful = [n for n in different if not n.startswith(_MEANINGLESS)]
    chosen = [n for n in meaningful if re.fullmatch(r"\w+\.name", n)]

    def follows(name: str) -> bool:
        """Say whether the setting says nothing more: a choice, or a task and a model, bring its value along."""
        by = [c for c in chosen if c != name and name.startswith(c.removesuffix("name"))]
        by += ["task.name", "model"] if name.startswith(_TUNED) else []
        by += ["method.name"] if name in ("candidates", "generations") else []  # of a comparison
        values: dict[tuple[str, ...], set[str]] = {}
        for settings in all_settings:
            values.setdefault(tuple(repr(settings.get(n)) for n in by), set()).add(repr(settings.get(name)))
        return all(len(of) == 1 for of in values.values())

    return [n for n in meaningful if not follows(n)]


def render(folder: Path, members: Sequence[Member]) -> str:
    """Render the page of a sweep as HTML."""
    ran = [m for m in members if m.run]
    groups: dict[str, list[Member]] = {}
    for member in ran:
        groups.setdefault(member.group, []).append(member)
    metrics = list(dict.fromkeys(name for m in ran if m.run for name in key_metrics(m.run)))
    best = {name: max(of, key=lambda m: _rank(m, metrics)) for name, of in groups.items()}
    films = {name: _film(folder, m) for name, m in best.items()}
    return rendered(
        "sweep.html",
        ["vendor/uplot.min.js", "charts.js"],
        media="'self' data:",
        title=folder.resolve().name,
        tasks=sorted({str(m.run.about.get("task")) for m in ran if m.run}),
        members=members,
        failed=[m for m in members if m.error],
        metrics=metrics,
        groups=[_row(name, of, metrics) for name, of in groups.items()],
        charts=[_chart(name, groups) for name in metrics],
        best=best,
        films=films,
        rate=lambda member: _rate([member]),
        shown=embedded(folder, [f for f in films.values() if f]),
        link=lambda m: quote(os.fsencode(f"{m.name}/{PAGE}")),
        cost=lambda run: sum(c.get("cost_usd") or 0.0 for c in run.calls if c.get("sent")),
    )


def _rank(member: Member, metrics: Sequence[str]) -> tuple[float, float]:
    """Sort by the score of the task; before the end of a run, by its first measure."""
    score = member.score if math.isfinite(member.score) else -math.inf
    if not metrics:
        return score, -math.inf
    value = member.metrics.get(metrics[0], math.nan) * (direction(metrics[0]) or 1)
    return score, value if math.isfinite(value) else -math.inf


def _film(folder: Path, member: Member) -> Path | None:
    """Return the path of the film of the best program, relative to the folder of the sweep."""
    best = member.run and member.run.best
    path = Path(member.name) / best.film if best and best.film else None
    return path if path and (folder / path).is_file() else None


def _row(name: str, of: Sequence[Member], metrics: Sequence[str]) -> dict[str, Any]:
    """Return the mean and the standard deviation over the runs of a group for the score and each measure."""

    def spread(values: Iterable[float]) -> tuple[float | None, float | None]:
        finite = [v for v in values if math.isfinite(v)]
        return (fmean(finite) if finite else None), (stdev(finite) if len(finite) > 1 else None)

    return {
        "name": name,
        "runs": len(of),
        "seeds": [m.seed for m in of],
        "score": spread(m.score for m in of),
        "success": _rate(of),
        "metrics": {k: spread(m.metrics.get(k, math.nan) for m in of) for k in metrics},
    }


def _chart(metric: str, groups: Mapping[str, Sequence[Member]]) -> tuple[str, int, Any]:
    """Return (measure, direction, chart) of the best program over generations."""

    def course(run: Run) -> dict[int, float]:
        return {g: run.claims[best.name].metrics.get(metric, math.nan) for g, best in run.course.items()}

    courses = {name: [course(m.run) for m in of if m.run] for name, of in groups.items()}
    unit = "" if metric == "success" else quantities.unit(metric)
    return metric, direction(metric), spread_chart(quantities.human(metric), unit, courses)
