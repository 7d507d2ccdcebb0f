"""Run or continue a search in its run directory, from settings."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from movlr_jax._util.progress import Reporter
from movlr_jax.config.schema import Config
from movlr_jax.config.trust import EVENT, OBEYED, acts, began, task_file
from movlr_jax.control.build import acting, build_optimizer, close, trains
from movlr_jax.engine.session import (
    about_success,
    about_tuned,
    build_context,
    chooses_samples,
    describe,
    keep_settings,
    resize,
    same_search,
    sized,
    task_and_optimizer,
    task_of,
    to_yaml,
)
from movlr_jax.errors import BudgetSpent, UserError, resuming
from movlr_jax.evolution.confirm import Confirmed, confirm
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.filming import film_best_and_first
from movlr_jax.evolution.final_training import has_final_training, run_final_training
from movlr_jax.evolution.gates import score_of
from movlr_jax.evolution.loop import Found, evolve, in_a_line
from movlr_jax.evolution.ranking import nothing_answered, silence
from movlr_jax.evolution.tracking import begin_tracking, end_tracking
from movlr_jax.evolution.trials import EVENT as TRIALS
from movlr_jax.evolution.trials import TrialPlan
from movlr_jax.film.group_picture import GROUPS, picture
from movlr_jax.report.page import PAGE, write_report
from movlr_jax.storage.archive import SETTINGS, Archive, new_run_dir
from movlr_jax.tasks import Task
from movlr_jax.tracking.base import Ended

# unjudged: the judge answered no comparison
Outcome = Literal["finished", "unjudged", "budget spent", "interrupted"]


def check_read(config: Config, task: Task) -> None:
    """Refuse an instruction with words that nobody reads. Raises UserError.

    A language model reads all of it; `instruction.partial=true` goes on with the words that were read.
    """
    asks_model = config.llm.name != "scripted" or config.proposer != "auto"
    if config.instruction is None or config.instruction_partial or asks_model or config.resume:
        return
    if task.motion is not None and task.motion.problem:
        raise UserError(task.motion.problem)


def run_search(config: Config, task: Task | None = None) -> tuple[Path, Outcome]:
    """Run or continue a search.

    Args:
        config: All settings.
        task: The task, if it is built already; by default the one that the settings name.

    Returns:
        The run directory, and how the search ended.

    Raises:
        UserError: For settings that cannot be used, and when every program of a generation fails.
    """
    reporter, started = Reporter(), time.monotonic()
    _check_before_building(config)
    # a worker builds the task from the settings, unless only Python code can
    built, task = None if task and task.named else task, task or task_of(config)
    check_read(config, task)
    task = acting(config.optimizer, task)
    chooses, given = chooses_samples(config), config
    config = sized(config, task, config.candidates * TrialPlan.of(config).first, reporter.say)
    optimizer = build_optimizer(config.optimizer, task, config.physics, reporter.say)
    archive = open_archive(given, task.name)
    context: SearchContext | None = None
    ended: Ended = "failed"
    try:
        recorded = archive.get("run")
        if recorded:
            same_search(config, task, recorded, archive)
            keep_settings(config, archive)
            # a page of a run in progress is not recorded
            if damaged := [path for path in archive.damaged() if path != PAGE]:
                reporter.say(_about_damaged(archive.root, damaged))
        for sentence in (
            f"searching a reward for {task.name}: {config.candidates} candidates x "
            f"{config.generations} generations, seed {config.seed}, method {config.method.name}",
            about_success(task),
            *task.warnings,
            about_tuned(config),
        ):
            if sentence:
                reporter.say(sentence)
        make = partial(task_and_optimizer, config, built)
        context = build_context(config, task, optimizer, archive, reporter, make, started)
        if chooses:
            again = partial(resize, context, make=lambda new: partial(task_and_optimizer, new, built))
            context.resize = again
        reporter.say(context.models_used)
        if (not recorded or archive.lost(GROUPS)) and context.films and "groups" in optimizer.notes:
            archive.put(GROUPS, picture(task, optimizer.notes["groups"]))
        if not recorded:
            archive.record("run", describe(context))
        else:
            _record_obeyed(context, recorded)
        begin_tracking(context)
        found = evolve(context)
        if has_final_training(context):
            run_final_training(context, found.best)
        rankings = [event.data for event in archive.events("ranked")]
        _record_end(context, found, confirm(context, found), rankings)
        ended = "finished"
        return archive.root, "unjudged" if nothing_answered(rankings) else "finished"
    except BudgetSpent as spent:
        ended = "interrupted"
        reporter.say(
            f"{spent}. Finished work is saved; continue with {resuming(archive.root)} and a larger budget"
        )
        return archive.root, "budget spent"
    except KeyboardInterrupt:
        ended = "interrupted"
        reporter.say(f"interrupted; finished work is saved. Continue with {resuming(archive.root)}")
        return archive.root, "interrupted"
    finally:
        with contextlib.ExitStack() as last:  # each of these, even if one before it fails
            last.callback(
                close, context.optimizer if context else optimizer
            )  # in a notebook, the process goes on
            last.enter_context(archive)
            if context:
                last.callback(context.close)
                _end_session(context, ended)


def _record_obeyed(context: SearchContext, recorded: dict[str, Any]) -> None:
    """Record what a resumed session obeys, and a sandbox that is not that of the sessions before."""
    archive, sandbox = context.archive, context.sandbox.description
    asked = {"settings": acts(context.config), "trust": context.config.trust, "sandbox": sandbox}
    archive.record(OBEYED, asked, context.clock.session)
    backends = dict(recorded.get("backends") or {})
    if sandbox not in str(backends.get("sandbox")):
        backends["sandbox"] = f"{sandbox}; before, {backends.get('sandbox', 'not known')}"
        archive.record("run", {**recorded, "backends": backends})


def _about_damaged(run: Path, paths: Sequence[str], most: int = 5) -> str:
    """Return a sentence about files of a resumed run that are lost."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    count, are = ("1 file", "is") if len(paths) == 1 else (f"{len(paths)} files", "are")
    return (
        f"{count} of {run} {are} missing or changed after the search wrote them: {', '.join(paths[:most])}{more}; "
        "what this search needs of them is made again"
    )


def _end_session(context: SearchContext, ended: Ended) -> None:
    """Write the report, say where the results are, then end the run in the tracker. Raises UserError."""
    archive, report = context.archive, None
    context.clock.record()
    try:
        report = write_report(archive, context.task)
        context.reporter.say(f"report: {report}")
        if (archive.root / "best.py").exists():
            context.reporter.say(f"reward: {archive.root / 'best.py'}")
    finally:
        end_tracking(context, ended if report else "failed", report)


def _check_before_building(config: Config) -> None:
    """Check settings that would otherwise fail only after the physics is built. Raises UserError."""
    if config.resume:
        with Archive.open(Path(config.resume), write=False, whole=True) as archive:
            archive.read(SETTINGS)
            if archive.events("evaluated") and not archive.events(TRIALS):
                raise UserError(
                    f"{config.resume} was recorded by a version that ran each program once, so it cannot go on in "
                    "trials; its report and exports can be made, or start a new run"
                )
    if trains(config.optimizer) and config.optimizer.ppo.env_steps == 0:
        raise UserError(
            "optimizer.ppo.env_steps=0 trains nothing, so every program would be evaluated with the same policy; "
            "set the control steps of each training, as in optimizer.ppo.env_steps=400000"
        )


def _record_end(
    context: SearchContext, found: Found, confirmed: Confirmed | None, rankings: list[dict[str, Any]]
) -> None:
    """Film the best next to the first candidate, record that the search is finished, and report what it may claim."""
    archive, reporter, best = context.archive, context.reporter, found.best
    side_by_side = film_best_and_first(context, best)
    silent = silence(rankings)
    archive.record(
        "finished",
        {
            "best": best.name,
            "score": score if math.isfinite(score := score_of(context.task, best)) else None,
            "generations": context.config.generations,
            "wall_s": context.clock.record(),
            "side_by_side": side_by_side,
            "interrupted": False,
            "judge_silence": silent,
        },
    )
    if silent:
        reporter.say(f"WARNING: {silent}")
    if confirmed is None:
        reporter.say(f"best, not confirmed: {best.name}  {in_a_line(context, best, found.standings)}")
        return
    reporter.say(confirmed.verdict)
    reporter.say(confirmed.text)


def open_archive(config: Config, task: str) -> Archive:
    """Open the run directory to resume, or create a new one. Raises UserError."""
    if config.resume:
        return Archive.open(Path(config.resume))
    root = Path(config.run_dir) if config.run_dir else new_run_dir(Path("runs"), task)
    archive = Archive.create(root, to_yaml(config))
    began(root, config)
    if made_from := task_file(config):
        archive.record(EVENT, made_from)
    return archive
