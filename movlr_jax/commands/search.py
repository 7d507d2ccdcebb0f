"""`python -m movlr_jax.search +task=NAME`: evolves a reward program for a task."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import yaml

from movlr_jax.commands import cli
from movlr_jax.commands.session import about_tuned, build_context, describe, same_search, task_of
from movlr_jax.config.schema import Config
from movlr_jax.config.trust import EVENT, about_task_file, task_file
from movlr_jax.control.build import build_optimizer, trains
from movlr_jax.errors import BudgetSpent, UserError
from movlr_jax.evolution.filming import film_best_and_first
from movlr_jax.evolution.final_training import train_in_full, wants_full
from movlr_jax.evolution.loop import evolve
from movlr_jax.evolution.ranking import silence
from movlr_jax.film.group_picture import GROUPS, picture
from movlr_jax.progress import Reporter
from movlr_jax.quantities import summary
from movlr_jax.report.page import write_report
from movlr_jax.storage.archive import Archive, new_run_dir


def search(config: Config) -> int:
    """One search; 0, or 130 when interrupted. Raises UserError."""
    reporter, begun = Reporter(), time.monotonic()
    if config.resume:
        # a broken run is told before anything is built
        Archive.open(Path(config.resume), write=False, whole=True).close()
    if trains(config.optimizer) and config.optimizer.ppo.env_steps == 0:
        raise UserError(
            "optimizer.ppo.env_steps=0 trains nothing, and every program would be acted out by the same policy; "
            "set how many control steps each is to be trained, as optimizer.ppo.env_steps=400000"
        )
    task = task_of(config)
    optimizer = build_optimizer(
        config.optimizer, task, config.physics, reporter.say
    )  # wrong settings end here, and leave no run directory
    archive = open_archive(config, task.name)
    context = None
    try:
        recorded = archive.get("run")
        if recorded:
            same_search(config, recorded["settings"], archive)
        if said := about_task_file(config, archive):
            reporter.say(said)
        reporter.say(
            f"searching a reward for {task.name}: {config.candidates} candidates x "
            f"{config.generations} generations, seed {config.seed}, method {config.method.name}"
        )
        if said := about_tuned(config):
            reporter.say(said)
        context = build_context(config, task, optimizer, archive, reporter)
        reporter.say(context.models_used)
        if not recorded:
            if context.films and "groups" in optimizer.notes:
                archive.put(GROUPS, picture(task, optimizer.notes["groups"]))
            archive.record("run", describe(context))
        best = evolve(context)
        if wants_full(context):
            train_in_full(context, best)
        side_by_side = film_best_and_first(context, best)
        finished = archive.get("finished") or {}
        silent = silence([event.data for event in archive.events("ranked")])
        archive.record(
            "finished",
            {
                "best": best.name,
                "generations": config.generations,
                "wall_s": finished.get("wall_s", 0.0) + time.monotonic() - begun,
                "side_by_side": side_by_side,
                "interrupted": False,
                "judge_silence": silent,
            },
        )
        first = archive.get("evaluated", 0, 0) or {}
        reporter.say(
            f"first: {first.get('name')}  {first.get('reason') or summary(first.get('metrics', {}))}"
        )
        reporter.say(f"best:  {best.name}  {summary(best.metrics)}")
        if silent:
            reporter.say(f"WARNING: {silent}")
        return 0
    except BudgetSpent as spent:
        reporter.say(
            f"{spent}. What was done is kept; continue with resume={archive.root} and a larger budget"
        )
        return 0
    except KeyboardInterrupt:
        reporter.say(f"interrupted; what was done is kept. Go on with resume={archive.root}")
        return cli.INTERRUPTED
    finally:
        with archive:
            if context:
                context.close()
                report = write_report(archive)
                reporter.say(f"report: {report}")
                if (archive.root / "best.py").exists():
                    reporter.say(f"reward: {archive.root / 'best.py'}")


def open_archive(config: Config, task: str) -> Archive:
    """The run directory to work in: the one to resume, or a new one. Raises UserError."""
    if config.resume:
        return Archive.open(Path(config.resume))
    root = Path(config.run_dir) if config.run_dir else new_run_dir(Path("runs"), task)
    archive = Archive.create(root, to_yaml(config))
    if made_from := task_file(config):
        archive.record(EVENT, made_from)
    return archive


def to_yaml(config: Config) -> str:
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)


def main(argv: list[str] | None = None) -> int:
    return cli.run(search, argv)
