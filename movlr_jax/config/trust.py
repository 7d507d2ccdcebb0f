"""Decide whether a recorded run may execute the Python file of its task: a run directory may come from others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks.registry import FILE_TASK

EVENT = "task_file"  # event kind in run.db


def task_file(config: Config) -> dict[str, str] | None:
    """Return the path and the hash of the file of the task, or None for a built-in task. Raises UserError."""
    named = config.task.settings.get("file") if config.task.name == FILE_TASK else None
    file = Path(str(named))
    if not named or not file.is_file():
        return None
    try:
        return {"path": str(named), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    except OSError as error:
        raise UserError(f"cannot read the task file {file}: {error.strerror or error}") from None


def check_task_file(config: Config, folder: Path, runs: Sequence[Path], done: str = "resume") -> None:
    """Raise UserError if `folder` would run another task file than its `runs` began with, unless `trust` is set.

    done: what is done with the folder, the name of a setting. Modules that the file imports are not checked.
    """
    now = task_file(config)
    if now is None or config.trust:
        return
    recorded = next((event for run in runs if (event := _recorded(run))), None)
    if Path(now["path"]).resolve().is_relative_to(folder.resolve()):
        why = "it lies inside the run directory"
    elif recorded is None:
        why = "there is no record of the file that the run began with"
    elif now["path"] != recorded["path"]:
        why = f"the run began with {recorded['path']}"
    elif now["sha256"] != recorded["sha256"]:
        why = "it has changed since the run began"
    else:
        return
    raise UserError(
        f"{done}={folder} would run the Python file {now['path']}: {why}; read it, and give trust=true to run it"
    )


def about_task_file(config: Config, archive: Archive) -> str | None:
    """Return a sentence about the task file of a resumed run, or None without one."""
    now = task_file(config)
    if now is None or not config.resume:
        return None
    why = "unchanged since the run began" if now == archive.get(EVENT) else "because of trust=true"
    return f"running the task file {now['path']}, {why}"


def _recorded(run: Path) -> Mapping[str, Any] | None:
    with Archive.open(run, write=False, whole=True) as archive:
        return archive.get(EVENT)
