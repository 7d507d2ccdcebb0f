"""Judge and critic that show motions to a vision-language model."""

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
    """Asks the model which of two motions is better."""

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
        """Compare all pairs concurrently. A pair without an answer has winner "none" and gives the reason.

        samples: for each pair, how often it was shown before. A new number requests a new answer, not a recorded one.
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
    shown = prompts.shown(media, task, first, second)
    text = prompts.fill("judge", task=prompts.task_text(task), shown=shown)
    parts = ["First motion:", *first.media, "Second motion:", *second.media, text]
    messages = [Message("system", [prompts.fill("judge_system")]), Message("user", parts)]
    return Question("judge", messages, Judgement, sample=sample, about=f"{a.name} {b.name}")


@dataclass(frozen=True)
class ModelCritic:
    """Shows the best motion to the model, which gives advice on the terms of its reward."""

    client: ModelClient
    media: MotionMedia

    @property
    def name(self) -> str:
        return self.client.name

    def criticise(self, task: Task, best: Evaluation) -> Critique:
        """Return the critique. Without a valid answer, its only problem is "no critique: <reason>"."""
        seen = self.media.see(best)
        terms = [
            (name, f"{weight:g}", _rounded(best.terms.get(name, {}).get("mean")))
            for name, weight in best.weights.items()
        ]
        text = prompts.fill(
            "critique",
            task=prompts.task_text(task),
            shown=prompts.shown(self.media, task, seen),
            program=best.source.strip(),
            terms=terms,
            faults=list(best.faults.values()),
            **prompts.LIMITS,
        )
        messages = [
            Message("system", [prompts.fill("critique_system")]),
            Message("user", [*seen.media, text]),
        ]
        # no sample number: of the same trial in a later generation, the recorded critique is reused
        about = best.name if best.seed is None else f"{best.name}#{best.seed}"  # one of its trials
        (answer,) = self.client.ask([Question("criticise", messages, CritiqueForm, about=about)])
        if answer.value is None:
            return Critique(False, [f"no critique: {answer.problem}"], (), self.name)
        form: CritiqueForm = answer.value
        advice = [TermAdvice(a.action, a.term, a.reason, a.weight) for a in form.advice]
        return Critique(form.success, form.problems, advice, self.name, observation=form.observation)


def needs_films(films: bool, who: str) -> None:
    """Raise UserError if a model needs films and none are rendered."""
    if not films:
        raise UserError(
            f"{who} needs films, but none are rendered: films=false is set, or no renderer works here (see doctor)"
        )


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"
