"""`movlr-jax compare +task=T methods=[movlr,eureka,human] seeds=0,1,2`: compare methods.

Without methods=, these are movlr, eureka, harmon and human; human only for a task that has a hand-written reward, not
for one from words.

Every method gets the same budget: simulated seconds (`sim_s=`; default: what a search with these settings takes),
max_calls and max_cost_usd. The baselines and the confirmation come in addition. Each method keeps its own number of
candidates, unless candidates=... sets one for all, and runs as many generations as the seconds allow. `seeds=`
repeats everything with several seeds. The results are a table, a page with curves, and compare.csv with a row per
method and seed. All other settings are those of a search. `resume=FOLDER` continues a comparison that was interrupted
or that ran out of budget (then also give a larger max_calls= or max_cost_usd=).
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

import yaml
from rich.console import Console
from rich.table import Table

from movlr_jax._util.settings import CONFIG_BYTES, read_yaml
from movlr_jax.cli import common
from movlr_jax.cli.outcome import STATUS
from movlr_jax.cli.words import read_words
from movlr_jax.config.compose import compose
from movlr_jax.config.trust import acts, obey
from movlr_jax.engine import compare as engine
from movlr_jax.engine.compare import ComparisonRequest, MethodRow, by_method
from movlr_jax.errors import UserError, resuming, shortened
from movlr_jax.report.sweep import write_sweep_page
from movlr_jax.storage.begun import begin
from movlr_jax.storage.inside import read_inside
from movlr_jax.storage.writing import write_atomically
from movlr_jax.tasks import Task

_ARGUMENTS = "compare.yaml"  # in the folder of a comparison: the arguments it was started with
_SEARCHING = ("movlr", "eureka", "harmon")
_RESETTABLE = ("films", "preview", "max_calls", "max_cost_usd")


@dataclass(frozen=True)
class _Words:
    methods: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    sim_s: float | None = None


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(compare, __doc__, argv)


def compare(arguments: Sequence[str]) -> int:
    """Run the methods one after another. Return 0, or the highest exit status of a search. Raises UserError."""
    given = {_name(argument): argument.partition("=")[2] for argument in arguments}
    resumed, trust = given.get("resume"), given.get("trust") == "true"
    arguments = with_resumed(arguments)
    referring = {
        a.partition("=")[0]: a.partition("=")[2] for a in arguments if "${" in a
    }  # to other settings
    if resumed:  # before Hydra resolves them: they may name variables of the environment
        obey(referring, Path(resumed), "resume", trust)
    request = read_request(arguments)
    asked = referring | acts(compose(request.settings))
    if resumed:
        obey(asked, Path(resumed), "resume", trust)
    configs = engine.searches(request)
    root = request.folder(configs[0])
    kept = [a for a in arguments if _name(a) not in ("run_dir", "trust")]
    write_atomically(root / _ARGUMENTS, yaml.safe_dump(kept).encode())
    if not resumed:
        begin(root, asked)
    found = engine.compare(request, configs)
    show(found.rows, found.task, root)
    if not found.complete:
        print(f"the comparison is not complete; continue with {resuming(root)}", file=sys.stderr)
    return max(STATUS[ending] for ending in found.endings)


def read_request(arguments: Sequence[str]) -> ComparisonRequest:
    """Return the methods, the seeds, the simulated seconds and the settings of all searches. Raises UserError."""
    refused = {"method": "compare takes methods=[...]"}
    if any(_name(a) == "seed" and ("," in a or "seeds" in map(_name, arguments)) for a in arguments):
        refused["seed"] = "compare takes seeds=0,1,2"
    own, settings = read_words(_Words, arguments, refused)
    methods = _usual_methods(settings) if own.methods is None else own.methods
    return ComparisonRequest(settings, methods, tuple(dict.fromkeys(own.seeds or ())), own.sim_s)


def _usual_methods(overrides: Sequence[str]) -> list[str]:
    """Return the methods of a comparison that names none, and say which is left out. Raises UserError."""
    if not compose(list(overrides)).instruction:
        return [*_SEARCHING, "human"]
    print("human is left out: a task from words has no hand-written reward", file=sys.stderr)
    return [*_SEARCHING]


def with_resumed(arguments: Sequence[str]) -> list[str]:
    """Return the arguments; with resume=FOLDER, also those it was started with. Raises UserError."""
    given = {_name(argument): argument.partition("=")[2] for argument in arguments}
    if "resume" not in given:
        return list(arguments)
    folder = Path(given["resume"])
    text = read_inside(folder, _ARGUMENTS, CONFIG_BYTES)
    if text is None:
        raise UserError(f"{folder} is not the folder of a comparison: it has no {_ARGUMENTS}")
    for name in given:
        if name not in ("resume", "trust", *_RESETTABLE):
            raise UserError(
                f"{name} cannot be changed when a comparison is resumed, only {', '.join(_RESETTABLE)}; "
                "start a new one"
            )
    try:
        recorded = read_yaml(text.decode("utf-8"))
    except ValueError as error:
        raise UserError(
            f"{folder / _ARGUMENTS} is broken: {error}; the comparison cannot be resumed"
        ) from None
    if not isinstance(recorded, list) or not all(isinstance(a, str) for a in recorded):
        raise UserError(f"{folder / _ARGUMENTS} is {shortened(recorded)}, expected a list of settings")
    kept = [
        argument for argument in recorded if _name(argument) not in (*given, "run_dir", "resume", "trust")
    ]
    new = [argument for argument in arguments if _name(argument) != "resume"]
    return [*kept, *new, f"run_dir={folder}"]


def _name(argument: str) -> str:
    return argument.lstrip("+").partition("=")[0]


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
            notes.setdefault(text, []).append(
                f"{method}, seed {row.seed}" if spread and row.reason else method
            )
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
    succeeded = [bool(row.success) for row in ran if not math.isnan(row.success)]
    success = f"{sum(succeeded)} of {len(succeeded)}" if succeeded else "-"
    if len(rows) == 1 and succeeded:
        success = "yes" if succeeded[0] else "no"
    programs, failed, seconds, wall = (
        sum(getattr(row, name) for row in ran) for name in ("programs", "failed", "sim_s", "wall_s")
    )
    name = method if all(row.finished for row in rows) else f"{method} (not finished)"
    return [name, score, success, str(programs), str(failed), f"{seconds:.4g}", *called, f"{wall:.0f}"]
