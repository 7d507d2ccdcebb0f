"""Which parameters a server accepts. What it refuses is sent otherwise, or not at all, for the rest of the run."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

_ALSO = {  # other words for a parameter, as a regular expression
    "response_format": r"json[_ ]?schema|json[_ ]object|json[_ ]mode|structured[_ ]outputs?|guided[_ ]\w+|grammar"
}


@dataclass
class Accepted:
    """The changes to what is sent to one server, learned from its refusals."""

    changes: dict[str, Any] = field(default_factory=dict)  # parameter -> its value; None: it is not sent

    def applied(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that are sent in place of `wanted`."""
        return {name: value for name, value in {**wanted, **self.changes}.items() if value is not None}

    def learn(self, message: str, sent: Mapping[str, Any]) -> str | None:
        """Change what is sent next time, and return what is changed; None if no parameter of `sent` is named."""
        name = _named(message, sent)
        if name is None:
            return None
        change = _changed(name, message, sent[name])
        self.changes |= change
        ways = [f"{n} is {'no longer sent' if v is None else 'now ' + _short(v)}" for n, v in change.items()]
        return f"refuses {name} ({message[:200]}), so {' and '.join(ways)}"


def _short(value: Any) -> str:
    return value.get("type", "set") if isinstance(value, dict) else str(value)


def _named(message: str, names: Collection[str]) -> str | None:
    """Return the parameter that an error is about: the first that its text names, there the longest name."""
    found = []
    for name in names:
        pattern = rf"(?<!\w)(?:{re.escape(name)}|{_ALSO.get(name, name)})(?!\w)"
        if match := re.search(pattern, message, re.IGNORECASE):
            found.append((match.start(), -len(name), name))
    return min(found)[2] if found else None


def _changed(name: str, message: str, value: Any) -> dict[str, Any]:
    """Return what is sent in place of a refused parameter."""
    if name == "response_format" and value.get("type") == "json_schema":
        return {name: {"type": "json_object"}}
    if name == "stream":
        return {name: None if value else True}
    if name == "max_tokens" and "max_completion_tokens" in message:
        return {name: None, "max_completion_tokens": value}
    return {name: None}
