"""The search loop: propose, vet, optimise, film, rank, criticise. Every stage is recorded and can be resumed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from movlr_jax.config.methods import parent_of
from movlr_jax.control.build import trains
from movlr_jax.evolution.context import SearchContext, once, timed
from movlr_jax.evolution.filming import make_film
from movlr_jax.evolution.gates import fault
from movlr_jax.evolution.selection import choose, ranked
from movlr_jax.evolution.tracking import track
from movlr_jax.evolution.vetting import start_program, vet, vet_all
from movlr_jax.evolution.workers.base import Workers
from movlr_jax.language.base import (
    AnnotatingProposer,
    Critique,
    DescribingCritic,
    Evaluation,
    Loss,
    ProposalRequest,
    TermAdvice,
)
from movlr_jax.language.clients.call import Retracted
from movlr_jax.quantities import summary
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import candidate_name, candidate_path, generation_folder


def evolve(context: SearchContext) -> Evaluation:
    """Run or continue a search. Return the best candidate. Raises UserError if all candidates fail."""
    best: Evaluation | None = None
    parent: Evaluation | None = None
    critique: Critique | None = None
    history: list[Evaluation] = []
    for g in range(context.config.generations):
        context.reporter.say(f"generation {g} ({g + 1} of {context.config.generations})")
        context.seconds = dict(context.archive.get("timing", g) or {})
        sources, parents = propose(context, g, parent, critique, history)
        evaluations = optimise(context, g, sources, parents)
        evaluations = describe(context, g, [make_film(context, e) for e in evaluations])
        history += evaluations
        best, parent, critique = judge(context, g, evaluations, history, best)
        context.archive.record("timing", context.seconds, g)
        context.clock.record()
        track(context, g, evaluations, best)
        told = "; ".join(filter(None, [in_a_line(context.archive, best), best.spread]))
        context.reporter.say(f"  best so far: {best.name}  {told}")
        if g + 1 < context.config.generations and (reason := satisfied(context, best)):
            reason = f"the search ends after generation {g}: {reason}"
            context.archive.record("stopped", {"reason": reason}, g)
            context.reporter.say(f"  {reason}")
            break
    assert best is not None
    return best


def judge(
    context: SearchContext,
    g: int,
    latest: Sequence[Evaluation],
    history: Sequence[Evaluation],
    before: Evaluation | None,
) -> tuple[Evaluation, Evaluation, Critique]:
    """Rank generation g and criticise. Return the best so far, the next parent and its critique."""
    while True:
        best = choose(context, g, latest, history, before)
        if context.archive.get("timing", g + 1) is None:  # a resumed run also passes complete generations
            context.archive.put("best.py", best.source.encode())
        parent = parent_of(context.config.method, best, ranked(context, g), latest)
        try:
            return best, parent, criticise(context, g, parent)
        except Retracted:  # asked for a critique, a person took the last vote back
            context.archive.forget("ranked", g)


def propose(
    context: SearchContext,
    g: int,
    parent: Evaluation | None,
    critique: Critique | None,
    history: list[Evaluation],
) -> tuple[list[str], list[str | None]]:
    """Return K sources and the names of their parents. Generation 0 includes the start program of the method."""

    def work() -> dict[str, Any]:
        start, wanted = start_program(context), context.config.candidates
        task = replace(context.task, initial_reward=start)  # the first edits start from it
        given = [start] if g == 0 and context.config.method.start != "nothing" else []
        seed, vetted = context.config.seed, lambda source: vet(context, source).message
        optimizer = context.config.optimizer
        request = ProposalRequest(
            g, task, parent, critique, tuple(history), seed, vetted,
            losses=losses(context, g, parent, history) if parent else (),
            weights=context.weights,
            looks_ahead_s=None if trains(optimizer) else optimizer.horizon_s,
            control_s=optimizer.ctrl_dt,
        )  # fmt: skip
        context.verdicts.clear()
        sources = context.proposer.propose(request, wanted - len(given))
        origin = parent.name if parent else candidate_name(0, 0) if given else None
        notes = [""] * len(given) + (
            list(context.proposer.notes) if isinstance(context.proposer, AnnotatingProposer) else []
        )
        return {
            "sources": [*given, *sources],
            "parents": [None] * len(given) + [origin] * len(sources),
            "notes": notes,
        }

    data = once(context, "proposed", g, "propose", work)
    return data["sources"], data["parents"]


def losses(context: SearchContext, g: int, parent: Evaluation, history: Sequence[Evaluation]) -> list[Loss]:
    """Return the programs of the generation before g that are not the parent, and why each lost.

    The reason is why it failed, its degenerate pattern, or what the judge said when it lost a comparison.
    """
    comparisons = (context.archive.get("ranked", g - 1) or {}).get("comparisons", [])
    found = []
    for candidate in history:
        if candidate.generation != g - 1 or candidate.name == parent.name:
            continue
        said = [
            f"as the {place} motion it lost against the {other}: {c['reason']}"
            for c in comparisons
            for place, other in (("first", "second"), ("second", "first"))
            if c[place] == candidate.name and c["winner"] == other
        ]
        why = [candidate.reason or "", *candidate.faults.values(), *said]
        found.append(Loss(candidate, next(filter(None, why), "it is not the best program")))
    return found


def optimise(
    context: SearchContext, g: int, sources: list[str], parents: list[str | None]
) -> list[Evaluation]:
    """Vet the programs, then optimise control under all of them at once. Return K evaluations, including failures.

    If a trajectory of a recorded generation is lost, the generation is simulated again. The records of its candidates
    stay as they are.
    """
    archive = context.archive
    recorded = [archive.get("evaluated", g, k) for k in range(len(sources))]
    for k, data in enumerate(recorded):
        if data:
            _write_program(archive, g, k, data)
    known = {k: Evaluation.read(g, k, data, archive.root) for k, data in enumerate(recorded) if data}
    arrays = [candidate_path(g, k, ".npz") for k in range(len(sources))]
    if len(known) == len(sources) and not any(map(archive.lost, arrays)):
        return list(known.values())
    verdicts = vet_all(context, sources)
    with timed(context, "optimise"), context.reporter.stage("optimise", _rate(context.workers)) as tick:
        folder = archive.root / generation_folder(g)
        rows = context.workers.evaluate(verdicts, context.config.seed, tick, folder)
    evaluations = []
    for k, (source, row) in enumerate(zip(sources, rows, strict=True)):
        if k in known:
            _write_lost(context, known[k], row)
            evaluations.append(known[k])
            continue
        source = row.source or source  # a program that was rejected has only its text
        candidate = replace(row, generation=g, candidate=k, source=source, parent=parents[k])
        for note in verdicts[k].notes:
            context.reporter.say(f"  {candidate.name}: {note}")
        if candidate.failed:
            context.reporter.say(f"  {candidate.name} failed: {candidate.reason}")
        for name, term in candidate.terms.items():
            if where := not_finite(term):
                context.reporter.say(
                    f"  {candidate.name}: term {name!r} was not finite {where}; the values were replaced"
                )
        data = candidate.record()
        _write_program(archive, g, k, data)
        if candidate.states:
            archive.put(candidate_path(g, k, ".npz"), candidate.states)
        archive.record("evaluated", data, g, k)
        evaluations.append(replace(candidate, states=None))
    return evaluations


def _write_program(archive: Archive, g: int, k: int, data: Mapping[str, Any]) -> None:
    """Write the program of a candidate and its record, unless the files have them already."""
    described = {name: value for name, value in data.items() if name != "source"} | {"film": None}
    texts = {".py": data["source"], ".json": json.dumps(described, indent=1)}
    for path, text in ((candidate_path(g, k, ending), text) for ending, text in texts.items()):
        if not archive.has(path):
            archive.put(path, text.encode())


def _write_lost(context: SearchContext, before: Evaluation, again: Evaluation) -> None:
    """Write the trajectory of a recorded candidate that was simulated again, if its file is lost."""
    path = candidate_path(before.generation, before.candidate, ".npz")
    if not again.states or not context.archive.lost(path):
        return
    context.archive.put(path, again.states)
    if again.metrics != before.metrics:
        context.reporter.say(
            f"  {before.name}: its trajectory was lost, and simulated again it differs: {summary(again.metrics)}; "
            f"recorded is {summary(before.metrics)}, which stays"
        )


def describe(context: SearchContext, g: int, evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the evaluations; those that ran have a description of their motion, if the critic describes motions."""
    critic = context.critic
    if not isinstance(critic, DescribingCritic):
        return list(evaluations)
    ran = [e for e in evaluations if not e.failed]

    def work() -> dict[str, Any]:
        seen = critic.describe(context.task, ran)
        return {"candidates": {e.name: description for e, description in zip(ran, seen, strict=True)}}

    data = once(context, "described", g, "describe", work)["candidates"]
    return [replace(e, description=data.get(e.name, {})) for e in evaluations]


def satisfied(context: SearchContext, best: Evaluation) -> str:
    """Return why the search can end: the best motion has no fault and matches the task; empty if it cannot."""
    least, alignment = context.config.method.stop_alignment, best.description.get("alignment")
    if least is None or alignment is None or alignment < least or fault(best)[0]:
        return ""
    return (
        f"{best.name} reaches an alignment of {alignment:g} with the task (method.stop_alignment={least:g})"
    )


def criticise(context: SearchContext, g: int, best: Evaluation) -> Critique:
    """Return the critique of the best candidate; its faults and its non-finite terms are added to the problems."""

    def work() -> dict[str, Any]:
        c = context.critic.criticise(context.task, best)
        return {
            "success": c.success and not best.faults,
            "problems": list(dict.fromkeys([*best.faults.values(), *c.problems, *broken_terms(best)])),
            "advice": [vars(a) for a in c.advice],
            "author": c.author,
            **{
                name: v
                for name in ("said", "observation", "alignment")
                if (v := getattr(c, name)) not in ("", None)
            },
        }

    data = once(context, "criticised", g, "criticise", work)
    advice = [TermAdvice(**a) for a in data["advice"]]
    said, observation = data.get("said", ""), data.get("observation", "")
    alignment = data.get("alignment")
    return Critique(data["success"], data["problems"], advice, data["author"], said, observation, alignment)


def in_a_line(archive: Archive, best: Evaluation) -> str:
    """Return what `best` came to. Where the task measures nothing, as one from words, it is the last critique."""
    criticised = archive.events("criticised")
    if (measured := summary(best.metrics)) or not criticised:
        return measured
    critique = criticised[-1].data
    verdict = "success" if critique["success"] else "; ".join(["no success", *critique["problems"][:1]])
    return f"{critique['author']}: {verdict}"


def broken_terms(best: Evaluation) -> list[str]:
    """Return one sentence per term with non-finite values, as feedback for the next proposal."""
    return [
        f"term {name!r} was not finite {where} and counted as its worst value there; bound the arguments of its "
        "divisions, logs, roots and exponentials"
        for name, term in best.terms.items()
        if (where := not_finite(term))
    ]


def not_finite(term: Mapping[str, Any]) -> str:
    """Return where values of a term were not finite and were replaced, or an empty string."""
    found = (
        (term.get("nonfinite"), "steps of the episode"),
        (term.get("nonfinite_planned"), "steps of its plans"),
    )
    return " and ".join(f"at {count} {of}" for count, of in found if count)


def _rate(workers: Workers) -> Callable[[], str]:
    """Return a function that formats the physics steps per second of all workers since this call."""
    started, before = time.monotonic(), workers.steps_done
    return lambda: f"{(workers.steps_done - before) / (time.monotonic() - started):,.0f} steps/s"
