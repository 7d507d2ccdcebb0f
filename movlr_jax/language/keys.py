"""Keys come from the environment and stay there: whatever is written or said is cleared of them first."""

from __future__ import annotations

import os
from urllib.parse import quote

from movlr_jax.errors import UserError

USUAL = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "DASHSCOPE_API_KEY")
HIDDEN = "[key]"
_LEAST = 6  # a shorter value is no key, and would blot out words
_used: set[str] = set()


def key_from(variable: str | None, *, needed: bool, where: str) -> str | None:
    """The key in an environment variable. Raises UserError when it is needed and not set."""
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
    """`text` without any key that this process knows, however it was quoted."""
    for variable in {*USUAL, *_used}:
        value = os.environ.get(variable, "").strip()
        if len(value) >= _LEAST:
            for form in {value, quote(value, safe="")}:
                text = text.replace(form, HIDDEN)
    return text
