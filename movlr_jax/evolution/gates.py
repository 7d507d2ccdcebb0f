"""What a task's numbers know for certain and may overrule a judge with: falls, dropped things, lost simulations."""

from __future__ import annotations

from dataclasses import replace

from movlr_jax.language.base import Evaluation, Preference


def fault(candidate: Evaluation) -> str | None:
    """Why a motion cannot be the better one, or None."""
    if candidate.failed or candidate.metrics.get("diverged_fraction", 0.0) > 0:
        return "its simulation was lost"
    if candidate.metrics.get("fell", 0.0) > 0:
        return "it fell"
    if candidate.metrics.get("dropped", 0.0) > 0:
        return "it dropped what it held"
    return None


def gated(preference: Preference, a: Evaluation, b: Evaluation) -> Preference:
    """The preference, or its correction where exactly one of the two (a shown first) has a fault."""
    faults = fault(a), fault(b)
    if (faults[0] is None) == (faults[1] is None):
        return preference
    winner, loser, why = ("second", a, faults[0]) if faults[0] else ("first", b, faults[1])
    if preference.winner == winner:
        return preference
    answer = f"said {preference.winner}" if preference.answered else "gave no answer"
    said = f"the judge {answer}: {preference.reason}"
    return replace(preference, winner=winner, reason=f"{loser.name}: {why}", overruled=said)
