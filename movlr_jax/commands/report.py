"""`python -m movlr_jax.report RUN_DIR`: write report.html of a run, or of all runs of a sweep."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.commands import outcome
from movlr_jax.commands.session import task_of
from movlr_jax.config.compose import compose
from movlr_jax.errors import UserError
from movlr_jax.report.data import read_run
from movlr_jax.report.page import write_page
from movlr_jax.report.sweep import write_sweep_page
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task


@dataclass(frozen=True)
class ReportRequest:
    """The parsed arguments of the command."""

    run_dir: Path
    trust: bool = False  # whether the Python file of a recorded task may run
    scene: bool = True  # whether the page has the 3-D view and the curves of muscles and joints


def main(argv: list[str] | None = None) -> int:
    """`python -m movlr_jax.report RUN_DIR`. Return 0, or 2 if there is nothing to report."""
    about = "(Re)write report.html of a run, finished or not, or of all runs of a sweep or a comparison."
    parser = argparse.ArgumentParser(prog="python -m movlr_jax.report", description=about)
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="runs/<task>/<time>, or a folder of runs"
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="NAME=VALUE",
        help="trust=true: run the Python file of a recorded task; scene=false: leave out the 3-D view and the curves "
        "of muscles and joints, which need the model",
    )
    given = parser.parse_args(argv)
    return outcome.run_one(lambda words: _report(_request(*words)), (given.run_dir, given.settings))


def _request(run_dir: Path, settings: list[str]) -> ReportRequest:
    """Return the arguments as a request. Raises UserError."""
    values = {"trust": False, "scene": True}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in values or value not in ("true", "false"):
            raise UserError(f"report has no setting {setting!r}; it takes trust=true and scene=false")
        values[name] = value == "true"
    return ReportRequest(run_dir, **values)


def _report(request: ReportRequest) -> int:
    run_dir = request.run_dir
    if run_dir.is_dir() and not (run_dir / "run.db").exists():
        print(f"The report is at {write_sweep_page(run_dir)}")
        return 0
    path, left_out = write_with_task(run_dir, (lambda: _task(request)) if request.scene else None)
    for sentence in left_out:
        print(f"left out: {sentence}", file=sys.stderr)
    print(f"The report is at {path}")
    return 0


def write_with_task(run_dir: Path, task: Callable[[], Task] | None) -> tuple[Path, list[str]]:
    """Write report.html of a run. Return its path, and a sentence about each thing that is left out.

    task: Builds the task of the run, for the 3-D view and the curves of muscles and joints; None leaves them out.
    Raises UserError if there is no run or the page cannot be written.
    """
    built, why = None, ""
    with Archive.open(run_dir) as archive:
        run = read_run(archive)
        if task and run.best:
            try:
                built = task()
            except UserError as error:
                why = f"the 3-D view, because the task cannot be built: {error}"
        path = write_page(archive, run, built, why)
    return path, [*run.unreadable, *([why] if why else [])]


def _task(request: ReportRequest) -> Task:
    return task_of(compose([f"resume={request.run_dir}", *(["trust=true"] if request.trust else [])]))
