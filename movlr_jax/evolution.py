"""The loop: propose, vet, optimise, film, rank, criticise; every stage recorded, any of them resumable."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from movlr_jax import evaluation
from movlr_jax.archive import Archive
from movlr_jax.config import Config
from movlr_jax.errors import UserError
from movlr_jax.film import Caption, Clip, film, side_by_side, title
from movlr_jax.gates import gated
from movlr_jax.inner import adopt, with_variants
from movlr_jax.language.settings import NO_PROGRAM
from movlr_jax.methods import parent_of
from movlr_jax.progress import Reporter
from movlr_jax.ranking import rank
from movlr_jax.sandbox.vet import Sandbox, Verdict
from movlr_jax.tasks import Task
from movlr_jax.types import (
    Critic,
    Critique,
    Evaluation,
    Judge,
    Optimizer,
    Preference,
    ProposalRequest,
    Proposer,
    TermAdvice,
    candidate_name,
)

if TYPE_CHECKING:
    from movlr_jax.language.desk import Desk


@dataclass
class Engine:
    """What a search is made of, each built once."""

    config: Config
    task: Task
    optimizer: Optimizer
    proposer: Proposer
    judge: Judge
    critic: Critic
    sandbox: Sandbox
    archive: Archive
    reporter: Reporter
    films: bool
    models_used: str  # language and vision models, or that there are none
    desks: Sequence[Desk] = ()  # where models are spoken to
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # of the generation at hand, by source
    seconds: dict[str, float] = field(default_factory=dict)  # of the generation at hand, by stage

    def close(self) -> None:
        """Ends the sandbox and the connections to models."""
        self.sandbox.close()
        for desk in self.desks:
            desk.close()

    @property
    def note(self) -> str:
        """What every film says of who wrote and who judged."""
        return ", ".join(name.split(" (")[0] for name in (self.proposer.name, self.judge.name))


def evolve(engine: Engine) -> Evaluation:
    """Runs, or goes on with, a search. Returns the best candidate. Raises UserError when all of them fail."""
    best: Evaluation | None = None
    parent: Evaluation | None = None
    critique: Critique | None = None
    history: list[Evaluation] = []
    for g in range(engine.config.generations):
        engine.reporter.say(f"generation {g + 1} of {engine.config.generations}")
        engine.seconds = dict(engine.archive.get("timing", g) or {})
        sources, parents = propose(engine, g, parent, critique, history)
        evaluations = optimise(engine, g, sources, parents)
        evaluations = [make_film(engine, e) for e in evaluations]
        history += evaluations
        best = choose(engine, g, evaluations, best)
        parent = parent_of(engine.config.method, best, ranked(engine, g), evaluations)
        critique = criticise(engine, g, parent)
        engine.archive.put("best.py", best.source.encode())
        engine.archive.record("timing", engine.seconds, g)
        engine.reporter.say(f"  best so far: {best.name}  {summary(best.metrics)}")
    assert best is not None
    return best


def propose(
    engine: Engine, g: int, parent: Evaluation | None, critique: Critique | None, history: list[Evaluation]
) -> tuple[list[str], list[str | None]]:
    """K sources and the names of their parents; generation 0 begins with the program that the method begins with."""

    def work() -> dict[str, Any]:
        k, task, start = engine.config.candidates, engine.task, engine.config.method.start
        if start == "canonical":
            task = replace(task, initial_reward=task.human_reward)  # what the first edits are made of
        given = [] if start == "nothing" else [task.human_reward if start == "human" else task.initial_reward]
        given = given if g == 0 else []
        seed, vetted = engine.config.seed, lambda source: vet(engine, source).message
        request = ProposalRequest(g, task, parent, critique, tuple(history), seed, vetted)
        engine.verdicts.clear()
        sources = engine.proposer.propose(request, k - len(given))
        origin = parent.name if parent else candidate_name(0, 0) if given else None
        notes = [""] * len(given) + list(getattr(engine.proposer, "notes", []))
        return {
            "sources": [*given, *sources],
            "parents": [None] * len(given) + [origin] * len(sources),
            "notes": notes,
        }

    data = _once(engine, "proposed", g, "propose", work)
    return data["sources"], data["parents"]


def vet(engine: Engine, source: str) -> Verdict:
    """Whether a program can be used; asked once of each."""
    if source not in engine.verdicts:
        no_program = source.startswith(NO_PROGRAM)
        said = f"no program was written: {source.removeprefix(NO_PROGRAM).strip()}"
        engine.verdicts[source] = Verdict("propose", said, 0.0) if no_program else engine.sandbox.vet(source)
    return engine.verdicts[source]


def optimise(engine: Engine, g: int, sources: list[str], parents: list[str | None]) -> list[Evaluation]:
    """Vets the programs, then controls under all of them at once; K evaluations, failures among them."""
    archive = engine.archive
    if all(archive.get("evaluated", g, k) for k in range(len(sources))):
        return [_evaluation(archive.get("evaluated", g, k) or {}, archive.root) for k in range(len(sources))]
    with _timed(engine, "vet"), engine.reporter.stage("vet") as tick:
        new = [s for s in dict.fromkeys(sources) if s not in engine.verdicts and not s.startswith(NO_PROGRAM)]
        engine.verdicts.update(zip(new, engine.sandbox.vet_all(new, tick), strict=True))
        verdicts = [vet(engine, source) for source in sources]
    optimizer = engine.optimizer
    with _timed(engine, "optimise"), engine.reporter.stage("optimise", _rate(optimizer)) as tick:
        batch = with_variants(verdicts, engine.config.inner_weights, engine.config.seed, g)
        outcomes = evaluation.evaluate(
            optimizer, engine.task, batch, engine.config.seed, tick, archive.root / f"gen_{g:02d}"
        )
    evaluations = []
    for k, source in enumerate(sources):
        verdicts[k], outcome, inner = adopt(engine.task, batch, outcomes, k, len(sources))
        adopted = verdicts[k].program
        source = adopted.source if inner and adopted else source
        stem = f"gen_{g:02d}/k{k:02d}"
        program = verdicts[k].program
        data = {
            "name": candidate_name(g, k),
            "generation": g,
            "candidate": k,
            "parent": parents[k],
            "reason": outcome.reason,
            "stage": outcome.stage,
            "weights": dict(program.weights) if program else {},
            "metrics": dict(outcome.metrics),
            "terms": dict(outcome.terms),
            "series": dict(outcome.series),
            "curve_time": list(outcome.curve_time),
            "film": None,
            "source": source,
            "timing": dict(outcome.timing),
            **({"learning": dict(outcome.learning)} if outcome.learning else {}),
            **({"inner": inner} if inner else {}),
        }
        for note in verdicts[k].notes:
            engine.reporter.say(f"  {candidate_name(g, k)}: {note}")
        archive.put(f"{stem}.py", source.encode())
        archive.put(
            f"{stem}.json", json.dumps({k: v for k, v in data.items() if k != "source"}, indent=1).encode()
        )
        if outcome.states:
            archive.put(f"{stem}.npz", outcome.states)
        if outcome.reason:
            engine.reporter.say(f"  {candidate_name(g, k)} failed: {outcome.reason}")
        for name, term in outcome.terms.items():
            if term["nonfinite"]:
                engine.reporter.say(
                    f"  {candidate_name(g, k)}: term {name!r} was not finite at {term['nonfinite']} steps; replaced"
                )
        archive.record("evaluated", data, g, k)
        evaluations.append(_evaluation(data, archive.root))
    return evaluations


def make_film(engine: Engine, candidate: Evaluation) -> Evaluation:
    """Films a candidate once; a candidate without states, or a machine without a renderer, has no film."""
    if not engine.films or candidate.failed or candidate.film:
        return candidate
    stem = f"gen_{candidate.generation:02d}/k{candidate.candidate:02d}"
    with _timed(engine, "film"), engine.reporter.stage(f"film {candidate.name}") as tick:
        engine.archive.put(f"{stem}.mp4", film(clip(engine, candidate), progress=tick))
    data = engine.archive.get("evaluated", candidate.generation, candidate.candidate) or {}
    data["film"] = f"{stem}.mp4"
    engine.archive.record("evaluated", data, candidate.generation, candidate.candidate)
    return _evaluation(data, engine.archive.root)


def choose(engine: Engine, g: int, evaluations: list[Evaluation], best: Evaluation | None) -> Evaluation:
    """Ranks the generation and the incumbent together; the winner is the best so far."""
    entrants = [e for e in ([best] if best else []) + evaluations if not e.failed]
    if not entrants:
        reasons = "; ".join(f"{e.name}: {e.reason}" for e in evaluations)
        raise UserError(f"every program of generation {g} failed, there is nothing to go on from. {reasons}")

    def work() -> dict[str, Any]:
        result = rank(
            len(entrants),
            lambda i, j: engine.judge.compare(engine.task, entrants[i], entrants[j]),
            engine.config.ranking,
            engine.config.comparisons,
            compare_all=lambda pairs: compare_all(engine, [(entrants[i], entrants[j]) for i, j in pairs]),
        )
        return {
            "names": [e.name for e in entrants],
            "strengths": result.strengths.tolist(),
            "deviation": result.deviation.tolist(),
            "p_best": result.p_best.tolist(),
            "flip_rate": result.flip_rate,
            "best": entrants[result.order[0]].name,
            "comparisons": [
                {
                    "first": entrants[c.first].name,
                    "second": entrants[c.second].name,
                    "winner": c.preference.winner,
                    "reason": c.preference.reason,
                    **({"overruled": c.preference.overruled} if c.preference.overruled else {}),
                }
                for c in result.comparisons
            ],
        }

    data = _once(engine, "ranked", g, "rank", work)
    return next(e for e in entrants if e.name == data["best"])


def compare_all(engine: Engine, pairs: list[tuple[Evaluation, Evaluation]]) -> list[Preference]:
    """The judge's answers, overruled where the task's numbers know better; a model is asked all at once."""
    at_once = getattr(engine.judge, "compare_all", None)
    if at_once is None:
        return [engine.judge.compare(engine.task, a, b) for a, b in pairs]
    said = at_once(engine.task, pairs)
    if not engine.config.gates:
        return said
    return [gated(preference, a, b) for preference, (a, b) in zip(said, pairs, strict=True)]


def ranked(engine: Engine, g: int) -> list[str]:
    """Names of the last ranking, the strongest first."""
    data = engine.archive.get("ranked", g) or {"names": [], "strengths": []}
    order = sorted(range(len(data["names"])), key=lambda i: (-round(data["strengths"][i], 9), i))
    return [data["names"][i] for i in order]


def criticise(engine: Engine, g: int, best: Evaluation) -> Critique:
    """What the critic says of the best so far."""

    def work() -> dict[str, Any]:
        c = engine.critic.criticise(engine.task, best)
        return {
            "success": c.success,
            "problems": [*c.problems, *broken_terms(best)],
            "advice": [vars(a) for a in c.advice],
            "author": c.author,
            **({"said": c.said} if c.said else {}),
        }

    data = _once(engine, "criticised", g, "criticise", work)
    advice = [TermAdvice(**a) for a in data["advice"]]
    return Critique(data["success"], data["problems"], advice, data["author"], data.get("said", ""))


def broken_terms(best: Evaluation) -> list[str]:
    """What the guard replaced in the best program's episode, in words for the next proposal."""
    return [
        f"term {name!r} was not finite at {term['nonfinite']} steps of the episode, where it counted as its worst "
        "value; bound what goes into its divisions, logs, roots and exponentials"
        for name, term in best.terms.items()
        if term.get("nonfinite")
    ]


def clip(engine: Engine, candidate: Evaluation, label: str = "") -> Clip:
    """What films need of a candidate's episode."""
    states = engine.archive.read(f"gen_{candidate.generation:02d}/k{candidate.candidate:02d}.npz")
    heading = title(engine.task.name, candidate.generation, candidate.candidate)
    if label:  # beside another film there is less room
        heading = f"{label}: {engine.task.name} {candidate.name}"
    return clip_of(engine.task, states, Caption(heading, summary(candidate.metrics), engine.note))


def clip_of(task: Task, states: bytes, caption: Caption) -> Clip:
    """An episode, as `evaluation` stored it, ready to be filmed."""
    arrays = np.load(io.BytesIO(states))
    return Clip(task, arrays["qpos"], arrays["time"], caption, act=arrays["act"])


def film_best_and_first(engine: Engine, best: Evaluation) -> str | None:
    """The best beside the first candidate that ran; the path within the run, or None without films."""
    events = engine.archive.events("evaluated")
    ran = [_evaluation(e.data, engine.archive.root) for e in events if not e.data["reason"]]
    if not engine.films or not ran:
        return None
    path = "side_by_side.mp4"
    with engine.reporter.stage("film best beside first") as tick:
        clips = [clip(engine, ran[0], "first"), clip(engine, best, "best")]
        engine.archive.put(path, side_by_side(clips, progress=tick))
    return path


def summary(metrics: Mapping[str, float]) -> str:
    """The success measure in one line, short enough for the caption of a film."""
    parts = []
    if "object_position_error_m" in metrics:
        off = f"{100 * metrics['object_position_error_m']:.1f} cm"
        if "object_orientation_error_rad" in metrics:
            off += f", {np.rad2deg(metrics['object_orientation_error_rad']):.0f} deg"
        parts.append(f"{off} off")
    if "distance_m" in metrics:
        parts.append(f"moved {metrics['distance_m']:.2f} m")
    if "time_to_fall_s" in metrics:
        parts.append(f"fell at {metrics['time_to_fall_s']:.1f} s")
    if "success" in metrics:
        parts.append("success" if metrics["success"] else "no success")
    return ": ".join(parts)


def _evaluation(data: dict[str, Any], root: Path) -> Evaluation:
    return Evaluation(
        generation=data["generation"],
        candidate=data["candidate"],
        source=data["source"],
        reason=data["reason"],
        weights=data["weights"],
        metrics=data["metrics"],
        terms=data["terms"],
        film=root / data["film"] if data["film"] else None,
        parent=data["parent"],
    )


def _once(
    engine: Engine, kind: str, g: int, stage: str, work: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The recorded result of a stage, or that of `work`, recorded."""
    data = engine.archive.get(kind, g)
    if data is None:
        with _timed(engine, stage):
            data = work()
        engine.archive.record(kind, data, g)
    return data


@contextlib.contextmanager
def _timed(engine: Engine, stage: str) -> Iterator[None]:
    """Adds the seconds of a block to the generation's timing."""
    begun = time.monotonic()
    yield
    engine.seconds[stage] = engine.seconds.get(stage, 0.0) + time.monotonic() - begun


def _rate(optimizer: Optimizer) -> Callable[[], str]:
    """Physics steps per second since now, as text."""
    begun, before = time.monotonic(), optimizer.steps_done
    return lambda: f"{(optimizer.steps_done - before) / (time.monotonic() - begun):,.0f} steps/s"
