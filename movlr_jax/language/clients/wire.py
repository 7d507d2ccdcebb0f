"""Code shared by both protocols: errors as sentences, token counts and schemas."""

from __future__ import annotations

import json
import re
from typing import Any

from movlr_jax._util.keys import redact
from movlr_jax.errors import UserError, printable

_MOST_TOKENS = 10**9  # per call; larger counts are invalid


def failure(status: int, message: str, *, where: str, key_env: str | None) -> UserError:
    """Return the error of an HTTP status after the retries of the SDK."""
    message = brief(message, 300)
    if status in (401, 403) or (status == 400 and re.search(r"api.?key", message, re.IGNORECASE)):
        return UserError(
            f"{where} denies access (HTTP {status}: {message}); is the key in {key_env or 'key_env'} correct "
            "and still valid?"
        )
    if status == 404:
        return UserError(
            f"{where} does not know this model or address (HTTP 404: {message}); check model and base_url"
        )
    return UserError(f"{where} gave no answer (HTTP {status}: {message})")


def brief(value: Any, most: int = 200) -> str:
    """Return the beginning of `value` (as JSON if it is not a string) on one line, without keys and control codes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return printable(" ".join(redact(text).split())[:most])


def name_of(value: Any) -> str:
    """Return a name reported by a server, such as a model version; empty if it is not a string."""
    return brief(value) if isinstance(value, str) else ""


def tokens(*counts: Any) -> int | None:
    """Return the sum of token counts; None if one is missing or invalid."""
    if not all(type(count) is int and 0 <= count <= _MOST_TOKENS for count in counts):
        return None
    return sum(counts)


def schema_of(form: Any) -> dict[str, Any]:
    """Return the JSON schema of a form without references, which some servers do not resolve."""
    schema = form.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, list):
            return [resolved(n) for n in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return resolved(definitions[node["$ref"].rsplit("/", 1)[-1]])
        return {k: resolved(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))}

    return resolved(schema)
