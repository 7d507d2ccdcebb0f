"""API keys: read from the environment, and removed from all text before it is written or printed."""

from __future__ import annotations

import base64
import os
import re
from functools import cache

from movlr_jax.errors import UserError

USUAL = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "DASHSCOPE_API_KEY")
HIDDEN = "[key]"
_LEAST = 6  # characters; a shorter value is not a key, and redacting it would remove ordinary words
_used: set[str] = set()


def key_from(variable: str | None, *, needed: bool, where: str) -> str | None:
    """Return the key in an environment variable. Raises UserError if it is needed and not set."""
    value = os.environ.get(variable, "").strip() if variable else ""
    if variable and value:
        _used.add(variable)
        return value
    if needed:
        raise UserError(
            f"{where} needs a key: set the environment variable {variable or '(name it with key_env)'}, "
            f"or name another one with {where}.key_env=NAME"
        )
    return None


def redact(text: str) -> str:
    """Return `text` with every known key replaced by HIDDEN, whatever encoding the key is in."""
    for variable in {*USUAL, *_used}:
        value = os.environ.get(variable, "").strip()
        if len(value) >= _LEAST:
            text = _pattern(value).sub(HIDDEN, text)
    return text


@cache
def _pattern(key: str) -> re.Pattern[str]:
    """Return a pattern for a key: plain, escaped as in JSON, Python, URLs or HTML, in base64, or in hexadecimal."""
    data = key.encode("utf-8", "surrogateescape")
    forms = ["".join(_character(c) for c in key), f"(?i:{data.hex()})", *_base64_forms(data)]
    return re.compile("|".join(forms))


def _character(c: str) -> str:
    code, url = ord(c), "".join(f"%(?:25){{0,3}}{b:02x}" for b in c.encode("utf-8", "surrogateescape"))
    html = f"&#(?:0{{0,5}}{code}|x0{{0,5}}{code:x});"
    python = rf"\\{{1,8}}(?:u{code:04x}|x{code:02x}|U{code:08x})"
    plain = re.escape(c) if c.isalnum() else rf"\\{{0,8}}{re.escape(c)}"
    return f"(?:{plain}|(?i:{python}|{url}|{html}))"


def _base64_forms(data: bytes) -> list[str]:
    """Return the part of the base64 of `data` that does not depend on the bytes around it, for each alignment."""
    forms = []
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        fixed = encoded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        forms.append(re.escape(fixed).replace(r"\+", "[+-]").replace("/", "[/_]"))
    return forms
