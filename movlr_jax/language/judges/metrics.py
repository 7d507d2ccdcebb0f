"""The embedded default judge and critic: they read the task's numbers. No vision model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from movlr_jax.language.base import Critique, Evaluation, Preference, TermAdvice
from movlr_jax.language.proposers.terms import library
from movlr_jax.tasks import Task

_TIE = 0.25  # of the task's score: differences below it say nothing


@dataclass(frozen=True)
class MetricsJudge:
    """Prefers the episode with the higher task score."""

    name: str = "metrics judge (no vision model)"

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference:
        """Which of two evaluations is better, a shown first. One without a sound score loses to any with one."""
        first, second = _score(task, a), _score(task, b)
        if first is None or second is None:
            if first is None and second is None:
                return Preference("tie", "both failed")
            return Preference("second" if first is None else "first", "the other failed")
        reason = f"task score {first:.2f} against {second:.2f}"
        if abs(first - second) < _TIE:
            return Preference("tie", reason)
        return Preference("first" if first > second else "second", reason)


def _score(task: Task, candidate: Evaluation) -> float | None:
    """The task's score; None where it means nothing: the candidate failed, or a simulation of it diverged."""
    if candidate.failed or candidate.metrics.get("diverged_fraction", 0.0) > 0:
        return None
    score = task.score(dict(candidate.metrics))
    return None if math.isnan(score) else score


@dataclass(frozen=True)
class MetricsCritic:
    """Turns what the task's measures find wrong into advice on terms."""

    name: str = "metrics critic (no vision model)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        """One piece of advice for each need: add a term that serves it, or strengthen one when all are there.

        No term is asked for twice, whatever else it would serve.
        """
        needs = task.diagnose(dict(best.metrics))
        terms = library(task)
        advice: list[TermAdvice] = []
        for need in needs:
            asked = {item.term for item in advice}
            serving = [term for term in terms.values() if term.kind == need.kind and term.name not in asked]
            absent = [term for term in serving if term.name not in best.weights]
            present = [term for term in serving if term.name in best.weights]
            if absent:
                advice.append(TermAdvice("add", absent[0].name, need.problem, absent[0].weight))
            elif present:
                advice.append(TermAdvice("strengthen", present[0].name, need.problem))
        return Critique(
            success=bool(best.metrics.get("success", 0.0)),
            problems=tuple(dict.fromkeys(need.problem for need in needs)),
            advice=tuple(advice),
            author=self.name,
        )
