"""Continue a search: what may change, what must be the same, and what is recorded of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from movlr_jax._util.settings import flat, plain, read_yaml
from movlr_jax.config.recorded import RESETTABLE
from movlr_jax.config.schema import Config, check_removed, with_present_names
from movlr_jax.config.trust import EVENT, task_file
from movlr_jax.control.settings import PpoSettings
from movlr_jax.engine.description import digest, model_files
from movlr_jax.errors import UserError, shortened
from movlr_jax.storage.archive import SETTINGS, Archive
from movlr_jax.tasks import Task
from movlr_jax.tasks.registry import DESCRIBED_TASK

_KEPT = ("generations", "optimizer.mppi.samples")  # settings that may change while a run is in progress


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


def changes(ours: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """Return which of `ours` differ from recorded settings, both flat, in words. Options younger than the record do
    not count; a task's own settings, which are recorded where they are given, do."""
    return [
        f"{name} was {shortened(recorded.get(name))}, is {shortened(value)}"
        for name, value in ours.items()
        if (name in recorded or name.startswith("task.settings."))
        and recorded.get(name) != (list(value) if isinstance(value, tuple) else value)  # as in JSON
    ]


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


def check_before_building(config: Config) -> None:
    """Check settings that would otherwise fail only after the physics is built. Raises UserError."""
    if config.resume:
        with Archive.open(Path(config.resume), write=False, whole=True) as archive:
            archive.read(SETTINGS)
            if archive.events("evaluated") and not archive.events("trials"):
                raise UserError(
                    f"{config.resume} was recorded by a version that ran each program once, so it cannot go on in "
                    "trials; its report and exports can be made, or start a new run"
                )
    if isinstance(config.optimizer, PpoSettings) and config.optimizer.ppo.env_steps == 0:
        raise UserError(
            "optimizer.ppo.env_steps=0 trains nothing, so every program would be evaluated with the same policy; "
            "set the control steps of each training, as in optimizer.ppo.env_steps=400000"
        )


def about_damaged(run: Path, paths: Sequence[str], most: int = 5) -> str:
    """Return a sentence about files of a resumed run that are lost."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    count, are = ("1 file", "is") if len(paths) == 1 else (f"{len(paths)} files", "are")
    return (
        f"{count} of {run} {are} missing or changed after the search wrote them: {', '.join(paths[:most])}{more}; "
        "what this search needs of them is made again"
    )
