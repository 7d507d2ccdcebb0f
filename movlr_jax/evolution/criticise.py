"""Criticise: what is wrong with the best motion, what its reward lacks, and whether the search can end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from movlr_jax._util.parts import worked
from movlr_jax._util.quantities import summary
from movlr_jax.errors import UserError
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.gates import fault, poorer, poorest_first
from movlr_jax.evolution.population import Population
from movlr_jax.evolution.trials import TrialPlan, claim_of
from movlr_jax.language.base import DescribingCritic
from movlr_jax.records import Critique, Evaluation, Trial

_ENOUGH = 6  # trials that must all succeed before a search ends early


def describe(context: SearchContext, g: int, candidates: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the candidates; those that ran have a description of their motion, if the critic describes motions."""
    critic = context.roles.critic
    if not isinstance(critic, DescribingCritic):
        return list(candidates)
    ran = [candidate for candidate in candidates if not candidate.failed]

    def work() -> dict[str, Any]:
        asked = partial(critic.describe, context.task, ran)
        described = worked(f"{critic.name}, describing {len(ran)} motions,", critic, asked, list)
        if len(described) != len(ran):
            raise UserError(f"{critic.name} described {len(described)} of {len(ran)} motions, expected one each")
        return {"candidates": {e.name: description for e, description in zip(ran, described, strict=True)}}

    found = context.journal.stage("describe", g, work)["candidates"]
    return [replace(e, description=found.get(e.name, {})) for e in candidates]


def criticise(context: SearchContext, candidate: Evaluation, trials: Sequence[Trial]) -> Critique:
    """Return the critique of a program by one of its poorer trials, that of the lower quartile.

    Where it fails is what the next programs can do better. Its faults and non-finite terms are added to the problems.
    """
    ran = poorest_first(context.task, trials)
    trial, shown = poorer(ran) if ran else candidate, candidate
    if trial.seed != candidate.seed:
        shown = replace(Evaluation.of(candidate, trial), description=candidate.description)
    critic = context.roles.critic
    asked = partial(critic.criticise, context.task, shown)
    critique = worked(f"{critic.name}, criticising {shown.name},", critic, asked, Critique)
    broken = [
        f"term {name!r} was not finite {where} and counted as its worst value there; bound the arguments of its "
        "divisions, logs, roots and exponentials"
        for name, term in shown.terms.items()
        if (where := not_finite(term))
    ]
    problems = [*shown.faults.values(), *critique.problems, *broken]
    return replace(critique, success=critique.success and not shown.faults, problems=list(dict.fromkeys(problems)))


def satisfied(
    context: SearchContext, plan: TrialPlan, population: Population, best: Evaluation, critique: Critique | None
) -> str:
    """Return why the search can end; empty if it cannot.

    It can if all trials of the champion succeed, as many as it gets in a generation or more, and the critic asks for
    nothing (critique: None if it is about another program); or if its motion has no fault and matches the task
    (`method.stop_alignment`).
    """
    claim = claim_of(context.task.scoring.motion, population.trials[best.name])
    enough = claim.n >= max(plan.look, _ENOUGH) and claim.successes == claim.n
    if enough and critique and critique.success and not critique.problems:
        return f"all {claim.n} trials of {best.name} succeed, and the critic asks for nothing"
    least, alignment = context.config.method.stop_alignment, best.description.get("alignment")
    if least is None or alignment is None or alignment < least or fault(best)[0]:
        return ""
    return f"{best.name} reaches an alignment of {alignment:g} with the task (method.stop_alignment={least:g})"


def in_a_line(context: SearchContext, best: Evaluation, trials: Sequence[Trial]) -> str:
    """Return what `best` came to. Where the task measures nothing, as one from words, it is the last critique."""
    criticised = context.archive.events("criticised")
    if summary(best.metrics) or not criticised:
        return claim_of(context.task.scoring.motion, trials).text()
    critique = criticised[-1].data
    verdict = "success" if critique["success"] else "; ".join(["no success", *critique["problems"][:1]])
    return f"{critique['author']}: {verdict}"


def not_finite(term: Mapping[str, Any]) -> str:
    """Return where values of a term were not finite and were replaced, or an empty string."""
    found = ((term.get("nonfinite"), "steps of the episode"), (term.get("nonfinite_planned"), "steps of its plans"))
    return " and ".join(f"at {count} {of}" for count, of in found if count)
