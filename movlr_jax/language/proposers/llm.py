"""Proposers that ask a language model for programs, and ask again with the reason where one is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from movlr_jax.errors import UserError
from movlr_jax.language import prompts
from movlr_jax.language.base import ProposalRequest
from movlr_jax.language.clients.answers import Program, program_in, unfenced
from movlr_jax.language.clients.call import Answer, Message, Question
from movlr_jax.language.clients.client import ModelClient
from movlr_jax.language.media import MotionMedia
from movlr_jax.language.settings import NO_PROGRAM
from movlr_jax.sandbox.source import MAX_BYTES

_SAMPLES = 100_000  # per generation: more than any of them asks for
_TRIES = 1000  # samples between one repair of a slot and the next
_BEGINNING = 4000  # characters of a program that is too long, as far as it is shown again

Talk = Callable[[ProposalRequest], list[Message]]


@dataclass
class ModelProposer:
    """n calls for n programs; each broken one is asked for again, up to `retries` times, with its reason."""

    client: ModelClient
    talk: Talk  # what is said to the model before its answer
    temperature: float
    retries: int
    notes: list[str] = field(default_factory=list)  # of the last programs: what the model says of each

    @property
    def name(self) -> str:
        return self.client.name

    def propose(self, request: ProposalRequest, n: int) -> list[str]:
        """n programs. Raises UserError when all of them are broken, twice."""
        if n == 0:
            self.notes = []
            return []
        messages, begun = self.talk(request), request.generation * _SAMPLES
        slots = self._slots(request, messages, [begun + i for i in range(n)])
        if all(slot.reason for slot in slots):  # not one of them: all are asked for anew
            slots = self._slots(request, messages, [begun + n + i for i in range(n)])
        if all(slot.reason for slot in slots):
            raise UserError(self._nothing(request.generation, slots))
        self.notes = [slot.note for slot in slots]
        return [slot.source for slot in slots]

    def _nothing(self, generation: int, slots: Sequence[_Slot]) -> str:
        """Why there is not one program: the model's fault only where it wrote some."""
        if all(slot.source.startswith(NO_PROGRAM) for slot in slots):
            return (
                f"no program for generation {generation} could be read from the answers of {self.name}, twice over; "
                f"the last: {slots[-1].reason}. Check the server with python -m movlr_jax.doctor llm=...; what it "
                "answered is in run.db"
            )
        return (
            f"all programs that {self.name} wrote for generation {generation} are broken, twice over; "
            f"the last: {slots[-1].reason}. A more able model may do, or fewer rules in the task"
        )

    def _slots(
        self, request: ProposalRequest, messages: Sequence[Message], samples: Sequence[int]
    ) -> list[_Slot]:
        questions = [self._question("propose", messages, sample) for sample in samples]
        slots = [_slot(answer, request) for answer in self.client.ask(questions)]
        for attempt in range(1, self.retries + 1):
            broken = [i for i, slot in enumerate(slots) if slot.reason]
            if not broken:
                break
            questions = [
                self._question("repair", [*messages, *_complaint(slots[i])], samples[i] + attempt * _TRIES)
                for i in broken
            ]
            for i, answer in zip(broken, self.client.ask(questions), strict=True):
                slots[i] = _slot(answer, request, f" (after {attempt} broken: {slots[i].reason})")
        return slots

    def _question(self, purpose: str, messages: Sequence[Message], sample: int) -> Question:
        return Question(purpose, messages, Program, self.temperature, sample)


@dataclass(frozen=True)
class _Slot:
    source: str
    note: str
    reason: str | None  # why it is broken; None: it vetted


def _slot(answer: Answer, request: ProposalRequest, history: str = "") -> _Slot:
    if answer.value is None:
        return _Slot(NO_PROGRAM + str(answer.problem) + "\n", history, answer.problem)
    source = (program_in(answer.value.program) or unfenced(answer.value.program)) + "\n"
    reason = request.vet(source) if request.vet else None
    return _Slot(source, answer.value.changes + history, reason)


def _complaint(slot: _Slot) -> list[Message]:
    """What is said of a broken program: the program, or the beginning of a long one, and why it cannot be used."""
    program = slot.source.rstrip()
    if len(program) > MAX_BYTES:
        program = f"{program[:_BEGINNING]}\n# ... and much more, which is left out here"
    return [Message("user", [prompts.fill("repair", program=program, reason=slot.reason)])]


def edit_talk(request: ProposalRequest) -> list[Message]:
    """MoVLR: the source of the best and its critique, to be edited conservatively."""
    task = request.task
    if request.parent is None:
        said = prompts.fill("propose_first", task=prompts.task_text(task), parent=task.initial_reward.strip())
    else:
        critique = request.critique
        said = prompts.fill(
            "propose_edit",
            task=prompts.task_text(task),
            parent=request.parent.source.strip(),
            feedback=prompts.critique_said(critique) if critique else "Nothing is known of its motion.",
            weight_cap=prompts.WEIGHT_CAP,
            velocity_cap=prompts.VELOCITY_CAP,
        )
    return [Message("system", [prompts.system(task)]), Message("user", [said])]


def eureka_talk(request: ProposalRequest) -> list[Message]:
    """Eureka: always system, user, best reply, reflection; the first time only system and user."""
    task = request.task
    begin = [
        Message("system", [prompts.system(task)]),
        Message("user", [prompts.fill("eureka_first", task=prompts.task_text(task))]),
    ]
    if request.parent is None or request.critique is None:
        return begin
    return [
        *begin,
        Message("assistant", [f"```python\n{request.parent.source.strip()}\n```"]),
        Message("user", [request.critique.said]),
    ]


def motionvl_talk(request: ProposalRequest) -> list[Message]:
    """MotionVL: descriptors with confidences and statistics of the terms; weights between 0 and 1."""
    if request.parent is None or request.critique is None:
        return edit_talk(request)
    said = prompts.fill(
        "motionvl_edit",
        task=prompts.task_text(request.task),
        parent=request.parent.source.strip(),
        feedback=request.critique.said,
    )
    return [Message("system", [prompts.system(request.task)]), Message("user", [said])]


def watching_talk(media: MotionMedia) -> Talk:
    """VLM-only: one model watches the best motion and writes the next program in the same call."""

    def talk(request: ProposalRequest) -> list[Message]:
        if request.parent is None:
            return edit_talk(request)
        seen = media.see(request.parent)
        said = prompts.fill(
            "watch_and_write",
            task=prompts.task_text(request.task),
            shown=prompts.shown(media, request.task, 1, len(seen)),
            parent=request.parent.source.strip(),
        )
        return [Message("system", [prompts.system(request.task)]), Message("user", [*seen, said])]

    return talk
