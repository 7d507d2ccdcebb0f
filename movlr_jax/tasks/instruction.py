"""A motion from words: `instruction=`, on the body and in the scene of any task, or on a model alone."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models import MODELS
from movlr_jax.models.from_path import is_path
from movlr_jax.tasks.base import TIE, Metrics, Task
from movlr_jax.tasks.hand import grasp
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.simple import (
    controls_text,
    default_diagnosis,
    default_score,
    first_reward,
    simple_task,
    velocity_goals,
)
from movlr_jax.tasks.words.reading import read
from movlr_jax.tasks.words.scene import Scene
from movlr_jax.tasks.words.sentence import FALLEN, Sentence, achieved
from movlr_jax.types import Step, Trajectory

MOST = 500  # characters
_UNSAYING = ("scene", "model", "robot", "main")  # names of files that many models have
# what the motion of a walker or hand is measured by, whatever it should do; the rest belongs to the goals of a task
_GENERAL = ("fell", "time_to_fall_s", "effort", "smoothness", "joint_limit_fraction", "diverged_fraction")
_FARTHER = 1.8  # of a camera that was close to the object, since the hand may go anywhere
_OF_BODY = (
    "whether the body does what the words ask for, in every part of them; then balance, and whether a person would "
    "move like this"
)


def described_task(model: str, instruction: str, episode_s: float | None = None) -> Task:
    """Return the task to move `model` as `instruction` says, with the name of the model. Raises UserError.

    model: name of a model or path of an MJCF file. episode_s: s; None for the default of `simple_task`.
    """
    try:
        task = simple_task(name=folder_name(model), model=model, description=described(instruction))
    except ValueError as error:  # of MuJoCo's compiler
        raise UserError(f"{model} does not compile: {' '.join(str(error).split())}") from None
    needed = task.scoring.motion.seconds if task.scoring.motion else 0.0
    return dataclasses.replace(task, episode_s=episode_s or max(task.episode_s, round(needed, 1)))


def folder_name(model: str) -> str:
    """Return the name of a model in the characters of a folder's name.

    Of a file, it is its name; where that says nothing, as `scene.xml`, the model's name attribute or its folder's.
    """
    name = model
    if _is_file(model):
        path = Path(model).expanduser()
        name, text = path.stem, ""
        if name.lower() in _UNSAYING:
            with contextlib.suppress(OSError):
                text = path.read_text(encoding="utf-8", errors="replace")
            named = re.search(r"<mujoco\b[^>]*\bmodel\s*=\s*[\"']([^\"']+)", text)
            said = named[1] if named and named[1].lower() not in _UNSAYING else ""
            name = said or path.absolute().parent.name or name
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "model"


def absolute_model(model: str) -> str:
    """Return the absolute path of a model that is given by its path; the name of a model as it is."""
    return str(Path(model).expanduser().absolute()) if _is_file(model) else model


def _is_file(model: str) -> bool:
    return model not in MODELS and (is_path(model) or Path(model).is_file())


def with_instruction(task: Task, instruction: str) -> Task:
    """Return `task` with the motion that `instruction` describes in place of its own.

    Body, scene, start and length of an episode stay. Goals, success, degenerate patterns and rewards go, since they
    belong to another motion; whether the motion succeeds is for a judge to say. What is left to measure is general:
    effort, a fall if the motion is upright, and what the words name: travel, turning, an object that is dropped.
    Raises UserError.
    """
    words = described(instruction)
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    body = task.adapter
    touch = {part: body.touch.get(part, ()) for part in task.layout.touch}  # some are of objects
    around = Scene(task.model, qpos, body.root, body.forward, task.roles, tuple(task.layout.sites), touch)
    motion = read(words, around, partial=True)
    clock = {name: value for name, value in task.goals.items() if name == "stride_frequency"}
    goals = clock | velocity_goals(motion, task.roles)
    thing = task.roles.get("object", "")
    model = _without_target(task.model, thing) if thing else task.model
    handled = thing if thing in words.lower() else ""  # another object may be knocked over
    layout = dataclasses.replace(task.layout, goals={name: np.shape(value) for name, value in goals.items()})
    controls = controls_text(task.model, task.resting(qpos))
    first = first_reward(words, layout, {}, motion, task.adapter.root, controls)
    over = task.course.over if motion.balance else None
    if over and motion.lowest != FALLEN:
        over = partial(over, lowest=motion.lowest)
    return task.replace(
        description=words,
        focus=_OF_BODY + (f"; what happens to the {handled}" if handled else ""),
        model=model,
        layout=layout,
        goals=goals,
        measure=partial(_measure, task, motion, handled),
        score=partial(default_score, motion),
        tie=TIE,
        initial=first,
        human=first,
        controls=controls,
        diagnose=partial(default_diagnosis, np.inf, motion),
        cameras=[dataclasses.replace(c, distance=_FARTHER * c.distance) for c in task.view.cameras]
        if thing
        else task.view.cameras,
        over=over,
        series=None,
        faults=None,
        success=motion.success() if motion.whole else "",
        hold_s=0.0,
        motion=motion,
    )


def described(instruction: str) -> str:
    """Return the description of a task with this instruction. Raises UserError if it is empty or too long."""
    words = " ".join(instruction.split()).rstrip(".")
    try:
        words.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"instruction={instruction[:40]!r} is not UTF-8; write it in a terminal or a file that is, as with "
            "LANG=C.UTF-8"
        ) from None
    if not words or len(words) > MOST:
        wrong = f"has {len(words)} characters" if words else "is empty"
        raise UserError(
            f"instruction={instruction[:40]!r} {wrong}: describe the motion in a sentence of 1 to {MOST} characters"
        )
    return words


def _measure(base: Task, motion: Sentence, handled: str, episode: Trajectory, task: Task) -> Metrics:
    """Return the general measures of one episode [T] of the task `base`, and those of `motion`.

    handled: the object that the words name, which is not to be dropped; or an empty string.
    """
    steps = Readout(task.layout, episode.steps)
    kept = _GENERAL if motion.balance and motion.lowest == FALLEN else _GENERAL[2:]
    metrics = {name: value for name, value in base.scoring.measure(episode, base).items() if name in kept}
    if task.course.over and motion.lowest != FALLEN:
        metrics |= _fall(task.course.over, episode)
    if handled:
        metrics["dropped"] = float(grasp.dropped(steps.pos(handled)[:, 2], -np.inf))
    said = motion.measure(steps, fell="time_to_fall_s" in metrics) if motion.asks else {}
    if "time_to_fall_s" in metrics:  # the motion is measured over the whole episode
        share = metrics["time_to_fall_s"] / task.episode_s
        said |= {name: said[name] * share for name in ("progress_m_s",) if name in said}
        said |= {"upright_fraction": share, "fell": 1.0}
    done = achieved(motion, said)
    return (
        said
        | ({} if done is None else {"success": done})
        | {n: v for n, v in metrics.items() if n not in said or n == "fell"}
    )


def _fall(over: Callable[[Step, Step], np.ndarray], episode: Trajectory) -> Metrics:
    """Return whether, and after how many s, one episode [T] ended in a fall."""
    batch = jax.tree.map(lambda x: np.asarray(x)[None], episode.steps)
    fell = bool(over(batch, jax.tree.map(lambda x: x[:, 0], batch))[0, -1])
    seconds = float(episode.steps.time[-1] - episode.steps.time[0])
    return {"fell": float(fell), **({"time_to_fall_s": seconds} if fell else {})}


def _without_target(model: mujoco.MjModel, thing: str) -> mujoco.MjModel:
    """Return the model without the mark of the goal of `thing` in its pictures."""
    model = copy.copy(model)
    body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, f"target_{thing}")
    model.geom_rgba[model.geom_bodyid == body, 3] = 0.0
    return model
