"""Gates: metrics that overrule a judge. They are falls, dropped objects and diverged simulations."""

from __future__ import annotations

from dataclasses import replace

from movlr_jax.language.base import Evaluation, Preference


def fault(candidate: Evaluation) -> str | None:
    """Return the reason why a motion cannot win a comparison, or None."""
    if candidate.failed or candidate.metrics.get("diverged_fraction", 0.0) > 0:
        return "the simulation diverged"
    if candidate.metrics.get("fell", 0.0) > 0:
        return "it fell"
    if candidate.metrics.get("dropped", 0.0) > 0:
        return "it dropped the object"
    return None


def gated(preference: Preference, a: Evaluation, b: Evaluation) -> Preference:
    """Return the preference, corrected if exactly one of the two candidates has a fault. `a` was shown first."""
    faults = fault(a), fault(b)
    if (faults[0] is None) == (faults[1] is None):
        return preference
    winner, loser, why = ("second", a, faults[0]) if faults[0] else ("first", b, faults[1])
    if preference.winner == winner:
        return preference
    answer = f"answered {preference.winner}" if preference.answered else "did not answer"
    overruled = f"the judge {answer}: {preference.reason}"
    return replace(preference, winner=winner, reason=f"{loser.name}: {why}", overruled=overruled)
