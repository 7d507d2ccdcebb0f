"""`python -m movlr_jax.compare +task=T methods=[movlr,eureka,human]`: compare methods.

Every method gets the same budget: simulated seconds (`sim_s=`; default: candidates x generations x starts x
episode_s, and as much again for each of inner_weights), max_calls and max_cost_usd. Each method keeps its own number
of candidates, unless candidates=... sets one for all, and runs as many generations as the seconds allow. The results
are a table and a plot. `resume=FOLDER` continues a comparison that was interrupted or that ran out of budget (then
also give a larger max_calls= or max_cost_usd=).
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from movlr_jax.commands import cli, outcome
from movlr_jax.commands.search import search
from movlr_jax.commands.session import task_of
from movlr_jax.config.compose import compose
from movlr_jax.config.methods import METHODS
from movlr_jax.config.schema import Config, check
from movlr_jax.config.trust import check_task_file
from movlr_jax.errors import UserError, shortened
from movlr_jax.evolution.final_training import EVENT as FINAL_TRAINING
from movlr_jax.report.sweep import write_sweep_page
from movlr_jax.settings import CONFIG_BYTES, read_yaml
from movlr_jax.storage.archive import Archive, new_run_dir, write_atomically
from movlr_jax.storage.inside import inside, read_inside
from movlr_jax.tasks import Task

_ARGUMENTS = "compare.yaml"  # in the folder of a comparison: the arguments it was started with
_RESETTABLE = ("films", "preview", "max_calls", "max_cost_usd")


@dataclass(frozen=True)
class MethodRow:
    """Result of one method."""

    method: str
    reason: str | None  # why there is no result
    models: str = ""
    best: str = ""
    score: float = math.nan  # task score, higher is better
    success: float = math.nan
    programs: int = 0
    failed: int = 0
    sim_s: float = 0.0  # simulated seconds of evaluation episodes
    calls: int = 0
    cost_usd: float = 0.0
    wall_s: float = 0.0
    finished: bool = False
    course: Sequence[tuple[float, float]] = ()  # per generation: (simulated s so far, best score so far)


def main(argv: list[str] | None = None) -> int:
    return cli.run_with_arguments(compare, __doc__, argv)


def compare(arguments: Sequence[str]) -> int:
    """Run the methods one after another. Return 0, or the highest exit status of a search. Raises UserError."""
    given = {_name(argument): argument.partition("=")[2] for argument in arguments}
    arguments = with_resumed(arguments)
    methods, sim_s, overrides = read_arguments(arguments)
    if "resume" in given:
        folder = Path(given["resume"])
        started = [inside(folder, method) for method in methods]
        check_task_file(compose(overrides), folder, [run for run in started if run.is_dir()])
    configs = plan(methods, sim_s, overrides)
    task = task_of(configs[0])
    root = Path(str(configs[0].run_dir)).parent
    kept = [a for a in arguments if _name(a) not in ("run_dir", "trust")]
    write_atomically(root / _ARGUMENTS, yaml.safe_dump(kept).encode())
    rows, status = [], 0
    for config in configs:
        errors: list[str] = []
        ended = 0 if is_finished(config) else outcome.run_one(search, config, errors.append)
        status = max(status, ended)
        rows.append(read_row(Path(str(config.run_dir)), config, task, "; ".join(errors) or None))
        if ended == outcome.INTERRUPTED:
            break
    write(root, rows)
    show(rows, task, root)
    if len(rows) < len(configs) or not all(row.finished for row in rows):
        print(f"the comparison is not complete; continue with resume={root}", file=sys.stderr)
    return status


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


def is_finished(config: Config) -> bool:
    """Whether a search has finished all its generations."""
    if not config.resume:
        return False
    with Archive.open(Path(config.resume), write=False) as archive:
        return (archive.get("finished") or {}).get("generations") == config.generations


def read_arguments(arguments: Sequence[str]) -> tuple[list[str], float | None, list[str]]:
    """Return the methods, the simulated seconds and the settings of all searches. Raises UserError."""
    own = {"methods": "movlr,eureka,harmon,human", "sim_s": ""}
    given, overrides = cli.split_arguments(arguments, own, {"method": "compare takes methods=[...]"})
    methods = cli.listed(given["methods"])
    try:
        sim_s = float(given["sim_s"]) if given["sim_s"] else None
    except ValueError:
        sim_s = math.nan
    if sim_s is not None and not 0 < sim_s < math.inf:
        raise UserError(
            f"sim_s={given['sim_s']}: expected simulated seconds of more than 0 per method, as in sim_s=60"
        )
    for method in methods:
        METHODS.get_or_raise(method)
    if not methods:
        raise UserError("methods=[] names no method; give a list, as in methods=[movlr,human]")
    return methods, sim_s, overrides


def plan(methods: Sequence[str], sim_s: float | None, overrides: Sequence[str]) -> list[Config]:
    """Return the settings of one search per method, all with the same simulated seconds. Raises UserError."""
    base = compose(list(overrides))
    episode = base.episode_s or task_of(base).episode_s
    seconds = sim_s or base.candidates * base.generations * _seconds(base, episode)
    root = Path(base.run_dir) if base.run_dir else new_run_dir(Path("runs"), f"{base.task.name}/compare")
    configs = []
    for method in methods:
        sized = [o for o in overrides if not o.startswith(("candidates=", "generations="))]
        chosen = list(overrides) if METHODS[method].proposes else sized
        config = compose([*chosen, f"method={method}"])
        affordable = max(1, int(seconds / _seconds(config, episode) + 1e-9))
        k = min(config.candidates, affordable)
        n = max(1, affordable // k) if METHODS[method].proposes else 1
        run = root / method
        resume = str(run) if inside(run, "config.yaml").exists() else None
        configs.append(
            check(dataclasses.replace(config, candidates=k, generations=n, run_dir=str(run), resume=resume))
        )
    return configs


def _seconds(config: Config, episode: float) -> float:
    """Return the simulated seconds that one program takes, with its starts and the variants of its weights."""
    return config.starts * (1 + config.inner_weights) * episode


def read_row(run: Path, config: Config, task: Task, reason: str | None) -> MethodRow:
    """Read the result of a search, finished or not, from its run directory."""
    try:
        archive = Archive.open(run, write=False, whole=True)
    except UserError as error:
        return MethodRow(config.method.name, reason or str(error))
    with archive:
        evaluated = [e.data for e in archive.events("evaluated")]
        ranked = archive.events("ranked")
        calls, cost = archive.spent()
        about, timings = archive.get("run") or {}, archive.events("timing")
        finished = archive.get("finished") is not None
        full = archive.get(FINAL_TRAINING)
    known = {data["name"]: data for data in evaluated}
    each = _seconds(config, config.episode_s or task.episode_s)
    course = []
    for event in ranked:
        seconds = sum(d["generation"] <= event.generation for d in evaluated) * each
        course.append((seconds, _score(task, known[event.data["best"]])))
    best = known.get(ranked[-1].data["best"]) if ranked else None
    if best and full and full["name"] == best["name"]:
        best = {**best, "metrics": full["metrics"]}  # result of the final training
    return MethodRow(
        method=config.method.name,
        reason=reason if best is None else None,
        models=about.get("models_used", ""),
        best=best["name"] if best else "",
        score=_score(task, best) if best else math.nan,
        success=best["metrics"].get("success", math.nan) if best else math.nan,
        programs=len(evaluated),
        failed=sum(d["reason"] is not None for d in evaluated),
        sim_s=len(evaluated) * each,
        calls=calls,
        cost_usd=cost,
        wall_s=sum(v for t in timings for v in t.data.values()),
        finished=finished,
        course=course,
    )


def _score(task: Task, data: dict[str, Any]) -> float:
    return task.score(dict(data["metrics"])) if data["metrics"] else math.nan


def write(root: Path, rows: Sequence[MethodRow]) -> None:
    """Write compare.csv and compare.png."""
    text = io.StringIO()
    names = [f.name for f in dataclasses.fields(MethodRow) if f.name != "course"]
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows([{name: getattr(row, name) for name in names} for row in rows])
    write_atomically(root / "compare.csv", text.getvalue().encode())
    write_atomically(root / "compare.png", _plot(rows))


def _plot(rows: Sequence[MethodRow]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="simulated seconds", ylabel="task score of the best so far")
    for row in rows:
        if row.course:
            axes.plot(*zip(*row.course, strict=True), marker="o", label=row.method)
    if axes.lines:
        axes.legend()
    axes.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def show(rows: Sequence[MethodRow], task: Task, root: Path) -> None:
    """Print the table and the paths of the files, then all rows as JSON on the last line."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{task.name}: methods under one budget", title_justify="left")
    headings = ("method", "score", "success", "programs", "failed", "sim s", "calls", "USD", "wall s")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "method" else "right")
    notes: dict[str, list[str]] = {}  # reasons and models, printed below the table
    for row in sorted(rows, key=lambda r: -r.score if math.isfinite(r.score) else math.inf):
        notes.setdefault(row.reason or row.models, []).append(row.method)
        if row.reason:
            table.add_row(row.method, "-", "-", "-", "-", "-", str(row.calls), "-", "-")
            continue
        success = "-" if math.isnan(row.success) else "yes" if row.success else "no"
        name = row.method if row.finished else f"{row.method} (not finished)"
        table.add_row(
            name, f"{row.score:.3g}", success, str(row.programs), str(row.failed), f"{row.sim_s:.4g}",
            str(row.calls), f"{row.cost_usd:.4f}", f"{row.wall_s:.0f}",
        )  # fmt: skip
    Console(stderr=True).print(table)
    for note, methods in notes.items():
        print(f"{', '.join(methods)}: {note}", file=sys.stderr)
    print(f"table: {root / 'compare.csv'}\nplot: {root / 'compare.png'}", file=sys.stderr)
    if any(root.rglob("run.db")):
        print(f"report: {write_sweep_page(root)}", file=sys.stderr)
    plain = [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in dataclasses.asdict(r).items()}
        for r in rows
    ]
    print(json.dumps(plain), flush=True)
