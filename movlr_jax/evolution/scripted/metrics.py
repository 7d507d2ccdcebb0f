"""The judge and the critics that read numbers and use no vision model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from movlr_jax.evolution.gates import score_of
from movlr_jax.evolution.scripted.terms import library
from movlr_jax.language.base import Critique, Evaluation, Preference, TermAdvice
from movlr_jax.tasks import Task
from movlr_jax.tasks.needs import Need


@dataclass(frozen=True)
class MetricsJudge:
    """Prefers the episode with the higher task score; differences up to `task.scoring.tie` count as a tie."""

    name = "metrics judge (no vision model)"

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference:
        """Return which evaluation is better; a is "first". Without a valid score, an evaluation loses."""
        first, second = score_of(task, a), score_of(task, b)
        if not math.isfinite(first) or not math.isfinite(second):
            if first == second:
                return Preference("tie", "both failed")
            return Preference("first" if first > second else "second", "the other failed")
        digits = ".2f" if task.scoring.tie else ".4g"
        reason = f"task score {first:{digits}} against {second:{digits}}"
        if first == second or abs(first - second) <= task.scoring.tie:
            return Preference("tie", reason)
        return Preference("first" if first > second else "second", reason)


@dataclass(frozen=True)
class MetricsCritic:
    """Turns the problems that the task finds in the metrics into advice on terms."""

    name = "metrics critic (no vision model)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        """Give one piece of advice per need of the episode."""
        needs = task.scoring.diagnose(dict(best.metrics))
        return Critique(
            success=bool(best.metrics.get("success", 0.0)),
            problems=tuple(dict.fromkeys(need.problem for need in needs)),
            advice=tuple(advise(task, needs, best.weights)),
            author=self.name,
        )


def advise(task: Task, needs: Sequence[Need], weights: Mapping[str, float]) -> list[TermAdvice]:
    """Return one piece of advice per need: add a term that serves it, or strengthen one if all are in use.

    A term with less than its usual weight is strengthened to it first. Each term is advised at most once, even if it
    serves several needs.

    Args:
        weights: Those of the program that is to be changed, by name of the term.
    """
    terms, found = library(task), dict[str, TermAdvice]()
    for need in needs:
        serving = [term for term in terms.values() if term.kind == need.kind and term.name not in found]
        weak = [term for term in serving if abs(weights.get(term.name, 0.0)) < abs(term.weight)]
        present = [term for term in serving if term.name in weights]
        if weak:
            action = "strengthen" if weak[0].name in weights else "add"
            found[weak[0].name] = TermAdvice(action, weak[0].name, need.problem, weak[0].weight)
        elif present:
            found[present[0].name] = TermAdvice("strengthen", present[0].name, need.problem)
    return [*found.values()]


@dataclass(frozen=True)
class StatisticsCritic:
    """MotionVL without vision: the statistics of the terms."""

    name = "statistics of the terms (no vision model)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        from movlr_jax.language import prompts  # they take long to import, and --help lists critics

        return prompts.described(best, self.name)


@dataclass(frozen=True)
class ReflectionCritic:
    """Eureka: a text with the term statistics and task score of a candidate. No vision model."""

    name = "reflection on the numbers (no vision model)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        from movlr_jax.language import prompts

        text = prompts.reflection(task, best)
        return Critique(bool(best.metrics.get("success", 0.0)), (), (), self.name, text)


@dataclass(frozen=True)
class NoCritic:
    """For methods whose proposer watches the motion itself."""

    name = "none (the proposer watches the motion itself)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        return Critique(bool(best.metrics.get("success", 0.0)), (), (), self.name)
