"""A task from a Python file of the user's: `+task=my_task.py`."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from movlr_jax.errors import UserError, near_matches, unknown_name
from movlr_jax.settings import typed
from movlr_jax.tasks.base import Metrics, Task

FUNCTION = "task"  # what the file has to define


def own_task(settings: Mapping[str, Any], episode_s: float | None) -> Task:
    """The task that the function `task` of the file `settings["file"]` returns, called with the other settings.

    Raises UserError. What goes wrong later, in the functions that the task brings with it, is told with the line
    that it happened in.
    """
    settings = dict(settings)
    path = settings.pop("file", None)
    if not path:
        raise UserError("task=own needs a file: give +task=my_task.py")
    file = Path(str(path))
    module = _load(file)
    make = getattr(module, FUNCTION, None)
    if not callable(make):
        raise UserError(
            f"{file} defines no function {FUNCTION}(); it should return a Task, as `return simple_task(...)` does"
        )
    given = _arguments(make, settings, file)
    task = told(make, file)(**given)
    if not isinstance(task, Task):
        raise UserError(
            f"{FUNCTION}() of {file} returns a {type(task).__name__}, expected a Task; `return simple_task(...)`"
        )
    functions = {
        name: told(function, file)
        for name in ("start", "score", "diagnose", "over", "perturb", "series")
        if (function := getattr(task, name)) is not None
    }
    return dataclasses.replace(
        task, episode_s=episode_s or task.episode_s, measure=_checked(task.measure, file), **functions
    )


def told(function: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """`function`, whose mistakes become a sentence with the line of `file` that they come from."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UserError:
            raise
        except Exception as error:
            raise UserError(_sentence(error, file)) from error

    return call


def _checked(measure: Callable[..., Any], file: Path) -> Callable[..., Metrics]:
    """`measure`, whose result is numbers by name, or a sentence."""

    def call(*args: Any) -> Metrics:
        metrics = told(measure, file)(*args)
        try:
            return {str(name): float(value) for name, value in metrics.items()}
        except (AttributeError, TypeError, ValueError):
            raise UserError(
                f"the measure of {file} returns {metrics!r:.80}, expected a dict of names and numbers"
            ) from None

    return call


def _load(file: Path) -> ModuleType:
    if not file.is_file():
        beside = [str(p) for p in file.parent.glob("*.py")] if file.parent.is_dir() else []
        near = near_matches(str(file), beside)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UserError(f"there is no task file {file}{hint}")
    spec = importlib.util.spec_from_file_location(f"movlr_own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file} is no Python file; name it something.py")
    module = importlib.util.module_from_spec(spec)
    folder, writes = str(file.resolve().parent), sys.dont_write_bytecode
    sys.path.insert(0, folder)  # so that it may be split over files
    sys.dont_write_bytecode = True  # leaves nothing beside it
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise UserError(f"{file} is not Python: {where}{error.msg}") from None
    except Exception as error:
        raise UserError(_sentence(error, file)) from error
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(folder)
    return module


def _arguments(make: Callable[..., Any], settings: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """`settings` as arguments of `make`, of the types that it names. Raises UserError."""
    try:
        parameters, hints = inspect.signature(make).parameters, get_type_hints(make)
    except (NameError, TypeError, ValueError) as error:
        raise UserError(f"{file}: the arguments of {FUNCTION}() cannot be read: {error}") from None
    given = {}
    for name, value in settings.items():
        where = f"task.settings.{name}"
        if name not in parameters:
            raise UserError(
                unknown_name("setting", where, [f"task.settings.{known}" for known in parameters])
            )
        given[name] = typed(hints[name], value, where) if name in hints else value
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.name not in given]
    if needed:
        raise UserError(
            f"{FUNCTION}() of {file} needs {needed[0]!r}; give task.settings.{needed[0]}=..., or a default"
        )
    return given


def _sentence(error: Exception, file: Path) -> str:
    """What went wrong, and the innermost line of `file` it happened in."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename).resolve() == file.resolve()]
    where = f" line {lines[-1]}:" if lines else ""
    said = " ".join(str(error).split())
    return f"{file}:{where} {type(error).__name__}{': ' + said if said else ''}"
