"""The judge and the critic that show motions to a vision-language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from movlr_jax.errors import UserError
from movlr_jax.language import prompts
from movlr_jax.language.base import Critique, Evaluation, Preference, TermAdvice
from movlr_jax.language.clients.answers import CritiqueForm, Judgement
from movlr_jax.language.clients.call import Message, Question
from movlr_jax.language.clients.client import ModelClient
from movlr_jax.language.media import MotionMedia
from movlr_jax.tasks import Task

Pair = tuple[Evaluation, Evaluation]  # in the order they are shown


@dataclass(frozen=True)
class ModelJudge:
    """Two motions, one question."""

    client: ModelClient
    media: MotionMedia

    @property
    def name(self) -> str:
        return self.client.name

    def compare(self, task: Task, a: Evaluation, b: Evaluation) -> Preference:
        return self.compare_all(task, [(a, b)])[0]

    def compare_all(
        self, task: Task, pairs: Sequence[Pair], samples: Sequence[int] | None = None
    ) -> list[Preference]:
        """The answers to all pairs, asked at once. A pair without an answer has no winner, and says why.

        samples: of a pair that was shown before, how often, so that it is a further sample and not the same answer.
        """
        questions = [
            judge_question(self.media, task, a, b, sample)
            for (a, b), sample in zip(pairs, samples or [0] * len(pairs), strict=True)
        ]
        return [
            Preference(answer.value.winner, answer.value.reason)
            if answer.value
            else Preference("none", str(answer.problem), answered=False)
            for answer in self.client.ask(questions)
        ]


def judge_question(media: MotionMedia, task: Task, a: Evaluation, b: Evaluation, sample: int = 0) -> Question:
    first, second = media.see(a), media.see(b)
    shown = prompts.shown(media, task, 2, len(first))
    said = prompts.fill("judge", task=prompts.task_text(task), shown=shown)
    parts = ["First motion:", *first, "Second motion:", *second, said]
    messages = [Message("system", [prompts.fill("judge_system")]), Message("user", parts)]
    return Question("judge", messages, Judgement, sample=sample)


@dataclass(frozen=True)
class ModelCritic:
    """Watches the best motion and gives advice on the terms of its reward."""

    client: ModelClient
    media: MotionMedia

    @property
    def name(self) -> str:
        return self.client.name

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        """Raises UserError when the model gives no critique."""
        seen = self.media.see(best)
        terms = [
            (name, f"{weight:g}", _rounded(best.terms.get(name, {}).get("mean")))
            for name, weight in best.weights.items()
        ]
        said = prompts.fill(
            "critique",
            task=prompts.task_text(task),
            shown=prompts.shown(self.media, task, 1, len(seen)),
            terms=terms,
        )
        messages = [Message("system", [prompts.fill("critique_system")]), Message("user", [*seen, said])]
        # the same motion may be criticised after every generation that brings no better one: the answer is known
        (answer,) = self.client.ask([Question("criticise", messages, CritiqueForm)])
        if answer.value is None:
            return Critique(False, [f"no critique: {answer.problem}"], (), self.name)
        form: CritiqueForm = answer.value
        advice = [TermAdvice(a.action, a.term, a.reason, a.weight) for a in form.advice]
        return Critique(form.success, form.problems, advice, self.name)


def needs_films(films: bool, who: str) -> None:
    """Raises UserError when a model is to watch and nothing can be drawn."""
    if not films:
        raise UserError(
            f"{who} watches films, and there are none: films=false, or nothing draws here (see doctor)"
        )


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"
