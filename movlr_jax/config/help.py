"""Text of --help: all settings with their defaults and the comments of their fields in the source."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from movlr_jax.config.compose import compose, options
from movlr_jax.config.methods import Method
from movlr_jax.config.schema import Config
from movlr_jax.control.build import OPTIMIZERS

_GROUPS = (
    ("Tasks (+task=NAME, or +task=FILE.py for your own)", "task"),
    ("Optimizers (optimizer=NAME)", "optimizer"),
    ("Methods (method=NAME)", "method"),
    ("Language models, which write programs (llm=NAME)", "llm"),
    ("Vision-language models, which compare and criticise (vlm=NAME)", "vlm"),
)
_ELSEWHERE = ("task", "model", "episode_s", "optimizer", "llm", "vlm", "method", "tuned_settings")


def help_text() -> str:
    """Return the text of --help."""
    groups = [f"{title}: {', '.join(options(group))}" for title, group in _GROUPS]
    config = dataclasses.replace(compose(["+task=bottle_pour", "tuned=false"]), tuned=True)
    return "\n".join(
        (
            "Give settings as name=value, as in candidates=8 or optimizer.mppi.samples=64; a value with",
            "commas is a sweep: one run per value.",
            *groups,
            "",
            "model=NAME or FILE.xml, episode_s=SECONDS: default from the task",
            *_lines(config, [f.name for f in dataclasses.fields(Config) if f.name not in _ELSEWHERE]),
            "method:",
            *_lines(config.method, [f.name for f in dataclasses.fields(Method)], "  "),
            f"optimizer ({config.optimizer.name}; other optimizers have other defaults):",
            *_lines(config.optimizer, OPTIMIZERS[config.optimizer.name].settings, "  "),
        )
    )


def _lines(values: Any, names: Any, indent: str = "") -> list[str]:
    """Return one line per setting: name, value and the comment in the source."""
    about, lines = comments(type(values)), []
    for name in names:
        value = getattr(values, name)
        if dataclasses.is_dataclass(value):
            lines += [
                f"{indent}{name}:",
                *_lines(value, [f.name for f in dataclasses.fields(value)], indent + "  "),
            ]
            continue
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        shown = f"{indent}{name}: {text}"
        lines.append(f"{shown:<28} # {about[name]}" if name in about else shown)
    return lines


def comments(kind: type) -> dict[str, str]:
    """Return the comment of each field by name: at the end of its line, or on the lines before it."""
    found, before = {}, []
    for line in inspect.getsource(kind).splitlines():
        field = re.match(r"    (\w+): [^#]*(?:#\s*(.*))?$", line)
        if line.strip().startswith("#"):
            before.append(line.strip(" #"))
            continue
        if field and (comment := field.group(2) or " ".join(before)):
            found[field.group(1)] = comment
        before = []
    return found
