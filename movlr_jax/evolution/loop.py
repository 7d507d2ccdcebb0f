"""The search loop: propose, vet, optimise, film, rank, criticise. Every stage is recorded and can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from movlr_jax._util.quantities import summary
from movlr_jax.control.settings import PlanningSettings
from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext, once
from movlr_jax.evolution.evaluation import failed_row
from movlr_jax.evolution.filming import make_film
from movlr_jax.evolution.gates import fault, merit
from movlr_jax.evolution.look import look
from movlr_jax.evolution.parent import parent_of
from movlr_jax.evolution.scripted.metrics import MetricsJudge
from movlr_jax.evolution.selection import Standings, contest, may_be_better, ranked
from movlr_jax.evolution.tracking import track
from movlr_jax.evolution.trials import EVENT as TRIALS
from movlr_jax.evolution.trials import (
    Claim,
    TrialPlan,
    Trials,
    recorded_trials,
    representative,
)
from movlr_jax.evolution.vetting import start_program, vet, vet_all
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
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import candidate_name, candidate_path

_ENOUGH = 4  # trials that must all succeed before a search ends early


@dataclass
class Found:
    """What a search found: its champion, and all programs with their trials."""

    best: Evaluation  # the champion's middle trial
    first: str  # name of the program before the search
    standings: Standings
    plan: TrialPlan


def evolve(context: SearchContext) -> Found:
    """Run or continue a search. Raises UserError if all candidates of the first generation fail."""
    plan, standings = TrialPlan.of(context.config), Standings()
    best: Evaluation | None = None
    parent: Evaluation | None = None
    critique: Critique | None = None
    history: list[Evaluation] = []
    first = look(context, plan)
    for g in range(context.config.generations):
        context.reporter.say(f"generation {g} ({g + 1} of {context.config.generations})")
        if context.archive.get("ranked", g) and not context.archive.get("proposed", g):
            for kind in ("ranked", TRIALS, "timing"):  # a final, when the search had fewer generations
                context.archive.forget(kind, g)
        context.seconds = dict(context.archive.get("timing", g) or {})
        sources, parents = propose(context, g, parent, critique, history, standings)
        before = standings.champion
        while True:
            latest = compete(context, g, plan, standings, sources, parents)
            latest = describe(context, g, [make_film(context, e) for e in latest])
            try:
                best, parent, critique = judged(context, g, standings, [*history, *latest], latest)
                break
            except Retracted:  # asked for a critique, a person took the last vote back
                context.archive.forget("ranked", g)
                standings.champion = before
        history += latest
        context.archive.record("timing", context.seconds, g)
        context.clock.record()
        track(context, g, latest, standings)
        context.reporter.say(f"  best so far: {best.name}  {in_a_line(context, best, standings)}")
        if g + 1 < context.config.generations and (
            reason := satisfied(context, plan, standings, best, critique)
        ):
            reason = f"the search ends after generation {g}: {reason}"
            context.archive.record("stopped", {"reason": reason}, g)
            context.reporter.say(f"  {reason}")
            break
    else:
        final(context, plan, standings)
        best = next(e for e in history if e.name == standings.champion)
        context.archive.put("best.py", best.source.encode())
    assert best is not None
    return Found(best, first, standings, plan)


def final(context: SearchContext, plan: TrialPlan, standings: Standings) -> None:
    """Decide between the champion and the programs of all generations that may be better, in new trials.

    A program of the last generation has had few trials, and none comes after it in which it could be known better.
    """
    g, champion = context.config.generations, str(standings.champion)
    rivals = may_be_better(context, g, standings)
    if not rivals or not plan.last or context.config.ranking in ("paper", "knockout"):
        return
    context.reporter.say(f"final: {champion} and what may be better, {', '.join(rivals)}")
    context.seconds = dict(context.archive.get("timing", g) or {})
    verdicts = {name: vet(context, standings.programs[name].source) for name in (champion, *rivals)}
    contest(context, g, plan.final, standings, verdicts)
    context.archive.record("timing", context.seconds, g)


def compete(
    context: SearchContext,
    g: int,
    plan: TrialPlan,
    standings: Standings,
    sources: Sequence[str],
    parents: Sequence[str | None],
) -> list[Evaluation]:
    """Vet the programs and run the contest of generation g. Return an evaluation of each, including failures.

    It is that of its middle trial, or of the trial that a judge of films saw last.
    """
    verdicts = vet_all(context, sources)
    programs = {
        candidate_name(g, k): Evaluation(g, k, source, parent=parent)
        for k, (source, parent) in enumerate(zip(sources, parents, strict=True))
    }
    known = {name: verdict for name, verdict in zip(programs, verdicts, strict=True) if verdict.program}
    if standings.champion:
        alone = context.config.ranking in ("paper", "knockout")
        again = [standings.champion, *([] if alone else may_be_better(context, g, standings)[:1])]
        known = {**{name: vet(context, standings.programs[name].source) for name in again}, **known}
    if not known:
        raise _nothing_runs(g, {name: v.message for name, v in zip(programs, verdicts, strict=True)})
    standings.programs |= {name: program for name, program in programs.items() if name in known}
    first = candidate_name(0, 0)
    if g == 0 and first in known and context.config.method.start != "nothing":
        standings.champion = first
        standings.add(first, [trial for _, trial in sorted(recorded_trials(context, 0)[first].items())])
    contest(context, g, plan, standings, known)
    latest = [
        recorded(context, program, verdict, standings.trials.get(name, ()))
        for (name, program), verdict in zip(programs.items(), verdicts, strict=True)
    ]
    if all(trial.failed for trials in standings.trials.values() for trial in trials):
        context.archive.forget("ranked", g)  # a champion that never ran is none
        raise _nothing_runs(g, {e.name: e.reason for e in latest})
    return latest


def _nothing_runs(g: int, reasons: Mapping[str, str | None]) -> UserError:
    said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return UserError(f"every program of generation {g} failed, so the search cannot continue. {said}")


def recorded(
    context: SearchContext, program: Evaluation, verdict: Verdict, trials: Sequence[Evaluation]
) -> Evaluation:
    """Record a candidate with its program, and with the trial that stands for it. Return its evaluation.

    A trajectory that is lost is simulated again, as the trial with its seed.
    """
    archive, g, k = context.archive, program.generation, program.candidate
    if (data := archive.get("evaluated", g, k)) is None:
        shown = representative(context, trials) if trials else failed_row(k, verdict)
        data = replace(
            shown, generation=g, candidate=k, source=program.source, parent=program.parent
        ).record()
        say_problems(context, Evaluation.read(g, k, data), verdict)
    _write_program(archive, g, k, data)
    path = candidate_path(g, k, ".npz")
    if data["reason"] is None and data.get("stem") and not archive.has(path):
        archive.put(path, trajectory_of(context, verdict, data))
    if archive.get("evaluated", g, k) is None:
        archive.record("evaluated", data, g, k)
    return Evaluation.read(g, k, data, archive.root)


def trajectory_of(context: SearchContext, verdict: Verdict, data: Mapping[str, Any]) -> bytes:
    """Return the trajectory of a recorded trial. One that is lost is simulated again; what was recorded stays."""
    path = f"{data['stem']}.npz"
    if context.archive.has(path):
        return context.archive.read(path)
    ((again,),) = context.workers.evaluate([verdict], [int(data["seed"])])
    if again.metrics != data["metrics"]:
        context.reporter.say(
            f"  {data['name']}: its trajectory was lost, and simulated again it differs: {summary(again.metrics)}; "
            f"recorded is {summary(data['metrics'])}, which stays"
        )
    context.archive.put(path, again.states or b"")
    return again.states or b""


def say_problems(context: SearchContext, candidate: Evaluation, verdict: Verdict) -> None:
    """Report notes on a program, why it failed, and its non-finite terms."""
    say = context.reporter.say
    for note in verdict.notes:
        say(f"  {candidate.name}: {note}")
    if candidate.failed:
        say(f"  {candidate.name} failed: {candidate.reason}")
    for name, term in candidate.terms.items():
        if where := not_finite(term):
            say(f"  {candidate.name}: term {name!r} was not finite {where}; the values were replaced")


def judged(
    context: SearchContext,
    g: int,
    standings: Standings,
    history: Sequence[Evaluation],
    latest: Sequence[Evaluation],
) -> tuple[Evaluation, Evaluation, Critique]:
    """Return the champion, the program that is edited next, and its critique."""
    best = next(e for e in history if e.name == standings.champion)
    if context.archive.get("timing", g + 1) is None:  # a resumed run also passes complete generations
        context.archive.put("best.py", best.source.encode())
    parent = parent_of(context.config.method, best, ranked(context, g), latest)
    return best, parent, criticise(context, g, parent, standings.trials[parent.name])


def propose(
    context: SearchContext,
    g: int,
    parent: Evaluation | None,
    critique: Critique | None,
    history: list[Evaluation],
    standings: Standings,
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
            losses=losses(context, g, parent, history, standings.trials) if parent else (),
            weights=context.weights,
            looks_ahead_s=optimizer.horizon_s if isinstance(optimizer, PlanningSettings) else None,
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


def losses(
    context: SearchContext, g: int, parent: Evaluation, history: Sequence[Evaluation], trials: Trials
) -> list[Loss]:
    """Return the programs of the generation before g that are not the parent, and why each lost.

    The reason is why it failed, its degenerate pattern, what the judge said when it lost a comparison, or what its
    trials came to.
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
        if isinstance(context.judge, MetricsJudge) and {candidate.name, parent.name} <= trials.keys():
            mine, theirs = (
                Claim.of(context.task.motion, trials[name]).text() for name in (candidate.name, parent.name)
            )
            why.append(f"its trials: {mine}; those of {parent.name}: {theirs}")
        found.append(Loss(candidate, next(filter(None, why), "it is not the best program")))
    return found


def _write_program(archive: Archive, g: int, k: int, data: Mapping[str, Any]) -> None:
    """Write the program of a candidate and its record, unless the files have them already."""
    described = {name: value for name, value in data.items() if name != "source"} | {"film": None}
    texts = {".py": data["source"], ".json": json.dumps(described, indent=1)}
    for path, text in ((candidate_path(g, k, ending), text) for ending, text in texts.items()):
        if not archive.has(path):
            archive.put(path, text.encode())


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


def satisfied(
    context: SearchContext, plan: TrialPlan, standings: Standings, best: Evaluation, critique: Critique
) -> str:
    """Return why the search can end; empty if it cannot.

    It can if all trials of the champion succeed, as many as it gets in a generation or more, and the critic asks for
    nothing; or if its motion has no fault and matches the task (`method.stop_alignment`).
    """
    trials = standings.trials[best.name]
    claim = Claim.of(context.task.motion, trials)
    enough = claim.n >= max(plan.look, _ENOUGH) and claim.successes == claim.n
    if enough and critique.success and not critique.problems:
        return f"all {claim.n} trials of {best.name} succeed, and the critic asks for nothing"
    least, alignment = context.config.method.stop_alignment, best.description.get("alignment")
    if least is None or alignment is None or alignment < least or fault(best)[0]:
        return ""
    return (
        f"{best.name} reaches an alignment of {alignment:g} with the task (method.stop_alignment={least:g})"
    )


def criticise(
    context: SearchContext, g: int, candidate: Evaluation, trials: Sequence[Evaluation]
) -> Critique:
    """Return the critique of a program by one of its poorer trials, that of the lower quartile.

    Where it fails is what the next programs can do better. Its faults and non-finite terms are added to the problems.
    """
    ran = sorted((t for t in trials if not t.failed), key=lambda t: merit(context.task, t)) or [candidate]
    poorer = ran[(len(ran) - 1) // 4]
    own = {
        name: getattr(candidate, name)
        for name in ("generation", "candidate", "source", "parent", "description")
    }
    poorer = candidate if poorer.seed == candidate.seed else replace(poorer, **own)

    def work() -> dict[str, Any]:
        c = context.critic.criticise(context.task, poorer)
        return {
            "success": c.success and not poorer.faults,
            "problems": list(dict.fromkeys([*poorer.faults.values(), *c.problems, *broken_terms(poorer)])),
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


def in_a_line(context: SearchContext, best: Evaluation, standings: Standings) -> str:
    """Return what `best` came to. Where the task measures nothing, as one from words, it is the last critique."""
    criticised = context.archive.events("criticised")
    if summary(best.metrics) or not criticised:
        return Claim.of(context.task.motion, standings.trials[best.name]).text()
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
