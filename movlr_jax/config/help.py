"""Text of --help: all settings with their defaults and what they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from movlr_jax._util.parts import settings_of
from movlr_jax.config.compose import compose, options
from movlr_jax.config.defaults import ELSEWHERE, ROLES
from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError

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


def help_text(words: Sequence[str] = ()) -> str:
    """Return the text of --help. Where `words` choose parts, as an optimizer, its settings are those of these."""
    config = _chosen(words)
    roles = {role: getattr(config, role) for role in ROLES}
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
            *_lines(config.optimizer, vars(config.optimizer), "  "),
            *(
                line
                for role, made in roles.items()
                if (own := [f.name for f in settings_of(type(made))])
                for line in (f"{role} ({ROLES[role].name_of(made)}):", *_lines(made, own, "  "))
            ),
        )
    )


def _chosen(words: Sequence[str]) -> Config:
    """Return the settings that `words` give, of a task of the package where they name none."""
    try:
        config = compose([*words, "tuned=false"])
    except UserError:
        config = compose(["+task=bottle_pour", *words, "tuned=false"])
    return dataclasses.replace(config, tuned=True)


def _lines(values: Any, names: Iterable[str], indent: str = "") -> list[str]:
    """Return one line per setting: name, value, and what the setting is."""
    fields, lines = {f.name: f for f in dataclasses.fields(values)}, []
    for name in names:
        value, metadata = getattr(values, name), fields[name].metadata
        registry, group = metadata.get("parts"), dataclasses.is_dataclass(value)
        if metadata.get("flat"):
            lines += _lines(value, vars(value), indent)
        elif registry and (own := settings_of(type(value))):
            chosen = _line(f"{indent}  {registry.tag}", registry.name_of(value), ", ".join(registry))
            lines += [f"{indent}{name}:", chosen, *_lines(value, [f.name for f in own], f"{indent}  ")]
        elif group and not registry and "about" not in metadata:
            lines += [f"{indent}{name}:", *_lines(value, vars(value), f"{indent}  ")]
        else:
            shown = registry.name_of(value) if registry else "..." if group else value
            lines.append(_line(f"{indent}{name}", shown, metadata.get("about", "")))
    return lines


def _line(name: str, value: Any, about: str) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{f'{name}: {text}':<28} # {about}" if about else f"{name}: {text}"
