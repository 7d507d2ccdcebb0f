"""The search loop: propose, vet, optimise, film, rank, criticise. Every stage is recorded and can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from movlr_jax.config.methods import parent_of
from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.criticise import criticise, describe, in_a_line, satisfied
from movlr_jax.evolution.film import film_candidates
from movlr_jax.evolution.look import look
from movlr_jax.evolution.optimise import optimise
from movlr_jax.evolution.population import Population
from movlr_jax.evolution.propose import Brief, propose, starts_with_a_program
from movlr_jax.evolution.rank import (
    Answers,
    ask_judge,
    believe,
    champion_of,
    decision,
    leader,
    may_be_better,
    names_winner,
    no_gradient,
    ranking_of,
    strongest_first,
)
from movlr_jax.evolution.tracking import track
from movlr_jax.evolution.trials import TrialPlan, next_round
from movlr_jax.evolution.vet import vet, vet_one
from movlr_jax.language.clients.call import Retracted
from movlr_jax.records import Evaluation, Program, Ranking, candidate_name
from movlr_jax.sandbox.vet import Verdict

R = TypeVar("R")


@dataclass(frozen=True)
class Found:
    """What a search found: its champion, and all programs with their trials."""

    best: Evaluation  # the champion with the trial that stands for it
    population: Population
    plan: TrialPlan


def evolve(context: SearchContext) -> Found:
    """Run or continue a search. Raises UserError if all candidates of the first generation fail."""
    config, plan = context.config, TrialPlan.of(context.config)
    population, brief = Population(), Brief()
    look(context, plan)
    for g in range(config.generations):
        context.reporter.say(f"generation {g} ({g + 1} of {config.generations})")
        context.journal.begin(g)
        population, brief = until_voted(context, g, partial(generation, context, g, plan, population, brief))
        context.journal.end(g)
        best = brief.candidate(population.champion)
        _report(context, g, population, brief, best)
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
    verdicts = vet(context, proposal.programs(g))
    programs = _with_weights(proposal.programs(g), verdicts)
    population, entrants = _entered(context, g, programs, verdicts, population)
    population, ranking = contest(context, g, plan, entrants, population)  # optimise and rank, in rounds
    candidates = film_candidates(context, programs, verdicts, population)
    if all(trial.failed for trials in population.trials.values() for trial in trials):
        context.archive.forget("ranked", g)  # a champion that never ran is none
        raise _nothing_runs(g, {candidate.name: candidate.reason for candidate in candidates})
    candidates = describe(context, g, candidates)
    brief = replace(brief, ranking=ranking, history=[*brief.history, *candidates])
    best = brief.candidate(population.champion)
    if context.archive.get("timing", g + 1) is None:  # a resumed run also passes complete generations
        context.archive.put("best.py", best.source.encode())
    parent = parent_of(context.config.method, best, strongest_first(ranking), candidates)
    critique = stage("criticise", g, partial(criticise, context, parent, population.trials[parent.name]))
    return population, replace(brief, parent=parent, critique=critique)


def contest(
    context: SearchContext, g: int, plan: TrialPlan, entrants: Mapping[str, Verdict], population: Population
) -> tuple[Population, Ranking]:
    """Give the entrants their trials, and rank all programs. Return the population after it, and the ranking.

    entrants: The champion, the program that may be better than it, and those of this generation that were accepted.
    In the final: the champion and those that may be better.
    """
    ranking = context.journal.stage("rank", g, partial(rounds, context, g, plan, entrants, population))
    numbered = {name: trials for name, trials in context.journal.trials(g).items() if name in entrants}
    population = population.with_trials(
        {name: [trial for _, trial in sorted(trials.items())] for name, trials in numbered.items()}
    )
    if differing := sorted({*ranking.names} ^ {*population.names}):
        raise UserError(
            f"{context.archive.root}: the ranking of generation {g} and its programs disagree on {differing[0]}; "
            "the run cannot be continued"
        )
    context.reporter.say(f"  rank: {decision(context, population, ranking)}")
    trials = {name: population.trials[name] for name in entrants}
    if context.scored and (hint := no_gradient(context, trials)):
        context.reporter.say(f"  rank: {hint}")
    return population.with_champion(ranking.best), ranking


def rounds(
    context: SearchContext, g: int, plan: TrialPlan, entrants: Mapping[str, Verdict], population: Population
) -> Ranking:
    """Optimise and rank in turns: what the trials of a round show decides who gets those of the next one."""
    if names_winner(context):
        plan = plan.once
    names, answers, done = population.names, Answers(), 0
    places = [names.index(name) for name in entrants]
    while True:
        belief = believe(context, g, population, answers)
        first = names.index(leader(population, belief, list(entrants)))
        following = next_round(plan, done, names, belief, places, first, context.config.certainty)
        if following is None:
            break
        verdicts = {name: entrants[name] for name in following.names}
        trials = optimise(context, g, verdicts, following.numbers)
        population = population.with_trials(trials)
        answers = ask_judge(context, g, population, trials, answers)
        done = following.numbers.stop
    champion = champion_of(context, population, belief, list(entrants), answers, final=not plan.first)
    return ranking_of(context, g, population, belief, list(entrants), answers, champion)


def final(context: SearchContext, plan: TrialPlan, population: Population) -> Population:
    """Decide between the champion and the programs of all generations that may be better, in new trials.

    A program of the last generation has had few trials, and none comes after it in which it could be known better.
    Return the population after it.
    """
    g, champion = context.config.generations, str(population.champion)
    rivals = may_be_better(context, g, population)
    if not rivals or not plan.last or context.config.ranking in ("paper", "knockout"):
        return population
    context.reporter.say(f"final: {champion} and what may be better, {', '.join(rivals)}")
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


def _with_weights(programs: Sequence[Program], verdicts: Mapping[str, Verdict]) -> list[Program]:
    accepted = {name: verdict.program for name, verdict in verdicts.items() if verdict.program}
    return [replace(p, weights=dict(accepted[p.name].weights)) if p.name in accepted else p for p in programs]


def _entered(
    context: SearchContext,
    g: int,
    programs: Sequence[Program],
    verdicts: Mapping[str, Verdict],
    population: Population,
) -> tuple[Population, dict[str, Verdict]]:
    """Return the population with the accepted programs of generation g, and the entrants of its contest."""
    accepted = {program.name: program for program in programs if verdicts[program.name].program}
    entrants = {name: verdicts[name] for name in accepted}
    if champion := population.champion:
        alone = context.config.ranking in ("paper", "knockout")
        earlier = [champion, *([] if alone else may_be_better(context, g, population)[:1])]
        entrants = {n: vet_one(context, population.programs[n].source) for n in earlier} | entrants
    if not entrants:
        raise _nothing_runs(g, {name: verdict.message for name, verdict in verdicts.items()})
    population = population.with_programs(accepted)
    first = candidate_name(0, 0)
    if g == 0 and first in accepted and starts_with_a_program(context):
        looked = [trial for _, trial in sorted(context.journal.trials(0)[first].items())]
        population = population.with_trials({first: looked}).with_champion(first)
    return population, entrants


def _nothing_runs(g: int, reasons: Mapping[str, str | None]) -> UserError:
    why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return UserError(f"every program of generation {g} failed, so the search cannot continue. {why}")


def _report(context: SearchContext, g: int, population: Population, brief: Brief, best: Evaluation) -> None:
    """Record the wall time, show the generation in the tracker, and say what the best program came to."""
    context.clock.record()
    track(context, g, [e for e in brief.history if e.generation == g], population)
    trials = population.trials[best.name]
    context.reporter.say(f"  best so far: {best.name}  {in_a_line(context, best, trials)}")


def _ends_early(
    context: SearchContext, g: int, plan: TrialPlan, population: Population, brief: Brief, best: Evaluation
) -> bool:
    """Return whether the search ends after generation g because nothing is left to do. Record and say why."""
    reason = brief.critique and satisfied(context, plan, population, best, brief.critique)
    if not reason:
        return False
    reason = f"the search ends after generation {g}: {reason}"
    context.archive.record("stopped", {"reason": reason}, g)
    context.reporter.say(f"  {reason}")
    return True
