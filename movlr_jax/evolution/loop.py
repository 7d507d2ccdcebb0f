"""The search loop: propose, vet, optimise, film, rank, criticise. Every stage is recorded and can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from movlr_jax._util.quantities import counted
from movlr_jax.evolution.contest import contest, enter, nothing_runs
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.criticise import criticise, describe, in_a_line, satisfied
from movlr_jax.evolution.film import film_candidates
from movlr_jax.evolution.look import look
from movlr_jax.evolution.population import Population
from movlr_jax.evolution.propose import Brief, propose
from movlr_jax.evolution.rank import may_be_better, most_promising, strongest_first
from movlr_jax.evolution.tracking import track
from movlr_jax.evolution.trials import TrialPlan
from movlr_jax.evolution.vet import vet, vet_one
from movlr_jax.language.clients.call import Retracted
from movlr_jax.records import Evaluation

R = TypeVar("R")
_NAMED = 3  # programs in a sentence


@dataclass(frozen=True)
class Found:
    """What a search found: its champion, and all programs with their trials."""

    best: Evaluation  # the champion with the trial that stands for it
    population: Population
    plan: TrialPlan


def evolve(context: SearchContext) -> Found:
    """Run or continue a search. Raises UserError if all candidates of the first generation fail."""
    config, population, brief = context.config, Population(), Brief()
    plan = look(context, TrialPlan.of(config))
    for g in range(config.generations):
        context.reporter.say(f"generation {g} ({g + 1} of {config.generations})")
        context.journal.begin(g)
        population, brief = until_voted(context, g, partial(generation, context, g, plan, population, brief))
        context.journal.end(g)
        best = brief.candidate(population.champion)
        context.clock.record()
        track(context, g, [e for e in brief.history if e.generation == g], population)
        came_to = in_a_line(context, best, population.trials[best.name])
        context.reporter.say(f"  best so far: {best.name}  {came_to}")
        if g + 1 < config.generations and _ends_early(context, g, plan, population, brief, best):
            return Found(best, population, plan)
    population = final(context, plan, population)
    best = brief.candidate(population.champion)
    context.archive.put("best.py", best.source.encode())
    return Found(best, population, plan)


def generation(
    context: SearchContext, g: int, plan: TrialPlan, population: Population, brief: Brief
) -> tuple[Population, Brief]:
    """Run the stages of generation g. Return the population after it, and the brief of the next generation."""
    stage = context.journal.stage
    proposal = stage("propose", g, partial(propose, context, g, brief, population))
    programs, verdicts = vet(context, proposal.programs(g))
    population, entrants = enter(context, g, programs, verdicts, population)
    population, ranking = contest(context, g, plan, entrants, population)  # optimise and rank, in rounds
    candidates = film_candidates(context, programs, verdicts, population)
    if population.failed:
        context.archive.forget("ranked", g)  # a champion that never ran is none
        raise nothing_runs(g, {candidate.name: candidate.reason for candidate in candidates})
    candidates = describe(context, g, candidates)
    known = {e.name: e for e in (*brief.history, *candidates)}
    _keep(context, g, known[str(population.champion)])
    best = known[most_promising(context, g + 1, population)]
    parent = best
    if context.config.method.parent != "best":  # the best program of the latest generation
        ran = {e.name: e for e in candidates if not e.failed}
        parent = next((ran[name] for name in strongest_first(ranking) if name in ran), best)
    critique = stage("criticise", g, partial(criticise, context, parent, population.trials[parent.name]))
    return population, brief.next(parent, critique, candidates)


def final(context: SearchContext, plan: TrialPlan, population: Population) -> Population:
    """Decide between the champion and the programs of all generations that may be better, in new trials.

    A program of the last generation has had few trials, and none comes after it in which it could be known better.
    Return the population after it.
    """
    g, champion = context.config.generations, str(population.champion)
    rivals = may_be_better(context, g, population)
    if not rivals or not plan.last or context.config.ranking in ("paper", "knockout"):
        return population
    more = f" and {counted(len(rivals) - _NAMED, 'other')}" if len(rivals) > _NAMED else ""
    context.reporter.say(f"final: {champion} and what may be better, {', '.join(rivals[:_NAMED])}{more}")
    context.journal.begin(g, final=True)
    verdicts = {name: vet_one(context, population.programs[name].source) for name in (champion, *rivals)}
    population, _ = until_voted(context, g, partial(contest, context, g, plan.final, verdicts, population))
    context.journal.end(g)
    return population


def until_voted(context: SearchContext, g: int, run: Callable[[], R]) -> R:
    """Return the result of `run`, which asks a judge and a critic.

    A person among them may take back a vote. Then it runs again: what is recorded is read, and only the ranking is
    made anew.
    """
    while True:
        try:
            return run()
        except Retracted:
            context.archive.forget("ranked", g)


def _keep(context: SearchContext, g: int, best: Evaluation) -> None:
    """Write the best program, unless generation g is over: a resumed search passes it again."""
    if context.archive.get("timing", g + 1) is None:
        context.archive.put("best.py", best.source.encode())


def _ends_early(
    context: SearchContext, g: int, plan: TrialPlan, population: Population, brief: Brief, best: Evaluation
) -> bool:
    """Return whether the search ends after generation g because nothing is left to do. Record and say why."""
    critique = brief.critique if brief.parent is not None and brief.parent.name == best.name else None
    reason = satisfied(context, plan, population, best, critique)
    if not reason:
        return False
    reason = f"the search ends after generation {g}: {reason}"
    context.archive.record("stopped", {"reason": reason}, g)
    context.reporter.say(f"  {reason}")
    return True
