"""Describe settings, parts and models: for the record of a search, the report and messages."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from movlr_jax._util.machine import hardware, versions
from movlr_jax._util.settings import flat, plain
from movlr_jax.config.schema import Config
from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.scripted.proposer import ScriptedProposer
from movlr_jax.evolution.scripted.terms import reading
from movlr_jax.film.renderer import renderer
from movlr_jax.models.from_path import files_of
from movlr_jax.tasks import Task


def describe(context: SearchContext) -> dict[str, Any]:
    """Describe the settings, parts, versions and hardware of a search, for the record and the report."""
    config, task = context.config, context.task
    scripted = isinstance(context.roles.proposer, ScriptedProposer)
    return {
        "task": task.name,
        "description": task.description,
        **({"reading": read} if scripted and (read := reading(task)) else {}),
        "model": task.adapter.name,
        "model_notes": [*task.origin.notes, *task.origin.warnings],
        "cameras": [camera.shows for camera in (*task.view.cameras, *task.view.more_cameras)],
        "seed": config.seed,
        "method": config.method.name,
        "settings": flat(plain(dataclasses.replace(config, tuned_settings={}))),
        "tuned_settings": dict(config.tuned_settings),
        "backends": {
            "physics": f"{context.optimizer.physics.name} for plans or training, native (C MuJoCo) for episodes",
            "optimizer": _optimizer_line(config.optimizer.name, context.optimizer.notes),
            "proposer": context.roles.proposer.name,
            "judge": context.roles.judge.name,
            "critic": context.roles.critic.name,
            "sandbox": context.sandbox.description,
            "renderer": str(renderer().name) if context.films else "none: no films",
        },
        "versions": versions(),
        "hardware": hardware(),
        "models_used": context.roles.models_used,
        **({"model_sha256": sha256} if (sha256 := digest(model_files(task))) else {}),
        **({"groups": context.optimizer.notes["groups"]} if "groups" in context.optimizer.notes else {}),
        "goals": {name: [round(float(v), 4) for v in value.ravel()] for name, value in task.goals.items()},
    }


def _optimizer_line(name: str, notes: Mapping[str, Any]) -> str:
    """Return the name of the optimizer and, after a colon, its action and observation spaces."""
    groups = len(set(notes.get("groups", {}).values()))
    details = [f"{key} {value}" for key, value in notes.items() if key not in ("action", "groups")]
    details = [*([notes["action"]] if "action" in notes else []), *([f"{groups} groups"] if groups else []), *details]
    return f"{name}: {', '.join(details)}" if details else name


def about_tuned(config: Config) -> str | None:
    """Return a sentence about the settings tuned for this task and model, or None without such settings."""
    if not config.tuned_settings:
        return None
    settings = ", ".join(f"{name}={value}" for name, value in config.tuned_settings.items())
    return f"tuned for this task and model: {settings} (tuned=false ignores them)"


def about_success(task: Task) -> str | None:
    """Return a sentence about what counts as a success, or None for a task that does not say it in words."""
    return f"success: {task.scoring.success}" if task.scoring.success else None


def to_yaml(config: Config) -> str:
    """Return the text of a file from which the settings can be read again."""
    return yaml.safe_dump(plain(config), sort_keys=False)


def model_files(task: Task) -> list[Path]:
    """Return the MJCF file of the task's model with all that it includes; none for a model that has no such file."""
    file = task.adapter.info.files() if task.adapter.info.files else None
    return files_of(file) if file else []


def digest(files: Sequence[Path]) -> str | None:
    """Return a hash of the contents of files, None for no files. Raises UserError if one cannot be read."""
    try:
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() if files else None
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}; make the file readable") from None
