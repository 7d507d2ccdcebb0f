"""One unchanged reward on other tasks, models and optimisers, or its policy in other engines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from movlr_jax._util.machine import hardware, versions
from movlr_jax._util.progress import Reporter
from movlr_jax._util.quantities import summary
from movlr_jax._util.settings import check_seeds
from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import expand
from movlr_jax.config.schema import Config
from movlr_jax.control.ppo.trainer import PpoTrainer
from movlr_jax.engine.environment import prepare_environment, prepare_physics
from movlr_jax.engine.evaluate import EvaluationSetup, prepared, run_and_film
from movlr_jax.engine.rewards import reward_source
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.physics.choose import planning_physics
from movlr_jax.storage.writing import new_run_dir, write_atomically

# MoVLR (arXiv 2512.23077), MS-Human-700, metres walked in 10 s with the reward found on flat ground, and with one
# found on the target task. The paper reports success for bottle pouring under DynSyn, without a figure.
PAPER: Mapping[tuple[str, str], str] = {
    ("flat_walk", "rough_walk"): "2.41 m; learned there 2.76 m",
    ("flat_walk", "slope_walk"): "1.99 m; learned there 2.25 m",
    ("flat_walk", "injured_walk"): "5.12 m; learned there 4.8 m",
    ("bottle_pour", "bottle_pour"): "done under DynSyn, no figure",
}


ENGINES = ("native", "mjx", "warp")


@dataclass(frozen=True)
class TransferRequest:
    """Which rewards are evaluated on which tasks, with which settings. Raises UserError."""

    reward: str
    origin: str  # task that the reward was found for
    targets: Sequence[str]
    shared: Sequence[str] = ()  # settings of all tasks
    here: Sequence[str] = ()  # settings of the origin only
    there: Sequence[str] = ()  # settings of the targets only
    beside: str | None = None  # reward made for the target, evaluated for comparison
    seeds: Sequence[int] = (0,)
    engines: Sequence[str] = ()  # evaluate the policy in these, in addition to C MuJoCo

    def __post_init__(self) -> None:
        for engine in self.engines:
            if engine not in ENGINES:
                raise UserError(unknown_name("engine", engine, ENGINES))
        check_seeds(self.seeds)


@dataclass(frozen=True)
class TransferRow:
    """Result of one reward on one task; metrics are means over the seeds."""

    role: str  # from, engine, to, or beside
    task: str
    model: str
    optimizer: str
    engine: str  # physics of the episodes
    reward: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    each: Sequence[Mapping[str, float]] = ()  # the metrics of every seed
    films: Sequence[str] = ()
    reason: str | None = None  # why there are no metrics
    paper: str = ""
    settings: Sequence[str] = ()  # settings of this row only


def transfer(request: TransferRequest) -> Iterator[tuple[Path, list[TransferRow]]]:
    """Run every row. Yield the folder of the results and the rows so far after each one. Raises UserError."""
    prepare_environment()
    rows: list[TransferRow] = []
    for engine in request.engines:  # before the policy is trained in another one
        prepare_physics(engine)
    plan = rows_of(request)
    root = Path(plan[0][1].run_dir or new_run_dir(Path("runs"), "transfer"))
    given = reward_source(request.reward, task_of(plan[0][1]))
    for row, config in plan:
        for result in run_row(row, config, request, given, root):
            rows.append(result)
            write(root, rows)
            yield root, rows


def rows_of(request: TransferRequest) -> list[tuple[TransferRow, Config]]:
    """Return the rows and their settings: first the origin, then each target. Raises UserError."""
    requested: list[tuple[str, str, list[str], list[str]]]
    requested = [("from", request.origin, list(request.here), [*request.shared, *request.here])]
    for target in request.targets:
        for job in expand(list(request.there)):
            settings = [*request.shared, *job]
            requested.append(("to", target, job, settings))
            if request.beside:
                requested.append(("beside", target, job, settings))
    rows, names = [], names_of(request.targets)
    for role, task, row_settings, settings in requested:
        config = compose([f"+task={task}", *settings])
        name = Path(task).stem if role == "from" else names[task]
        rows.append(
            (
                TransferRow(
                    role=role,
                    task=name,
                    model=config.model,
                    optimizer=config.optimizer.name,
                    engine="native",
                    reward=str(request.beside if role == "beside" else request.reward),
                    paper=PAPER.get((request.origin, name), "") if role == "to" else "",
                    settings=tuple(row_settings),
                ),
                config,
            )
        )
    return rows


def names_of(tasks: Sequence[str]) -> dict[str, str]:
    """Return the name of each task; for task files of the same name, the path without its suffix."""
    stems = [Path(task).stem for task in tasks]
    return {
        task: stem if stems.count(stem) == 1 else str(Path(task).with_suffix(""))
        for task, stem in zip(tasks, stems, strict=True)
    }


def run_row(
    row: TransferRow, config: Config, request: TransferRequest, given: tuple[str, str], root: Path
) -> Iterator[TransferRow]:
    """Yield the row with its results, then one row per engine. A row that fails has a reason instead of metrics."""
    reporter = Reporter()
    reporter.say(f"{row.role} {row.task} ({row.model}, {row.optimizer}): {row.reward}")
    folder = "_".join([row.role, row.task, row.model, row.optimizer, *row.settings]).replace("/", "-")
    try:
        source = reward_source(str(request.beside), task_of(config)) if row.role == "beside" else given
        setup = prepared(replace(config, run_dir=str(root / folder)), reporter, source)
        yield with_results(row, [seed_result(setup, seed, reporter) for seed in request.seeds])
    except UserError as error:
        yield replace(row, reason=str(error))
        return
    for name in request.engines if row.role == "from" else ():
        there = replace(row, role="engine", engine=name)
        try:
            other = in_engine(setup, name, reporter)
            yield with_results(there, [seed_result(other, seed, reporter) for seed in request.seeds])
        except UserError as error:
            yield replace(there, reason=str(error))


def seed_result(setup: EvaluationSetup, seed: int, reporter: Reporter) -> Mapping[str, Any]:
    """Return the result of one seed. A result that an interrupted run saved is reused. Raises UserError."""
    program = setup.verdict.program
    key = json.dumps([program and program.source, setup.engine, setup.digest(seed)])
    path = setup.folder / f"seed{seed}_{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    if path.is_file():
        reporter.say(f"  seed {seed}: reusing the saved result")
        return json.loads(path.read_text(encoding="utf-8"))
    result = {**run_and_film(setup, seed, reporter), "seed": seed}  # of several trials, it has that of the middle one
    write_atomically(path, json.dumps(result).encode())
    return result


def with_results(row: TransferRow, results: Sequence[Mapping[str, Any]]) -> TransferRow:
    """Return the row with the metrics and films of its episodes."""
    numbers = [{name: x for name, x in r.items() if isinstance(x, float | int)} for r in results]
    films = [r["film"] for r in results if "film" in r]
    return replace(row, metrics=means(results), each=numbers, films=films)


def in_engine(setup: EvaluationSetup, engine: str, reporter: Reporter) -> EvaluationSetup:
    """Return a setup that runs the same policy in another engine. Raises UserError if the optimizer has no policy.

    The finished training is loaded from the folder of `setup`; nothing is trained again.
    """
    optimizer = setup.optimizer
    if not setup.config.optimizer.trains:
        raise UserError(
            f"engines={engine}: optimizer={optimizer.name} has no policy to run in another engine; give "
            "optimizer=ppo or optimizer=dynsyn"
        )
    assert isinstance(optimizer, PpoTrainer)
    times = setup.config.optimizer
    task = replace(setup.task, model=optimizer.space.model)
    there = planning_physics(engine, task, sim_dt=times.sim_dt, ctrl_dt=times.ctrl_dt, say=reporter.say)
    return replace(setup, optimizer=optimizer.acting_in(there))


def means(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean of each float metric over the seeds that report it."""
    names = dict.fromkeys(n for r in results for n, v in r.items() if isinstance(v, float) and n != "seed")
    return {name: float(np.mean([r[name] for r in results if name in r])) for name in names}


def write(root: Path, rows: Sequence[TransferRow]) -> None:
    """Write transfer.json and transfer.md."""
    write_atomically(root / "transfer.md", markdown(rows).encode())
    write_atomically(root / "transfer.json", json.dumps([asdict(row) for row in rows], indent=1).encode())


def markdown(rows: Sequence[TransferRow]) -> str:
    """Return a Markdown table with the results of every seed and the figures of the papers."""
    seeds = list(dict.fromkeys(int(m["seed"]) for row in rows for m in row.each))
    heads = ["", "task", "model", "optimizer", "engine", "reward", *(f"seed {n}" for n in seeds), "paper"]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        results = {int(m["seed"]): summary(m) for m in row.each}
        cells = [results.get(n, "-") for n in seeds] if results else [row.reason or "-", *[""] * (len(seeds) - 1)]
        optimizer = " ".join([row.optimizer, *(s for s in row.settings if not s.startswith("optimizer="))])
        lines.append([row.role, row.task, row.model, optimizer, row.engine, Path(row.reward).name, *cells, row.paper])
    table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
    installed = versions()
    return (
        f"One reward, unchanged; {date.today().isoformat()}, {hardware()}, MuJoCo {installed['mujoco']}, "
        f"JAX {installed['jax']}.\n\n{table}\n"
    )
