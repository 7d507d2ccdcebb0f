"""Read the words of a command: its own settings, typed by the fields of a dataclass, and those of Hydra."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from movlr_jax._util.settings import read_yaml, typed
from movlr_jax.engine.episodes import BEST, EpisodeRequest
from movlr_jax.errors import UserError

_Own = TypeVar("_Own")


def read_words(
    kind: type[_Own], words: Sequence[str], refused: Mapping[str, str] | None = None
) -> tuple[_Own, list[str]]:
    """Return the own settings of a command, an instance of the dataclass `kind`, and the other words in their order.

    A field `from_` is the setting `from`. Lists are written as a,b or [a,b]. Raises UserError.

    refused: settings that the command does not take -> what to give instead.
    """
    hints = {name.rstrip("_"): (name, hint) for name, hint in get_type_hints(kind).items()}
    given, others = {}, []
    for word in words:
        name, sign, value = word.lstrip("+").partition("=")
        if not sign:
            if Path(word, "run.db").is_file():
                raise UserError(f"{word} is a run; movlr-jax report FOLDER makes one page of all runs in a folder")
            raise UserError(f"cannot read {word!r}; give settings as name=value, --help lists them")
        if name in (refused or {}):
            raise UserError(f"{name}= is not supported here: {(refused or {})[name]}")
        if name in hints:
            field, hint = hints[name]
            given[field] = _value(hint, value, name)
        else:
            others.append(word)
    return kind(**given), others


def read_words_after(what: str, example: str, kind: type[_Own], words: Sequence[str]) -> tuple[Path, _Own, list[str]]:
    """Return the path that the words of a command begin with, and what `read_words` returns of the others.

    what: names the path in an error. example: the command with a path. Raises UserError.
    """
    paths = [word for word in words if ("=" not in word and not word.startswith("-")) or Path(word).exists()]
    given, others = read_words(kind, [word for word in words if word not in paths])
    if len(paths) != 1:
        command = example.partition(" ")[0]
        raise UserError(f"{command} takes one {what}, not {len(paths)}; as in movlr-jax {example}")
    return Path(paths[0]), given, others


def no_others(command: str, kind: type, others: Sequence[str]) -> None:
    """Raise UserError if a command that takes only the settings of `kind` has others."""
    if others:
        known = ", ".join(f"{field.name.rstrip('_')}=" for field in dataclasses.fields(kind))
        raise UserError(f"{command} has no setting {others[0]!r}; it takes {known}")


def check_port(port: int) -> None:
    """Raise UserError for what is no port."""
    if not 0 <= port <= 65535:
        raise UserError(f"port={port}: expected a number from 0 (any free port) to 65535")


def _value(hint: Any, text: str, name: str) -> Any:
    if get_origin(hint) is UnionType:  # X | None
        hint = get_args(hint)[0]
    if get_origin(hint) is tuple:
        (kind, *_) = get_args(hint)
        items = [item.strip() for item in text.strip("[]").split(",") if item.strip()]
        return tuple(_value(kind, item, name) for item in items)
    if hint is str:
        return text
    if hint is Path:
        return Path(text) if text else None
    try:
        return typed(hint, read_yaml(text), name)
    except ValueError as error:
        raise UserError(f"cannot read {name}={text}: {error}") from None


@dataclass(frozen=True)
class EpisodeWords:
    """Settings of a command on recorded episodes."""

    out: Path | None = None
    candidate: str = BEST
    trust: bool = False


_Episodes = TypeVar("_Episodes", bound=EpisodeWords)


def read_episodes(example: str, kind: type[_Episodes], words: Sequence[str]) -> tuple[EpisodeRequest, _Episodes]:
    """Return the episodes that the words of a command name, and its settings. Raises UserError."""
    source, own, settings = read_words_after("run directory or trajectory", example, kind, words)
    return EpisodeRequest(source, own.out, own.candidate, own.trust, settings), own
