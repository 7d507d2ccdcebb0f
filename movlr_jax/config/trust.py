"""Whether the Python file of a task that a run names may be run: a run directory may come from somebody else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks.registry import FILE_TASK

EVENT = "task_file"  # of run.db


def task_file(config: Config) -> dict[str, str] | None:
    """Path and hash of the file that the task comes from; None without one. Raises UserError."""
    named = config.task.settings.get("file") if config.task.name == FILE_TASK else None
    file = Path(str(named))
    if not named or not file.is_file():
        return None
    try:
        return {"path": str(named), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    except OSError as error:
        raise UserError(f"cannot read the task file {file}: {error.strerror or error}") from None


def check_task_file(config: Config, folder: Path, runs: Sequence[Path]) -> None:
    """Raises UserError where `folder` would run another task file than its `runs` began with, and nobody trusts it.

    What such a file imports is not looked at.
    """
    now = task_file(config)
    if now is None or config.trust:
        return
    recorded = next((event for run in runs if (event := _recorded(run))), None)
    if Path(now["path"]).resolve().is_relative_to(folder.resolve()):
        why = "it lies inside the run directory"
    elif recorded is None:
        why = "the run does not record which file it began with, as runs of earlier versions do not"
    elif now["path"] != recorded["path"]:
        why = f"the run began with {recorded['path']}"
    elif now["sha256"] != recorded["sha256"]:
        why = "it has changed since the run began"
    else:
        return
    raise UserError(
        f"resume={folder} would run the Python file {now['path']}: {why}; read it, and give trust=true if it may run"
    )


def about_task_file(config: Config, archive: Archive) -> str | None:
    """A sentence on the file that a resumed run runs; None where it runs none."""
    now = task_file(config)
    if now is None or not config.resume:
        return None
    same = now == archive.get(EVENT)
    return f"runs the task file {now['path']}, {'unchanged since the run began' if same else 'as you say'}"


def _recorded(run: Path) -> Mapping[str, Any] | None:
    with Archive.open(run, write=False, whole=True) as archive:
        return archive.get(EVENT)
