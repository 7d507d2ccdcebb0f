"""Which parameters a server accepts. What it refuses is sent otherwise, or not at all, for the rest of the run."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from movlr_jax.language.clients import wire

STATUSES = (200, 400, 404, 405, 406, 415, 422, 500, 501)  # that a refused parameter may have
_PLAIN = (400, 422)  # with these, a message that names a parameter is about it
_REFUSES = re.compile(
    r"unsupport|not (?:be )?(?:support|allow|permit|accept|enabl|implement|available)|n't support|unavailable"
    r"|invalid|unknown|unrecogni[sz]ed|unexpected|deprecated|extra|only|must|required",
    re.IGNORECASE,
)
_ALSO = {  # other words for a parameter, as regular expressions
    "response_format": r"json[_ ]?schema|json[_ ]object|json[_ ]mode|structured[_ ]outputs?|guided[_ ]\w+|grammar",
    "stream": r"non-stream\w*|streaming|streamed",
    "roles": r"system (?:role|message|prompt|instruction)s?|role\W{1,3}system|developer instruction"
    r"|roles? must alternate|alternating",
    "max_tokens": r"maximum context length|context[_ ]window|context size",
}
_LIMITS = ("max_tokens", "max_completion_tokens")
_FEWEST = 600  # tokens of an answer that are worth a call; smaller numbers in a message may be a status
_TOO_MANY = re.compile(
    r"too (?:large|high|big|many)|at most|maximum|range|less than|exceed|<=|>", re.IGNORECASE
)
_ROOM = re.compile(
    r"context (?:length|window|size)\D{0,40}(\d+).*?(\d+)\D{0,20}(?:in the messages|input|prompt)", re.S
)
_STREAMS = re.compile(r"non-?stream|stream\w* (?:mode|is|must)|only \w* ?stream", re.IGNORECASE)
MERGED = "merged"  # value of `roles`: each message has another role than the one before, and none is "system"


@dataclass
class Accepted:
    """The changes to what is sent to one server, learned from its refusals."""

    changes: dict[str, Any] = field(default_factory=dict)  # parameter -> its value; None: it is not sent

    def applied(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that are sent in place of `wanted`."""
        return {name: value for name, value in {**wanted, **self.changes}.items() if value is not None}

    def learn(self, status: int, body: str, sent: Mapping[str, Any]) -> str | None:
        """Change what is sent next time, and return what is changed; None if no parameter of `sent` is refused."""
        message = wire.message_of(body)
        if status not in STATUSES or not (status in _PLAIN or _REFUSES.search(message)):
            return None
        broken = status >= 500 and not _STREAMS.search(message)  # "the stream was closed" is no refusal
        name = _named(body, message, {*sent} if broken else {*sent, "stream", "roles"})
        change = _changed(name, message, sent) if name else None
        back = name == "stream" and name in self.changes  # neither way works
        if not name or not change or back or change.items() <= self.changes.items():
            return None
        self.changes |= change
        ways = [f"{n} is {'no longer sent' if v is None else 'now ' + _short(v)}" for n, v in change.items()]
        what = "to answer in one piece" if name == "stream" and change[name] else name
        return f"refuses {what} (HTTP {status}: {wire.brief(message, 200)}), so {' and '.join(ways)}"


def _short(value: Any) -> str:
    return value.get("type", "set") if isinstance(value, dict) else str(value).lower()


def _named(body: str, message: str, names: Collection[str]) -> str | None:
    """Return the parameter that an error is about: the one it points to, else the first that its text names."""
    for pointed in _pointed(body):
        if pointed in names:
            return pointed
    found = []
    for name in names:
        also = _ALSO.get("max_tokens" if name in _LIMITS else name)
        pattern = rf"(?<!\w)(?:{re.escape(name)}{'|' + also if also else ''})(?!\w)"
        if match := re.search(pattern, message, re.IGNORECASE):
            found.append((match.start(), -len(name), name))
    return min(found)[2] if found else None


def _pointed(body: str) -> list[str]:
    """Return the names in `error.param` and in the places of FastAPI's list of errors."""
    try:
        value = json.loads(body)
        error = value.get("error", value)
        places = [error.get("param"), *(place for e in value.get("detail") or [] for place in e["loc"])]
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return []
    return [re.split(r"[.\[]", place)[0] for place in places if isinstance(place, str)]


def _changed(name: str, message: str, sent: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what is sent in place of a refused parameter, or None if nothing else can be tried."""
    if name == "stream":
        if sent.get("stream"):
            return {"stream": None, "stream_options": None}
        return {"stream": True, "stream_options": {"include_usage": True}}
    if name == "roles":
        return {"roles": MERGED}
    if name == "response_format" and (sent[name] or {}).get("type") == "json_schema":
        return {name: {"type": "json_object"}}
    if name in _LIMITS:
        return _fewer_tokens(name, message, sent[name])
    return {name: None}


def _fewer_tokens(name: str, message: str, value: int) -> dict[str, Any] | None:
    if re.search(_ALSO["max_tokens"], message, re.IGNORECASE):
        room = _ROOM.search(message)
        left = int(room.group(1)) - int(room.group(2)) - 16 if room else 0
        return {name: left} if _FEWEST <= left < value else None
    lower = [
        n for n in map(int, re.findall(r"(?<![\d.])\d{1,9}(?![\d.]\d)", message)) if _FEWEST <= n < value
    ]
    if lower and _TOO_MANY.search(message):  # "the valid range of max_tokens is [1, 4096]"
        return {name: max(lower)}
    other = next(n for n in _LIMITS if n != name)
    return {name: None, other: value} if re.search(other, message) else {name: None}
