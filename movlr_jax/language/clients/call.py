"""One question to a model, one reply, and what may go wrong between them. Every client speaks in these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True)
class Media:
    """A film (video/mp4) or a picture (image/jpeg) in a message."""

    mime: str
    data: bytes
    fps: float | None = None  # pictures per second that a model is to look at, of a film

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Message:
    """What one side says: texts and media in the order they are read."""

    role: Literal["system", "user", "assistant"]
    parts: Sequence[str | Media]

    @property
    def text(self) -> str:
        return "\n".join(part for part in self.parts if isinstance(part, str))


@dataclass(frozen=True)
class Question:
    """All that one call is about. `sample` tells apart calls that ask the same of a model again."""

    purpose: str  # propose, repair, judge, criticise, describe, check
    messages: Sequence[Message]
    schema: type[BaseModel]  # of the answer, always JSON
    temperature: float | None = None
    sample: int = 0

    @property
    def media(self) -> list[Media]:
        return [part for m in self.messages for part in m.parts if isinstance(part, Media)]

    def transcript(self) -> list[dict[str, Any]]:
        """The messages as they are recorded: media by type and hash."""
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
    """What came back over the wire, before it is read."""

    text: str
    model_version: str  # as the answer names it
    tokens_in: int | None = 0  # None: not told, or no count
    tokens_out: int | None = 0


@dataclass(frozen=True)
class Answer:
    """A reply of the asked form, or the sentence why there is none."""

    value: Any = None
    problem: str | None = None


class Transient(Exception):
    """The call failed on its way; the same call may succeed later."""

    def __init__(self, message: str, retry_after: float | None = None):
        super().__init__(message)
        self.retry_after = retry_after  # s, when the server said so


class BadAnswer(Exception):
    """The model answered, but not what was asked: refused, empty, cut off, or of another form."""

    def __init__(self, message: str, reply: Reply | None = None):
        super().__init__(message)
        self.reply = reply


class ModelBackend(Protocol):
    """One provider: sends a question once, and says what went wrong in the words above."""

    @property
    def name(self) -> str: ...  # gemini, openai_compatible, manual

    @property
    def model(self) -> str: ...

    def parameters(self, question: Question) -> Mapping[str, Any]:
        """What of the settings is sent with a question: part of what makes two calls the same."""
        ...

    async def send(self, question: Question, key: str) -> Reply:
        """Raises Transient, BadAnswer or UserError (a wrong key, an unknown model)."""
        ...

    async def close(self) -> None: ...


def key_of(backend: ModelBackend, question: Question) -> str:
    """sha256 of provider, model, parameters, prompt, media and sample: equal keys are one call."""
    content = {
        "provider": backend.name,
        "model": backend.model,
        "parameters": dict(backend.parameters(question)),
        "messages": question.transcript(),
        "schema": question.schema.model_json_schema(),
        "sample": question.sample,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
