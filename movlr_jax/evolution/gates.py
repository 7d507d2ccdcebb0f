"""Gates: what overrules a judge. They are diverged simulations, falls, dropped objects and degenerate motions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from movlr_jax._util.quantities import RETURNS
from movlr_jax.records import Evaluation, Preference, Trial
from movlr_jax.tasks import Task


def fault(trial: Trial) -> tuple[int, str]:
    """Return how severe the fault of a motion is and what it is; 0 and an empty string for a sound motion.

    A motion that ends early (3: diverged, 2: a fall or a dropped object) is worse than a degenerate one (1).
    """
    if trial.failed or trial.metrics.get("diverged_fraction", 0.0) > 0:
        return 3, "the simulation diverged"
    if any(name in trial.metrics for name in RETURNS):  # the environment's return says what an early end is worth
        return 0, ""
    if trial.metrics.get("fell", 0.0) > 0:
        seconds = trial.metrics.get("time_to_fall_s")
        return 2, "it fell" if seconds is None else f"it fell after {seconds:.1f} s"
    if trial.metrics.get("dropped", 0.0) > 0:
        return 2, "it dropped the object"
    if trial.faults:
        return 1, next(iter(trial.faults.values()))
    return 0, ""


def score_of(task: Task, trial: Trial) -> float:
    """Return the task score of one episode, -inf if it failed or the simulation diverged."""
    if trial.failed or trial.metrics.get("diverged_fraction", 0.0) > 0:
        return -math.inf
    score = task.scoring.score(dict(trial.metrics))
    return score if math.isfinite(score) else -math.inf


def merit(task: Task, trial: Trial) -> tuple[int, float]:
    """Return what orders motions without a judge: the lesser fault is better, then the higher score."""
    return -fault(trial)[0], score_of(task, trial)


def poorest_first(task: Task, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that ran, the poorest first."""
    return sorted((trial for trial in trials if not trial.failed), key=lambda trial: merit(task, trial))


def poorer(ran: Sequence[Trial]) -> Trial:
    """Return one of the poorer trials of `ran`, the poorest first: that of the lower quartile."""
    return ran[(len(ran) - 1) // 4]


def gated(preference: Preference, a: Evaluation, b: Evaluation) -> Preference:
    """Return the preference, corrected if it is not for the candidate with the lesser fault. `a` was shown first."""
    decision = by_gates(a, b)
    if decision is None or preference.winner == decision.winner:
        return preference
    answer = f"answered {preference.winner}" if preference.answered else "did not answer"
    overruled = f"the judge {answer}: {preference.reason}"
    return replace(preference, winner=decision.winner, reason=decision.reason, overruled=overruled)


def by_gates(a: Evaluation, b: Evaluation) -> Preference | None:
    """Return the preference for the candidate with the lesser fault, None if no fault decides."""
    (severity_a, why_a), (severity_b, why_b) = fault(a), fault(b)
    if severity_a == severity_b:
        return None
    if severity_a > severity_b:
        return Preference("second", f"{a.name}: {why_a}")
    return Preference("first", f"{b.name}: {why_b}")
