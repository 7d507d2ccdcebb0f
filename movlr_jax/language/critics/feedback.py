"""Critics that give statistics or descriptions instead of advice on terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from movlr_jax.language import prompts
from movlr_jax.language.base import Critique, Evaluation
from movlr_jax.tasks import Task

if TYPE_CHECKING:
    from movlr_jax.language.clients.client import ModelClient
    from movlr_jax.language.media import MotionMedia


@dataclass(frozen=True)
class DescriptorCritic:
    """MotionVL: labels with confidences, region by region, together with the statistics of the terms."""

    client: ModelClient | None  # None: no model watches, only the statistics are given
    media: MotionMedia | None

    @property
    def name(self) -> str:
        return self.client.name if self.client else "statistics of the terms (no vision model)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        descriptors, success, failures = [], bool(best.metrics.get("success", 0.0)), []
        if self.client and self.media:
            seen = self.media.see(best)
            shown = prompts.shown(self.media, task, seen)
            text = prompts.fill("describe", task=prompts.task_text(task), shown=shown)
            from movlr_jax.language.clients.answers import Descriptors
            from movlr_jax.language.clients.call import Message, Question

            messages = [
                Message("system", [prompts.fill("describe_system")]),
                Message("user", [*seen.media, text]),
            ]
            (answer,) = self.client.ask([Question("describe", messages, Descriptors, about=best.name)])
            if answer.value:
                descriptors, success = answer.value.descriptors, answer.value.success
            else:
                failures = [f"no description: {answer.problem}"]
        text = prompts.fill("descriptors_text", descriptors=descriptors, statistics=prompts.statistics(best))
        problems = failures + [f"{d.region}: {d.label} ({d.confidence:g})" for d in descriptors]
        return Critique(success, problems, (), self.name, text)


@dataclass(frozen=True)
class ReflectionCritic:
    """Eureka: a text with the term statistics and task score of a candidate. No vision model."""

    name: str = "reflection on the numbers (no vision model)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        text = prompts.reflection(task, best)
        return Critique(bool(best.metrics.get("success", 0.0)), (), (), self.name, text)


@dataclass(frozen=True)
class NoCritic:
    """For methods whose proposer watches the motion itself."""

    name: str = "none (the proposer watches the motion itself)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        return Critique(bool(best.metrics.get("success", 0.0)), (), (), self.name)
