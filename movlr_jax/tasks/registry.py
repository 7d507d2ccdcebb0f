"""The registry of tasks by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from movlr_jax._util.parts import check_ranges
from movlr_jax._util.registry import Registry
from movlr_jax._util.settings import keywords
from movlr_jax.errors import MissingModel, UserError
from movlr_jax.models import MODELS, model_adapter
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.environments.gymnasium_task import gymnasium_task, timing
from movlr_jax.tasks.environments.myosuite_task import myosuite_task, settings_of
from movlr_jax.tasks.file_task import file_task
from movlr_jax.tasks.hand.bottle import bottle_pour
from movlr_jax.tasks.hand.cube import cube_rotate
from movlr_jax.tasks.instruction import described_task
from movlr_jax.tasks.playground.environments import playground
from movlr_jax.tasks.playground.models import timing as playground_timing
from movlr_jax.tasks.robot.humanoid import humanoid_stairs, humanoid_straight_leg, humanoid_turn, humanoid_walk
from movlr_jax.tasks.walking.walks import (
    flat_walk,
    injured_walk,
    left_turn,
    ostrich_walk,
    rough_walk,
    slope_walk,
    stand,
)

WALKERS = ("myolegs", "myolegs26", "ms_human_700_legs", "ms_human_700", "musclemimic_fullbody")
HANDS = ("myoarm_r", "ms_human_700_manipulation")


@dataclass(frozen=True)
class TaskEntry:
    """A task by name.

    `build` takes a ModelAdapter and, as keywords, episode_s and the settings of the task, whose defaults are those of
    its signature; it returns the Task.
    """

    build: Callable[..., Task]
    models: tuple[str, ...]  # the models that the task is tested on, its default first
    episode_s: float = 10.0  # s, length of an evaluation episode


TASKS: Registry[TaskEntry] = Registry(
    "task",
    "movlr_jax.tasks",
    {
        "bottle_pour": TaskEntry(bottle_pour, HANDS, 2.0),
        "cube_rotate": TaskEntry(cube_rotate, HANDS, 3.0),
        "stand": TaskEntry(stand, WALKERS),
        "flat_walk": TaskEntry(flat_walk, WALKERS),
        "slope_walk": TaskEntry(slope_walk, WALKERS),
        "rough_walk": TaskEntry(rough_walk, WALKERS),
        "left_turn": TaskEntry(left_turn, WALKERS),
        # myolegs26 lumps the hamstrings together
        "injured_walk": TaskEntry(injured_walk, tuple(m for m in WALKERS if m != "myolegs26")),
        "ostrich_walk": TaskEntry(ostrich_walk, ("ostrich",)),
        "humanoid_walk": TaskEntry(humanoid_walk, ("humanoid",)),
        "humanoid_straight_leg": TaskEntry(humanoid_straight_leg, ("humanoid",)),
        "humanoid_stairs": TaskEntry(humanoid_stairs, ("humanoid",)),
        "humanoid_turn": TaskEntry(humanoid_turn, ("humanoid",)),
    },
)


@dataclass(frozen=True)
class Suite:
    """Environments of another package, of which env=NAME chooses one.

    `build` takes env, episode_s and the settings of the task as keywords; `settings` returns those of the search that
    suit an environment, by their names: episode_s, and time steps of the optimizer.
    """

    build: Callable[..., Task]
    settings: Callable[[str | None], Mapping[str, float]] = lambda env: {}


ENVIRONMENTS: Mapping[str, Suite] = {
    "playground": Suite(playground, playground_timing),
    "gymnasium": Suite(gymnasium_task, timing),
    "myosuite": Suite(myosuite_task, settings_of),
}
FILE_TASK = "own"  # name of a task that is defined in a file
DESCRIBED_TASK = "described"  # name of a task that is a model and an instruction
BUNDLED_MODEL = "own"  # value of `model` for a task that has its own model


def build_task(
    name: str, model: str, episode_s: float | None, settings: Mapping[str, Any], instruction: str | None = None
) -> Task:
    """Build the task `name` on `model`, with the settings of its conf file. Raises UserError.

    Where the files of `model` cannot be had, the error names a model that is here and does the task, too.
    For a hand task, model=ms_human_700 selects the variant with fingers. episode_s may be None only for a task from
    a file, which then defines it, and for a task that consists of the model and the instruction.
    """
    try:
        return _built(name, model, episode_s, settings, instruction)
    except MissingModel as error:
        if name == FILE_TASK:  # which names its model
            raise
        raise MissingModel(f"{error}; {_instead(name, model)}") from None


def _instead(name: str, model: str) -> str:
    """Return in words which model is here and does the task `name`, too; for an instruction, one of such a body."""
    if name in TASKS:
        others, does = TASKS[name].models, f"does {name}"
    else:
        others = [other for entry in TASKS.values() if model in entry.models for other in entry.models]
        others = sorted(others, key=lambda other: -len(MODELS[other].roles.keys() & MODELS[model].roles.keys()))
        does = "has such a body"
    here = [other for other in others if MODELS[other].here]
    return f"model={here[0]}, which is here, {does}, too" if here else f"no other model that is here {does}"


def _built(
    name: str, model: str, episode_s: float | None, settings: Mapping[str, Any], instruction: str | None
) -> Task:
    if name == DESCRIBED_TASK:
        return described_task(model, instruction or "", episode_s)
    if name == FILE_TASK and not settings.get("file"):
        raise UserError(
            f"task={FILE_TASK} is the task of a Python file; give +task=FILE.py, or model=MODEL with "
            'instruction="..." alone'
        )
    if name in (FILE_TASK, *ENVIRONMENTS) and model != BUNDLED_MODEL:
        task = Path(str(settings.get("file", name))).name
        raise UserError(f"model={model}: task {task!r} brings its own model; leave model out")
    if name == FILE_TASK:
        return file_task(settings, episode_s)
    if episode_s is None:
        raise UserError("episode_s is not set; set episode_s=...")
    if suite := ENVIRONMENTS.get(name):
        return suite.build(episode_s=episode_s, **keywords(suite.build, settings, "task.settings", ["episode_s"]))
    entry = TASKS.get_or_raise(name)
    if model == "ms_human_700" and entry.models == HANDS:
        model = "ms_human_700_manipulation"  # the entry of MS-Human-700 that has fingers
    given = keywords(entry.build, settings, "task.settings", without=["episode_s"])
    for group in given.values():
        check_ranges(group, "task.settings")
    try:
        return entry.build(model_adapter(model), episode_s=episode_s, **given)
    except ValueError as error:  # of MuJoCo's compiler
        raise UserError(
            f"task {name!r} cannot be built with these settings: {' '.join(str(error).split())}"
        ) from error
