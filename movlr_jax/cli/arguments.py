"""Hydra's flags on the command line of a command, as -m and --cfg job."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError, near_matches, unknown_name

_CFG = ("job", "hydra", "all")
_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_INSTEAD = {  # flags of Hydra that are not there, and what to use instead
    "--config-name": "give settings as name=value, or a file of yours with --config-dir DIR +experiment=FILE",
    "--config-path": "give --config-dir DIR, a folder with your own files of settings",
    "--experimental-rerun": "give resume=RUN_DIR",
}
_SHORT = {
    "-m": "--multirun",
    "-c": "--cfg",
    "-p": "--package",
    "-i": "--info",
    "-r": "--run",
    "-h": "--help",
    "-cd": "--config-dir",
    "-cn": "--config-name",
    "-cp": "--config-path",
    "-sc": "--shell-completion",
}


@dataclass(frozen=True)
class Arguments:
    """The arguments of a command: Hydra's flags, and overrides as name=value."""

    overrides: tuple[str, ...] = ()
    help: bool = False
    hydra_help: bool = False
    multirun: bool = False
    run: bool = False
    resolve: bool = False
    shell_completion: bool = False
    cfg: str | None = None  # job, hydra or all: print settings instead of running
    package: str | None = None  # with cfg: only this part
    info: str | None = None  # print what Hydra knows instead of running
    config_dir: Path | None = None  # a folder with more files of settings


_VALUED = ("--cfg", "--package", "--config-dir")
_PLAIN = ("--help", "--hydra-help", "--multirun", "--run", "--resolve", "--shell-completion")
FLAGS = (*_VALUED, *_PLAIN, "--info")


def read(arguments: Sequence[str]) -> Arguments:
    """Separate flags from overrides. Raises UserError for unknown flags and values."""
    found, overrides, rest = Arguments(), [], list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            overrides.append(word)
            continue
        flag, sign, value = word.partition("=")
        flag = _SHORT.get(flag, flag)
        field = flag.removeprefix("--").replace("-", "_")
        if flag in _PLAIN and not sign:
            found = dataclasses.replace(found, **{field: True})
        elif flag in _VALUED:
            if not sign and (not rest or rest[0].startswith("-")):
                raise UserError(f"{flag} needs a value, as in {flag} {'job' if flag == '--cfg' else 'VALUE'}")
            value = value if sign else rest.pop(0)
            if flag == "--cfg" and value not in _CFG:
                raise UserError(unknown_name("--cfg", value, _CFG))
            given = Path(value).expanduser() if flag == "--config-dir" else value
            found = dataclasses.replace(found, **{field: given})
        elif flag == "--info":
            if not sign and rest and rest[0] in _INFO:
                value = rest.pop(0)
            if sign and value not in _INFO:
                raise UserError(unknown_name("--info", value, _INFO))
            found = dataclasses.replace(found, info=value or "all")
        else:
            raise UserError(_unknown(word, flag))
    if found.multirun and (found.cfg or found.info):
        only = "--cfg" if found.cfg else "--info"
        raise UserError(
            f"{only} prints and runs nothing, so it does not go with --multirun; leave one of them out"
        )
    return dataclasses.replace(found, overrides=tuple(overrides))


def _unknown(word: str, flag: str) -> str:
    name, group = flag.lstrip("-"), flag.lstrip("-").partition(".")[0]
    if group in {field.name for field in dataclasses.fields(Config)}:
        example = f"+{name}" if name == "task" else name
        return f"there is no option {word!r}; settings have no dashes, as in {example}=..."
    near = near_matches(flag, FLAGS)
    meant = f"; did you mean {' or '.join(near)}?" if near and flag not in _INSTEAD else ""
    instead = _INSTEAD.get(flag, "give settings as name=value, --help lists them")
    return f"there is no option {word!r}{meant}" + ("" if meant else f"; {instead}")
