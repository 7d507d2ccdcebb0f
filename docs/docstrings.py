"""An extension of Griffe: comments of fields become their descriptions, and shapes in docstrings stay as they are.

A field is documented by the comment after it or above it. In docstrings, `[K, N]` is a shape, not a link.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_KEPT = re.compile(r"(`+[^`]*`+|^ *\*{1,2}\w+:)", re.M)  # code, and arguments in a list of them, as `*settings:`
_SPECIAL = re.compile(r"([\[\]*<>])")


class Comments(griffe.Extension):
    """Used by mkdocstrings, see mkdocs.yml."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Give an attribute the comment next to it; escape what Markdown would change in docstrings."""
        if obj.is_attribute and obj.docstring is None and obj.lineno and (text := comment(obj)):
            obj.docstring = griffe.Docstring(text, parent=obj)
        if obj.docstring is not None:
            obj.docstring.value = escaped(obj.docstring.value)


def comment(obj: griffe.Object) -> str:
    """Return the comment after an attribute, or the comment lines directly above it."""
    lines = obj.lines_collection[obj.filepath]  # pyright: ignore[reportArgumentType]
    first, last = (obj.lineno or 1) - 1, (obj.endlineno or obj.lineno or 1) - 1
    _, mark, after = lines[last].partition("  # ")
    if mark and not after.startswith(("noqa", "pyright", "type:", "fmt:")):
        return after.strip()
    above: list[str] = []
    while first > 0 and lines[first - 1].strip().startswith("# "):
        first -= 1
        above.insert(0, lines[first].strip().removeprefix("# "))
    return " ".join(above)


def escaped(text: str) -> str:
    """Return `text` with brackets, asterisks and angle brackets escaped, except in code and names of arguments."""
    parts = _KEPT.split(text)
    return "".join(part if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))
