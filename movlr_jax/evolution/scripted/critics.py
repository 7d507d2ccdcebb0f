"""Critics that give statistics instead of advice on terms, and use no vision model."""

from __future__ import annotations

from dataclasses import dataclass

from movlr_jax.language.base import Critique, Evaluation
from movlr_jax.tasks import Task


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
