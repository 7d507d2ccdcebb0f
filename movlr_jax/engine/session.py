"""Build the parts of a search from the settings, and describe them for the record."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from movlr_jax._util.machine import hardware, versions
from movlr_jax._util.progress import Reporter
from movlr_jax._util.settings import flat, plain, read_yaml
from movlr_jax.config.compose import RESETTABLE
from movlr_jax.config.schema import Config, check_removed, with_present_names
from movlr_jax.config.trust import EVENT, task_file
from movlr_jax.control.base import Optimizer
from movlr_jax.control.build import (
    SAMPLES,
    acting,
    build_optimizer,
    build_planner,
    close,
    scored_at_once,
    with_samples,
)
from movlr_jax.control.mpc.autosize import chosen
from movlr_jax.control.settings import PlanningSettings
from movlr_jax.engine.environment import prepare_environment, prepare_physics
from movlr_jax.errors import UserError, needed, shortened
from movlr_jax.evolution.context import Clock, SearchContext
from movlr_jax.evolution.evaluation import make_probe
from movlr_jax.evolution.filming import clip_of
from movlr_jax.evolution.roles import build_roles
from movlr_jax.evolution.scripted.proposer import ScriptedProposer
from movlr_jax.evolution.scripted.terms import reading
from movlr_jax.evolution.workers.base import ThisProcess, Workers
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import Clip
from movlr_jax.film.encoding import ffmpeg_version
from movlr_jax.film.renderer import renderer
from movlr_jax.language.base import Evaluation
from movlr_jax.models.from_path import files_of, is_path
from movlr_jax.physics.choose import choose
from movlr_jax.sandbox.vet import Sandbox
from movlr_jax.storage.archive import SETTINGS, Archive
from movlr_jax.storage.layout import stem_of
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.base import check_episode
from movlr_jax.tasks.instruction import described, folder_name, with_instruction
from movlr_jax.tasks.reference import with_reference
from movlr_jax.tasks.registry import DESCRIBED_TASK, FILE_TASK, TASKS
from movlr_jax.tracking.base import open_tracker


def task_of(config: Config) -> Task:
    """Set what the physics needs, then build the task that the settings name. Raises UserError."""
    if config.resume and config.task.name not in (FILE_TASK, DESCRIBED_TASK, "playground", *TASKS):
        raise UserError(
            f"the task {config.task.name!r} of {config.resume} was made or registered in Python; give it there, "
            f"as in run_search(task, resume={config.resume!r}) or open_run({config.resume!r}, task)"
        )
    moved = config.resume and config.task.name == DESCRIBED_TASK and is_path(config.model)
    if moved and not Path(config.model).is_file():
        raise UserError(
            f"there is no model file {config.model}, with which {config.resume} began; if it was moved, add "
            "model=FILE, where it is now"
        )
    prepare_physics(config.physics)
    task = build_task(
        config.task.name, config.model, config.episode_s, config.task.settings, config.instruction
    )
    return adapted(task, config)


def task_folder(config: Config) -> Path:
    """Return the folder of the results of a task that is not built yet."""
    named = config.task.name != DESCRIBED_TASK
    return Path("runs") / (config.task.name if named else folder_name(config.model))


def adapted(task: Task, config: Config) -> Task:
    """Return the task with the recorded motion and the instruction that the settings give. Raises UserError."""
    check_episode(task.episode_s, config.optimizer.ctrl_dt)
    if config.reference and not task.reference:
        task = with_reference(task, config.reference, config.reference_by)
    if config.instruction is not None and task.description != described(config.instruction):
        task = with_instruction(task, config.instruction)
    return task


def sized(config: Config, task: Task, candidates: int, say: Callable[[str], object]) -> Config:
    """Return the settings with a number of samples per plan, if it is to be chosen: one that suits an accelerator.

    candidates: how many share a batch. Raises UserError.
    """
    if not isinstance(config.optimizer, PlanningSettings) or config.optimizer.mppi.samples:
        return config
    n = _samples_of(Path(config.resume)) if config.resume else None
    if n is None and choose(config.physics)[0] == "native":
        n = SAMPLES
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


def to_yaml(config: Config) -> str:
    """Return the text of a file from which the settings can be read again."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def about_tuned(config: Config) -> str | None:
    """Return a sentence about the settings tuned for this task and model, or None without such settings."""
    if not config.tuned_settings:
        return None
    settings = ", ".join(f"{name}={value}" for name, value in config.tuned_settings.items())
    return f"tuned for this task and model: {settings} (tuned=false ignores them)"


def about_success(task: Task) -> str | None:
    """Return a sentence about what counts as a success, or None for a task that does not say it in words."""
    return f"success: {task.success}" if task.success else None


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
        sandbox=Sandbox(probe, name=config.sandbox, batch=scored_at_once(config.optimizer, task)),
        archive=archive,
        clock=Clock.of(archive, time.monotonic() if started is None else started),
        reporter=reporter,
        films=films,
        tracker=tracker,
        workers=_workers(config, task, optimizer, reporter, make or partial(task_and_optimizer, config)),
        **vars(roles),
    )


def resize(
    context: SearchContext, samples: int, keep: bool, make: Callable[[Config], Callable[[], Any]]
) -> None:
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
    config: Config,
    task: Task,
    optimizer: Optimizer,
    reporter: Reporter,
    make: Callable[[], tuple[Task, Optimizer]],
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


def describe(context: SearchContext) -> dict[str, Any]:
    """Describe the settings, parts, versions and hardware of a search, for the record and the report."""
    config, task = context.config, context.task
    scripted = isinstance(context.proposer, ScriptedProposer)
    return {
        "task": task.name,
        "description": task.description,
        **({"reading": read} if scripted and (read := reading(task)) else {}),
        "model": task.adapter.name,
        "model_notes": [*task.notes, *task.warnings],
        "cameras": [camera.shows for camera in (*task.cameras, *task.more_cameras)],
        "seed": config.seed,
        "method": config.method.name,
        "settings": flat(plain(dataclasses.replace(config, tuned_settings={}))),
        "tuned_settings": dict(config.tuned_settings),
        "backends": {
            "physics": f"{context.optimizer.physics.name} for plans or training, native (C MuJoCo) for episodes",
            "optimizer": _optimizer_line(config.optimizer.name, context.optimizer.notes),
            "proposer": context.proposer.name,
            "judge": context.judge.name,
            "critic": context.critic.name,
            "sandbox": context.sandbox.description,
            "renderer": str(renderer().name) if context.films else "none: no films",
        },
        "versions": versions(),
        "hardware": hardware(),
        "models_used": context.models_used,
        **({"model_sha256": sha256} if (sha256 := digest(model_files(task))) else {}),
        **({"groups": context.optimizer.notes["groups"]} if "groups" in context.optimizer.notes else {}),
        "goals": {name: [round(float(v), 4) for v in value.ravel()] for name, value in task.goals.items()},
    }


def model_files(task: Task) -> list[Path]:
    """Return the MJCF file of the task's model with all that it includes; none for a model that has no such file."""
    file = task.adapter.files() if task.adapter.files else None
    return files_of(file) if file else []


def digest(files: Sequence[Path]) -> str | None:
    """Return a hash of the contents of files, None for no files. Raises UserError if one cannot be read."""
    try:
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() if files else None
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}; make the file readable") from None


def _optimizer_line(name: str, notes: Mapping[str, Any]) -> str:
    """Return the name of the optimizer and, after a colon, its action and observation spaces."""
    groups = len(set(notes.get("groups", {}).values()))
    details = [f"{key} {value}" for key, value in notes.items() if key not in ("action", "groups")]
    details = [
        *([notes["action"]] if "action" in notes else []),
        *([f"{groups} groups"] if groups else []),
        *details,
    ]
    return f"{name}: {', '.join(details)}" if details else name


def changes(ours: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """Return which of `ours` differ from recorded settings, both flat, in words. Options younger than the record do
    not count; a task's own settings, which are recorded where they are given, do."""
    return [
        f"{name} was {shortened(recorded.get(name))}, is {shortened(value)}"
        for name, value in ours.items()
        if (name in recorded or name.startswith("task.settings.")) and recorded.get(name) != _json(value)
    ]


def same_search(config: Config, task: Task, recorded: Mapping[str, Any], archive: Archive) -> None:
    """Raise UserError if a run is resumed with other settings or an edited model, or with too few generations.

    recorded: what `describe` returned when the run began.
    """
    ours = flat(plain(config))
    free = ("run_dir", "resume", "reward", "bank", "trust", "tuned_settings", *RESETTABLE)
    now, begun = task_file(config), archive.get(EVENT)
    if now and begun and now["sha256"] == begun["sha256"]:  # the file may have moved
        ours.pop("task.settings.file")
    before, model = recorded.get("model_sha256"), digest(model_files(task))
    if config.task.name == DESCRIBED_TASK and before and before == model:
        ours.pop("model")
    given = {name: value for name, value in ours.items() if name.partition(".")[0] not in free}
    check_removed(recorded["settings"])
    changed = changes(given, with_present_names(recorded["settings"]))
    if changed:
        raise UserError(
            f"{archive.root} was created with other settings: {'; '.join(changed)}; "
            f"give only resume={archive.root} to continue with the recorded settings"
        )
    if before and before != model:
        raise UserError(
            f"the model of {archive.root} has changed since the run began, so its programs could not be compared; "
            "undo the change, or start a new run"
        )
    done = len(archive.events("criticised"))
    if config.generations < done:
        raise UserError(
            f"generations={config.generations}: {archive.root} already has {done} generations; give {done} or more"
        )


def keep_settings(config: Config, archive: Archive) -> None:
    """Record settings of a run that changed since it began; the next resume and a recording take them from there."""
    if begun := archive.get("run"):
        settings = flat(plain(dataclasses.replace(config, tuned_settings={})))
        kept = {**begun["settings"], **{name: settings[name] for name in _KEPT if name in settings}}
        if kept == begun["settings"]:
            return
        archive.record("run", {**begun, "settings": kept})
    recorded = dict(read_yaml(archive.read(SETTINGS).decode()))
    recorded |= {"generations": config.generations}
    recorded["optimizer"] = plain(config)["optimizer"]
    archive.put(SETTINGS, yaml.safe_dump(recorded, sort_keys=False).encode())
    if (ended := archive.get("finished")) and ended["generations"] < config.generations:
        archive.record("finished", {**ended, "interrupted": True})  # until it ends again


_KEPT = ("generations", "optimizer.mppi.samples")  # settings that may change while a run is in progress


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
