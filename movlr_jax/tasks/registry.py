"""The registry of tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.models import model_adapter
from movlr_jax.settings import RENAMED, keywords
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.file_task import file_task
from movlr_jax.tasks.hand.bottle import bottle_pour
from movlr_jax.tasks.hand.cube import cube_rotate
from movlr_jax.tasks.playground.environments import playground
from movlr_jax.tasks.robot.humanoid import (
    humanoid_stairs,
    humanoid_straight_leg,
    humanoid_turn,
    humanoid_walk,
)
from movlr_jax.tasks.walking.walks import (
    flat_walk,
    injured_walk,
    left_turn,
    ostrich_walk,
    rough_walk,
    slope_walk,
    stand,
)

TASKS: dict[str, Callable[..., Task]] = {
    "bottle_pour": bottle_pour,
    "cube_rotate": cube_rotate,
    "stand": stand,
    "flat_walk": flat_walk,
    "slope_walk": slope_walk,
    "rough_walk": rough_walk,
    "left_turn": left_turn,
    "injured_walk": injured_walk,
    "ostrich_walk": ostrich_walk,
    "humanoid_walk": humanoid_walk,
    "humanoid_straight_leg": humanoid_straight_leg,
    "humanoid_stairs": humanoid_stairs,
    "humanoid_turn": humanoid_turn,
}
WALKERS = ("myolegs", "myolegs26", "ms_human_700_legs", "ms_human_700", "musclemimic_fullbody")
HANDS = ("myoarm_r", "ms_human_700_manipulation")
# models that each task is tested with, the default first; other models with the required parts may also work
MODELS_OF: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TASKS, WALKERS),
    **dict.fromkeys(("bottle_pour", "cube_rotate"), HANDS),
    "injured_walk": tuple(
        m for m in WALKERS if m != "myolegs26"
    ),  # which models the hamstrings as one muscle
    "ostrich_walk": ("ostrich",),
    **{name: ("humanoid",) for name in TASKS if name.startswith("humanoid_")},
}
FILE_TASK = "own"  # name of a task that is defined in a file
BUNDLED_MODEL = "own"  # value of `model` for a task that has its own model


def build_task(name: str, model: str, episode_s: float | None, settings: Mapping[str, Any]) -> Task:
    """Build the task `name` on `model`, with the settings of its conf file. Raises UserError.

    For a hand task, model=ms_human_700 selects the variant with fingers. episode_s may be None only for a task from
    a file, which then defines it.
    """
    if name in (FILE_TASK, "playground") and model != BUNDLED_MODEL:
        raise UserError(f"model={model}: task {name!r} brings its own model; leave model out")
    if name == FILE_TASK:
        return file_task(settings, episode_s)
    if episode_s is None:
        raise UserError("episode_s is not set; set episode_s=...")
    if name == "playground":
        return playground(
            episode_s=episode_s, **keywords(playground, settings, "task.settings", ["episode_s"])
        )
    if name not in TASKS:
        raise UserError(unknown_name("task", name, TASKS))
    if model == "ms_human_700" and MODELS_OF[name] == HANDS:
        model = "ms_human_700_manipulation"  # the variant of MS-Human-700 with fingers
    former = {RENAMED[old]: value for old, value in settings.items() if old in RENAMED}
    settings = {key: value for key, value in settings.items() if key not in RENAMED} | former
    given = keywords(TASKS[name], settings, "task.settings", without=["episode_s"])
    try:
        return TASKS[name](model_adapter(model), episode_s=episode_s, **given)
    except ValueError as error:  # from MuJoCo's compiler
        raise UserError(
            f"task {name!r} cannot be built with these settings: {' '.join(str(error).split())}"
        ) from error
