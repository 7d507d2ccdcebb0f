"""`movlr-jax report RUN_DIR`: write report.html of a run, finished, in progress or interrupted.

RUN_DIR is runs/<task>/<time>, or a folder of runs: a sweep or a comparison. `trust=true` obeys what the task of a run
asks for that you did not begin here, as a Python file. `+task=FILE.py` says where the file of the task is now, and
`model=FILE` where the model of a task from words is.
`scene=false` leaves out the 3-D view and the curves of muscles and joints, which need the model.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from movlr_jax.cli import common
from movlr_jax.cli.words import no_others, read_words_after
from movlr_jax.config.compose import compose
from movlr_jax.config.trust import TASK
from movlr_jax.engine.report import write_with_task
from movlr_jax.engine.tasks import task_of
from movlr_jax.report.sweep import write_sweep_page
from movlr_jax.tasks import Task


@dataclass(frozen=True)
class _Words:
    trust: bool = False  # whether what the recorded task asks for is obeyed
    task: str = ""  # where its file is now
    model: str = ""  # where the model of a task from words is now
    scene: bool = True  # whether the page has the 3-D view and the curves of muscles and joints


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(report, __doc__, argv)


def report(words: list[str]) -> int:
    """Write the page and print its path. Return 0. Raises UserError."""
    run_dir, own, others = read_words_after("folder", "report RUN_DIR", _Words, words)
    no_others("report", _Words, others)
    if run_dir.is_dir() and not (run_dir / "run.db").exists():
        print(f"The report is at {write_sweep_page(run_dir)}")
        return 0

    def ready(path: Path) -> None:
        print(f"{path} can be opened; the 3-D view follows", file=sys.stderr)

    path, left_out = write_with_task(run_dir, (lambda: _task(run_dir, own)) if own.scene else None, ready)
    for sentence in left_out:
        print(f"left out: {sentence}", file=sys.stderr)
    print(f"The report is at {path}")
    return 0


def _task(run_dir: Path, own: _Words) -> Task:
    given = {"trust": "true" if own.trust else "", "+task": own.task, "model": own.model}
    more = [f"{name}={value}" for name, value in given.items() if value]
    return task_of(compose([f"resume={run_dir}", *more], parts=TASK))
