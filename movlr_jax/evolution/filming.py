"""Films of a search: every candidate once, and the best beside the first."""

from __future__ import annotations

from movlr_jax.errors import UserError
from movlr_jax.evolution.context import Engine, evaluation_of, timed
from movlr_jax.film.clips import Caption, Clip, film, side_by_side, title
from movlr_jax.quantities import summary
from movlr_jax.storage.arrays import read_arrays
from movlr_jax.tasks import Task
from movlr_jax.types import Evaluation


def make_film(engine: Engine, candidate: Evaluation) -> Evaluation:
    """Films a candidate once; a candidate without states, or a machine without a renderer, has no film."""
    if not engine.films or candidate.failed or candidate.film:
        return candidate
    stem = f"gen_{candidate.generation:02d}/k{candidate.candidate:02d}"
    with timed(engine, "film"), engine.reporter.stage(f"film {candidate.name}") as tick:
        engine.archive.put(f"{stem}.mp4", film(clip(engine, candidate), progress=tick))
    data = engine.archive.get("evaluated", candidate.generation, candidate.candidate) or {}
    data["film"] = f"{stem}.mp4"
    engine.archive.record("evaluated", data, candidate.generation, candidate.candidate)
    return evaluation_of(data, engine.archive.root)


def clip(engine: Engine, candidate: Evaluation, label: str = "") -> Clip:
    """What films need of a candidate's episode."""
    states = engine.archive.read(f"gen_{candidate.generation:02d}/k{candidate.candidate:02d}.npz")
    heading = title(engine.task.name, candidate.generation, candidate.candidate)
    if label:  # beside another film there is less room
        heading = f"{label}: {engine.task.name} {candidate.name}"
    return clip_of(engine.task, states, Caption(heading, summary(candidate.metrics), engine.note))


def clip_of(task: Task, states: bytes, caption: Caption) -> Clip:
    """An episode, as `evaluation` stored it, ready to be filmed. Raises UserError where it is of another model."""
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
            f"no film: the trajectory cannot be read ({error}); resume with films=false"
        ) from None
    return Clip(task, arrays["qpos"], arrays["time"], caption, act=arrays["act"])


def film_best_and_first(engine: Engine, best: Evaluation) -> str | None:
    """The best beside the first candidate that ran; the path within the run, or None without films."""
    events = engine.archive.events("evaluated")
    ran = [evaluation_of(e.data, engine.archive.root) for e in events if not e.data["reason"]]
    if not engine.films or not ran:
        return None
    path = "side_by_side.mp4"
    with engine.reporter.stage("film best beside first") as tick:
        clips = [clip(engine, ran[0], "first"), clip(engine, best, "best")]
        engine.archive.put(path, side_by_side(clips, progress=tick))
    return path
