"""The judge that shows motions to a vision-language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from movlr_jax._util.parts import service
from movlr_jax.language import prompts
from movlr_jax.language.base import Evaluation, Preference
from movlr_jax.language.clients.answers import Judgement
from movlr_jax.language.clients.call import Question, conversation
from movlr_jax.language.clients.client import ModelClient
from movlr_jax.language.media import MotionMedia
from movlr_jax.tasks import Task

Pair = tuple[Evaluation, Evaluation]  # in the order they are shown


@dataclass(frozen=True)
class ModelJudge:
    """Asks the model which of two motions is better."""

    client: ModelClient = service()
    media: MotionMedia = service()

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
    messages = conversation(prompts.fill("judge_system"), *parts)
    return Question("judge", messages, Judgement, sample=sample, about=f"{a.name} {b.name}")
