"""Types of a model call, shared by all clients: question, reply, answer, errors and the backend protocol."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel


@dataclass(frozen=True)
class Media:
    """A video (video/mp4) or a picture (image/jpeg) in a message."""

    mime: str
    data: bytes
    fps: float | None = None  # frames per second that the model samples from a video

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Message:
    """One message: texts and media in reading order."""

    role: Literal["system", "user", "assistant"]
    parts: Sequence[str | Media]

    @property
    def text(self) -> str:
        return "\n".join(part for part in self.parts if isinstance(part, str))


def conversation(system: str, *user: str | Media) -> list[Message]:
    """Return a system message, and a user message of texts and media."""
    return [Message("system", [system]), Message("user", user)]


@dataclass(frozen=True)
class Question:
    """The content of one call. `sample` distinguishes repeated calls with the same messages.

    about: what the call is about, such as the motions it shows in order. With purpose and sample, it is the place of
    the call in a search, whatever its messages are.
    """

    purpose: str  # propose, repair, judge, criticise, describe, check
    messages: Sequence[Message]
    schema: type[BaseModel]  # of the answer, always JSON
    temperature: float | None = None
    sample: int = 0
    about: str = ""

    @property
    def media(self) -> list[Media]:
        return [part for m in self.messages for part in m.parts if isinstance(part, Media)]

    def transcript(self) -> list[dict[str, Any]]:
        """Return the messages as they are recorded, with the type, hash and size of each medium."""
        return [
            {
                "role": m.role,
                "parts": [
                    p if isinstance(p, str) else {"media": p.mime, "sha256": p.sha256, "bytes": len(p.data)}
                    for p in m.parts
                ],
            }
            for m in self.messages
        ]


@dataclass(frozen=True)
class Reply:
    """The reply of a server, before it is parsed."""

    text: str
    model_version: str  # as reported in the answer
    tokens_in: int | None = 0  # None: not reported, or not a valid count
    tokens_out: int | None = 0
    logprobs: Sequence[Sequence[float]] = ()  # (characters, log-probability) of each token of `text`, if reported
    changed: Mapping[str, Any] = field(default_factory=dict)  # parameters that were changed for the server


@dataclass(frozen=True)
class Answer:
    """A parsed reply, or a sentence that explains why there is none."""

    value: Any = None
    problem: str | None = None


class Transient(Exception):
    """What came is no answer of a model, or nothing came in time; the same call may succeed later."""


class BadAnswer(Exception):
    """The model's answer cannot be used: it is refused, empty, cut off, or does not match the schema."""

    def __init__(self, message: str, reply: Reply | None = None):
        super().__init__(message)
        self.reply = reply


class Retracted(Exception):
    """An earlier answer was taken back instead of an answer to this question; what followed it is asked again."""


class ModelBackend(Protocol):
    """One provider: sends a question once, and raises the exceptions above."""

    name: str  # gemini, openai_compatible, manual, person
    model: str

    def parameters(self, question: Question) -> Mapping[str, Any]:
        """Return the settings that are sent with a question. They are part of the call key."""
        return {}

    async def send(self, question: Question, key: str) -> Reply:
        """Send the question; an SDK repeats requests that fail. Raises Transient, BadAnswer or UserError.

        A server may answer calls with the same `key` only once.
        """
        ...

    async def close(self) -> None:
        """Free what the backend holds."""


def key_of(backend: ModelBackend, question: Question) -> str:
    """Return the call key: sha256 of provider, model, parameters, messages, media, schema and sample number."""
    content = {
        "provider": backend.name,
        "model": backend.model,
        "parameters": dict(backend.parameters(question)),
        "messages": question.transcript(),
        "schema": question.schema.model_json_schema(),
        "sample": question.sample,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
