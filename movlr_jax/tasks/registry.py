"""Tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.models import model_adapter
from movlr_jax.settings import keywords
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.bottle import bottle_pour

TASKS: dict[str, Callable[..., Task]] = {"bottle_pour": bottle_pour}


def build_task(name: str, model: str, episode_s: float, settings: Mapping[str, Any]) -> Task:
    """The task `name` on `model`, with the settings of its conf file. Raises UserError."""
    if name not in TASKS:
        raise UserError(unknown_name("task", name, TASKS))
    given = keywords(TASKS[name], settings, "task.settings", without=["episode_s"])
    try:
        return TASKS[name](model_adapter(model), episode_s=episode_s, **given)
    except ValueError as error:  # of MuJoCo's compiler
        raise UserError(
            f"task {name!r} cannot be built with these settings: {' '.join(str(error).split())}"
        ) from error
