"""What a search shows in an experiment tracker, once per generation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.gates import score_of
from movlr_jax.language.base import Evaluation
from movlr_jax.tracking.base import Ended, Shown

BEGUN, DONE = "tracked_run", "tracked"  # events: the key of the tracker's run; a generation that it has


def track(context: SearchContext, g: int, evaluations: Sequence[Evaluation], best: Evaluation) -> None:
    """Show a finished generation in the tracker, if there is one and it does not have it yet. Raises UserError."""
    tracker, archive, name = context.tracker, context.archive, context.config.tracker.name
    if tracker is None:
        return
    if not context.tracking:
        begun = archive.get(BEGUN) or {}
        key = begun.get("key") if begun.get("tracker") == name else None
        about = dict((archive.get("run") or {}).get("settings") or {})
        archive.record(BEGUN, {"tracker": name, "key": tracker.begin(about, key)})
        context.tracking = True
    if (archive.get(DONE, g) or {}).get("tracker") != name:
        films = {e.name: e.film for e in evaluations if e.film and e.film.is_file()}
        tracker.generation(Shown(g, numbers(context, g, evaluations, best), films))
        archive.record(DONE, {"tracker": name}, g)


def end_tracking(context: SearchContext, ended: Ended, report: Path | None) -> None:
    """Send the results of a finished search, then end the run in the tracker. Raises UserError."""
    tracker = context.tracker
    if tracker is None:
        return
    try:
        if context.tracking and ended == "finished":
            tracker.finish(context.archive.root / "best.py", report)
    finally:
        tracker.close(ended)


def numbers(
    context: SearchContext, g: int, evaluations: Sequence[Evaluation], best: Evaluation
) -> dict[str, float]:
    """Return what a tracker shows of a generation: best and spread, weights, judge flip rate, cost and times."""
    scores = [s for e in evaluations if math.isfinite(s := score_of(context.task, e))]
    ranked, (calls, cost) = context.archive.get("ranked", g) or {}, context.archive.spent()
    found = {
        "score/best": score_of(context.task, best),
        **({"score/mean": float(np.mean(scores)), "score/std": float(np.std(scores))} if scores else {}),
        **{f"best/{name}": value for name, value in best.metrics.items()},
        **{f"weights/{name}": weight for name, weight in best.weights.items()},
        **{f"terms/{name}": term["weighted_mean"] for name, term in best.terms.items()},
        "candidates/failed": sum(e.failed for e in evaluations),
        "judge/flip_rate": ranked.get("flip_rate"),
        "judge/comparisons": len(ranked.get("comparisons", ())),
        "models/calls": calls,
        "models/cost_usd": cost,
        **{f"seconds/{stage}": seconds for stage, seconds in context.seconds.items()},
    }
    return {name: float(v) for name, v in found.items() if v is not None and math.isfinite(v)}
