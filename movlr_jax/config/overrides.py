"""Overrides, the words `name=value` of a command line, in the form that Hydra reads."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.errors import UserError
from movlr_jax.tasks.file_task import OWN_FILE
from movlr_jax.tasks.registry import ENVIRONMENTS, FILE_TASK

_PLAIN = re.compile(r"[\w./:+-]+", re.ASCII)
_SPECIAL = re.compile(r"(\\*)('|\$\{|\Z)")  # a backslash is one unless it is before these
_NUMBER = re.compile(r"[\d._eE+-]+", re.ASCII)  # what Hydra may read as one
_PATHS = ("run_dir", "resume", "reward", "replay", "reference", "file", "model")
_REFERENCE = re.compile(r"(?<!\\)\$\{")  # to another setting, not escaped


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


def name_of(override: str) -> str:
    """Return the name of the setting that an override sets."""
    return override.lstrip("+").partition("=")[0]


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Return every combination of the sweep values, in the order of Hydra's basic sweeper. Raises UserError."""
    return [list(job) for job in itertools.product(*(_choices(override) for override in overrides))]


def _choices(override: str) -> list[str]:
    """Return the overrides of one value each that a sweep over several stands for."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(with_quotes(override))
    except HydraException as error:
        raise UserError(
            f"cannot read {override!r}: {first_line(error)}; write name=value, "
            "with a value of other characters in quotes, as in 'llm.model=\"a=b\"'"
        ) from None
    if not parsed.is_sweep_override():
        return [str(parsed.input_line)]
    return [f"{parsed.get_key_element()}={value}" for value in parsed.sweep_string_iterator()]


def for_hydra(overrides: Sequence[str]) -> list[str]:
    """Return overrides, which may be sweeps, in the form that Hydra composes. Raises UserError.

    `+task=NAME` is `task=NAME`, since the task has its place in conf/config.yaml. `+task=FILE.py` is the task of a
    file, whose settings are not known in advance, so overrides may add them.
    """
    result: list[str] = []
    for override in overrides:
        if name_of(override) != "task":
            result.append(with_quotes(override))
            continue
        value = with_quotes(override).partition("=")[2]
        tasks = [unquoted(choice.partition("=")[2].strip()) for choice in _choices(override)]
        files = [task for task in tasks if task.endswith(".py")]
        if files and files != tasks:
            raise UserError(f"task={value}: a sweep is over names of tasks or over files; start one for each kind")
        result += [f"task={FILE_TASK}", f"file={value}"] if files else [f"task={value}"]
    for setting, tasks in (("file", (FILE_TASK,)), ("env", tuple(ENVIRONMENTS))):
        given = next((o.lstrip("+") for o in result if name_of(o) == setting), None)
        if given and not any(f"task={task}" in result for task in tasks):
            raise UserError(f"{given} works only with {' or '.join(f'+task={task}' for task in tasks)}")
    if f"task={FILE_TASK}" not in result:
        return result
    if any(name_of(o) == "file" for o in result):  # then `task.settings.file` is a setting of the function
        result = [re.sub(r"^\+*task\.settings\.file=", f"task.settings.{OWN_FILE}=", o) for o in result]
    return [f"++{o.lstrip('+')}" if name_of(o).startswith("task.settings.") else o for o in result]


def with_quotes(override: str) -> str:
    """Return an override with its sentence or path quoted where Hydra would not read it; others as they are.

    The commas of a sentence are no sweep. A ${ in it is escaped, unless it is already: it refers to no other setting.
    A path is quoted if Hydra's grammar has no such word, as a=b, or reads it as a number, as 2026_11_05.
    """
    name, _, value = override.partition("=")
    setting = name.lstrip("+")
    if setting == "instruction.partial":
        return f"instruction_partial={value}"
    if setting == "run_dir" and _NUMBER.fullmatch(value):
        return f"{name}={quoted(value)}"
    if setting in _PATHS or (setting == "task" and value.endswith(".py")):
        return f"{name}={_path_quoted(value)}"
    if setting != "instruction" or value == "null":
        return override
    escaped = _REFERENCE.sub(r"\\${", value) if value[:1] in ("'", '"') else quoted(value)
    return f"{name}={escaped}"


def _path_quoted(value: str) -> str:
    """Return the value of a path, or of a sweep over paths, as Hydra reads it. It may refer to other settings."""
    if _is_read(value) or (value[:1] in tuple("'\"([{") and "," in value):
        return value
    if set(value) & set("'\"([{") and "," in value:  # one path with a comma
        return quoted(_from_home(value)).replace(r"\${", "${")
    paths = (path if _is_read(path) else quoted(_from_home(path)) for path in value.split(","))
    return ",".join(paths).replace(r"\${", "${")


def _is_read(value: str) -> bool:
    """Return whether Hydra's grammar has this value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(f"x={value}")
    except HydraException:
        return False
    return True


def _from_home(path: str) -> str:
    return str(Path(path).expanduser()) if path.startswith("~/") else path


def first_line(error: Exception) -> str:
    """Return the first line of the text of an error, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
