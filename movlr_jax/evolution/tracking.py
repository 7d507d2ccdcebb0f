"""What a search shows in an experiment tracker: each generation once, and its results at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from movlr_jax.errors import UserError, resuming
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.film import representative
from movlr_jax.evolution.gates import score_of
from movlr_jax.evolution.population import Population
from movlr_jax.evolution.trials import claim_of
from movlr_jax.records import Evaluation, Ranking
from movlr_jax.storage.begun import asked_here, begin, covers
from movlr_jax.storage.events import read
from movlr_jax.storage.layout import candidate_path
from movlr_jax.tracking.base import Ended, Shown

# events: the key of the tracker's run; a generation that it has; how many generations the results that it has are of
BEGUN, DONE, ENDED = "tracked_run", "tracked", "tracked_end"


def begin_tracking(context: SearchContext) -> None:
    """Begin or continue the run in the tracker, unless it has everything already. Raises UserError."""
    tracker, archive, name = context.tracker, context.archive, context.config.tracker.name
    if tracker is None or _complete(context):
        return
    begun = archive.get(BEGUN) or {}
    begun = begun if begun.get("tracker") == name else {}
    store = {"tracker.store": begun.get("store")}
    if not covers(asked_here(archive.root), store):  # an address from a run that was not begun here, or was edited
        begun = {**begun, "store": None}
    about = dict((archive.get("run") or {}).get("settings") or {})
    found = tracker.begin(about, begun)
    if begun and found["key"] != begun.get("key"):
        context.reporter.say(f"tracker={name} no longer has the run of this search; a new run gets all generations")
    if found["key"] != begun.get("key"):
        for event in archive.events(DONE):
            archive.forget(DONE, event.generation)
    archive.record(BEGUN, {"tracker": name, "uri": context.config.tracker.uri, **found})
    if found.get("store"):
        begin(archive.root, {"tracker.store": found["store"]})
    context.unsent.begun = True


def track(context: SearchContext, g: int, candidates: Sequence[Evaluation], population: Population) -> None:
    """Show a finished generation in the tracker, if it has begun and does not have the generation yet.

    The search goes on if the tracker cannot be reached; the generation is sent with the next one.
    """
    if not context.unsent.begun or _has(context, g):
        return
    made = {e.name: candidate_path(e.generation, e.candidate, ".mp4") for e in candidates if e.film}
    films = {name: context.archive.root / film for name, film in made.items() if context.archive.has(film)}
    shown = Shown(g, numbers(context, g, candidates, population), films)
    context.unsent.generations.append(shown)
    _send(context)


def end_tracking(context: SearchContext, ended: Ended, report: Path | None) -> None:
    """Send the results of a finished search, then end the run in the tracker. Says what could not be sent."""
    tracker, archive = context.tracker, context.archive
    if tracker is None:
        return
    finished = context.unsent.begun and ended == "finished"
    sent = not finished or (
        _send(context)
        and archive.has("best.py")
        and _tried(context, lambda: tracker.finish(archive.root / "best.py", report))
    )
    sent = _tried(context, lambda: tracker.close(ended)) and sent
    if finished and sent:
        archive.record(ENDED, _ending(context))
    if not sent or context.unsent.generations:
        context.reporter.say(f"the tracker has not got everything; {resuming(archive.root)} sends the rest")


def _complete(context: SearchContext) -> bool:
    """Return whether the tracker has all generations and the results of a finished search."""
    uri = context.config.tracker.uri
    if (context.archive.get(BEGUN) or {}).get("uri", uri) != uri:
        return False
    done = all(_has(context, event.generation) for event in context.archive.events("timing"))
    return done and context.archive.get(ENDED) == _ending(context)


def _ending(context: SearchContext) -> dict[str, Any]:
    return {"tracker": context.config.tracker.name, "generations": context.config.generations}


def _has(context: SearchContext, g: int) -> bool:
    return (context.archive.get(DONE, g) or {}).get("tracker") == context.config.tracker.name


def _send(context: SearchContext) -> bool:
    """Show the generations that the tracker lacks, oldest first. Return whether it has all of them then."""
    tracker, waiting = context.tracker, context.unsent.generations
    assert tracker is not None
    while waiting:
        if not _tried(context, partial(tracker.generation, waiting[0])):
            return False
        context.archive.record(DONE, {"tracker": context.config.tracker.name}, waiting.pop(0).generation)
    return True


def _tried(context: SearchContext, call: Callable[[], None]) -> bool:
    """Call the tracker. Return whether it could be reached; say why not."""
    try:
        call()
    except UserError as error:
        context.reporter.say(f"WARNING: {error}")
        return False
    return True


def numbers(
    context: SearchContext, g: int, candidates: Sequence[Evaluation], population: Population
) -> dict[str, float]:
    """Return what a tracker shows of a generation: best and spread, weights, judge flip rate, cost and times."""
    scores = [s for e in candidates if math.isfinite(s := score_of(context.task, e))]
    ranking = read(Ranking, context.archive.get("ranked", g) or {})
    calls, cost = context.archive.spent()
    champion = str(population.champion)
    trials, program = population.trials[champion], population.programs[champion]
    claim = claim_of(context.task.scoring.motion, trials)
    found = {
        "score/best": float(np.mean([score_of(context.task, trial) for trial in trials])),
        "trials/best": claim.n,
        **({} if claim.successes is None else {"success_rate/best": claim.successes / claim.n}),
        **({"score/mean": float(np.mean(scores)), "score/std": float(np.std(scores))} if scores else {}),
        **{f"best/{name}": value for name, value in claim.metrics.items()},
        **{f"weights/{name}": weight for name, weight in program.weights.items()},
        **{f"terms/{name}": t["weighted_mean"] for name, t in representative(context, trials).terms.items()},
        "candidates/failed": sum(e.failed for e in candidates),
        "judge/flip_rate": ranking.flip_rate,
        "judge/comparisons": len(ranking.comparisons),
        "models/calls": calls,
        "models/cost_usd": cost,
        **{f"seconds/{stage}": seconds for stage, seconds in context.journal.seconds.items()},
    }
    return {name: float(v) for name, v in found.items() if v is not None and math.isfinite(v)}
