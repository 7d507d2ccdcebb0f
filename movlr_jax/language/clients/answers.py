"""Schemas of the answers, and how an answer is parsed. Free text is searched for JSON, never for a keyword."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator
from itertools import accumulate
from statistics import fmean
from typing import Any, Literal

from movlr_jax.errors import UserError, printable
from movlr_jax.keys import redact
from movlr_jax.language.clients.call import BadAnswer, Reply

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError
except ImportError as error:
    raise UserError(
        "language and vision models need more packages; install them with pip install 'movlr-jax[llm]'"
    ) from error


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Program(Form):
    """A reward program."""

    changes: str = Field(description="one or two sentences: what this program does and why it may be better")
    program: str = Field(description="the complete program as Python source, nothing else")


class Judgement(Form):
    """Which of two motions performs the task better."""

    first_motion: str = Field(description="what the body does in the first motion, in time order")
    second_motion: str = Field(description="what the body does in the second motion, in time order")
    winner: Literal["first", "second", "tie"]
    reason: str = Field(description="one sentence")


class Advice(Form):
    """One change to the reward."""

    action: Literal["add", "strengthen", "weaken", "reshape", "remove"]
    term: str = Field(description="name of an existing term, or of a new one")
    reason: str = Field(
        description="what this change should fix; for a new or reshaped term also its definition in words"
    )
    weight: float | None = Field(description="the weight it should have, or null for no preference")


class CritiqueForm(Form):
    """An assessment of a motion, and advice on how the reward should change."""

    observation: str = Field(description="what the body does, in time order")
    success: bool = Field(description="whether the task is completed")
    problems: list[str] = Field(description="what is wrong, the most general first")
    advice: list[Advice]


class Descriptor(Form):
    """One observation in a region of the body."""

    region: Literal["knees", "ankles", "hips", "torso", "head", "arms", "hands", "object"]
    label: str = Field(
        description="a term of the vocabulary; then side, angle and time if they can be estimated"
    )
    confidence: float = Field(ge=0.0, le=1.0)


class Descriptors(Form):
    """Observations of a motion, region by region, and how well it matches the task."""

    descriptors: list[Descriptor]
    success: bool = Field(description="whether the task is completed")
    alignment: float = Field(ge=0.0, le=1.0, description="how well the motion matches the task")


class Ready(Form):
    """The answer to a connection test."""

    ready: bool


_JSON = json.JSONDecoder(strict=False)  # models write line breaks into strings
_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_REWARD = re.compile(r"^def reward[ \t]*\(", re.MULTILINE)
_LABEL = re.compile(r'"label"\s*:\s*"((?:[^"\\]|\\.)*)"')
_EFFORT = 200_000_000  # characters scanned in the search for JSON, including those scanned again
_MOST_TEXT = 65_536  # characters of one string in an answer; a program may have half as many
_MOST_OBJECTS = 20  # JSON objects that are tried, from the last one
_MOST_NOTE = 300  # characters kept of the text before a program
_THOUGHT, _AROUND = (
    "</think>",
    "\ufeff \t\n",
)  # end of the reasoning, if the server leaves it in; characters to strip


def read(schema: type[BaseModel], reply: Reply) -> BaseModel:
    """Parse the reply as `schema`, without API keys and control codes. Raises BadAnswer.

    Servers that ignore response_format send JSON in a code block or in prose, or a bare program. All are accepted.
    """
    text = reply.text.replace("\r\n", "\n").strip(_AROUND)
    if not text:
        raise BadAnswer("the answer is empty", reply)
    problems: list[str] = []
    for value in reversed(deque(_objects(text), _MOST_OBJECTS)):  # the reasoning comes before the answer
        try:
            form = schema.model_validate(_clean(value))
            return _measured(form, reply) if isinstance(form, Descriptors) else form
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole object"
            problems.append(f"{where}: {first['msg']}")
        except RecursionError:
            problems.append("it is nested too deeply")
    source = program_in(text) if schema is Program else None
    if source is not None:
        note, fence, _ = text.rpartition(_THOUGHT)[2].partition("```")
        return Program(changes=_clean(note.strip()[:_MOST_NOTE] if fence else ""), program=_clean(source))
    complete = "complete " if "{" in text else ""
    none = f"it contains no {complete}JSON object; it begins {printable(redact(text)[:60])!r}"
    raise BadAnswer(
        f"the answer does not match the schema {schema.__name__}: {problems[0] if problems else none}", reply
    )


def _measured(form: Descriptors, reply: Reply) -> Descriptors:
    """Return the descriptors with the confidence exp(mean log-probability of the tokens of the label).

    The stated confidences are kept if the tokens are not reported or do not fit the answer.
    """
    try:  # the tokens may be from the record of another run
        labels, ends = list(_LABEL.finditer(reply.text)), list(accumulate(n for n, _ in reply.logprobs))
        if not ends or ends[-1] != len(reply.text) or len(labels) != len(form.descriptors):
            return form
        confidences = []
        for start, end in (label.span(1) for label in labels):
            tokens = zip(ends, reply.logprobs, strict=True)
            mean = fmean(p for last, (n, p) in tokens if last > start and last - n < end)
            confidences.append(round(math.exp(min(0.0, mean)), 3))
    except (TypeError, ValueError):
        return form
    pairs = zip(form.descriptors, confidences, strict=True)
    return form.model_copy(update={"descriptors": [d.model_copy(update={"confidence": c}) for d, c in pairs]})


def program_in(text: str) -> str | None:
    """Return the source of the program in `text`: the last code block with one, or the text itself, or None."""
    text = text.replace("\r\n", "\n").rpartition(_THOUGHT)[2].strip(_AROUND)
    fenced = [source for source in _FENCE.findall(text) if _REWARD.search(source)]
    if fenced:
        return fenced[-1].strip("\n")
    return text if _REWARD.search(text) and not text.startswith(("{", "```")) else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the outermost JSON objects in a text."""
    at, effort = text.find("{"), 0
    while at >= 0 and effort < _EFFORT:
        try:
            value, end = _JSON.raw_decode(text, at)
            yield value
        except json.JSONDecodeError as error:
            effort, end = effort + error.pos, at + 1  # the exception counts the lines before its position
        except (ValueError, RecursionError):
            effort, end = effort + len(text) - at, at + 1
        at = text.find("{", end)


def _clean(value: Any) -> Any:
    """Remove API keys and control codes, which JSON escapes no longer hide, and cut very long strings."""
    if isinstance(value, str):
        return printable(redact(value.replace("\r\n", "\n"))[:_MOST_TEXT])
    if isinstance(value, list):
        return [_clean(v) for v in value]
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return value


def unfenced(text: str) -> str:
    """Remove the code fence that some models put around the whole text."""
    match = re.fullmatch(r"\s*```[a-zA-Z]*\n(.*?)\n?```\s*", text, flags=re.DOTALL)
    return (match.group(1) if match else text).strip()
