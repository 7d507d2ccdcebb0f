"""How policies of a run were trained, as plain data for the template: the short training, and the full one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from movlr_jax import quantities
from movlr_jax.quantities import summary
from movlr_jax.report import charts as report_charts
from movlr_jax.report.data import FIRST, Candidate, Run, numbers

_LEARNED = {  # curves of a training -> what they are
    "return": "return of an episode",
    "episode_s": "simulated time for each episode",
    "terminated": "episodes that the task ended",
    "entropy": "entropy of the policy",
    "kl": "change of the policy (KL)",
    "value_loss": "loss of the value",
    "nonfinite": "values of terms that were not finite",
    "skipped": "updates left out as not finite",
}
_ILLS = ("nonfinite", "skipped")  # drawn where there were any
_STEPS = "control steps"


def trainings(run: Run) -> list[dict[str, Any]]:
    """The best program's training, the first program's dotted, and its training in full, the short one's dotted."""
    best, first, full = run.best, run.candidates.get(FIRST), run.full
    shown = []
    if best and _steps(best.learning) > 1:
        beside = first if first and first is not best else None
        shown.append(_training("learning", best, beside, "first program") | {"full": None})
    if full and _steps(full.learning) > 1:
        outcome = {"name": full.name, "said": full.reason or summary(full.metrics), "film": full.film}
        outcome["steps"] = f"{numbers(full.learning['env_steps'])[-1]:,.0f} {_STEPS}"
        short = run.candidates[full.name]
        shown.append(_training("full", full, short, "its short training") | {"full": outcome})
    return shown


def _steps(learning: Mapping[str, Any]) -> int:
    return len(numbers(learning.get("env_steps")))


def _training(key: str, trained: Candidate, beside: Candidate | None, other: str) -> dict[str, Any]:
    """Charts of one training, a line a term, and of what else was measured; `other` names what is dotted there."""
    learning, steps = trained.learning, numbers(trained.learning.get("env_steps"))
    own = learning.get("terms") or {}
    terms = {name: numbers(own.get(name)) for name in trained.weights}
    panels = []
    for i, (name, title) in enumerate(_LEARNED.items()):
        values = numbers(learning.get(name))
        if not any(math.isfinite(v) for v in values) or (name in _ILLS and not any(values)):
            continue
        dotted = numbers(beside.learning.get(name)) if beside else []
        compared = (numbers(beside.learning.get("env_steps")), dotted) if beside and dotted else None
        label = f"{title} against {_STEPS}"
        chart = report_charts.motion_chart(
            f"{key}{i}", label, quantities.unit(name), steps, [values], compared, _STEPS
        )
        panels.append({"title": title, "chart": chart, "beside": compared is not None})
    return {
        "terms": report_charts.curve_chart(key, steps, terms, _STEPS),
        "panels": panels,
        "name": trained.name,
        "other": other,
    }
