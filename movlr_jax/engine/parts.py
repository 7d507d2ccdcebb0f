"""Build the parts of a search from its settings."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from movlr_jax._util.progress import Reporter
from movlr_jax.config.schema import Config
from movlr_jax.control.base import Optimizer
from movlr_jax.control.build import acting, build_optimizer, build_planner, close, scored_at_once, with_samples
from movlr_jax.control.mpc.autosize import chosen
from movlr_jax.control.settings import PlanningSettings
from movlr_jax.engine.environment import prepare_environment
from movlr_jax.engine.resume import keep_settings
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError, needed
from movlr_jax.evolution.context import Clock, SearchContext
from movlr_jax.evolution.evaluation import make_probe
from movlr_jax.evolution.film import clip_of
from movlr_jax.evolution.roles import build_roles
from movlr_jax.evolution.workers.base import ThisProcess, Workers
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Clip
from movlr_jax.film.encoding import ffmpeg_version
from movlr_jax.film.renderer import renderer
from movlr_jax.physics.choose import choose
from movlr_jax.records import Evaluation
from movlr_jax.sandbox.vet import Sandbox
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import stem_of
from movlr_jax.tasks import Task
from movlr_jax.tracking.base import open_tracker


def build_context(
    config: Config,
    task: Task,
    optimizer: Optimizer,
    archive: Archive,
    reporter: Reporter,
    make: Callable[[], tuple[Task, Optimizer]] | None = None,
    started: float | None = None,
) -> SearchContext:
    """Build all parts of a search.

    make: builds task and optimizer again, in a worker. started: when this session began, as `time.monotonic` gives
    it; None for now. Raises UserError.
    """

    def candidate_clip(e: Evaluation) -> Clip:
        return clip_of(task, archive.read(f"{stem_of(e)}.npz"), Caption(""))

    films = films_here(config, reporter)
    roles = build_roles(config, archive, candidate_clip, films, reporter.say)
    probe = make_probe(task, optimizer.sim_physics, config.seed)
    tracker = open_tracker(config.tracker, archive.root)
    return SearchContext(
        config=config,
        task=task,
        optimizer=optimizer,
        roles=roles,
        sandbox=Sandbox(probe, name=config.sandbox, batch=scored_at_once(config.optimizer, task)),
        archive=archive,
        clock=Clock.of(archive, time.monotonic() if started is None else started),
        reporter=reporter,
        films=films,
        tracker=tracker,
        workers=_workers(config, task, optimizer, reporter, make or partial(task_and_optimizer, config)),
    )


def resize(context: SearchContext, samples: int, keep: bool, make: Callable[[Config], Callable[[], Any]]) -> None:
    """Plan with another number of samples from now on, and record it if it is to be kept.

    make: returns what builds parts in a worker.
    """
    assert isinstance(context.config.optimizer, PlanningSettings)
    config = dataclasses.replace(context.config, optimizer=with_samples(context.config.optimizer, samples))
    if config != context.config:
        context.workers.close()
        close(context.optimizer)
        context.config = config
        context.optimizer = build_optimizer(config.optimizer, context.task, config.physics)
        context.workers = _workers(config, context.task, context.optimizer, context.reporter, make(config))
        context.sandbox.batch = scored_at_once(config.optimizer, context.task)
        context.verdicts.clear()
    if keep:
        keep_settings(config, context.archive)


def _workers(
    config: Config, task: Task, optimizer: Optimizer, reporter: Reporter, make: Callable[[], tuple[Task, Optimizer]]
) -> Workers:
    """Return who evaluates the candidates. Raises UserError."""
    if config.workers.name == "none":
        return ThisProcess(optimizer, task)
    with needed("workers=ray", "ray"):
        from movlr_jax.evolution.workers.ray_workers import RayWorkers

    return RayWorkers(config.workers, make, config.candidates, reporter.say)


def task_and_optimizer(config: Config, task: Task | None = None) -> tuple[Task, Optimizer]:
    """Build the task and the optimizer that the settings name, as a worker does. Raises UserError."""
    prepare_environment()
    task = acting(config.optimizer, task or task_of(config))
    return task, build_optimizer(config.optimizer, task, config.physics)


def sized(config: Config, task: Task, candidates: int, say: Callable[[str], object]) -> Config:
    """Return the settings with a number of samples per plan, if it is to be chosen: one that suits an accelerator.

    candidates: how many share a batch. Raises UserError.
    """
    config = dataclasses.replace(config, optimizer=config.optimizer.suited(task))
    if not isinstance(config.optimizer, PlanningSettings) or config.optimizer.mppi.samples:
        return config
    n = _samples_of(Path(config.resume)) if config.resume else None
    if n is None and choose(config.physics)[0] == "native":
        n = config.optimizer.usual_samples(task)
    elif n is None:
        planner = build_planner(with_samples(config.optimizer, 1), task, config.physics, say)
        n = chosen(planner, candidates, say)
        close(planner)
    return dataclasses.replace(config, optimizer=with_samples(config.optimizer, n))


def chooses_samples(config: Config) -> bool:
    """Whether the number of samples per plan is not given."""
    return isinstance(config.optimizer, PlanningSettings) and not config.optimizer.mppi.samples


def _samples_of(run: Path) -> int | None:
    """Return the number of samples with which a run began, perhaps on another machine; None if it has not."""
    with Archive.open(run, write=False) as archive:
        begun = archive.get("run") or {}
    return begun.get("settings", {}).get("optimizer.mppi.samples")


def films_here(config: Config, reporter: Reporter) -> bool:
    """Whether films are enabled and can be rendered on this machine. Reports why not."""
    if not config.films:
        return False
    backend = renderer()
    if backend.name is None:
        reporter.say(f"no films: {backend.reason}")
        return False
    try:
        ffmpeg_version()
    except UserError as error:
        reporter.say(f"no films: {error}")
        return False
    return True
