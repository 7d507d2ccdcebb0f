"""What the two SDKs have in common: which failures pass, and what a server asks of us."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

from movlr_jax.errors import UserError
from movlr_jax.language.call import Transient
from movlr_jax.language.keys import redact

_TRANSPORT = ("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "anyio", "h11", "ssl")
_PASSING = (408, 409, 425, 429, 500, 502, 503, 504, 529)


def failure(
    status: int, message: str, headers: Mapping[str, str] | None, *, where: str, key_env: str | None
) -> Exception:
    """What an HTTP status means for the search: worth another attempt, or the person's to mend."""
    said = redact(" ".join(message.split()))[:300]
    if status in _PASSING:
        return Transient(f"HTTP {status}: {said}", retry_after(headers or {}, message))
    if status in (401, 403) or (status == 400 and re.search(r"api.?key", message, re.IGNORECASE)):
        return UserError(
            f"{where} does not let us in (HTTP {status}: {said}); is the key in {key_env or 'key_env'} right "
            "and still valid? Mend it and go on with resume=<run directory>"
        )
    if status == 404:
        return UserError(
            f"{where} does not know this model or address (HTTP 404: {said}); check model and base_url"
        )
    return UserError(f"{where} does not accept the call (HTTP {status}: {said})")


def retry_after(headers: Mapping[str, str], message: str = "") -> float | None:
    """Seconds to wait, from the Retry-After header (seconds or a date) or Google's RetryInfo in the message."""
    value = next((v for k, v in headers.items() if k.lower() == "retry-after"), None)
    if value is not None:
        try:
            return max(0.0, float(value))
        except ValueError:
            date = email.utils.parsedate_to_datetime(value) if "," in value else None
            return max(0.0, date.timestamp() - time.time()) if date else None
    delay = re.search(r"retryDelay'?\"?: ?'?\"?(\d+(?:\.\d+)?)s", message)
    return float(delay.group(1)) if delay else None


def transport(error: Exception) -> Transient | None:
    """`error` as one of the way, or None when it is none: a broken connection, a late or unreadable answer."""
    root = type(error).__module__.split(".")[0]
    if root in _TRANSPORT or isinstance(error, OSError | TimeoutError | ValueError):
        said = redact(" ".join(str(error).split()))[:200]
        return Transient(f"{type(error).__name__}: {said}" if said else type(error).__name__)
    return None


def schema_of(form: Any) -> dict[str, Any]:
    """The JSON schema of a form, without references: not every server follows them."""
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
