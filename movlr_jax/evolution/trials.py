"""Trials of programs: their seeds, how many each program gets, the record of them, and what they say in words."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from movlr_jax._util.quantities import measures
from movlr_jax.config.schema import Config
from movlr_jax.control.build import trains
from movlr_jax.evolution.context import SearchContext, timed
from movlr_jax.evolution.evaluation import middle
from movlr_jax.evolution.gates import fault, score_of
from movlr_jax.evolution.workers.base import Workers
from movlr_jax.evolution.worth import Posterior, TrialScore, from_scores, rate_interval, trial_values
from movlr_jax.language.base import Evaluation
from movlr_jax.language.judges.metrics import MetricsJudge
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.layout import stage_folder, trial_stem
from movlr_jax.tasks import Task
from movlr_jax.tasks.words.sentence import Sentence, achieved

EVENT = "trials"
_LOOK = 4  # trials of the first program before the search
CONFIRM = -1  # in place of a generation: trials that no choice has seen
HAND_WRITTEN = "hand-written"  # name of the task's hand-written program among the programs of a search
Trials = Mapping[str, Sequence[Evaluation]]  # by the name of the program


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
        learns = trains(config.optimizer)
        confirm = (3 if learns else 8) if config.confirm is None else config.confirm
        if config.trials is not None:
            first = math.ceil(config.trials / 2)
            return cls(first, config.trials - first, config.trials, 2 * (config.trials - 1), confirm)
        return cls(1, 1, 2, 0, confirm) if learns else cls(2, 1, 6, 8, confirm)

    @property
    def final(self) -> TrialPlan:
        """The plan of the contest after the last generation, in which nobody has to run."""
        return replace(self, first=0, more=0, most=self.last)

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
        fresh = f"{self.confirm} fresh ones to confirm the champion" if self.confirm else "no confirmation"
        return f"{self.first} trials of each program{more}; {fresh}"

    @property
    def beside(self) -> int:
        """Fresh trials of the first and of the hand-written program."""
        return math.ceil(self.confirm / 2)


def run_trials(
    context: SearchContext, g: int, entrants: Mapping[str, Verdict], numbers: Sequence[int]
) -> dict[str, list[Evaluation]]:
    """Return the trials `numbers` of generation g of each entrant, the recorded ones as they are.

    Those that lack one run in one batch, and are recorded with their trajectories. A rejected program gets
    evaluations with the reason.
    """
    known = recorded_trials(context, g)
    missing = [n for n in numbers if any(n not in known.get(name, {}) for name in entrants)]
    absent = [name for name in entrants if any(n not in known.get(name, {}) for n in missing)]
    if missing:
        ran = simulated(context, g, {name: entrants[name] for name in absent}, missing)
        for name, of in record_trials(context, g, ran, missing).items():
            known.setdefault(name, {}).update(of)
    return {name: [known[name][n] for n in numbers] for name in entrants}


def simulated(
    context: SearchContext, g: int, entrants: Mapping[str, Verdict], numbers: Sequence[int]
) -> dict[str, list[Evaluation]]:
    """Run the trials `numbers` of generation g of all entrants in one batch."""
    seeds = [trial_seed(context.config.seed, g, n) for n in numbers]
    folder = context.archive.root / stage_folder(g) if trains(context.config.optimizer) else None
    with timed(context, "optimise"), context.reporter.stage("optimise", rate(context.workers)) as tick:
        rows = context.workers.evaluate(list(entrants.values()), seeds, tick, folder)
    return dict(zip(entrants, rows, strict=True))


def record_trials(
    context: SearchContext, g: int, ran: Trials, numbers: Sequence[int]
) -> dict[str, dict[int, Evaluation]]:
    """Record trials with their trajectories. Return name -> number -> trial."""
    archive, new = context.archive, {name: dict[int, Evaluation]() for name in ran}
    for name, row in ran.items():
        for n, trial in zip(numbers, row, strict=True):
            stem = trial_stem(g, name, n)
            if trial.states:
                archive.put(f"{stem}.npz", trial.states)
            new[name][n] = replace(trial, stem=stem if trial.states else "", states=None)
    data = {name: {str(n): _record(trial) for n, trial in of.items()} for name, of in new.items()}
    rounds = sum(event.generation == g for event in archive.events(EVENT))
    archive.record(EVENT, {"programs": data}, g, rounds)
    return new


def recorded_trials(context: SearchContext, g: int) -> dict[str, dict[int, Evaluation]]:
    """Return name -> number -> trial of all recorded trials of generation g."""
    found: dict[str, dict[int, Evaluation]] = {}
    for event in context.archive.events(EVENT):
        if event.generation != g:
            continue
        for name, trials in event.data["programs"].items():
            for n, data in trials.items():
                trial = Evaluation.read(0, data.get("candidate") or 0, data, context.archive.root)
                found.setdefault(name, {})[int(n)] = trial
    return found


def _record(trial: Evaluation) -> dict[str, Any]:
    """Return the record of a trial, without its program, which is that of its candidate."""
    return {
        name: value
        for name, value in trial.record().items()
        if name not in ("source", "name", "parent", "film")
    }


def rate(workers: Workers) -> Callable[[], str]:
    """Return a function that formats the physics steps per second of all workers since this call."""
    started, before = time.monotonic(), workers.steps_done
    return lambda: f"{(workers.steps_done - before) / (time.monotonic() - started):,.0f} steps/s"


def believed(task: Task, trials: Trials, names: Sequence[str]) -> Posterior:
    """Return what the scores of all trials say about the programs `names`."""
    rows = [(names.index(name), trial) for name in names for trial in trials.get(name, ())]
    scores = [TrialScore(fault(t)[0], _success(task, t), score_of(task, t)) for _, t in rows]
    return from_scores(len(names), [i for i, _ in rows], [t.seed for _, t in rows], trial_values(scores))


def representative(context: SearchContext, trials: Sequence[Evaluation]) -> Evaluation:
    """Return the trial that stands for its program: the first one where films are judged, else the middle one.

    So the films of a generation that a judge sees are of one trial.
    """
    ran = [trial for trial in trials if not trial.failed] or trials
    return middle(context.task, ran) if isinstance(context.judge, MetricsJudge) else ran[0]


def _success(task: Task, trial: Evaluation) -> bool | None:
    value = achieved(task.motion, dict(trial.metrics))
    return None if value is None else bool(value)


@dataclass(frozen=True)
class Claim:
    """What trials of one program came to."""

    n: int
    successes: int | None  # None: the task has no success
    failed: int  # trials that failed to run
    metrics: Mapping[str, float]  # means over the trials that ran
    motion: Sentence | None = None  # what the words of the task ask for

    @classmethod
    def of(cls, motion: Sentence | None, trials: Sequence[Evaluation]) -> Claim:
        """Return what `trials` came to. A success is that of the task, or all of `motion`, read from its words."""
        ran = [trial.metrics for trial in trials if not trial.failed]
        names = [name for name in (ran[0] if ran else {}) if all(name in metrics for metrics in ran)]
        known = [achieved(motion, dict(metrics)) for metrics in ran]
        has = any(success is not None for success in known)
        return cls(
            n=len(trials),
            successes=sum(map(bool, known)) if has else None,
            failed=len(trials) - len(ran),
            metrics={name: statistics.fmean(metrics[name] for metrics in ran) for name in names},
            motion=motion,
        )

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the success rate."""
        return rate_interval(self.successes or 0, self.n)

    def record(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            "n": self.n,
            "failed": self.failed,
            **(
                {}
                if self.successes is None
                else {"successes": self.successes, "interval": list(self.interval)}
            ),
        }

    def text(self, interval: bool = False) -> str:
        """Return it in words, as in "7 of 8 succeed (53-98 %), 1.4 cm off"."""
        low, high = self.interval
        between = f" ({100 * low:.0f}-{100 * high:.0f} %)" if interval else ""
        rate = [] if self.successes is None else [f"{self.successes} of {self.n} succeed{between}"]
        failed = [f"{self.failed} of {self.n} failed"] if self.failed else []
        words = self.motion is not None and self.motion.tells and bool(self.metrics)
        measured = (
            [self.motion.asked(dict(self.metrics))] if words and self.motion else measures(self.metrics)
        )
        return ", ".join([*rate, *measured, *failed]) or f"{self.n} ran"
