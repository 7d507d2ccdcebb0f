"""Critics that give statistics or descriptions instead of advice on terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from movlr_jax.language import prompts
from movlr_jax.language.base import Critique, Evaluation
from movlr_jax.tasks import Task

if TYPE_CHECKING:
    from movlr_jax.language.clients.client import ModelClient
    from movlr_jax.language.media import MotionMedia


@dataclass(frozen=True)
class DescriptorCritic:
    """MotionVL: labels with confidences, region by region, together with the statistics of the terms."""

    client: ModelClient
    media: MotionMedia

    @property
    def name(self) -> str:
        return self.client.name

    def describe(self, task: Task, candidates: Sequence[Evaluation]) -> list[dict[str, Any]]:
        """Return the descriptors and the alignment of every motion, or the problem with the answer."""
        from movlr_jax.language.clients.answers import Descriptors
        from movlr_jax.language.clients.call import Message, Question

        questions = []
        for candidate in candidates:
            seen = self.media.see(candidate)
            shown = prompts.shown(self.media, task, seen)
            text = prompts.fill("describe", task=prompts.task_text(task), shown=shown)
            system = Message("system", [prompts.fill("describe_system")])
            messages = [system, Message("user", [*seen.media, text])]
            questions.append(Question("describe", messages, Descriptors, about=candidate.name))
        return [
            a.value.model_dump() if a.value else {"problem": f"no description: {a.problem}"}
            for a in self.client.ask(questions)
        ]

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        seen = best.description or self.describe(task, [best])[0]
        return _critique(replace(best, description=seen), self.name)


@dataclass(frozen=True)
class StatisticsCritic:
    """MotionVL without vision: the statistics of the terms."""

    name: str = "statistics of the terms (no vision model)"

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        return _critique(best, self.name)


def _critique(best: Evaluation, author: str) -> Critique:
    seen = best.description
    success = bool(seen.get("success", best.metrics.get("success", 0.0)))
    problems = [seen["problem"]] if "problem" in seen else prompts.labels(best)
    text = prompts.fill("descriptors_text", seen=seen, statistics=prompts.statistics(best))
    return Critique(success, problems, (), author, text, alignment=seen.get("alignment"))


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
