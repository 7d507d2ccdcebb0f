"""`movlr-jax compare +task=T methods=[movlr,eureka,human] seeds=0,1,2`: compare methods.

Without methods=, these are movlr, eureka, harmon and human; human only for a task that has a hand-written reward, not
for one from words.

Every method gets the same budget: simulated seconds (`sim_s=`; default: what a search with these settings takes),
max_calls and max_cost_usd. The baselines and the confirmation come in addition. Each method keeps its own number of
candidates, unless candidates=... sets one for all, and runs as many generations as the seconds allow. `seeds=`
repeats everything with several seeds. The results are a table, a plot, and compare.csv with a row per method and
seed. All other settings are those of a search. `resume=FOLDER` continues a comparison that was interrupted or that
ran out of budget (then also give a larger max_calls= or max_cost_usd=).
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from movlr_jax._util.settings import CONFIG_BYTES, read_yaml
from movlr_jax.cli import common, outcome
from movlr_jax.cli.search import search
from movlr_jax.config.compose import compose
from movlr_jax.config.methods import METHODS
from movlr_jax.config.schema import Config, check
from movlr_jax.config.trust import acts, obey
from movlr_jax.engine.session import task_folder, task_of
from movlr_jax.errors import UserError, resuming, shortened
from movlr_jax.evolution.confirm import EVENT as CONFIRMED
from movlr_jax.evolution.final_training import EVENT as FINAL_TRAINING
from movlr_jax.evolution.trials import EVENT as TRIALS
from movlr_jax.evolution.trials import TrialPlan
from movlr_jax.report.sweep import write_sweep_page
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.begun import begin
from movlr_jax.storage.inside import inside, read_inside
from movlr_jax.storage.writing import new_run_dir, write_atomically
from movlr_jax.tasks import Task

_ARGUMENTS = "compare.yaml"  # in the folder of a comparison: the arguments it was started with
_SEARCHING = ("movlr", "eureka", "harmon")
_RESETTABLE = ("films", "preview", "max_calls", "max_cost_usd")


@dataclass(frozen=True)
class MethodRow:
    """Result of one method with one seed."""

    method: str
    seed: int
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
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of the best program
    course: Sequence[tuple[float, float]] = ()  # per generation: (simulated s so far, best score so far)


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
    methods, seeds, sim_s, overrides = read_arguments(arguments)
    asked = referring | acts(compose(overrides))
    if resumed:
        obey(asked, Path(resumed), "resume", trust)
    configs = plan(methods, sim_s, overrides, seeds)
    task = task_of(configs[0])
    root = Path(str(configs[0].run_dir)).parents[1 if seeds else 0]
    kept = [a for a in arguments if _name(a) not in ("run_dir", "trust")]
    write_atomically(root / _ARGUMENTS, yaml.safe_dump(kept).encode())
    if not resumed:
        begin(root, asked)
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
        print(f"the comparison is not complete; continue with {resuming(root)}", file=sys.stderr)
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


def read_arguments(arguments: Sequence[str]) -> tuple[list[str], list[int], float | None, list[str]]:
    """Return the methods, the seeds, the simulated seconds and the settings of all searches. Raises UserError."""
    own = {"methods": "", "seeds": "", "sim_s": ""}
    refused = {"method": "compare takes methods=[...]"}
    if any(_name(a) == "seed" and ("," in a or "seeds" in map(_name, arguments)) for a in arguments):
        refused["seed"] = "compare takes seeds=0,1,2"
    given, overrides = common.split_arguments(arguments, own, refused)
    methods = common.listed(given["methods"]) if given["methods"] else _usual_methods(overrides)
    seeds = list(dict.fromkeys(common.seeds_of(given["seeds"]))) if given["seeds"] else []
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
    return methods, seeds, sim_s, overrides


def _usual_methods(overrides: Sequence[str]) -> list[str]:
    """Return the methods of a comparison that names none, and say which is left out. Raises UserError."""
    if not compose(list(overrides)).instruction:
        return [*_SEARCHING, "human"]
    print("human is left out: a task from words has no hand-written reward", file=sys.stderr)
    return [*_SEARCHING]


def _searches(methods: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, str, int | None]]:
    """Return the folder, the method and the seed of each search, seed by seed; None for the seed of the settings."""
    if not seeds:
        return [(method, method, None) for method in methods]
    return [(f"{method}/seed{seed}", method, seed) for seed in seeds for method in methods]


def plan(
    methods: Sequence[str], sim_s: float | None, overrides: Sequence[str], seeds: Sequence[int] = ()
) -> list[Config]:
    """Return the settings of a search per method and seed, all with the same simulated seconds. Raises UserError."""
    base = compose(list(overrides))
    episode = base.episode_s or task_of(base).episode_s
    trials = int(sim_s / episode + 1e-9) if sim_s else _trials(base, base.candidates, base.generations)
    root = Path(base.run_dir) if base.run_dir else new_run_dir(task_folder(base), "compare")
    configs = []
    for folder, method, seed in _searches(methods, seeds):
        sized = [o for o in overrides if not o.startswith(("candidates=", "generations="))]
        chosen = list(overrides) if METHODS[method].proposes else sized
        config = compose([*chosen, f"method={method}", *([] if seed is None else [f"seed={seed}"])])
        k = max([k for k in range(1, config.candidates + 1) if _trials(config, k, 1) <= trials], default=1)
        n = 1
        while METHODS[method].proposes and _trials(config, k, n + 1) <= trials:
            n += 1
        run = root / folder
        resume = str(run) if inside(root, f"{folder}/config.yaml").exists() else None
        configs.append(
            check(dataclasses.replace(config, candidates=k, generations=n, run_dir=str(run), resume=resume))
        )
    return configs


def _trials(config: Config, candidates: int, generations: int) -> int:
    """Return about how many trials a search has, without those of the baselines and of the confirmation."""
    return TrialPlan.of(config).search(candidates, generations)


def read_row(run: Path, config: Config, task: Task, reason: str | None) -> MethodRow:
    """Read the result of a search, finished or not, from its run directory."""
    try:
        archive = Archive.open(run, write=False, whole=True)
    except UserError as error:
        return MethodRow(config.method.name, config.seed, reason or str(error))
    with archive:
        evaluated = [e.data for e in archive.events("evaluated")]
        ranked = archive.events("ranked")
        calls, cost = archive.spent()
        about, timings = archive.get("run") or {}, archive.events("timing")
        finished = archive.get("finished") is not None
        full, confirmed = archive.get(FINAL_TRAINING), archive.get(CONFIRMED)
        trials = [(e.generation, e.data["programs"]) for e in archive.events(TRIALS)]
    known = {data["name"]: data for data in evaluated}
    episode, course = config.episode_s or task.episode_s, []
    for event in ranked:
        before = [programs for g, programs in trials if 0 <= g <= event.generation]
        scores = [
            _score(task, t) for programs in before for t in programs.get(event.data["best"], {}).values()
        ]
        seconds = sum(len(of) for programs in before for of in programs.values()) * episode
        course.append((seconds, statistics.fmean(scores) if scores else math.nan))
    best = known.get(ranked[-1].data["best"]) if ranked else None
    fresh = [t for g, programs in trials if g < 0 and best for t in programs.get(best["name"], {}).values()]
    if best and confirmed and fresh:
        best = {**best, "metrics": confirmed["claims"][best["name"]]["metrics"]}
    if best and full and full["name"] == best["name"]:
        best = {**best, "metrics": full["metrics"]}  # result of the final training
    return MethodRow(
        method=config.method.name,
        seed=config.seed,
        reason=reason if best is None else None,
        models=about.get("models_used", ""),
        best=best["name"] if best else "",
        score=statistics.fmean(_score(task, t) for t in fresh)
        if fresh
        else _score(task, best)
        if best
        else math.nan,
        success=best["metrics"].get("success", math.nan) if best else math.nan,
        programs=len(evaluated),
        failed=sum(d["reason"] is not None for d in evaluated),
        sim_s=sum(len(of) for g, programs in trials if g >= 0 for n, of in programs.items() if n in known)
        * episode,
        calls=calls,
        cost_usd=cost,
        wall_s=sum(v for t in timings for v in t.data.values()),
        finished=finished,
        metrics={k: v for k, v in best["metrics"].items() if math.isfinite(v)} if best else {},
        course=course,
    )


def _score(task: Task, data: dict[str, Any]) -> float:
    return task.score(dict(data["metrics"])) if data["metrics"] else math.nan


def write(root: Path, rows: Sequence[MethodRow]) -> None:
    """Write compare.csv, with all measures of each best program, and compare.png."""
    text = io.StringIO()
    names = [f.name for f in dataclasses.fields(MethodRow) if f.name not in ("metrics", "course")]
    measures = list(dict.fromkeys(name for row in rows for name in row.metrics if name not in names))
    writer = csv.DictWriter(text, [*names, *measures])
    writer.writeheader()
    writer.writerows([{**row.metrics, **{name: getattr(row, name) for name in names}} for row in rows])
    write_atomically(root / "compare.csv", text.getvalue().encode())
    write_atomically(root / "compare.png", _plot(rows))


def _plot(rows: Sequence[MethodRow]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="simulated seconds", ylabel="task score of the best so far")
    for i, (method, of) in enumerate(_by_method(rows).items()):
        for n, row in enumerate(row for row in of if row.course):
            seconds, scores = zip(*row.course, strict=True)
            axes.plot(seconds, scores, marker="o", color=f"C{i}", label=None if n else method)
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

    seeds = len({row.seed for row in rows})
    spread = f", mean ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    table = Table(title=f"{task.name}: methods under one budget{spread}", title_justify="left")
    paid = ("calls", "USD") if any(row.calls for row in rows) else ()
    for heading in ("method", "score", "success", "programs", "failed", "sim s", *paid, "wall s"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    notes: dict[str, list[str]] = {}  # reasons and models, printed below the table
    for method, of in sorted(_by_method(rows).items(), key=lambda item: _order(item[1])):
        for row in of:
            text = row.reason or row.models
            notes.setdefault(text, []).append(
                f"{method}, seed {row.seed}" if spread and row.reason else method
            )
        table.add_row(*_cells(method, of, bool(paid)))
    Console(stderr=True).print(table)
    for note, methods in notes.items():
        print(f"{', '.join(dict.fromkeys(methods))}: {note}", file=sys.stderr)
    print(f"table: {root / 'compare.csv'}\nplot: {root / 'compare.png'}", file=sys.stderr)
    if any(root.rglob("run.db")):
        print(f"report: {write_sweep_page(root)}", file=sys.stderr)
    plain = [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in dataclasses.asdict(r).items()}
        for r in rows
    ]
    print(json.dumps(plain), flush=True)


def _by_method(rows: Sequence[MethodRow]) -> dict[str, list[MethodRow]]:
    """Return the rows of each method, in the order of their seeds."""
    found: dict[str, list[MethodRow]] = {}
    for row in rows:
        found.setdefault(row.method, []).append(row)
    return found


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
