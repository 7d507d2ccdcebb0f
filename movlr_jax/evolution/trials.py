"""Trials of programs: their seeds, how many each program gets, and what they say about its worth."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from movlr_jax._util.intervals import mean_interval
from movlr_jax._util.quantities import RETURNS, counted, span
from movlr_jax.config.schema import Config
from movlr_jax.evolution.gates import fault, score_of
from movlr_jax.evolution.population import Trials
from movlr_jax.evolution.worth import Posterior, TrialScore, from_scores, halving, trial_values, undecided
from movlr_jax.records import Claim, Trial
from movlr_jax.tasks import Task
from movlr_jax.tasks.words.measure import Goal
from movlr_jax.tasks.words.sentence import Sentence, achieved

_LOOK = 4  # trials of the first program before the search
HAND_WRITTEN = "hand-written"  # name of the task's hand-written program among the programs of a search


def trial_seed(seed: int, generation: int, number: int) -> int:
    """Return the seed of trial `number` of a generation, or of the confirmation, in a search with `seed`."""
    return int(np.random.SeedSequence([seed, generation + 1, number]).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class TrialPlan:
    """How many trials the programs of a generation get, and the confirmation."""

    first: int  # of every entrant
    more: int  # further ones of the champion and the better half
    most: int  # of the champion and its best challenger, while it is open which is better
    last: int  # of the champion and a program that may be better, after the last generation
    confirm: int  # of the champion, fresh; 0: none is confirmed

    @classmethod
    def of(cls, config: Config) -> TrialPlan:
        """Return the plan that the settings give."""
        learns = config.optimizer.trains
        confirm = (3 if learns else 8) if config.confirm is None else config.confirm
        if config.trials is not None:
            first, last = math.ceil(config.trials / 2), 2 * (config.trials + 1) if config.trials > 1 else 0
            return cls(first, config.trials - first, config.trials, last, confirm)
        return cls(1, 1, 2, 0, confirm) if learns else cls(2, 1, 6, 8, confirm)

    def times(self, n: int) -> TrialPlan:
        """Return the plan with n times the trials of a search; its confirmation stays."""
        return replace(self, first=n * self.first, more=n * self.more, most=n * self.most, last=n * self.last)

    @property
    def final(self) -> TrialPlan:
        """The plan of the contest after the last generation, in which nobody has to run."""
        return replace(self, first=0, more=0, most=self.last)

    @property
    def once(self) -> TrialPlan:
        """The plan of a ranking that names its winner itself: the first trials alone."""
        return replace(self, more=0, most=self.first)

    @property
    def look(self) -> int:
        """Trials of the first and of the hand-written program before the search."""
        return max(self.first + self.more, min(self.most, _LOOK))

    def search(self, candidates: int, generations: int) -> int:
        """Return about how many trials the programs of a search have before the confirmation."""
        half, open_ = math.ceil(candidates / 2), self.most - self.first - self.more
        begun = self.first * candidates + self.more * half + open_
        each = self.first * (candidates + 2) + self.more * (half + 1) + open_
        return begun + each * (generations - 1) + self.last

    def left(self, candidates: int, generations: int, baselines: int) -> int:
        """Return about how many trials follow the look."""
        return self.search(candidates, generations) - self.first + self.confirm + self.beside * baselines

    def text(self) -> str:
        """Return the plan in words."""
        close = self.most > self.first + self.more
        most = f", up to {self.most} while it is open which of two is better" if close else ""
        more = f", {self.more} more for the better half{most}" if self.more else ""
        fresh = f"{counted(self.confirm, 'fresh trial')} to confirm the champion"
        fresh = fresh if self.confirm else "no confirmation"
        return f"{counted(self.first, 'trial')} of each program{more}; {fresh}"

    @property
    def beside(self) -> int:
        """Fresh trials of the first and of the hand-written program."""
        return math.ceil(self.confirm / 2)


def next_round(
    plan: TrialPlan, done: int, names: Sequence[str], belief: Posterior, entrants: Sequence[int], leader: int,
    certainty: float,
) -> tuple[list[str], range] | None:  # fmt: skip
    """Return which programs get which trials in the next round of a generation; None after the last one.

    All entrants get the first trials, the better half more, and the leader and the best of the others further ones
    while it is open which of these two is better.

    Args:
        plan: How many trials there are.
        done: Number of trials that the rounds before had.
        names: [n] Programs of the search.
        belief: About the worth of the n programs.
        entrants: Indices of those that take part.
        leader: Index of the champion, or of the best of the entrants.
        certainty: Probability at which it is decided which of two is better.
    """
    if not done and plan.first:
        return [names[i] for i in entrants], range(plan.first)
    if done == plan.first and plan.more and len(entrants) > 1:
        better = halving(belief, entrants, leader)
        return [names[i] for i in better], range(done, done + plan.more)
    if done < plan.most and (both := undecided(belief, entrants, leader, certainty)):
        return [names[i] for i in both], range(done, done + 1)
    return None


def believed(task: Task, trials: Trials, names: Sequence[str]) -> Posterior:
    """Return what the scores of all trials say about the programs `names`."""
    rows = [(names.index(name), trial) for name in names for trial in trials.get(name, ())]
    scores = [TrialScore(fault(t)[0], _success(task, t), score_of(task, t)) for _, t in rows]
    return from_scores(len(names), [i for i, _ in rows], [t.seed for _, t in rows], trial_values(scores))


def _success(task: Task, trial: Trial) -> bool | None:
    value = achieved(task.scoring.motion, dict(trial.metrics))
    return None if value is None else bool(value)


def claim_of(motion: Sentence | None, trials: Sequence[Trial]) -> Claim:
    """Return what `trials` came to. A success is that of the task, or all of `motion`, read from its words."""
    ran = [trial.metrics for trial in trials if not trial.failed]
    names = [name for name in (ran[0] if ran else {}) if all(name in metrics for metrics in ran)]
    means = {name: statistics.fmean(metrics[name] for metrics in ran) for name in names}
    succeeded = [achieved(motion, dict(metrics)) for metrics in ran]
    has = any(success is not None for success in succeeded)
    return Claim(
        n=len(trials),
        successes=sum(map(bool, succeeded)) if has else None,
        failed=len(trials) - len(ran),
        metrics=means,
        said=_said(motion, ran) if motion and motion.tells and means else "",
        between={
            name: mean_interval([metrics[name] for metrics in ran])
            for name in RETURNS
            if name in means and len(ran) > 1
        },
    )


def _said(motion: Sentence, ran: Sequence[Mapping[str, float]]) -> str:
    """Return what was asked, and the least and the largest measure, as a mean of hits and misses is neither."""
    if len(ran) == 1:
        return motion.asked(dict(ran[0]))
    falls, parts = [metrics["time_to_fall_s"] for metrics in ran if "time_to_fall_s" in metrics], list[str]()
    if falls:
        which = "" if len(falls) == len(ran) else f"{len(falls)} of {len(ran)} "
        parts.append(f"{which}fell at {span(min(falls), max(falls), 'time_to_fall_s')}")
    for _, name, measure in motion.named():
        if measure.goal == Goal() or any(name not in metrics for metrics in ran):
            continue
        low, high = (f(metrics[name] for metrics in ran) for f in (min, max))
        asked = measure.goal.low, measure.goal.high
        found, wanted = span(low, high, measure.metric, asked), span(*asked, measure.metric, (low, high))
        parts.append(f"{measure.text}: {found} (asked {wanted})")
    return "; ".join(parts)
