"""Look before you search: trials of the first and the hand-written program, and what they say about the planner."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from movlr_jax._util.quantities import counted
from movlr_jax.config.schema import Config
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

_MORE = 4  # times the samples of a plan, tried where no program succeeds
_EVENT = "trial_plan"  # recorded where a search takes fewer or more trials than it would by default
_FEWER = 2  # trials of the better half of a generation, where the search would take too long
_CONFIRM = 6  # and fresh trials of the champion there
_TIMES = (4, 2)  # times the trials of programs, tried where trials are cheap
_CHEAP = 0.2  # of the setting `minutes`, below which a search stays with more trials than by default


def look(context: SearchContext, plan: TrialPlan) -> TrialPlan:
    """Run the first program, and the hand-written one, before the search. Return how many trials programs then get.

    Their trials are the first ones of generation 0, so that they are compared with its programs in the same trials.
    Where none of them succeeds, the planner may be too weak to tell programs apart: they run again with more samples
    per plan, which are kept if the scores are clearly better and the search takes no longer than the setting
    `minutes`. Where `plan` would take longer, programs get fewer trials; where scores decide and trials are cheap,
    more.
    """
    programs, first = baselines(context)
    if set(programs) <= set(context.journal.trials(0)):
        chosen = context.archive.get(_EVENT)
        return TrialPlan(**{f.name: int(chosen[f.name]) for f in fields(TrialPlan)}) if chosen else plan
    ran, begun = _tried(context, programs, plan)
    _say(context, ran, first)
    motion = context.task.scoring.motion
    if context.resize and all(claim_of(motion, trials).successes == 0 for trials in ran.values()):
        ran, begun = _stronger(context, programs, ran, begun) or (ran, begun)
    plan = _suited(context, plan, begun)
    context.journal.record_trials(0, ran, range(begun.trials // len(programs)))
    if isinstance(context.config.optimizer, PlanningSettings):
        samples = context.config.optimizer.mppi.samples
        rows = (context.config.candidates + 1) * plan.first * samples
        context.reporter.say(
            f"the plans of a generation are up to {rows:,} rows of physics, {samples} for each trial"
        )
    if not context.config.optimizer.trains and not _random_start(context, plan):
        context.reporter.say(
            "the task always starts from the same state, so trials differ in the planner's noise alone"
        )
    return plan


@dataclass(frozen=True)
class _Begun:
    """How long the trials of some programs took, from which the minutes of a search are predicted."""

    minutes: float
    trials: int
    programs: int

    def left(self, config: Config, plan: TrialPlan) -> float:
        """Return about how many minutes a search takes from here on."""
        return self.minutes / self.trials * plan.left(config.candidates, config.generations, self.programs)

    def too_long(self, config: Config, plan: TrialPlan) -> bool:
        """Whether the whole search would take longer than it may."""
        return self.minutes + self.left(config, plan) > config.minutes


def _tried(context: SearchContext, programs: Mapping[str, Verdict], plan: TrialPlan) -> tuple[Trials, _Begun]:
    """Run the programs in the trials of the look, in the first of them alone where the search would take too long."""
    config = context.config
    begun = _Begun(0.0, 0, len(programs))
    ran: dict[str, list[Trial]] = {name: [] for name in programs}
    few = _fewer(config).look if _chooses(config) else plan.look
    for numbers in (range(few), range(few, plan.look)):
        if not numbers or (begun.trials and begun.too_long(config, plan)):
            break
        new, minutes = _timed(context, programs, numbers)
        ran = {name: [*ran[name], *new[name]] for name in programs}
        trials = len(programs) * len(numbers)
        begun = replace(begun, minutes=begun.minutes + minutes, trials=begun.trials + trials)
    return ran, begun


def _timed(context: SearchContext, programs: Mapping[str, Verdict], numbers: range) -> tuple[Trials, float]:
    """Return these trials of the programs, and the minutes that they took."""
    started = time.monotonic()
    return simulated(context, 0, programs, numbers), (time.monotonic() - started) / 60


def _chooses(config: Config) -> bool:
    """Whether the search chooses how many trials programs get."""
    return config.trials is None and not config.optimizer.trains


def _fewer(config: Config) -> TrialPlan:
    """Return the plan of a search that would take too long otherwise."""
    plan = TrialPlan.of(replace(config, trials=config.trials or _FEWER))
    return replace(plan, confirm=_CONFIRM) if _chooses(config) and config.confirm is None else plan


def _suited(context: SearchContext, plan: TrialPlan, begun: _Begun) -> TrialPlan:
    """Return `plan`, one of fewer trials where the search would take too long, or one of more where they are cheap.

    Record and say which.
    """
    config, given = context.config, plan
    minutes, instead = begun.left(config, plan), ""
    if _chooses(config) and begun.too_long(config, plan):
        plan = _fewer(config)
        instead = f" instead of {round(minutes)}: few trials, because minutes={config.minutes:g} (or give trials=N)"
    elif _chooses(config) and context.scored:
        more = (plan.times(n) for n in _TIMES)
        plan = next((p for p in more if begun.left(config, p) <= _CHEAP * config.minutes), plan)
        instead = ": many trials, because they take little time (or give trials=N)" if plan != given else ""
    if plan != given:
        context.archive.record(_EVENT, vars(plan))
    minutes = max(1, round(begun.left(config, plan)))
    left = counted(minutes, "more minute")
    context.reporter.say(f"{plan.text()}; about {left}{instead}, films not counted")
    return plan


def baselines(context: SearchContext) -> tuple[dict[str, Verdict], str]:
    """Return the programs that a search is compared with, by name, and the name of the first one."""
    first = candidate_name(0, 0) if starts_with_a_program(context) else "initial"
    programs, human = {first: vet_one(context, start_program(context))}, context.task.rewards.human
    if human and human not in (start_program(context), context.task.rewards.initial):
        verdict = vet_one(context, human)
        programs |= {HAND_WRITTEN: verdict} if verdict.program else {}
    return programs, first


def _say(context: SearchContext, ran: Trials, first: str) -> None:
    for name, trials in ran.items():
        label = "the first program" if name == first else f"the {name} program"
        context.reporter.say(f"{label}: {claim_of(context.task.scoring.motion, trials).text()}")


def _stronger(
    context: SearchContext, programs: Mapping[str, Verdict], ran: Trials, begun: _Begun
) -> tuple[Trials, _Begun] | None:
    """Run the programs with more samples per plan. Return their trials and how long they took, None to keep `ran`.

    begun: how long those of `ran` took.
    """
    assert context.resize
    config, say = context.config, context.reporter.say
    assert isinstance(config.optimizer, PlanningSettings)
    few = config.optimizer.mppi.samples
    many, kept = _MORE * few, f"plans have {few} samples: with {_MORE * few} (optimizer.mppi.samples={_MORE * few})"
    if (minutes := _MORE * begun.left(config, _fewer(config))) > 2 * config.minutes:
        say(f"{kept} the search would take about {minutes:.0f} minutes, so they are not tried")
        return None
    context.resize(many, False)  # a look that is interrupted begins again
    after, took = _timed(context, programs, range(begun.trials // begun.programs))
    begun = replace(begun, minutes=took)
    minutes = begun.left(context.config, _fewer(context.config))
    clear = any(_better(context, after[name], ran[name]) for name in programs)
    if clear and minutes <= config.minutes:
        context.resize(many, True)
        say(f"plans have {many} samples: with {few} no program succeeds, with more it does better:")
        _say(context, after, next(iter(programs)))
        return after, begun
    context.resize(few, False)
    say(f"{kept} {f'they are better but would take about {minutes:.0f} minutes' if clear else 'they are no better'}")
    return None


def _better(context: SearchContext, after: Sequence[Trial], before: Sequence[Trial]) -> bool:
    """Return whether the trials `after` are clearly better than those `before`, of the same seeds."""
    now, then = (claim_of(context.task.scoring.motion, trials).successes or 0 for trials in (after, before))
    if now > then:
        return True
    return replaces(believed(context.task, {"after": after, "before": before}, ["after", "before"]), 0, 1)


def _random_start(context: SearchContext, plan: TrialPlan) -> bool:
    seeds = [trial_seed(context.config.seed, 0, n) for n in range(max(plan.look, 2))]
    starts = [np.concatenate([np.ravel(x) for x in context.task.start(np.random.default_rng(s), 1)]) for s in seeds]
    return any(not np.array_equal(starts[0], other) for other in starts[1:])
