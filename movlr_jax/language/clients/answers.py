"""Schemas of the answers, and how an answer is parsed. Free text is searched for JSON, never for a keyword."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from textwrap import dedent
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from movlr_jax._util.keys import redact
from movlr_jax.errors import printable
from movlr_jax.language.clients.call import BadAnswer, Reply


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
    label: str = Field(description="a term of the vocabulary; then side, angle and time if they can be estimated")
    confidence: float = Field(ge=0.0, le=1.0)


class Descriptors(Form):
    """Observations of a motion, region by region, and how well it matches the task."""

    descriptors: list[Descriptor]
    success: bool = Field(description="whether the task is completed")
    alignment: float = Field(ge=0.0, le=1.0, description="how well the motion matches the task")


class Ready(Form):
    """The answer to a connection test."""

    ready: bool


# marks that models and servers put around what a model thinks before it answers
_THOUGHTS = (
    r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratch_?pad|deliberation|planning|drafts?"
    r"|(?:inner_|internal_)?monologue|chain_of_thought)"
)
# in square brackets, which programs use, too
_LOUD = r"(?-i:THINK(?:ING)?|THOUGHTS?|REASON(?:ING)?|ANALYSIS)"
_MARK = re.compile(
    rf"""
    (?P<answer>  # what was before it is reasoning, even if that has no mark of its own
        </(?:\w{{1,20}}:)?{_THOUGHTS}\s*> | <\|?end_(?:of_)?{_THOUGHTS}\|?> | \[/{_LOUD}\] | ◁/think▷ | <unused95>
      | <\|channel\|>\s*(?:final|commentary)[^<{{]{{0,100}}(?:<\|constrain\|>\s*\w+\s*)?(?:<\|message\|>)?
      | <channel\|>
      | (?-i:assistant(?:final|commentary)) | \[BEGIN[ ]FINAL[ ]RESPONSE\] | <(?:final_)?(?:answer|response)>
    )
  | (?P<stop><\|end\|> | </details> | here(?:'s|[ ]is)[ ]my[ ]response:)  # ends reasoning that has begun
  | (?P<begin>
        <(?:\w{{1,20}}:)?{_THOUGHTS}(?:\s[^<>]{{0,200}})?> | <\|?(?:start|begin)_(?:of_)?{_THOUGHTS}\|?> | \[{_LOUD}\]
      | ◁think▷ | <unused94>(?:thought)? | <\|channel\|>\s*analysis(?:<\|message\|>)? | <\|channel>(?:thought)?
      | (?-i:\Aanalysis(?=[A-Z])) | \Ahere(?:'s|[ ]is)[ ]my[ ]thought[ ]process:
      | <details\s[^<>]{{0,200}}type=["']reasoning["'][^<>]{{0,200}}>
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_TOKEN = re.compile(
    r"<\|\w{1,40}\|>(?:assistant\b)?|</(?:final_)?(?:answer|response)>|\[END FINAL RESPONSE\]", re.IGNORECASE
)
_JSON = json.JSONDecoder(strict=False)  # models write line breaks into strings
_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<source>.*?)(?:\n[ \t]*(?P=fence)|\Z)", re.DOTALL | re.MULTILINE
)
_REWARD = re.compile(r"^def reward[ \t]*\(", re.MULTILINE)
_WEIGHTS = re.compile(r"^WEIGHTS\b", re.MULTILINE)
_LABEL = re.compile(r'"label"\s*:\s*"((?:[^"\\]|\\.)*)"')
_EFFORT = 200_000_000  # characters scanned in the search for JSON, including those scanned again
_MOST_TEXT = 65_536  # characters of one string in an answer; a program may have half as many
_MOST_OBJECTS = 20  # JSON objects that are tried, from the last one
_MOST_NOTE = 300  # characters kept of the text before a program
_AROUND = "\ufeff \t\n"  # stripped from an answer


def read(schema: type[BaseModel], reply: Reply) -> BaseModel:
    """Parse the reply as `schema`, without API keys and control codes. Raises BadAnswer.

    Servers that ignore response_format send JSON in a code block or in prose, or a bare program. All are accepted.
    The last one counts: an earlier one is a draft, also if the last one is malformed.
    """
    text = _spoken(reply)
    problem = None
    objects = list(deque(_objects(text, schema), _MOST_OBJECTS))
    fences = _fences(text, objects) if schema is Program else []
    last = next((o for o in reversed(objects) if o.meant_for(schema)), objects[-1] if objects else None)
    later = bool(fences and last and fences[-1].whole and fences[-1].start > last.start)
    if last is not None and last.value is not None and not later:
        try:
            form = schema.model_validate(_clean(last.value))
            return _measured(form, reply) if isinstance(form, Descriptors) else form
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole object"
            problem = f"{where}: {first['msg']}"
        except RecursionError:
            problem = "it is nested too deeply"
    if schema is Program and (found := _program(text, fences)):
        return Program(changes=_clean(found.before.strip()[:_MOST_NOTE]), program=_clean(found.source))
    complete = "complete " if "{" in text else ""
    none = f"it contains no {complete}JSON object; it begins {printable(redact(text)[:60])!r}"
    raise BadAnswer(f"the answer does not match the schema {schema.__name__}: {problem or none}", reply)


def _spoken(reply: Reply) -> str:
    """Return the text of a reply without its reasoning. Raises BadAnswer if nothing is left."""
    text = reply.text.replace("\r\n", "\n").strip(_AROUND)
    if not text:
        raise BadAnswer("the answer is empty", reply)
    answer, ended = _after_reasoning(text)
    if not answer:
        end = "" if ended else ", which does not end"
        raise BadAnswer(f"the answer is empty: its {len(text)} characters are reasoning{end}", reply)
    return answer


def _after_reasoning(text: str) -> tuple[str, bool]:
    """Return `text` without reasoning, and whether its reasoning ends.

    Reasoning is between marks, before a mark that ends it, or after one that nothing ends.
    """
    if _whole(text):
        return text, True
    kept: list[str] = []
    at, inside = 0, False
    for mark in _MARK.finditer(text):
        kind = mark.lastgroup
        if not inside:
            if kind == "stop":
                continue
            kept.append(text[at : mark.start()])
            if kind == "answer":
                kept.clear()
        at, inside = mark.end(), kind == "begin"
    if not inside:
        kept.append(text[at:])
    return _TOKEN.sub("", "".join(kept)).strip(_AROUND), not inside


def _whole(text: str) -> bool:
    """Return whether a text is one JSON object, whose strings may well speak of <think>."""
    try:
        return text.startswith("{") and _JSON.raw_decode(text)[1] == len(text)
    except (ValueError, RecursionError):
        return False


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


@dataclass(frozen=True)
class _Object:
    """A JSON object in a text. `value` is None where it breaks off."""

    start: int
    end: int
    value: Any

    def meant_for(self, schema: type[BaseModel]) -> bool:
        return not isinstance(self.value, dict) or bool(self.value.keys() & schema.model_fields.keys())


@dataclass(frozen=True)
class _Source:
    """A program in a text, and the text before it."""

    start: int
    before: str
    source: str
    whole: bool = True  # False: it has no weights


def program_in(text: str) -> str | None:
    """Return the source of the program in `text`: the last code block with one, or the text itself, or None.

    Parts of a program count only if there is nothing else.
    """
    text, _ = _after_reasoning(text.replace("\r\n", "\n").strip(_AROUND))
    found = _program(text, _fences(text))
    return found.source if found else None


def _fences(text: str, objects: Sequence[_Object] = ()) -> list[_Source]:
    """Return the code blocks with a program, the best one last. Blocks within JSON `objects` are left out."""
    found = []
    for match in _FENCE.finditer(text):
        start, source = match.start(), dedent(match["source"]).strip("\n")
        inside = source.startswith("{") or any(o.start < start < o.end for o in objects)
        if _REWARD.search(source) and not inside:
            found.append(_Source(start, text[:start], source, bool(_WEIGHTS.search(source))))
    return sorted(found, key=lambda f: f.whole)


def _program(text: str, fences: Sequence[_Source]) -> _Source | None:
    if fences:
        return fences[-1]
    bare = _REWARD.search(text) and not text.startswith(("{", "```", "~~~"))
    return _Source(0, "", text) if bare else None


def _objects(text: str, schema: type[BaseModel]) -> Iterator[_Object]:
    """Yield the outermost JSON objects in a text, and those that break off but begin with a field of `schema`."""
    begun = re.compile(rf'\{{\s{{0,40}}"(?:{"|".join(schema.model_fields)})"')
    at, effort = text.find("{"), 0
    while at >= 0 and effort < _EFFORT:
        try:
            value, end = _JSON.raw_decode(text, at)
            call = value.get("arguments", value.get("parameters")) if "name" in value else None
            # of a tool call written as text
            yield _Object(at, end, call if isinstance(call, dict) else value)
        except json.JSONDecodeError as error:
            effort, end = effort + error.pos, at + 1  # the exception counts the lines before its position
            if begun.match(text, at):
                yield _Object(at, end, None)
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
