"""Data of the training section of a report: the training during the search and the final training."""

from __future__ import annotations

import math
from typing import Any

from movlr_jax._util import quantities
from movlr_jax.records import Evaluation
from movlr_jax.report import charts as report_charts
from movlr_jax.report.data import FIRST, Run
from movlr_jax.storage.events import numbers

_LEARNED = {  # learning curve -> title
    "return": "return per episode",
    "episode_s": "episode length",
    "terminated": "episodes terminated by the task",
    "entropy": "policy entropy",
    "kl": "change of the policy (KL)",
    "value_loss": "value loss",
    "nonfinite": "non-finite term values",
    "skipped": "skipped updates (non-finite gradient)",
}
_FAULTS = ("nonfinite", "skipped")  # drawn only if they are not all zero
_STEPS = "control steps"


def trainings(run: Run) -> list[dict[str, Any]]:
    """Return the training of the best program compared with the first program, and the final training.

    The final training is compared with the training of the same program during the search. References are dotted.
    """
    best, first, full = run.best, run.candidates.get(FIRST), run.full
    shown = []
    if best and len(best.learning.get("env_steps") or ()) > 1:
        reference = first if first and first is not best else None
        shown.append(_training("learning", best, reference, "first program") | {"full": None})
    if full and len(full.learning.get("env_steps") or ()) > 1:
        outcome = {"name": full.name, "result": full.reason or quantities.summary(full.metrics), "film": full.film}
        outcome["steps"] = f"{numbers(full.learning['env_steps'])[-1]:,.0f} {_STEPS}"
        short = run.candidates[full.name]
        shown.append(_training("full", full, short, "training during the search") | {"full": outcome})
    return shown


def _training(key: str, trained: Evaluation, reference: Evaluation | None, other: str) -> dict[str, Any]:
    """Return the charts of one training: a line per term, and other curves. `other` names the dotted reference."""
    learning, steps = trained.learning, numbers(trained.learning.get("env_steps"))
    curves = learning.get("terms") or {}
    terms = {name: numbers(curves.get(name)) for name in trained.weights}
    panels = []
    for name, title in _LEARNED.items():
        values = numbers(learning.get(name))
        if any(map(math.isfinite, values)) and (name not in _FAULTS or any(values)):
            of = reference.learning if reference else {}
            compared = (other, numbers(of.get("env_steps")), numbers(of.get(name))) if of.get(name) else None
            label = f"{title} against {_STEPS}"
            lines = {"final training" if key == "full" else "best program": values}
            chart = report_charts.motion_chart(label, quantities.unit(name), steps, lines, compared, _STEPS)
            panels.append({"title": title, "chart": chart})
    return {
        "key": key,
        "terms": report_charts.term_chart(steps, terms, _STEPS),
        "panels": panels,
        "name": trained.name,
        "other": other,
    }
