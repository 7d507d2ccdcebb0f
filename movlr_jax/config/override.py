"""Settings by name as overrides, the strings that the command line takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PLAIN = re.compile(r"[\w./:+-]+", re.ASCII)
_SPECIAL = re.compile(r"(\\*)('|\$\{|\Z)")  # a backslash is one unless it is before these


def overrides_of(values: Mapping[str, Any]) -> list[str]:
    """Return settings by name as overrides; a mapping holds the settings of a group."""
    found = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += overrides_of({f"{name}.{key}": v for key, v in value.items()})
        else:
            found.append(f"{name}={text_of(value)}")
    return found


def task_override(task: str | Path) -> str:
    """Return the override that sets the task: its name, or the absolute path of a Python file."""
    return f"+task={Path(task).expanduser().resolve() if str(task).endswith('.py') else task}"


def text_of(value: Any) -> str:
    """Return a value as an override writes it, in quotes where Hydra would read it otherwise."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(text_of(v) for v in value)}]"
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text.lower() != "null"  # which is no value
    return text if plain or not isinstance(value, str | Path) else quoted(text)


def unquoted(text: str) -> str:
    """Return the text that a value of Hydra's grammar stands for, which may be in quotes."""
    if text[:1] not in ("'", '"') or len(text) < 2 or text[-1] != text[0]:
        return text
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return str(OverridesParser.create().parse_override(f"x={text}").value())


def quoted(text: str) -> str:
    """Return `text` as a quoted value of Hydra's grammar that refers to no other setting by ${ }."""
    escaped = _SPECIAL.sub(lambda found: 2 * found[1] + (found[2] and f"\\{found[2]}"), text)
    return f"'{escaped}'"
