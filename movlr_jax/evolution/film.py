"""Film: the motion that stands for each candidate, kept with its program; and films of recorded episodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from movlr_jax._util.quantities import summary
from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.criticise import not_finite
from movlr_jax.evolution.evaluation import failed, middle
from movlr_jax.evolution.population import Population
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import FULL, PREVIEW, SHEET, Clip, Film, Style, film, side_by_side
from movlr_jax.records import Evaluation, Program, Trial
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.events import read, written
from movlr_jax.storage.inside import read_arrays
from movlr_jax.storage.layout import candidate_path
from movlr_jax.tasks import Task
from movlr_jax.tasks.words.sentence import verdict


def film_candidates(
    context: SearchContext, programs: Sequence[Program], verdicts: Mapping[str, Verdict], population: Population
) -> list[Evaluation]:
    """Return each candidate with the trial that stands for it, recorded with its program, trajectory and film.

    A trajectory that is lost is simulated again, and a film that is lost is made again. Without films, and for a
    program that failed, there is no film.
    """
    candidates = [
        _recorded(context, program, verdicts[program.name], population.trials.get(program.name, ()))
        for program in programs
    ]
    return [_filmed(context, candidate) for candidate in candidates]


def _recorded(context: SearchContext, program: Program, verdict: Verdict, trials: Sequence[Trial]) -> Evaluation:
    """Record a candidate with its program, and with the trial that stands for it. Return its evaluation."""
    archive, g, k = context.archive, program.generation, program.candidate
    data = archive.get("evaluated", g, k)
    if data is None:
        candidate = Evaluation.of(program, representative(context, trials) if trials else failed(verdict))
        _say_problems(context, candidate, verdict)
    else:
        candidate = read(Evaluation, data, generation=g, candidate=k)
    _write_program(context, candidate)
    path = candidate_path(g, k, ".npz")
    if not candidate.failed and candidate.stem and not archive.has(path):
        archive.put(path, _trajectory(context, verdict, candidate))
    if data is None:
        archive.record("evaluated", written(candidate), g, k)
    return replace(candidate, film=archive.root / candidate.film if candidate.film else None)


def representative(context: SearchContext, trials: Sequence[Trial]) -> Trial:
    """Return the trial that stands for its program: the first one where films are judged, else the middle one.

    So the films of a generation that a judge sees are of one trial.
    """
    ran = [trial for trial in trials if not trial.failed] or trials
    return middle(context.task, ran) if context.scored else ran[0]


def _say_problems(context: SearchContext, candidate: Evaluation, verdict: Verdict) -> None:
    """Report notes on a program, why it failed, and its non-finite terms."""
    say = context.reporter.say
    for note in verdict.notes:
        say(f"  {candidate.name}: {note}")
    if candidate.failed:
        say(f"  {candidate.name} failed: {candidate.reason}")
    for name, term in candidate.terms.items():
        if where := not_finite(term):
            say(f"  {candidate.name}: term {name!r} was not finite {where}; the values were replaced")


def _write_program(context: SearchContext, candidate: Evaluation) -> None:
    """Write the program of a candidate and its record, unless the files have them already."""
    described = {name: value for name, value in written(candidate).items() if name != "source"}
    texts = {".py": candidate.source, ".json": json.dumps(described | {"film": None}, indent=1)}
    for ending, text in texts.items():
        path = candidate_path(candidate.generation, candidate.candidate, ending)
        if not context.archive.has(path):
            context.archive.put(path, text.encode())


def _trajectory(context: SearchContext, verdict: Verdict, candidate: Evaluation) -> bytes:
    """Return the trajectory of a recorded trial. One that is lost is simulated again; what was recorded stays."""
    path = f"{candidate.stem}.npz"
    if context.archive.has(path):
        return context.archive.read(path)
    ((again,),) = context.workers.evaluate([verdict], [candidate.seed or 0])
    if again.metrics != candidate.metrics:
        context.reporter.say(
            f"  {candidate.name}: its trajectory was lost, and simulated again it differs: "
            f"{summary(again.metrics)}; recorded is {summary(candidate.metrics)}, which stays"
        )
    context.archive.put(path, again.states or b"")
    return again.states or b""


def _filmed(context: SearchContext, candidate: Evaluation) -> Evaluation:
    """Return a candidate with its film, which is made if there is none or it is lost."""
    archive, g, k = context.archive, candidate.generation, candidate.candidate
    path = candidate_path(g, k, ".mp4")
    if not context.films or candidate.failed:
        return candidate
    if candidate.film and not any(map(archive.lost, (path, sheet_path(path)))):
        return candidate
    with context.journal.timed("film"), context.reporter.stage(f"film {candidate.name}") as tick:
        store(archive.put, path, film(clip(context, candidate), style_of(context.config.preview), tick))
    archive.record("evaluated", written(replace(candidate, film=Path(path))), g, k)
    return replace(candidate, film=archive.root / path)


def film_best_and_first(context: SearchContext, best: Evaluation) -> str | None:
    """Film the best next to the first candidate that ran, if these are two. Return the path in the run directory."""
    events = context.archive.events("evaluated")
    ran = [event for event in events if not event.data["reason"]]
    if not context.films or not ran:
        return None
    first = read(Evaluation, ran[0].data, generation=ran[0].generation, candidate=ran[0].candidate)
    if best.name == first.name:
        return None
    path = "side_by_side.mp4"
    with context.reporter.stage("film best and first") as tick:
        clips = [clip(context, first, "first"), clip(context, best, "best")]
        store(context.archive.put, path, side_by_side(clips, style_of(context.config.preview), tick))
    return path


def film_trial(context: SearchContext, name: str, trial: Trial) -> None:
    """Film a fresh trial in the style of previews, unless it is filmed."""
    path = f"{trial.stem}.mp4"
    if not context.films or trial.failed or context.archive.has(path):
        return
    with context.journal.timed("film"), context.reporter.stage(f"film {name}, fresh trial") as tick:
        states = context.archive.read(f"{trial.stem}.npz")
        made = film(clip_of(context.task, states, caption(context, f"{name}, fresh trial", trial)), PREVIEW, tick)
        store(context.archive.put, path, made)


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


def caption(context: SearchContext, name: str, trial: Trial) -> Caption:
    """Return the caption of a film of the search."""
    said = verdict(context.task.scoring.motion, dict(trial.metrics))
    return Caption(context.task.description, name, said, context.roles.note)


def clip(context: SearchContext, candidate: Evaluation, label: str = "") -> Clip:
    """Return the clip of a candidate's episode."""
    states = context.archive.read(candidate_path(candidate.generation, candidate.candidate, ".npz"))
    name = f"{label}: {candidate.name}" if label else candidate.name
    return clip_of(context.task, states, caption(context, name, candidate))


def clip_of(task: Task, states: bytes, caption: Caption) -> Clip:
    """Return the clip of a stored episode. Raises UserError if the arrays do not fit the model."""
    model = task.model
    try:
        arrays = read_arrays(states)
        steps = len(arrays["time"])
        for name, shape in (("time", (steps,)), ("qpos", (steps, model.nq)), ("act", (steps, model.na))):
            if not steps or arrays[name].shape != shape or arrays[name].dtype.kind not in "fiu":
                raise ValueError(f"{name} is {arrays[name].shape} {arrays[name].dtype}, expected {shape} numbers")
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot film: the trajectory cannot be read ({error}); resume with films=false") from None
    return Clip(task, arrays["qpos"], arrays["time"], caption, act=arrays["act"])
