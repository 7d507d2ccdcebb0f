"""Look before you search: trials of the first and the hand-written program, and what they say about the planner."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from movlr_jax.control.build import trains
from movlr_jax.control.settings import PlanningSettings
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.optimise import simulated
from movlr_jax.evolution.population import Trials
from movlr_jax.evolution.propose import starts_with_a_program
from movlr_jax.evolution.trials import HAND_WRITTEN, TrialPlan, believed, claim_of, trial_seed
from movlr_jax.evolution.vet import start_program, vet_one
from movlr_jax.evolution.worth import replaces
from movlr_jax.records import Trial, candidate_name
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks import Task

_MORE = 4  # times the samples of a plan, tried where no program succeeds
_LONGEST_MIN = 20.0  # predicted minutes of a search up to which the engine itself takes more samples


def look(context: SearchContext, plan: TrialPlan) -> None:
    """Run the first program, and the hand-written one, before the search.

    Their trials are the first ones of generation 0, so that they are compared with its programs in the same trials.
    Where none of them succeeds, the planner may be too weak to tell programs apart: they run again with more samples
    per plan, which are kept if the scores are clearly better and the search does not become long.
    """
    programs, first = baselines(context)
    if set(programs) <= set(context.journal.trials(0)):
        return
    numbers = range(plan.look)
    started = time.monotonic()
    ran = simulated(context, 0, programs, numbers)
    seconds = time.monotonic() - started
    _say(context, ran, first)
    left = plan.left(context.config.candidates, context.config.generations, len(programs))
    rest = left / (len(programs) * plan.look)  # of the search, in units of this batch
    minutes = seconds * rest / 60
    if context.resize and _none_succeeds(context.task, ran):
        ran, minutes = _stronger(context, programs, numbers, ran, rest) or (ran, minutes)
    context.journal.record_trials(0, ran, numbers)
    context.reporter.say(f"{plan.text()}; about {max(1, round(minutes))} more minutes, films not counted")
    if isinstance(context.config.optimizer, PlanningSettings):
        samples = context.config.optimizer.mppi.samples
        rows = (context.config.candidates + 1) * plan.first * samples
        context.reporter.say(
            f"the plans of a generation are up to {rows:,} rows of physics, {samples} for each trial"
        )
    if not trains(context.config.optimizer) and not _random_start(context, plan):
        context.reporter.say(
            "the task always starts from the same state, so trials differ in the planner's noise alone"
        )


def baselines(context: SearchContext) -> tuple[dict[str, Verdict], str]:
    """Return the programs that a search is compared with, by name, and the name of the first one."""
    first = candidate_name(0, 0) if starts_with_a_program(context) else "initial"
    programs, human = {first: vet_one(context, start_program(context))}, context.task.human_reward
    if human and human not in (start_program(context), context.task.initial_reward):
        verdict = vet_one(context, human)
        programs |= {HAND_WRITTEN: verdict} if verdict.program else {}
    return programs, first


def _say(context: SearchContext, ran: Trials, first: str) -> None:
    for name, trials in ran.items():
        label = "the first program" if name == first else f"the {name} program"
        context.reporter.say(f"{label}: {claim_of(context.task.motion, trials).text()}")


def _none_succeeds(task: Task, ran: Trials) -> bool:
    claims = [claim_of(task.motion, trials) for trials in ran.values()]
    return all(claim.successes == 0 for claim in claims)


def _stronger(
    context: SearchContext, programs: Mapping[str, Verdict], numbers: range, ran: Trials, rest: float
) -> tuple[Trials, float] | None:
    """Run the programs with more samples per plan. Return their trials and the minutes left, None to keep `ran`.

    rest: how many such batches the search has before it.
    """
    assert context.resize
    assert isinstance(context.config.optimizer, PlanningSettings)
    few = context.config.optimizer.mppi.samples
    many = _MORE * few
    context.resize(many, False)  # a look that is interrupted begins again
    started = time.monotonic()
    after = simulated(context, 0, programs, numbers)
    minutes = (time.monotonic() - started) * rest / 60
    clear = any(_better(context, after[name], ran[name]) for name in programs)
    if clear and minutes <= _LONGEST_MIN:
        context.resize(many, True)
        context.reporter.say(
            f"plans have {many} samples: with {few} no program succeeds, with more it does better:"
        )
        _say(context, after, next(iter(programs)))
        return after, minutes
    context.resize(few, False)
    but = f"they are better but would take about {minutes:.0f} minutes" if clear else "they are no better"
    context.reporter.say(f"plans have {few} samples: with {many} (optimizer.mppi.samples={many}) {but}")
    return None


def _better(context: SearchContext, after: Sequence[Trial], before: Sequence[Trial]) -> bool:
    """Return whether the trials `after` are clearly better than those `before`, of the same seeds."""
    now, then = (claim_of(context.task.motion, trials).successes or 0 for trials in (after, before))
    if now > then:
        return True
    return replaces(believed(context.task, {"after": after, "before": before}, ["after", "before"]), 0, 1)


def _random_start(context: SearchContext, plan: TrialPlan) -> bool:
    seeds = [trial_seed(context.config.seed, 0, n) for n in range(max(plan.look, 2))]
    starts = [
        np.concatenate([np.ravel(x) for x in context.task.start(np.random.default_rng(s), 1)]) for s in seeds
    ]
    return any(not np.array_equal(starts[0], other) for other in starts[1:])
