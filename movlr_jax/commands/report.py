"""`python -m movlr_jax.report RUN_DIR`: write report.html of a run, or of all runs of a sweep."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from movlr_jax.commands import outcome
from movlr_jax.report.data import read_run
from movlr_jax.report.page import write_page
from movlr_jax.report.sweep import write_sweep_page
from movlr_jax.storage.archive import Archive


def main(argv: list[str] | None = None) -> int:
    """`python -m movlr_jax.report RUN_DIR`. Return 0, or 2 if there is nothing to report."""
    about = "(Re)write report.html of a run, finished or not, or of all runs of a sweep or a comparison."
    parser = argparse.ArgumentParser(prog="python -m movlr_jax.report", description=about)
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="runs/<task>/<time>, or a folder of runs"
    )
    return outcome.run_one(_report, parser.parse_args(argv).run_dir)


def _report(run_dir: Path) -> int:
    if run_dir.is_dir() and not (run_dir / "run.db").exists():
        print(f"The report is at {write_sweep_page(run_dir)}")
        return 0
    with Archive.open(run_dir) as archive:
        run = read_run(archive)
        path = write_page(archive, run)
    for sentence in run.unreadable:
        print(f"left out: {sentence}", file=sys.stderr)
    print(f"The report is at {path}")
    return 0
