"""Code shared by both protocols: which failures are temporary, how long to wait, how malformed answers are parsed."""

from __future__ import annotations

import contextlib
import email.utils
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from movlr_jax._util.keys import redact
from movlr_jax.errors import UserError, printable
from movlr_jax.language.clients.call import BadAnswer, Reply, Transient

_TEMPORARY = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_FENCES = ("```", "~~~")
_MOST_TOKENS = 10**9  # per call; larger counts are invalid
_KINDS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def failure(
    status: int, body: str, headers: Mapping[str, str], *, where: str, key_env: str | None
) -> Exception:
    """Return the exception for an HTTP status: Transient if a retry may help, else UserError for the user to fix."""
    message = brief(message_of(body), 300)
    if status in _TEMPORARY:
        return Transient(f"HTTP {status}: {message}", retry_after(headers, body))
    if status in (401, 403) or (status == 400 and re.search(r"api.?key", body, re.IGNORECASE)):
        return UserError(
            f"{where} denies access (HTTP {status}: {message}); is the key in {key_env or 'key_env'} correct "
            "and still valid?"
        )
    if status == 404:
        return UserError(
            f"{where} does not know this model or address (HTTP 404: {message}); check model and base_url"
        )
    return UserError(f"{where} rejects the call (HTTP {status}: {message})")


def message_of(body: str) -> str:
    """Return the error message in the body of a response, or the whole body if it has none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return body
    value = value[0] if isinstance(value, list) and value else value
    error = value.get("error", value) if isinstance(value, dict) else value
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message else body


def brief(value: Any, most: int) -> str:
    """Return the beginning of `value` (as JSON if it is not a string) on one line, without keys and control codes."""
    if not isinstance(value, str):
        try:
            value = json.dumps(value, ensure_ascii=False)
        except RecursionError:
            value = _KINDS[type(value)]
    return printable(" ".join(redact(value).split())[:most])


def retry_after(headers: Mapping[str, str], message: str = "") -> float | None:
    """Return the wait in s from the Retry-After header (seconds or a date) or from Google's RetryInfo in the message.

    Return None if both are missing, or if the value is malformed or in the past.
    """
    value = next((v for k, v in headers.items() if k.lower() == "retry-after"), None)
    if value is None:
        delay = re.search(r"retryDelay'?\"?: ?'?\"?(\d+(?:\.\d+)?)s", message)
        value = delay.group(1) if delay else ""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError, OSError):
            return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def transport(error: BaseException) -> Exception:
    """Convert an SDK exception (broken connection, timeout, unreadable response) to Transient."""
    if isinstance(error, UserError | Transient | BadAnswer):
        return error
    message = brief(str(error), 200)
    return Transient(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def address(url: str, proxied: bool = True) -> str:
    """Return where calls to `url` are sent, without passwords: the URL and the proxy of the environment.

    proxied: whether the client reads the environment.
    """
    parts = urlsplit(url)
    proxies = getproxies() if proxied and not proxy_bypass(parts.netloc) else {}
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    shown, through = (brief(re.sub(r"(^|//)[^/]*@", r"\1", of), 200) for of in (url, proxy or ""))
    return f"{shown} through the proxy {through}" if proxy else shown


def envelope(body: bytes | str) -> dict[str, Any]:
    """Parse the body of a response as a JSON object. Raises Transient otherwise, since no model sent such a body."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    if not text.strip():
        raise Transient("the response is empty")
    try:
        value = json.loads(text)
    except RecursionError:
        raise Transient("the response is nested too deeply to be an answer") from None
    except ValueError:
        raise Transient(
            f"the response is not JSON; it begins {brief(text, 60)!r}. Is base_url correct?"
        ) from None
    return _as(dict, value, "the response", Transient)


def failed_inside(value: Mapping[str, Any], where: str, key_env: str | None) -> Exception | None:
    """Return the error that a server sent with a success status, or None."""
    error = value.get("error")
    if not error:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    message = brief(error.get("message") or error if isinstance(error, dict) else error, 300)
    if isinstance(code, int) and 400 <= code < 600:
        return failure(code, message, {}, where=where, key_env=key_env)
    return BadAnswer(f"the server answers with an error: {message}")


@contextlib.contextmanager
def replied(reply: Reply) -> Iterator[None]:
    """Attach the reply, with its token counts, to a BadAnswer raised in the context."""
    try:
        yield
    except BadAnswer as bad:
        raise BadAnswer(str(bad), reply) from None


def mapping(value: Any, what: str) -> dict[str, Any]:
    """Return `value` as an object, empty for null. Raises BadAnswer for other types."""
    return {} if value is None else _as(dict, value, what)


def listed(value: Any, what: str) -> list[Any]:
    """Return `value` as a list, empty for null. Raises BadAnswer for other types."""
    return [] if value is None else _as(list, value, what)


def _as(kind: type, value: Any, what: str, refusal: type[Exception] = BadAnswer) -> Any:
    if not isinstance(value, kind):
        verb = "are" if what.endswith("s") else "is"
        raise refusal(f"{what} {verb} {_KINDS[type(value)]}, {_KINDS[kind]} was expected")
    return value


def text_of(content: Any, what: str) -> str:
    """Return the text of a message, or the joined texts of its parts. Raises BadAnswer for other types.

    Parts with reasoning are left out. A part that begins or follows a code block begins a line.
    """
    if isinstance(content, list):
        joined = ""
        for text in filter(None, map(_part, content)):
            fenced = text.startswith(_FENCES) or joined.endswith(_FENCES)
            joined += ("\n" if fenced and joined and not joined.endswith("\n") else "") + text
        return joined
    text = "" if content is None else _part(content)
    return text if text is not None else _as(str, content, what)


def _part(part: Any) -> str | None:
    """Return the text of a part, empty for reasoning; None if it is none."""
    if not isinstance(part, dict):
        return part if isinstance(part, str) else None
    if re.search("think|reason|thought", str(part.get("type")), re.IGNORECASE):
        return ""
    text = part.get("text", part.get("content"))
    text = text.get("value") if isinstance(text, dict) else text
    return text if isinstance(text, str) else None


def name_of(value: Any) -> str:
    """Return a name reported by a server, such as a model version; empty if it is not a string."""
    return brief(value, 200) if isinstance(value, str) else ""


def tokens(*counts: Any) -> int | None:
    """Return the sum of token counts, which may be numeric strings; None if one is missing or invalid."""
    total = 0
    for count in counts:
        try:
            number = None if isinstance(count, bool) else float(count)
        except (TypeError, ValueError, OverflowError):
            return None
        if number is None or not 0 <= number <= _MOST_TOKENS:
            return None
        total += int(number)
    return total


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
