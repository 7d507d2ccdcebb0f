"""Text of --help: all settings with their defaults and the comments of their fields in the source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

from movlr_jax.config.compose import compose, options
from movlr_jax.config.defaults import ELSEWHERE
from movlr_jax.control.build import OPTIMIZERS

_GROUPS = (
    ("Tasks (+task=NAME, +task=FILE.py for your own, or model=... and instruction=... without one)", "task"),
    ("Optimizers (optimizer=NAME)", "optimizer"),
    ("Methods (method=NAME)", "method"),
    ("Language models, which write programs (llm=NAME)", "llm"),
    ("Vision-language models, which compare and criticise (vlm=NAME)", "vlm"),
)


def help_text() -> str:
    """Return the text of --help."""
    config = dataclasses.replace(compose(["+task=bottle_pour", "tuned=false"]), tuned=True)
    return "\n".join(
        (
            "Give settings as name=value, as in candidates=8 or optimizer.mppi.samples=64; a value with",
            "commas is a sweep: one run per value. replay=FOLDER repeats a recorded search.",
            *(f"{title}: {', '.join(options(group))}" for title, group in _GROUPS),
            "",
            "model=NAME or FILE.xml, episode_s=SECONDS: default from the task",
            *_lines(config, [name for name in vars(config) if name not in (*ELSEWHERE, "method")]),
            "method:",
            *_lines(config.method, vars(config.method), "  "),
            f"optimizer ({config.optimizer.name}; other optimizers have other defaults):",
            *_lines(config.optimizer, OPTIMIZERS[config.optimizer.name].settings, "  "),
        )
    )


def _lines(values: Any, names: Iterable[str], indent: str = "") -> list[str]:
    """Return one line per setting: name, value and the comment in the source."""
    about, lines = comments(type(values)), []
    for name in names:
        value = getattr(values, name)
        if dataclasses.is_dataclass(value):
            lines += [f"{indent}{name}:", *_lines(value, vars(value), f"{indent}  ")]
            continue
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        shown = f"{indent}{name}: {text}"
        lines.append(f"{shown:<28} # {about[name]}" if name in about else shown)
    return lines


def comments(kind: type) -> dict[str, str]:
    """Return the comment of each field by name: at the end of one of its lines, or else on the lines before it."""
    source, found = inspect.getsource(kind), {}
    lines = source.splitlines()
    for field in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.AnnAssign)):
        first, last = field.lineno - 1, field.end_lineno or field.lineno
        texts = [line.partition("  # ")[2] for line in lines[first:last] if "  # " in line]
        while lines[first - 1].lstrip().startswith("#"):
            first -= 1
        before = [line.strip(" #") for line in lines[first : field.lineno - 1]]
        if text := " ".join(texts or before):
            found[ast.unparse(field.target)] = text
    return found
