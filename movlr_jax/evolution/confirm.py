"""The confirmation: the champion, the first and the hand-written program in trials that no choice has seen."""

from __future__ import annotations

from collections.abc import Mapping

from movlr_jax._util.quantities import chance_of
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.film import film_trial
from movlr_jax.evolution.journal import CONFIRM
from movlr_jax.evolution.look import baselines
from movlr_jax.evolution.loop import Found
from movlr_jax.evolution.optimise import optimise
from movlr_jax.evolution.population import Trials
from movlr_jax.evolution.trials import believed, claim_of
from movlr_jax.evolution.vet import vet_one
from movlr_jax.records import Claim, Confirmation
from movlr_jax.storage.events import written

PROMISE = 0.8  # probability of being better than the first program from which on a search says so


def confirm(context: SearchContext, found: Found) -> Confirmation | None:
    """Run the champion, the first and the hand-written program in fresh trials. None where none are wanted."""
    plan, champion, journal = found.plan, found.best.name, context.journal
    if not plan.confirm:
        return None
    context.reporter.say(f"confirming {champion} in {plan.confirm} fresh trials")
    journal.begin(CONFIRM, final=True)
    programs, first = baselines(context)
    verdicts = {champion: vet_one(context, found.best.source), **programs}
    trials = optimise(context, CONFIRM, verdicts, range(min(plan.beside, plan.confirm)))
    rest = range(plan.beside, plan.confirm)
    if rest:
        trials[champion] += optimise(context, CONFIRM, {champion: verdicts[champion]}, rest)[champion]
    for name, of in trials.items():
        for trial in of:
            film_trial(context, name, trial)
    journal.end(CONFIRM)
    claims = {name: claim_of(context.task.scoring.motion, of) for name, of in trials.items()}
    confirmed = confirmation(champion, first, claims, _p_better(context, found, trials, first), context.scored)
    # of a search that went on, the champion may be another
    context.archive.record("confirmed", written(confirmed))
    return confirmed


def confirmation(
    champion: str, first: str, claims: Mapping[str, Claim], p_better: float | None, scored: bool
) -> Confirmation:
    """Return what a search may claim by the claims of fresh trials of each program.

    p_better: Probability by all trials that the champion is better than the first program; None where that is not
    known. scored: Whether the scores of trials decide, and not a judge of films.
    """
    improved, verdict = False, "no better program than the first was found"
    if champion != first and not scored:
        improved, verdict = True, f"the judge prefers {champion} to the first program"
    elif champion != first and p_better is not None:
        chance, improved = f"{champion} is better with P = {chance_of(p_better)}", p_better >= PROMISE
        found = "a better program than the first was found"
        verdict = f"{found} ({chance})" if improved else f"{verdict} ({chance}; {PROMISE:g} is needed)"
    others = [
        f"{'first' if name == first else name} program {claim.text()}"
        for name, claim in claims.items()
        if name != champion
    ]
    mine = claims[champion]
    text = "; ".join([f"{champion} from {mine.n} fresh starts: {mine.text(interval=True)}", *others])
    return Confirmation(champion, first, claims, p_better, improved, text, verdict)


def _p_better(context: SearchContext, found: Found, fresh: Trials, first: str) -> float | None:
    """Return the probability by all trials that the champion is better than the first program.

    None where it is the first program, and where a judge of films decides.
    """
    champion, before = found.best.name, found.population.trials
    if champion == first or not context.scored:
        return None
    names = list(dict.fromkeys([*found.population.names, first]))
    every = {name: [*before.get(name, ()), *fresh.get(name, ())] for name in names}
    return believed(context.task, every, names).p_better(names.index(champion), names.index(first))
