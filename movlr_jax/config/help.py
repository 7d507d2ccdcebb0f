"""Text of --help: all settings with their defaults and the comments of their fields in the source."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import tokenize
from typing import Any

from movlr_jax._util.parts import settings_of
from movlr_jax.config.compose import compose, options
from movlr_jax.config.defaults import ELSEWHERE
from movlr_jax.config.methods import Method
from movlr_jax.config.schema import Config

_GROUPS = (
    ("Tasks (+task=NAME, +task=FILE.py for your own, or model=... and instruction=... without one)", "task"),
    ("Optimizers (optimizer=NAME)", "optimizer"),
    ("Methods (method=NAME)", "method"),
    ("Language models, which write programs (llm=NAME)", "llm"),
    ("Vision-language models, which compare and criticise (vlm=NAME)", "vlm"),
    ("Proposers (proposer=NAME; auto: from llm and method)", "proposer"),
    ("Judges (judge=NAME; auto: from vlm and method)", "judge"),
    ("Critics (critic=NAME; auto: from vlm and method)", "critic"),
)


def help_text() -> str:
    """Return the text of --help."""
    groups = [f"{title}: {', '.join(options(group))}" for title, group in _GROUPS]
    config = dataclasses.replace(compose(["+task=bottle_pour", "tuned=false"]), tuned=True)
    return "\n".join(
        (
            "Give settings as name=value, as in candidates=8 or optimizer.mppi.samples=64; a value with",
            "commas is a sweep: one run per value. replay=FOLDER repeats a recorded search.",
            *groups,
            "",
            "model=NAME or FILE.xml, episode_s=SECONDS: default from the task",
            *_lines(
                config, [f.name for f in dataclasses.fields(Config) if f.name not in (*ELSEWHERE, "method")]
            ),
            "method:",
            *_lines(config.method, [f.name for f in dataclasses.fields(Method)], "  "),
            f"optimizer ({config.optimizer.name}; other optimizers have other defaults):",
            *_lines(config.optimizer, [f.name for f in dataclasses.fields(config.optimizer)], "  "),
        )
    )


def _lines(values: Any, names: Any, indent: str = "") -> list[str]:
    """Return one line per setting: name, value, and what the setting is or the comment in the source."""
    commented, fields = comments(type(values)), {f.name: f for f in dataclasses.fields(values)}
    lines: list[str] = []
    for name in names:
        value, metadata = getattr(values, name), fields[name].metadata
        registry = metadata.get("parts")
        if metadata.get("flat"):
            lines += _lines(value, [f.name for f in dataclasses.fields(value)], indent)
            continue
        if registry and (own := settings_of(type(value))):
            lines += [
                f"{indent}{name}:",
                _line(f"{indent}  {registry.tag}", registry.name_of(value), ", ".join(registry)),
            ]
            lines += _lines(value, [f.name for f in own], indent + "  ")
            continue
        if dataclasses.is_dataclass(value) and not registry and "about" not in metadata:
            lines += [f"{indent}{name}:"]
            lines += _lines(value, [f.name for f in dataclasses.fields(value)], indent + "  ")
            continue
        shown = registry.name_of(value) if registry else "..." if dataclasses.is_dataclass(value) else value
        lines.append(_line(f"{indent}{name}", shown, metadata.get("about") or commented.get(name, "")))
    return lines


def _line(name: str, value: Any, about: str) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{f'{name}: {text}':<28} # {about}" if about else f"{name}: {text}"


def comments(kind: type) -> dict[str, str]:
    """Return the comment of each field by name: at the end of its lines, or else on the lines before it."""
    source, found = inspect.getsource(kind), {}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    at = {t.start[0]: t for t in tokens if t.type == tokenize.COMMENT}  # by line
    alone = {row for row, token in at.items() if token.line.strip().startswith("#")}
    (tree,) = ast.parse(source).body
    for field in (node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)):
        rows = [row for row in range(field.lineno, (field.end_lineno or 0) + 1) if row in at]
        row = field.lineno - 1
        while row in alone and not (rows and rows[-1] >= field.lineno):
            rows.insert(0, row)
            row -= 1
        if rows:
            found[ast.unparse(field.target)] = " ".join(at[row].string.strip(" #") for row in rows)
    return found
