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
from movlr_jax.control.build import acting, build_optimizer, close
from movlr_jax.engine.description import about_success, about_tuned, describe, to_yaml
from movlr_jax.engine.parts import build_context, chooses_samples, resize, sized, task_and_optimizer
from movlr_jax.engine.resume import about_damaged, check_before_building, keep_settings, same_search
from movlr_jax.engine.tasks import check_read, task_of
from movlr_jax.errors import BudgetSpent, resuming
from movlr_jax.evolution.confirm import confirm
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.criticise import in_a_line
from movlr_jax.evolution.film import film_best_and_first
from movlr_jax.evolution.final_training import has_final_training, run_final_training
from movlr_jax.evolution.gates import score_of
from movlr_jax.evolution.loop import Found, evolve
from movlr_jax.evolution.rank import nothing_answered, silence
from movlr_jax.evolution.tracking import begin_tracking, end_tracking
from movlr_jax.evolution.trials import TrialPlan
from movlr_jax.film.muscles import GROUPS, group_picture
from movlr_jax.records import Confirmation, Ranking
from movlr_jax.report.page import PAGE, write_report
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.writing import new_run_dir
from movlr_jax.tasks import Task
from movlr_jax.tracking.base import Ended

# unjudged: the judge answered no comparison
Outcome = Literal["finished", "unjudged", "budget spent", "interrupted"]


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
    check_before_building(config)
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
            _check_resumed(config, task, recorded, archive, reporter)
        _introduce(config, task, reporter)
        make = partial(task_and_optimizer, config, built)
        context = build_context(config, task, optimizer, archive, reporter, make, started)
        if chooses:
            again = partial(resize, context, make=lambda new: partial(task_and_optimizer, new, built))
            context.resize = again
        _record_begin(context, recorded)
        judged = _evolve_and_confirm(context)
        ended = "finished"
        return archive.root, "finished" if judged else "unjudged"
    except BudgetSpent as spent:
        ended = "interrupted"
        reporter.say(f"{spent}. Finished work is saved; continue with {resuming(archive.root)} and a larger budget")
        return archive.root, "budget spent"
    except KeyboardInterrupt:
        ended = "interrupted"
        reporter.say(f"interrupted; finished work is saved. Continue with {resuming(archive.root)}")
        return archive.root, "interrupted"
    finally:
        with contextlib.ExitStack() as last:  # each of these, even if one before it fails
            # in a notebook, the process goes on
            last.callback(close, context.optimizer if context else optimizer)
            last.enter_context(archive)
            if context:
                last.callback(context.close)
                _end_session(context, ended)


def _evolve_and_confirm(context: SearchContext) -> bool:
    """Search until the end, train and confirm the best program. Return whether the judge answered anything."""
    found = evolve(context)
    if has_final_training(context):
        run_final_training(context, found.best)
    rankings = [ranking for _, ranking in context.journal.rankings()]
    _record_end(context, found, confirm(context, found), rankings)
    return not nothing_answered(rankings)


def _check_resumed(
    config: Config, task: Task, recorded: dict[str, Any], archive: Archive, reporter: Reporter
) -> None:
    """Check that a run goes on as the search that it was, and say which of its files are lost. Raises UserError."""
    same_search(config, task, recorded, archive)
    keep_settings(config, archive)
    # a page of a run in progress is not recorded
    if damaged := [path for path in archive.damaged() if path != PAGE]:
        reporter.say(about_damaged(archive.root, damaged))


def _introduce(config: Config, task: Task, reporter: Reporter) -> None:
    """Say what is searched for, and with which settings."""
    for sentence in (
        f"searching a reward for {task.name}: {config.candidates} candidates x "
        f"{config.generations} generations, seed {config.seed}, method {config.method.name}",
        about_success(task),
        *task.origin.warnings,
        about_tuned(config),
    ):
        if sentence:
            reporter.say(sentence)


def _record_begin(context: SearchContext, recorded: dict[str, Any] | None) -> None:
    """Record what the search consists of, or what a resumed session obeys, and tell the tracker."""
    archive, groups = context.archive, context.optimizer.notes.get("groups")
    context.reporter.say(context.roles.models_used)
    if (not recorded or archive.lost(GROUPS)) and context.films and groups is not None:
        archive.put(GROUPS, group_picture(context.task, groups))
    if not recorded:
        archive.record("run", describe(context))
    else:
        _record_obeyed(context, recorded)
    begin_tracking(context)


def _record_obeyed(context: SearchContext, recorded: dict[str, Any]) -> None:
    """Record what a resumed session obeys, and a sandbox that is not that of the sessions before."""
    archive, sandbox = context.archive, context.sandbox.description
    asked = {"settings": acts(context.config), "trust": context.config.trust, "sandbox": sandbox}
    archive.record(OBEYED, asked, context.clock.session)
    backends = recorded["backends"]
    if sandbox not in backends["sandbox"]:
        now = {**backends, "sandbox": f"{sandbox}; before, {backends['sandbox']}"}
        archive.record("run", {**recorded, "backends": now})


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


def _record_end(
    context: SearchContext, found: Found, confirmed: Confirmation | None, rankings: Sequence[Ranking]
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
        trials = found.population.trials[best.name]
        reporter.say(f"best, not confirmed: {best.name}  {in_a_line(context, best, trials)}")
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
