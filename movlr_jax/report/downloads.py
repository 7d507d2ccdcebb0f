"""What a person can take from a report: files as links of the page, and the commands that make them again."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from movlr_jax.errors import UserError
from movlr_jax.evolution.journal import CONFIRM
from movlr_jax.records import Evaluation
from movlr_jax.report.data import Run
from movlr_jax.report.text import data_address
from movlr_jax.storage.inside import read_inside
from movlr_jax.storage.layout import candidate_path
from movlr_jax.tasks.registry import DESCRIBED_TASK, FILE_TASK

_TRAJECTORY_BYTES = 3 * 2**20  # a larger trajectory stays in the run directory
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet runs text that begins with one of these


@dataclass(frozen=True)
class Download:
    """A file in the page."""

    label: str
    file: str  # its name when saved
    address: Markup


def downloads(run: Run) -> list[Download]:
    """Return the best program, its trajectory, its curves and the table of all programs, as far as there are any."""
    best, found = run.best, []
    if best:
        found.append(("Program (.py)", f"{best.name}.py", "text/x-python", best.source.encode()))
        with contextlib.suppress(UserError):
            path = candidate_path(best.generation, best.candidate, ".npz")
            if trajectory := read_inside(run.root, path, _TRAJECTORY_BYTES):
                found.append(("Trajectory (.npz)", f"{best.name}.npz", "application/octet-stream", trajectory))
        if len(best.curve_time) > 1:
            found.append(("Curves (.csv)", f"{best.name}_curves.csv", "text/csv", curves_csv(best)))
    if run.candidates:
        found.append(("All programs (.csv)", "programs.csv", "text/csv", programs_csv(run)))
    return [Download(label, file, data_address(data, kind)) for label, file, kind, data in found]


def curves_csv(c: Evaluation) -> bytes:
    """Return time, weighted terms (`term.NAME`) and motion curves of a program as a table."""
    columns: dict[str, Sequence[Any]] = {"time_s": c.curve_time}
    columns |= {f"term.{name}": term.get("curve") or [] for name, term in c.terms.items()}
    columns |= dict(c.series)
    rows = itertools.islice(itertools.zip_longest(*columns.values()), len(c.curve_time))
    return _csv([list(columns), *rows])


def programs_csv(run: Run) -> bytes:
    """Return a row for each program with its parent, outcome, trials, mean measures and weights (`weight.NAME`)."""
    programs = list(run.candidates.values())
    metrics = list(dict.fromkeys(name for c in programs for name in c.metrics))
    terms = list(dict.fromkeys(name for c in programs for name in c.weights))
    head = ["program", "generation", "parent", "failed", "trials", "successes"]
    rows: list[Sequence[Any]] = [[*head, *metrics, *(f"weight.{name}" for name in terms)]]
    for c in programs:
        claim = run.claims[c.name]
        row = [c.name, c.generation, c.parent, c.reason, claim.n, claim.successes]
        rows.append([*row, *map(claim.metrics.get, metrics), *map(c.weights.get, terms)])
    return _csv(rows)


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """Return a value for a table: no number for what is not finite, and no text that a spreadsheet would run."""
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def commands(run: Run) -> list[tuple[str, str]]:
    """Return (what it does, command) of everything that can be done with the run."""
    root, settings = _word(run.root), run.about.get("settings") or {}
    found = []
    if run.state in ("interrupted", "unfinished"):
        found.append(("Continue the search", f"python -m movlr_jax.search resume={root}"))
    found.append(("Search again, with the same settings and answers", f"python -m movlr_jax.search replay={root}"))
    if run.best:
        found.append(("Simulate and film the best program again", _evaluate(run, settings)))
        fresh = run.trials.get(CONFIRM, {}).get(run.confirmed.champion) if run.confirmed else None
        if fresh and (seed := fresh[min(fresh)].seed) is not None:
            found.append(("Repeat a fresh trial", _evaluate(run, {**settings, "seed": seed})))
        found.append(("Best motion as a table (or .mot, .sto)", f"movlr-jax export {root} format=csv"))
        found.append(("Look at the best motion from all sides", f"movlr-jax view {root}"))
        if run.best.gait:
            found.append(("Analyse its gait", f"movlr-jax gait {root}"))
    if run.candidates:
        found.append(("Compare the films yourself", f"movlr-jax vote {root}"))
    return [*found, ("Write this page again", f"movlr-jax report {root}")]


def _evaluate(run: Run, settings: Mapping[str, Any]) -> str:
    task = settings.get("task.name") or run.about.get("task")
    path = settings.get("task.settings.file") if task == FILE_TASK else None
    optimizer = settings.get("optimizer.name")
    size = _SIZES.get(str(optimizer), "")
    given = {
        "+task": None if task == DESCRIBED_TASK else path or task,
        "reward": run.root / "best.py",
        "optimizer": optimizer,
        **{name: settings.get(name) for name in ("model", "instruction", "episode_s", "seed", size)},
    }
    words = [f"{name}={_word(value)}" for name, value in given.items() if value is not None]
    return " ".join(["python -m movlr_jax.evaluate", *words])


_SIZES = {"mpc2": "optimizer.mppi.samples", "mppi": "optimizer.mppi.samples", "ppo": "optimizer.ppo.env_steps"}


def _word(value: Any) -> str:
    return shlex.quote(str(value))
