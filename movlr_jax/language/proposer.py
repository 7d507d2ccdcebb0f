"""Proposer that requests programs from a language model, and requests repairs of invalid ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from movlr_jax._util.parts import service
from movlr_jax.errors import UserError
from movlr_jax.language import prompts
from movlr_jax.language.base import ProposalRequest
from movlr_jax.language.clients.answers import Program, program_in
from movlr_jax.language.clients.call import Answer, Message, Question, conversation
from movlr_jax.language.clients.client import ModelClient
from movlr_jax.language.excerpt import mjcf_excerpt
from movlr_jax.language.media import MotionMedia
from movlr_jax.language.settings import NO_PROGRAM
from movlr_jax.sandbox.source import MAX_BYTES

_SAMPLES = 100_000  # sample numbers reserved per generation: more than any generation uses
_TRIES = 1000  # difference of sample number between one repair of a slot and the next
_BEGINNING = 4000  # characters of a too long program that a repair request shows

Talk = Callable[[ProposalRequest], list[Message]]


@dataclass
class ModelProposer:
    """Requests n programs in n calls, and up to `retries` repairs of each invalid program, with the reason."""

    client: ModelClient = service()
    talk: Talk = lambda request: edit_talk(request)  # builds the messages of a request
    temperature: float = 1.0
    retries: int = 3
    directed: bool = True  # whether programs that are requested together get different directions
    mjcf: bool = False  # whether requests contain an excerpt of the model
    notes: list[str] = field(default_factory=list)  # the model's comment on each of the last programs

    @property
    def name(self) -> str:
        return self.client.name

    def propose(self, request: ProposalRequest, n: int) -> list[str]:
        """Return n programs. Raises UserError if all of them are invalid in two rounds, each with its repairs."""
        if n == 0:
            self.notes = []
            return []
        messages, begun = self.talk(request), request.generation * _SAMPLES
        slots = self._slots(request, messages, range(begun, begun + n))
        if all(slot.reason for slot in slots):  # no valid program: request all of them again
            slots = self._slots(request, messages, range(begun + n, begun + 2 * n))
        if all(slot.reason for slot in slots):
            raise UserError(self._no_program(request.generation, slots))
        self.notes = [slot.note for slot in slots]
        return [slot.source for slot in slots]

    def _no_program(self, generation: int, slots: Sequence[_Slot]) -> str:
        """Return the error message. It blames the model only if the model wrote programs."""
        tried = f"in two rounds with retries={self.retries}"
        if all(slot.source.startswith(NO_PROGRAM) for slot in slots):
            return (
                f"no program for generation {generation} could be read from the answers of {self.name} {tried}; "
                f"last problem: {slots[-1].reason}. Check the server with movlr-jax doctor "
                "llm=...; its answers are in run.db"
            )
        return (
            f"all programs that {self.name} wrote for generation {generation} are invalid, {tried}; "
            f"last problem: {slots[-1].reason}. Try a more able model, or simplify the task"
        )

    def _slots(self, request: ProposalRequest, messages: Sequence[Message], samples: Sequence[int]) -> list[_Slot]:
        talks = [self._completed(request, messages, i, len(samples)) for i in range(len(samples))]
        questions = [self._question("propose", talk, sample) for talk, sample in zip(talks, samples, strict=True)]
        slots = [_slot(answer, request) for answer in self.client.ask(questions)]
        for attempt in range(1, self.retries + 1):
            invalid = [i for i, slot in enumerate(slots) if slot.reason]
            if not invalid:
                break
            questions = [
                self._question("repair", [*talks[i], *_repair_request(slots[i])], samples[i] + attempt * _TRIES)
                for i in invalid
            ]
            for i, answer in zip(invalid, self.client.ask(questions), strict=True):
                slots[i] = _slot(answer, request, f" (after {attempt} invalid: {slots[i].reason})")
        return slots

    def _completed(self, request: ProposalRequest, messages: Sequence[Message], i: int, n: int) -> Sequence[Message]:
        """Return the messages with the model, the range of the weights and the direction of the i-th of n."""
        *before, last = messages
        texts = [prompts.fill("excerpt", mjcf=mjcf_excerpt(request.task))] if self.mjcf else []
        if request.weights:
            texts.append(prompts.weight_range(*request.weights))
        if n > 1 and self.directed:
            texts.append(prompts.direction(request.generation, i, n))
        return [*before, Message(last.role, [*last.parts, *texts])]

    def _question(self, purpose: str, messages: Sequence[Message], sample: int) -> Question:
        return Question(purpose, messages, Program, self.temperature, sample)


@dataclass(frozen=True)
class _Slot:
    source: str
    note: str
    reason: str | None  # why it is invalid; None: it passed vetting


def _slot(answer: Answer, request: ProposalRequest, history: str = "") -> _Slot:
    if answer.value is None:
        return _Slot(NO_PROGRAM + str(answer.problem) + "\n", history, answer.problem)
    source = (program_in(answer.value.program) or answer.value.program.strip()) + "\n"
    reason = request.vet(source) if request.vet else None
    return _Slot(source, answer.value.changes + history, reason)


def _repair_request(slot: _Slot) -> list[Message]:
    """Return the repair message: the program, shortened if it is too long, and why it cannot be used."""
    program = slot.source.rstrip()
    if len(program) > MAX_BYTES:
        program = f"{program[:_BEGINNING]}\n# ... (the rest is omitted here)"
    return [Message("user", [prompts.fill("repair", program=program, reason=slot.reason)])]


def _system(request: ProposalRequest) -> str:
    return prompts.system(request.task, request.looks_ahead_s, request.control_s)


def edit_talk(request: ProposalRequest) -> list[Message]:
    """MoVLR: the source of the best program and its critique, with the request for a conservative edit."""
    task = request.task
    if request.parent is None:
        text = prompts.fill(
            "propose_first",
            task=prompts.task_text(task),
            measures=prompts.measures_text(task),
            parent=task.rewards.initial.strip(),
            **prompts.trials(request),
        )
    else:
        text = prompts.fill(
            "propose_edit",
            task=prompts.task_text(task),
            measures=prompts.measures_text(task),
            parent=request.parent.source.strip(),
            **prompts.feedback(request),
            **prompts.LIMITS,
        )
    return conversation(_system(request), text)


def eureka_talk(request: ProposalRequest) -> list[Message]:
    """Eureka: system, user, best program, reflection; in the first generation only system and user."""
    task = request.task
    first = prompts.fill("eureka_first", task=prompts.task_text(task), measures=prompts.measures_text(task))
    begin = conversation(_system(request), first)
    if request.parent is None:
        return begin
    if request.critique is None:  # a drawn parent: the reflection is about another program
        return edit_talk(request)
    return [
        *begin,
        Message("assistant", [f"```python\n{request.parent.source.strip()}\n```"]),
        Message("user", [request.critique.said]),
    ]


def motionvl_talk(request: ProposalRequest) -> list[Message]:
    """MotionVL: descriptors with confidences, and statistics of the terms."""
    if request.parent is None or request.critique is None:
        return edit_talk(request)
    text = prompts.fill(
        "motionvl_edit",
        task=prompts.task_text(request.task),
        parent=request.parent.source.strip(),
        **{**prompts.feedback(request), "feedback": request.critique.said},
    )
    return conversation(_system(request), text)


def watching_talk(media: MotionMedia) -> Talk:
    """VLM-only: one model watches the best motion and writes the next program in the same call."""

    def talk(request: ProposalRequest) -> list[Message]:
        if request.parent is None:
            return edit_talk(request)
        seen = media.see(request.parent)
        text = prompts.fill(
            "watch_and_write",
            task=prompts.task_text(request.task),
            shown=prompts.shown(media, request.task, seen),
            parent=request.parent.source.strip(),
        )
        return conversation(_system(request), *seen.media, text)

    return talk
