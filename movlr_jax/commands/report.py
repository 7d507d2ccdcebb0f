"""`python -m movlr_jax.report RUN_DIR`: write report.html of a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from movlr_jax.commands import cli
from movlr_jax.report.data import read_run
from movlr_jax.report.page import write_page
from movlr_jax.storage.archive import Archive


def main(argv: list[str] | None = None) -> int:
    """`python -m movlr_jax.report RUN_DIR`. Return 0, or 2 if there is nothing to report."""
    parser = argparse.ArgumentParser(
        prog="python -m movlr_jax.report", description="(Re)write report.html of a run, finished or not."
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="runs/<task>/<time>")
    return cli.run_one(_report, parser.parse_args(argv).run_dir)


def _report(run_dir: Path) -> int:
    with Archive.open(run_dir) as archive:
        run = read_run(archive)
        path = write_page(archive, run)
    for sentence in run.unreadable:
        print(f"left out: {sentence}", file=sys.stderr)
    print(f"The report is at {path}")
    return 0
