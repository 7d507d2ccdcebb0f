"""Films of a search: one of every candidate, and one of the best next to the first; each with a contact sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath

from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext, timed
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import FULL, PREVIEW, SHEET, Clip, Film, Style, film, side_by_side
from movlr_jax.language.base import Evaluation
from movlr_jax.storage.arrays import read_arrays
from movlr_jax.storage.layout import candidate_path
from movlr_jax.tasks import Task
from movlr_jax.tasks.words.sentence import verdict


def make_film(context: SearchContext, candidate: Evaluation) -> Evaluation:
    """Film a candidate if it has no film, or lost it. A failed candidate, or a search without films, gets none."""
    film_path = candidate_path(candidate.generation, candidate.candidate, ".mp4")
    if not context.films or candidate.failed:
        return candidate
    if candidate.film and not any(map(context.archive.lost, (film_path, sheet_path(film_path)))):
        return candidate
    with timed(context, "film"), context.reporter.stage(f"film {candidate.name}") as tick:
        made = film(clip(context, candidate), style_of(context.config.preview), tick)
        store(context.archive.put, film_path, made)
    data = context.archive.get("evaluated", candidate.generation, candidate.candidate) or {}
    data["film"] = film_path
    context.archive.record("evaluated", data, candidate.generation, candidate.candidate)
    return replace(candidate, film=context.archive.root / film_path)


def style_of(preview: bool) -> Style:
    """Return the style of films, or that of fast previews."""
    return PREVIEW if preview else FULL


def store(put: Callable[[str, bytes], Path], path: str, made: Film) -> Path:
    """Write a film to `path`, and its contact sheet next to it. `put` writes one file. Returns the film's path."""
    put(sheet_path(path), made.sheet)
    return put(path, made.mp4)


def sheet_path(path: str) -> str:
    """Return the path of the contact sheet of a film."""
    return str(PurePath(path).with_suffix("")) + SHEET


def clip(context: SearchContext, candidate: Evaluation, label: str = "") -> Clip:
    """Return the clip of a candidate's episode."""
    states = context.archive.read(candidate_path(candidate.generation, candidate.candidate, ".npz"))
    name = f"{label}: {candidate.name}" if label else candidate.name
    said = verdict(context.task.motion, dict(candidate.metrics))
    caption = Caption(context.task.description, name, said, context.note)
    return clip_of(context.task, states, caption)


def clip_of(task: Task, states: bytes, caption: Caption) -> Clip:
    """Return the clip of a stored episode. Raises UserError if the arrays do not fit the model."""
    model = task.model
    try:
        arrays = read_arrays(states)
        steps = len(arrays["time"])
        for name, shape in (("time", (steps,)), ("qpos", (steps, model.nq)), ("act", (steps, model.na))):
            if not steps or arrays[name].shape != shape or arrays[name].dtype.kind not in "fiu":
                raise ValueError(
                    f"{name} is {arrays[name].shape} {arrays[name].dtype}, expected {shape} numbers"
                )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"cannot film: the trajectory cannot be read ({error}); resume with films=false"
        ) from None
    return Clip(task, arrays["qpos"], arrays["time"], caption, act=arrays["act"])


def film_best_and_first(context: SearchContext, best: Evaluation) -> str | None:
    """Film the best next to the first candidate that ran, if these are two. Return the path in the run directory."""
    events = context.archive.events("evaluated")
    ran = [Evaluation.read(e.generation, e.candidate, e.data) for e in events if not e.data["reason"]]
    if not context.films or not ran or best.name == ran[0].name:
        return None
    path = "side_by_side.mp4"
    with context.reporter.stage("film best and first") as tick:
        clips = [clip(context, ran[0], "first"), clip(context, best, "best")]
        store(context.archive.put, path, side_by_side(clips, style_of(context.config.preview), tick))
    return path
