"""`python -m movlr_jax.report RUN_DIR`: write report.html of a run, or of all runs of a sweep."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.commands import outcome
from movlr_jax.commands.session import task_of
from movlr_jax.config.compose import compose
from movlr_jax.errors import UserError
from movlr_jax.report.data import Run, read_run
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
    with Archive.open(run_dir) as archive:
        run = read_run(archive)
        task, why = _task(request, run) if request.scene else (None, "")
        path = write_page(archive, run, task, why)
    for sentence in [*run.unreadable, *([why] if why else [])]:
        print(f"left out: {sentence}", file=sys.stderr)
    print(f"The report is at {path}")
    return 0


def _task(request: ReportRequest, run: Run) -> tuple[Task | None, str]:
    """Return the task of a run and "", or None and why it cannot be built."""
    if run.best is None:
        return None, ""
    try:
        return task_of(compose([f"resume={request.run_dir}", *(["trust=true"] if request.trust else [])])), ""
    except UserError as error:
        return None, f"the 3-D view, because the task cannot be built: {error}"
