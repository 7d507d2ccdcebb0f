"""The embedded default judge and critic: they read the task's numbers. No vision model."""

from __future__ import annotations

from dataclasses import dataclass

from movlr_jax.language.terms import library
from movlr_jax.tasks import Task
from movlr_jax.types import Critique, Evaluation, Preference, TermAdvice

_TIE = 0.25  # of the task's score: differences below it say nothing


@dataclass(frozen=True)
class MetricsJudge:
    """Prefers the episode with the higher task score."""

    name: str = "metrics judge (no vision model)"

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference:
        """Which of two evaluations is better, a shown first. A failed candidate loses to any that ran."""
        if a.failed or b.failed:
            if a.failed and b.failed:
                return Preference("tie", "both failed")
            return Preference("second" if a.failed else "first", "the other failed")
        first, second = task.score(dict(a.metrics)), task.score(dict(b.metrics))
        reason = f"task score {first:.2f} against {second:.2f}"
        if abs(first - second) < _TIE:
            return Preference("tie", reason)
        return Preference("first" if first > second else "second", reason)


@dataclass(frozen=True)
class MetricsCritic:
    """Turns what the task's measures find wrong into advice on terms."""

    name: str = "metrics critic (no vision model)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        """One piece of advice for each need: add a term that serves it, or strengthen one when all are there."""
        needs = task.diagnose(dict(best.metrics))
        terms = library(task)
        advice = []
        for need in needs:
            serving = [term for term in terms.values() if term.kind == need.kind]
            absent = [term for term in serving if term.name not in best.weights]
            present = [term for term in serving if term.name in best.weights]
            if absent:
                advice.append(TermAdvice("add", absent[0].name, need.problem, absent[0].weight))
            elif present:
                advice.append(TermAdvice("strengthen", present[0].name, need.problem))
        return Critique(
            success=bool(best.metrics.get("success", 0.0)),
            problems=tuple(need.problem for need in needs),
            advice=tuple(advice),
            author=self.name,
        )
