"""Tasks that are defined in a Python file: `+task=my_task.py`."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import jax
import numpy as np

from movlr_jax._util.settings import typed
from movlr_jax.errors import UserError, shortened, similar_files, unknown_name
from movlr_jax.models.spec import quiet
from movlr_jax.tasks.base import CTRL_DT, Measures, Metrics, Task, measured, trial
from movlr_jax.tasks.needs import Need
from movlr_jax.tasks.simple import FOLDER
from movlr_jax.types import SimState

FUNCTION = "task"  # name of the function that the file must define
# the setting `file` of that function; in the settings, `file` is the file of the task itself
OWN_FILE = "_file"


def file_task(settings: Mapping[str, Any], episode_s: float | None) -> Task:
    """Call the function `task` of the file `settings["file"]` with the other settings and return its task.

    The functions of the task are tried on an episode in which the model hardly moves, so that their errors show up
    before the search. Raises UserError, with the line of the file in which an error occurred.
    """
    settings = dict(settings)
    file = Path(str(settings.pop("file")))
    if OWN_FILE in settings:
        settings["file"] = settings.pop(OWN_FILE)
    token = FOLDER.set(file.parent)  # paths of models are relative to it
    try:
        task = _made(file, settings)
    finally:
        FOLDER.reset(token)
    functions = {
        name: with_source_line(function, file)
        for name in ("start", "over", "perturb", "series", "faults")
        if (function := task.leaves()[name]) is not None
    }
    task = task.replace(
        episode_s=episode_s or task.episode_s,
        measure=_checked(task.scoring.measure, file),
        score=_of_measures(task.scoring.score, file),
        diagnose=_of_measures(task.scoring.diagnose, file),
        **functions,
    )
    _try(task)
    return task


def _made(file: Path, settings: Mapping[str, Any]) -> Task:
    """Run the file and its function. Raises UserError."""
    module = _load(file)
    make = getattr(module, FUNCTION, None)
    if not callable(make):
        raise UserError(
            f"{file} defines no function {FUNCTION}(); define one that returns a Task, as `return simple_task(...)`"
        )
    given = _arguments(make, settings, file)
    task = with_source_line(make, file)(**given)
    if not isinstance(task, Task):
        raise UserError(
            f"{FUNCTION}() of {file} returns {type(task).__name__}, expected Task; use `return simple_task(...)`"
        )
    return task


def _try(task: Task) -> None:
    """Call the functions of the task on a trial episode.

    Raises UserError for the first that fails, or returns something else than the search can use.
    """

    def returned(name: str, value: Any, fits: bool, expected: str) -> None:
        if not fits:
            raise UserError(f"{name} of the task {task.name} returns {shortened(value)}, expected {expected}")

    with quiet():
        episode = trial(task)
        metrics = measured(episode, task, CTRL_DT)
        score = task.scoring.score(metrics)
        returned("score", score, _shape(score) == () and not np.isnan(score), "a number")
        needs = task.scoring.diagnose(metrics)
        returned("diagnose", needs, _all_are(needs, Need), "a list of movlr_jax.tasks.base.Need")
        count = episode.steps.time.size
        if task.scoring.series:
            curves = task.scoring.series(episode, task)
            fits = isinstance(curves, Mapping) and all(_shape(c) == (count,) for c in curves.values())
            returned("series", curves, fits, f"a dict from names to numbers [T], here [{count}]")
        if task.scoring.faults:
            faults = task.scoring.faults(episode, task)
            fits = isinstance(faults, Mapping) and _all_are([*faults, *faults.values()], str)
            returned("faults", faults, fits, "a dict from names to sentences")
        if task.course.over:
            batch = jax.tree.map(lambda x: x[None], episode.steps)
            over = task.course.over(batch, jax.tree.map(lambda x: x[:, 0], batch))
            returned("over", over, _shape(over) == (1, count), f"true or false [B, T], here [1, {count}]")
        if task.course.perturb:
            state = jax.tree.map(lambda x: x[None], episode.final)
            pushed = task.course.perturb(state, CTRL_DT)
            fits = isinstance(pushed, SimState) and _shapes(pushed) == _shapes(state)
            returned("perturb", pushed, fits, "the SimState that it gets, with other numbers of the same shapes")


def _all_are(values: Any, kind: type) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, kind) for value in values)


def _shapes(state: SimState) -> list[tuple[int, ...] | None]:
    return [_shape(getattr(state, field.name)) for field in dataclasses.fields(state)]


def _shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape of numbers, None for anything else."""
    try:
        return None if value is None else np.asarray(value, float).shape
    except (TypeError, ValueError):
        return None


def with_source_line(function: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """Wrap `function` so that its exceptions become a UserError with the line of `file` in which they occurred."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise UserError(_sentence(error, file)) from error

    return call


def _of_measures(function: Callable[[Metrics], Any], file: Path) -> Callable[[Metrics], Any]:
    """Wrap `function` of metrics so that a missing name is an error that lists the known names."""
    return with_source_line(lambda metrics: function(Measures(metrics)), file)


def _checked(measure: Callable[..., Any], file: Path) -> Callable[..., Metrics]:
    """Wrap `measure` so that a result other than a dict of numbers is a UserError."""

    def call(*args: Any) -> Metrics:
        metrics = with_source_line(measure, file)(*args)
        try:
            return {str(name): float(value) for name, value in metrics.items()}
        except (AttributeError, TypeError, ValueError):
            raise UserError(
                f"the measure of {file} returns {metrics!r:.80}, expected a dict from names to numbers"
            ) from None

    return call


def _load(file: Path) -> ModuleType:
    if not file.is_file():
        raise UserError(f"there is no task file {file}{similar_files(file)}")
    spec = importlib.util.spec_from_file_location(f"movlr_own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    folder, writes = str(file.resolve().parent), sys.dont_write_bytecode
    sys.path.insert(0, folder)  # so that the file can import files in the same folder
    sys.dont_write_bytecode = True  # no __pycache__ in the user's folder
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        raise UserError(f"{file} is not valid Python: {where}{error.msg}") from None
    except Exception as error:
        raise UserError(_sentence(error, file)) from error
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(folder)
    return module


def _arguments(make: Callable[..., Any], settings: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Convert `settings` to the arguments of `make`, with the types of its annotations. Raises UserError."""
    try:
        parameters, hints = inspect.signature(make).parameters, get_type_hints(make)
    except (NameError, TypeError, ValueError) as error:
        raise UserError(f"{file}: the arguments of {FUNCTION}() cannot be read: {error}") from None
    given = {}
    for name, value in settings.items():
        where = f"task.settings.{name}"
        if name not in parameters:
            raise UserError(unknown_name("setting", where, [f"task.settings.{known}" for known in parameters]))
        given[name] = typed(hints[name], value, where) if name in hints else value
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.name not in given]
    if needed:
        raise UserError(
            f"{FUNCTION}() of {file} needs {needed[0]!r}; set task.settings.{needed[0]}=..., or give it a default"
        )
    return given


def _sentence(error: Exception, file: Path) -> str:
    """Return the error message with the innermost line of `file` in which it occurred."""
    message = " ".join(str(error).split())
    if isinstance(error, UserError) and message.startswith(str(file)):
        return message
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename).resolve() == file.resolve()]
    where = f" line {lines[-1]}:" if lines else ""
    kind = [] if isinstance(error, UserError) else [type(error).__name__]
    return f"{file}:{where} {': '.join(kind + [message] * bool(message))}"
