"""The contest of a generation: its programs get trials and are ranked, in rounds.

Optimise and rank alternate: what the trials of a round show decides who gets those of the next one (successive
halving). So both are stages of one loop here, and the stage that is recorded is the ranking at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.optimise import optimise
from movlr_jax.evolution.population import Population
from movlr_jax.evolution.propose import starts_with_a_program
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
)
from movlr_jax.evolution.trials import TrialPlan, next_round
from movlr_jax.evolution.vet import vet_one
from movlr_jax.records import Program, Ranking, candidate_name
from movlr_jax.sandbox.vet import Verdict


def enter(
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
        raise nothing_runs(g, {name: verdict.message for name, verdict in verdicts.items()})
    population = population.with_programs(accepted)
    first = candidate_name(0, 0)
    if g == 0 and first in accepted and starts_with_a_program(context):
        looked = [trial for _, trial in sorted(context.journal.trials(0)[first].items())]
        population = population.with_trials({first: looked}).with_champion(first)
    return population, entrants


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
        chosen, numbers = following
        trials = optimise(context, g, {name: entrants[name] for name in chosen}, numbers)
        population = population.with_trials(trials)
        answers = ask_judge(context, g, population, trials, answers)
        done = numbers.stop
    champion = champion_of(context, population, belief, list(entrants), answers, final=not plan.first)
    return ranking_of(context, g, population, belief, list(entrants), answers, champion)


def nothing_runs(g: int, reasons: Mapping[str, str | None]) -> UserError:
    """Return the error of a generation in which every program failed, with the reasons."""
    why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return UserError(f"every program of generation {g} failed, so the search cannot continue. {why}")
