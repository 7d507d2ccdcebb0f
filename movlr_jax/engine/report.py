"""Write the report of a run, whether it is finished, in progress or interrupted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from movlr_jax.errors import UserError
from movlr_jax.report.data import read_run
from movlr_jax.report.page import write_report
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.writing import InUse
from movlr_jax.tasks import Task

_SOON = "the 3-D view, which follows in a moment: reload the page"


def write_with_task(
    run_dir: Path, task: Callable[[], Task] | None, ready: Callable[[Path], object] = lambda path: None
) -> tuple[Path, list[str]]:
    """Write report.html of a run. Return its path, and a sentence about each thing that is left out.

    task: Builds the task of the run, for the 3-D view and the curves of muscles and joints; None leaves them out.
    ready: Called with the path as soon as there is a page, without what needs the task.
    Raises UserError if there is no run or the page cannot be written.
    """
    built, why = None, ""
    try:
        archive, used = Archive.open(run_dir), False
    except InUse:
        archive, used = Archive.open(run_dir, write=False), True
    with archive:
        run = read_run(archive, used)
        if task and run.best:
            ready(write_report(archive, None, run, _SOON))
            try:
                built = task()
            except UserError as error:
                why = f"the 3-D view, because the task cannot be built: {error}"
        path = write_report(archive, built, run, why)
    return path, [*run.unreadable, *([why] if why else [])]
