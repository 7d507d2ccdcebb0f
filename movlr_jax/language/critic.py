"""Critics that show motions to a vision-language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from movlr_jax._util.parts import service, setting
from movlr_jax.language import prompts
from movlr_jax.language.base import Critique, Evaluation, TermAdvice
from movlr_jax.language.clients.answers import CritiqueForm, Descriptors
from movlr_jax.language.clients.call import Question, conversation
from movlr_jax.language.clients.client import ModelClient
from movlr_jax.language.media import MotionMedia
from movlr_jax.tasks import Task


@dataclass(frozen=True)
class ModelCritic:
    """Shows the best motion to the model, which gives advice on the terms of its reward."""

    client: ModelClient = service()
    media: MotionMedia = service()

    @property
    def name(self) -> str:
        return self.client.name

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        """Return the critique. Without a valid answer, its only problem is "no critique: <reason>"."""
        seen = self.media.see(best)
        means = {name: f"{term['mean']:.3g}" for name, term in best.terms.items() if "mean" in term}
        terms = [(name, f"{weight:g}", means.get(name)) for name, weight in best.weights.items()]
        text = prompts.fill(
            "critique",
            task=prompts.task_text(task),
            shown=prompts.shown(self.media, task, seen),
            program=best.source.strip(),
            terms=terms,
            faults=list(best.faults.values()),
            **prompts.LIMITS,
        )
        messages = conversation(prompts.fill("critique_system"), *seen.media, text)
        # no sample number: of the same trial in a later generation, the recorded critique is reused
        about = best.name if best.seed is None else f"{best.name}#{best.seed}"  # one of its trials
        (answer,) = self.client.ask([Question("criticise", messages, CritiqueForm, about=about)])
        if answer.value is None:
            return Critique(False, [f"no critique: {answer.problem}"], (), self.name)
        form: CritiqueForm = answer.value
        advice = [TermAdvice(a.action, a.term, a.reason, a.weight) for a in form.advice]
        return Critique(form.success, form.problems, advice, self.name, observation=form.observation)


@dataclass(frozen=True)
class DescriptorCritic:
    """MotionVL: labels with confidences, region by region, together with the statistics of the terms."""

    client: ModelClient = service()
    media: MotionMedia = service()
    every_s: float = setting(0.0, "s, between pictures; 0: as vlm.media says", least=0)

    @property
    def name(self) -> str:
        return self.client.name

    def describe(self, task: Task, candidates: Sequence[Evaluation]) -> list[dict[str, Any]]:
        """Return the descriptors and the alignment of every motion, or the problem with the answer."""
        media, questions = self.media, []
        if self.every_s:
            media = replace(media, every_s=self.every_s)
        for candidate in candidates:
            seen = media.see(candidate)
            shown = prompts.shown(media, task, seen)
            text = prompts.fill("describe", task=prompts.task_text(task), shown=shown)
            messages = conversation(prompts.fill("describe_system"), *seen.media, text)
            questions.append(Question("describe", messages, Descriptors, about=candidate.name))
        return [
            a.value.model_dump() if a.value else {"problem": f"no description: {a.problem}"}
            for a in self.client.ask(questions)
        ]

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        seen = best.description or self.describe(task, [best])[0]
        return prompts.described(replace(best, description=seen), self.name)
