"""The confirmation: the champion, the first and the hand-written program in trials that no choice has seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from movlr_jax._util.quantities import summary
from movlr_jax.evolution.context import SearchContext, timed
from movlr_jax.evolution.filming import clip_of, store, style_of
from movlr_jax.evolution.look import baselines
from movlr_jax.evolution.loop import Found
from movlr_jax.evolution.scripted.metrics import MetricsJudge
from movlr_jax.evolution.trials import CONFIRM, Claim, Trials, believed, run_trials
from movlr_jax.evolution.vetting import vet
from movlr_jax.film.captions import Caption
from movlr_jax.film.clips import film
from movlr_jax.language.base import Evaluation

EVENT = "confirmed"
PROMISE = 0.8  # probability of being better than the first program from which on a search says so


@dataclass(frozen=True)
class Confirmed:
    """What a search may claim."""

    champion: str
    first: str
    claims: Mapping[str, Claim]  # of the champion, the first and the hand-written program
    # probability by all trials that it is better than the first; None: it is the first, NaN: a judge decides
    p_better: float | None

    @property
    def text(self) -> str:
        """Return the claim in one line."""
        mine = self.claims[self.champion]
        others = [
            f"{'first' if name == self.first else name} program {claim.text()}"
            for name, claim in self.claims.items()
            if name != self.champion
        ]
        return "; ".join([f"{self.champion} from {mine.n} fresh starts: {mine.text(interval=True)}", *others])

    @property
    def improved(self) -> bool:
        """Whether a better program than the first was found."""
        return self.p_better is not None and not self.p_better < PROMISE

    @property
    def verdict(self) -> str:
        """Return whether a better program was found, in a sentence without a full stop."""
        if self.p_better is None:
            return "no better program than the first was found"
        if math.isnan(self.p_better):
            return f"the judge prefers {self.champion} to the first program"
        chance = f"{self.champion} is better with P = {self.p_better:.2f}"
        if not self.improved:
            return f"no better program than the first was found ({chance} only)"
        return f"a better program than the first was found ({chance})"


def confirm(context: SearchContext, found: Found) -> Confirmed | None:
    """Run the champion, the first and the hand-written program in fresh trials. None where none are wanted."""
    plan, champion = found.plan, found.best.name
    if not plan.confirm:
        return None
    context.reporter.say(f"confirming {champion} in {plan.confirm} fresh trials")
    context.seconds = dict(context.archive.get("timing") or {})
    programs, first = baselines(context)
    verdicts = {champion: vet(context, found.best.source), **programs}
    trials = run_trials(context, CONFIRM, verdicts, range(min(plan.beside, plan.confirm)))
    rest = range(plan.beside, plan.confirm)
    if rest:
        trials[champion] += run_trials(context, CONFIRM, {champion: verdicts[champion]}, rest)[champion]
    for name, of in trials.items():
        for trial in of:
            _film(context, name, trial)
    context.archive.record("timing", context.seconds)
    p_better = _better(context, found, trials, first)
    confirmed = Confirmed(
        champion, first, {name: Claim.of(context.task.motion, of) for name, of in trials.items()}, p_better
    )
    context.archive.record(EVENT, _record(confirmed))  # of a search that went on, the champion may be another
    return confirmed


def _better(context: SearchContext, found: Found, fresh: Trials, first: str) -> float | None:
    """Return the probability by all trials that the champion is better than the first; see `Confirmed.p_better`."""
    champion, before = found.best.name, found.standings.trials
    if champion == first:
        return None
    if not isinstance(context.judge, MetricsJudge):
        return math.nan
    names = list(dict.fromkeys([*found.standings.names, first]))
    every = {name: [*before.get(name, ()), *fresh.get(name, ())] for name in names}
    return believed(context.task, every, names).p_better(names.index(champion), names.index(first))


def _record(confirmed: Confirmed) -> dict[str, Any]:
    p = confirmed.p_better
    return {
        "champion": confirmed.champion,
        "first": confirmed.first,
        "claims": {
            name: {**claim.record(), "metrics": dict(claim.metrics)}
            for name, claim in confirmed.claims.items()
        },
        "p_better": None if p is None or math.isnan(p) else p,
        "improved": confirmed.improved,
        "text": confirmed.text,
        "verdict": confirmed.verdict,
    }


def _film(context: SearchContext, name: str, trial: Evaluation) -> None:
    """Film a fresh trial in the style of previews, unless it is filmed."""
    path = f"{trial.stem}.mp4"
    if not context.films or trial.failed or context.archive.has(path):
        return
    with timed(context, "film"), context.reporter.stage(f"film {name}, fresh trial") as tick:
        caption = Caption(
            context.task.description, f"{name}, fresh trial", summary(trial.metrics), context.note
        )
        made = film(
            clip_of(context.task, context.archive.read(f"{trial.stem}.npz"), caption), style_of(True), tick
        )
        store(context.archive.put, path, made)
