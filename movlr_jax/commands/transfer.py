"""`python -m movlr_jax.transfer reward=FILE from=T1 to=T2`: a reward found with one task, unchanged on others.

reward is a file, a run directory, `human` or `initial` (those of the task `from`); to may be several: to=T2,T3.
Settings are given as name=value for all, to.name=value for the targets alone (with commas: each in turn, as in
to.optimizer=ppo,dynsyn) and from.name=value for where it comes from. beside=human, or a file or run directory,
puts a reward made for the target next to it; seeds=0,1,2 repeats every row. engines=mjx,warp: what was trained
(optimizer=ppo or dynsyn, in physics=...) is validated there as well as in C MuJoCo, sim to sim; `to` may then be left
out. A run_dir that a training was kept in is gone on with.
The last line of stdout is a JSON list of the rows; films, transfer.json, .csv and .md (every seed beside the papers'
figures) are in the run directory.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from movlr_jax.commands import cli
from movlr_jax.commands.evaluate import EvaluationSetup, digest, played, prepared, reward_source
from movlr_jax.commands.session import task_of
from movlr_jax.config.compose import compose, expand
from movlr_jax.config.schema import Config
from movlr_jax.control.build import trains
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.machine import hardware, versions
from movlr_jax.physics.choose import planning_physics
from movlr_jax.progress import Reporter, interruptible
from movlr_jax.quantities import summary
from movlr_jax.storage.archive import new_run_dir, write_atomically

# MoVLR (arXiv 2512.23077), MS-Human-700, metres walked in 10 s: with the reward of flat ground, and with one learned
# there. Bottle pouring under DynSyn is reported as done, without a figure.
PAPER: Mapping[tuple[str, str], str] = {
    ("flat_walk", "rough_walk"): "2.41 m; learned there 2.76 m",
    ("flat_walk", "slope_walk"): "1.99 m; learned there 2.25 m",
    ("flat_walk", "injured_walk"): "5.12 m; learned there 4.8 m",
    ("bottle_pour", "bottle_pour"): "done under DynSyn, no figure",
}
ENGINES = ("native", "mjx", "warp")
SHOWN = (  # of the metrics, what the table shows where there is such
    "success",
    "distance_m",
    "mean_speed_m_s",
    "time_to_fall_s",
    "velocity_error_m_s",
    "terrain_level",
    "object_position_error_m",
    "object_orientation_error_rad",
)


@dataclass(frozen=True)
class Request:
    """What a person asked for."""

    reward: str
    origin: str  # task that the reward is from
    targets: Sequence[str]
    shared: Sequence[str]  # settings of all
    here: Sequence[str]  # of the origin alone
    there: Sequence[str]  # of the targets alone
    beside: str | None = None
    seeds: Sequence[int] = (0,)
    engines: Sequence[str] = ()  # in which a policy is validated beside C MuJoCo


@dataclass(frozen=True)
class TransferRow:
    """One reward on one task: means over the seeds."""

    role: str  # from, engine, to, or beside
    task: str
    model: str
    optimizer: str
    engine: str  # of the episodes
    reward: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    each: Sequence[Mapping[str, float]] = ()  # the metrics of every seed
    films: Sequence[str] = ()
    reason: str | None = None  # why there are no metrics
    paper: str = ""
    settings: Sequence[str] = ()  # what was set for this row alone


def main(argv: list[str] | None = None) -> int:
    """Runs every row. Returns 0, 1 when one came to nothing, 2 for a mistake, 130 when interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if any(a in ("-h", "--help") for a in arguments):
        print(__doc__)
        return 0
    rows: list[TransferRow] = []
    try:
        with interruptible():
            request = read_arguments(arguments)
            plan = rows_of(request)
            root = Path(plan[0][1].run_dir or new_run_dir(Path("runs"), "transfer"))
            text, origin = reward_source(request.reward, task_of(plan[0][1]))
            for row, config in plan:
                for done in run_row(row, config, request, (text, origin), root):
                    rows.append(done)
                    write(root, rows)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        show(rows)
        return cli.INTERRUPTED
    show(rows)
    print(f"table: {root / 'transfer.csv'}", file=sys.stderr)
    print(json.dumps([asdict(row) for row in rows]), flush=True)
    return int(any(row.reason for row in rows))


def read_arguments(arguments: Sequence[str]) -> Request:
    """Raises UserError."""
    known: dict[str, str] = {}
    shared, here, there = [], [], []
    for argument in arguments:
        name, sign, value = argument.lstrip("+").partition("=")
        if not sign:
            raise UserError(f"cannot read {argument!r}; settings are given as name=value, --help tells more")
        if name in ("reward", "from", "to", "beside", "seeds", "engines"):
            known[name] = value
        elif name in ("task", "seed", "resume"):
            raise UserError(f"transfer takes from=, to= and seeds=, not {name}=")
        elif name.startswith("from."):
            here.append(argument.lstrip("+").removeprefix("from."))
        elif name.startswith("to."):
            there.append(argument.lstrip("+").removeprefix("to."))
        else:
            shared.append(argument)
    engines, targets = (
        [word.strip() for word in known.get(name, "").strip("[]").split(",") if word.strip()]
        for name in ("engines", "to")
    )
    for name in ("reward", "from", *(() if engines else ("to",))):
        if not known.get(name):
            raise UserError(f"{name} is not set; transfer reward=FILE from=TASK to=TASK needs all three")
    for engine in engines:
        if engine not in ENGINES:
            raise UserError(unknown_name("engine", engine, ENGINES))
    try:
        seeds = [int(seed) for seed in known.get("seeds", "0").strip("[]").split(",")]
    except ValueError:
        raise UserError(f"seeds={known['seeds']!r} are no whole numbers; give seeds=0,1,2") from None
    beside = known.get("beside")
    return Request(known["reward"], known["from"], targets, shared, here, there, beside, seeds, engines)


def rows_of(request: Request) -> list[tuple[TransferRow, Config]]:
    """The rows and their settings: where the reward is from, then each target. Raises UserError."""
    wanted: list[tuple[str, str, list[str], list[str]]]
    wanted = [("from", request.origin, list(request.here), [*request.shared, *request.here])]
    for target in request.targets:
        for job in expand(list(request.there)):
            settings = [*request.shared, *job]
            wanted.append(("to", target, job, settings))
            if request.beside:
                wanted.append(("beside", target, job, settings))
    rows = []
    for role, task, own, settings in wanted:
        config = compose([f"+task={task}", *settings])
        name = Path(task).stem  # of a task from a file, the file's
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
                    settings=tuple(own),
                ),
                config,
            )
        )
    return rows


def run_row(
    row: TransferRow, config: Config, request: Request, given: tuple[str, str], root: Path
) -> Iterator[TransferRow]:
    """The row with what came of it, and one for each engine; a program that this task cannot use is a reason."""
    reporter = Reporter()
    reporter.say(f"{row.role} {row.task} ({row.model}, {row.optimizer}): {row.reward}")
    folder = "_".join([row.role, row.task, row.model, row.optimizer, *row.settings]).replace("/", "-")
    try:
        source = reward_source(str(request.beside), task_of(config)) if row.role == "beside" else given
        setup = prepared(replace(config, run_dir=str(root / folder)), reporter, source)
        yield filled(row, [measured(setup, seed, reporter) for seed in request.seeds])
    except UserError as error:
        yield replace(row, reason=str(error))
        return
    for name in request.engines if row.role == "from" else ():
        there = replace(row, role="engine", engine=name)
        try:
            other = elsewhere(setup, name, reporter)
            yield filled(there, [measured(other, seed, reporter) for seed in request.seeds])
        except UserError as error:
            yield replace(there, reason=str(error))


def measured(setup: EvaluationSetup, seed: int, reporter: Reporter) -> Mapping[str, Any]:
    """What came of one seed; what a run that was cut short has kept of it is not played again. Raises UserError."""
    program = setup.verdict.program
    of = json.dumps([program and program.source, setup.engine, digest(replace(setup.config, seed=seed))])
    path = setup.folder / f"seed{seed}_{hashlib.sha256(of.encode()).hexdigest()[:12]}.json"
    if path.is_file():
        reporter.say(f"  seed {seed}: kept from before")
        return json.loads(path.read_text(encoding="utf-8"))
    result = played(setup, seed, reporter)
    write_atomically(path, json.dumps(result).encode())
    return result


def filled(row: TransferRow, results: Sequence[Mapping[str, Any]]) -> TransferRow:
    """The row with what its episodes came to."""
    numbers = [{name: x for name, x in r.items() if isinstance(x, float | int)} for r in results]
    films = [r["film"] for r in results if "film" in r]
    return replace(row, metrics=means(results), each=numbers, films=films)


def elsewhere(setup: EvaluationSetup, engine: str, reporter: Reporter) -> EvaluationSetup:
    """The same policies, whose episodes run in another engine. Raises UserError for what has no policies.

    The training is found in the bench's folder, finished: nothing is trained again.
    """
    learned = setup.optimizer
    if not trains(setup.config.optimizer):
        raise UserError(
            f"engines={engine}: optimizer={learned.name} plans and trains nothing; sim to sim needs optimizer=ppo or "
            "dynsyn"
        )
    from movlr_jax.control.ppo.trainer import Ppo  # its packages are an extra

    assert isinstance(learned, Ppo)
    times = setup.config.optimizer
    task = replace(setup.task, model=learned.space.model)
    there = planning_physics(engine, task, sim_dt=times.sim_dt, ctrl_dt=times.ctrl_dt, say=reporter.say)
    return replace(setup, optimizer=learned.acting_in(there))


def means(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the seeds of every number that all of them have; those that not all have, over those that do."""
    names = dict.fromkeys(n for r in results for n, v in r.items() if isinstance(v, float) and n != "seed")
    return {name: float(np.mean([r[name] for r in results if name in r])) for name in names}


def write(root: Path, rows: Sequence[TransferRow]) -> None:
    """transfer.json, transfer.csv and transfer.md."""
    write_atomically(root / "transfer.md", markdown(rows).encode())
    write_atomically(root / "transfer.json", json.dumps([asdict(row) for row in rows], indent=1).encode())
    measured = dict.fromkeys(name for row in rows for name in row.metrics)
    heads = ["role", "task", "model", "optimizer", "engine", "reward", "reason", "paper", "settings"]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*heads, *measured])
    writer.writeheader()
    for row in rows:
        flat = {**asdict(row), "settings": " ".join(row.settings)}
        writer.writerow({**{name: flat[name] for name in heads}, **row.metrics})
    write_atomically(root / "transfer.csv", text.getvalue().encode())


def markdown(rows: Sequence[TransferRow]) -> str:
    """A table for people: what came of every seed, beside the papers' figures."""
    seeds = list(dict.fromkeys(int(m["seed"]) for row in rows for m in row.each))
    heads = ["", "task", "model", "optimizer", "engine", "reward", *(f"seed {n}" for n in seeds), "paper"]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        told = {int(m["seed"]): summary(m) for m in row.each}
        cells = [told.get(n, "-") for n in seeds] if told else [row.reason or "-", *[""] * (len(seeds) - 1)]
        optimizer = " ".join([row.optimizer, *(s for s in row.settings if not s.startswith("optimizer="))])
        lines.append(
            [row.role, row.task, row.model, optimizer, row.engine, Path(row.reward).name, *cells, row.paper]
        )
    table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
    told = versions()
    return (
        f"One reward, unchanged; {date.today().isoformat()}, {hardware()}, MuJoCo {told['mujoco']}, "
        f"JAX {told['jax']}.\n\n{table}\n"
    )


def show(rows: Sequence[TransferRow]) -> None:
    """Our figures beside the papers'."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="one reward, unchanged", title_justify="left")
    measured = [name for name in SHOWN if any(name in row.metrics for row in rows)]
    for heading in ("", "task", "model", "optimizer", "engine", "reward", *measured, "paper"):
        table.add_column(heading)
    for row in rows:
        values = [f"{row.metrics[n]:.3g}" if n in row.metrics else "-" for n in measured]
        if row.reason:
            values = [row.reason, *[""] * (len(measured) - 1)] if measured else []
        table.add_row(row.role, row.task, row.model, row.optimizer, Path(row.reward).name, *values, row.paper)
    # a file has no width of its own to keep to
    Console(stderr=True, width=None if sys.stderr.isatty() else 160).print(table)
