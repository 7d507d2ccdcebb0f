"""Compare methods under one budget, over seeds."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from movlr_jax._util.settings import check_seeds
from movlr_jax.config.compose import compose
from movlr_jax.config.methods import METHODS
from movlr_jax.config.schema import Config, check
from movlr_jax.control.build import acting
from movlr_jax.engine.environment import prepare_environment
from movlr_jax.engine.parts import sized
from movlr_jax.engine.resume import same_search
from movlr_jax.engine.search import run_search
from movlr_jax.engine.tasks import task_folder, task_of
from movlr_jax.errors import UserError
from movlr_jax.evolution.journal import CONFIRM
from movlr_jax.evolution.trials import TrialPlan
from movlr_jax.report.data import read_run
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.inside import inside
from movlr_jax.storage.writing import new_run_dir, write_atomically
from movlr_jax.tasks import Task


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


@dataclass(frozen=True)
class ComparisonRequest:
    """Which methods are compared, and with which settings. Raises UserError."""

    settings: Sequence[str]  # of all searches, as on the command line
    methods: Sequence[str]
    seeds: Sequence[int] = ()  # none: the seed of the settings
    sim_s: float | None = None  # simulated seconds of each method; None: those of a search with the settings

    def __post_init__(self) -> None:
        for method in self.methods:
            METHODS.get_or_raise(method)
        if not self.methods:
            raise UserError("methods=[] names no method; give a list, as in methods=[movlr,human]")
        if self.seeds:
            check_seeds(self.seeds)
        if self.sim_s is not None and not 0 < self.sim_s < math.inf:
            raise UserError(
                f"sim_s={self.sim_s:g}: expected simulated seconds of more than 0 per method, as in sim_s=60"
            )


@dataclass(frozen=True)
class ComparedMethods:
    """Result of a comparison."""

    rows: Sequence[MethodRow]
    task: Task
    root: Path
    endings: Sequence[str]  # how each search ended, as `run_search` says it, or `refused`

    @property
    def complete(self) -> bool:
        return "interrupted" not in self.endings and all(row.finished for row in self.rows)


def compare(request: ComparisonRequest) -> ComparedMethods:
    """Run the searches of a comparison one after another, and write the table. Raises UserError.

    Searches that are in its folder already are continued.
    """
    configs = searches(request)
    task, root = task_of(configs[0]), Path(str(configs[0].run_dir)).parents[1 if request.seeds else 0]
    rows: list[MethodRow] = []
    endings: list[str] = []
    for config in configs:
        error = None
        try:
            if finished := is_finished(config):
                _check_settings(config, task)
            endings.append("finished" if finished else run_search(config)[1])
        except UserError as refused:
            error = str(refused)
            print(error, file=sys.stderr, flush=True)
            endings.append("refused")
        except KeyboardInterrupt:
            endings.append("interrupted")
        rows.append(read_row(Path(str(config.run_dir)), config, task, error))
        if endings[-1] == "interrupted":
            break
    write(root, rows)
    return ComparedMethods(rows, task, root, endings)


def is_finished(config: Config) -> bool:
    """Whether a search has finished all its generations."""
    if not config.resume:
        return False
    with Archive.open(Path(config.resume), write=False) as archive:
        return (archive.get("finished") or {}).get("generations") == config.generations


def _check_settings(config: Config, task: Task) -> None:
    """Raise UserError if a finished search, whose result is taken over, had other settings."""
    task = acting(config.optimizer, task)
    config = sized(config, task, config.candidates, lambda sentence: None)
    with Archive.open(Path(str(config.resume)), write=False) as archive:
        same_search(config, task, archive.get("run") or {}, archive)


def searches(request: ComparisonRequest) -> list[Config]:
    """Return the settings of a search per method and seed, all with the same simulated seconds. Raises UserError."""
    prepare_environment()
    overrides, sim_s = request.settings, request.sim_s
    base = compose(list(overrides))
    episode = base.episode_s or task_of(base).episode_s
    trials = int(sim_s / episode + 1e-9) if sim_s else TrialPlan.of(base).search(base.candidates, base.generations)
    root = Path(base.run_dir) if base.run_dir else new_run_dir(task_folder(base), "compare")
    configs = []
    for seed, method in itertools.product(request.seeds or (None,), request.methods):
        folder = method if seed is None else f"{method}/seed{seed}"
        sized = [o for o in overrides if not o.startswith(("candidates=", "generations="))]
        chosen = list(overrides) if METHODS[method].proposes else sized
        config = compose([*chosen, f"method={method}", *([] if seed is None else [f"seed={seed}"])])
        needs = TrialPlan.of(config).search
        k = max([k for k in range(1, config.candidates + 1) if needs(k, 1) <= trials], default=1)
        n = 1
        while METHODS[method].proposes and needs(k, n + 1) <= trials:
            n += 1
        run = root / folder
        resume = str(run) if inside(root, f"{folder}/config.yaml").exists() else None
        configs.append(
            check(dataclasses.replace(config, candidates=k, generations=n, run_dir=str(run), resume=resume))
        )
    return configs


def read_row(folder: Path, config: Config, task: Task, reason: str | None) -> MethodRow:
    """Read the result of a search, finished or not, from its run directory."""
    try:
        with Archive.open(folder, write=False, whole=True) as archive:
            run, (calls, cost) = read_run(archive), archive.spent()
    except UserError as error:
        return MethodRow(config.method.name, config.seed, reason or str(error))
    best = run.best
    fresh = list(run.trials.get(CONFIRM, {}).get(best.name, {}).values()) if best else []
    metrics = best.metrics if best else {}
    if best and run.confirmed and fresh:
        metrics = run.confirmed.claims[best.name].metrics
    if best and run.full and run.full.name == best.name:
        metrics = run.full.metrics  # result of the final training
    measured = [trial.metrics for trial in fresh] or [metrics]
    searched = [of for g, programs in run.trials.items() if g != CONFIRM for of in programs.items()]
    return MethodRow(
        method=config.method.name,
        seed=config.seed,
        reason=None if best else reason,
        models=run.about.get("models_used", ""),
        best=best.name if best else "",
        score=statistics.fmean(task.scoring.score(dict(m)) if m else math.nan for m in measured),
        success=metrics.get("success", math.nan),
        programs=len(run.candidates),
        failed=sum(candidate.failed for candidate in run.candidates.values()),
        sim_s=(config.episode_s or task.episode_s)
        * sum(len(trials) for name, trials in searched if name in run.candidates),
        calls=calls,
        cost_usd=cost,
        wall_s=run.wall_s or 0.0,
        finished=run.finished is not None,
        metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
    )


def write(root: Path, rows: Sequence[MethodRow]) -> None:
    """Write compare.csv, with all measures of each best program."""
    text = io.StringIO()
    names = [f.name for f in dataclasses.fields(MethodRow) if f.name != "metrics"]
    measures = list(dict.fromkeys(name for row in rows for name in row.metrics if name not in names))
    writer = csv.DictWriter(text, [*names, *measures])
    writer.writeheader()
    writer.writerows([{**row.metrics, **{name: getattr(row, name) for name in names}} for row in rows])
    write_atomically(root / "compare.csv", text.getvalue().encode())


def by_method(rows: Sequence[MethodRow]) -> dict[str, list[MethodRow]]:
    """Return the rows of each method, in the order of their seeds."""
    found: dict[str, list[MethodRow]] = {}
    for row in rows:
        found.setdefault(row.method, []).append(row)
    return found
