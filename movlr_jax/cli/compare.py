"""`movlr-jax compare +task=T methods=[movlr,eureka,human] seeds=0,1,2`: compare methods.

Without methods=, these are movlr, eureka, harmon and human; human only for a task that has a hand-written reward, not
for one from words.

Every method gets the same budget: simulated seconds (`sim_s=`; default: what a search with these settings takes),
max_calls and max_cost_usd. The baselines and the confirmation come in addition. Each method keeps its own number of
candidates, unless candidates=... sets one for all, and runs as many generations as the seconds allow. `seeds=`
repeats everything with several seeds. The results are a table, a page with curves, and compare.csv with a row per
method and seed. All other settings are those of a search. The same command with the same run_dir= continues a
comparison that was interrupted or that ran out of budget (then with a larger max_calls= or max_cost_usd=).
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from movlr_jax.cli import common
from movlr_jax.cli.outcome import STATUS
from movlr_jax.cli.words import read_words
from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import name_of
from movlr_jax.engine import compare as engine
from movlr_jax.engine.compare import ComparisonRequest, MethodRow, by_method
from movlr_jax.report.sweep import write_sweep_page
from movlr_jax.tasks import Task

_SEARCHING = ("movlr", "eureka", "harmon")


@dataclass(frozen=True)
class _Words:
    methods: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    sim_s: float | None = None


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(compare, __doc__, argv)


def compare(words: Sequence[str]) -> int:
    """Run the methods one after another. Return 0, or the highest exit status of a search. Raises UserError."""
    request = read_request(words)
    found = engine.compare(request)
    show(found.rows, found.task, found.root)
    if not found.complete:
        print(
            f"the comparison is not complete; the same command with run_dir={found.root} continues", file=sys.stderr
        )
    return max(STATUS[ending] for ending in found.endings)


def read_request(words: Sequence[str]) -> ComparisonRequest:
    """Return the methods, the seeds, the simulated seconds and the settings of all searches. Raises UserError."""
    refused = {
        "method": "compare takes methods=[...]",
        "resume": "the same command with the run_dir= of a comparison continues it",
    }
    if any(name_of(w) == "seed" and ("," in w or "seeds" in map(name_of, words)) for w in words):
        refused["seed"] = "compare takes seeds=0,1,2"
    own, settings = read_words(_Words, words, refused)
    methods = _usual_methods(settings) if own.methods is None else own.methods
    return ComparisonRequest(settings, methods, tuple(dict.fromkeys(own.seeds or ())), own.sim_s)


def _usual_methods(overrides: Sequence[str]) -> list[str]:
    """Return the methods of a comparison that names none, and say which is left out. Raises UserError."""
    if not compose(list(overrides)).instruction:
        return [*_SEARCHING, "human"]
    print("human is left out: a task from words has no hand-written reward", file=sys.stderr)
    return [*_SEARCHING]


def show(rows: Sequence[MethodRow], task: Task, root: Path) -> None:
    """Print the table and the paths of the files, then all rows as JSON on the last line."""
    seeds = len({row.seed for row in rows})
    spread = f", mean ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    table = Table(title=f"{task.name}: methods under one budget{spread}", title_justify="left")
    paid = ("calls", "USD") if any(row.calls for row in rows) else ()
    for heading in ("method", "score", "success", "programs", "failed", "sim s", *paid, "wall s"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    notes: dict[str, list[str]] = {}  # reasons and models, printed below the table
    for method, of in sorted(by_method(rows).items(), key=lambda item: _order(item[1])):
        for row in of:
            text = row.reason or row.models
            notes.setdefault(text, []).append(f"{method}, seed {row.seed}" if spread and row.reason else method)
        table.add_row(*_cells(method, of, bool(paid)))
    Console(stderr=True).print(table)
    for note, methods in notes.items():
        print(f"{', '.join(dict.fromkeys(methods))}: {note}", file=sys.stderr)
    print(f"table: {root / 'compare.csv'}", file=sys.stderr)
    if any(root.rglob("run.db")):
        print(f"report: {write_sweep_page(root)}", file=sys.stderr)
    plain = [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in dataclasses.asdict(r).items()}
        for r in rows
    ]
    print(json.dumps(plain), flush=True)


def _order(rows: Sequence[MethodRow]) -> float:
    """Return what sorts methods: the highest mean score first, those without one last."""
    scores = [row.score for row in rows if math.isfinite(row.score)]
    return -statistics.fmean(scores) if scores else math.inf


def _cells(method: str, rows: Sequence[MethodRow], paid: bool) -> list[str]:
    """Return the cells of one method: of one search, or of several seeds. paid: whether calls and costs are shown."""
    ran = [row for row in rows if not row.reason]
    cost = f"{sum(row.cost_usd for row in ran):.4f}" if ran else "-"
    called = [str(sum(row.calls for row in rows)), cost] if paid else []
    if not ran:
        return [method, "-", "-", "-", "-", "-", *called, "-"]
    scores = [row.score for row in ran if math.isfinite(row.score)]
    score = f"{statistics.fmean(scores):.3g}" if scores else "-"
    if len(scores) > 1:
        score += f" ± {statistics.stdev(scores):.2g}"
    rates = [row.success for row in ran if not math.isnan(row.success)]
    success = f"{100 * statistics.fmean(rates):.0f} %" if rates else "-"
    programs, failed, seconds, wall = (
        sum(getattr(row, name) for row in ran) for name in ("programs", "failed", "sim_s", "wall_s")
    )
    name = method if all(row.finished for row in rows) else f"{method} (not finished)"
    return [name, score, success, str(programs), str(failed), f"{seconds:.4g}", *called, f"{wall:.0f}"]
