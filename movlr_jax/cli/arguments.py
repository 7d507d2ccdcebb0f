"""Hydra's flags on the command line of a command, as -m and --cfg job."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError, near_matches

_SWITCHES = {
    "--help": "-h",
    "--multirun": "-m",
    "--run": "-r",
    "--resolve": None,
    "--hydra-help": None,
    "--shell-completion": "-sc",
}
_VALUED = {"--cfg": "-c", "--package": "-p", "--config-dir": "-cd", "--info": "-i"}
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def read(words: Sequence[str]) -> argparse.Namespace:
    """Separate flags from overrides. Raises UserError for unknown flags and values.

    Returns:
        One attribute for each flag, as `multirun` or `cfg`; `overrides`, as name=value; and `flags`, the other words.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    for name, short in _SWITCHES.items():
        parser.add_argument(*filter(None, (short, name)), action="store_true")
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-p", "--package")
    parser.add_argument("-cd", "--config-dir", type=lambda path: Path(path).expanduser())
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=_INFO)
    parser.add_argument("overrides", nargs="*")
    given, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        raise UserError(_unknown(unknown[0]))
    if given.multirun and (given.cfg or given.info):
        only = "--cfg" if given.cfg else "--info"
        raise UserError(f"{only} prints and runs nothing, so it does not go with --multirun; leave one of them out")
    given.flags = [word for word in words if word not in given.overrides]
    return given


def _unknown(word: str) -> str:
    flag = word.partition("=")[0]
    name = flag.lstrip("-")
    if name.partition(".")[0] in {field.name for field in dataclasses.fields(Config)}:
        example = f"+{name}" if name == "task" else name
        return f"there is no option {word!r}; settings have no dashes, as in {example}=..."
    near = near_matches(flag, [*_SWITCHES, *_VALUED])
    instead = f"did you mean {' or '.join(near)}?" if near else "give settings as name=value, --help lists them"
    return f"there is no option {word!r}; {instead}"
