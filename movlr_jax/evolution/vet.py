"""Vet: each program is parsed, traced and probed in the sandbox, and must fit the method's range of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from movlr_jax.errors import ProgramError
from movlr_jax.evolution.context import SearchContext
from movlr_jax.language.settings import NO_PROGRAM
from movlr_jax.records import Program
from movlr_jax.sandbox.source import parse, with_weights
from movlr_jax.sandbox.vet import Verdict

_KEPT = 128  # verdicts in memory


def vet(context: SearchContext, programs: Sequence[Program]) -> tuple[list[Program], dict[str, Verdict]]:
    """Return the programs with their weights, and the verdict on each by its name. They are vetted in parallel."""
    with context.journal.timed("vet"), context.reporter.stage("vet") as tick:
        sources = dict.fromkeys(program.source for program in programs)
        new = [s for s in sources if s not in context.verdicts and not s.startswith(NO_PROGRAM)]
        vetted = dict(zip(new, context.sandbox.vet_all(new, tick), strict=True))
        found = {source: vet_one(context, source, vetted.get(source)) for source in sources}
    accepted = {source: verdict.program for source, verdict in found.items() if verdict.program}
    weighted = [replace(p, weights=dict(accepted[p.source].weights)) if p.source in accepted else p for p in programs]
    return weighted, {program.name: found[program.source] for program in programs}


def vet_one(context: SearchContext, source: str, verdict: Verdict | None = None) -> Verdict:
    """Return the verdict on one program; a program that was vetted lately is not vetted again.

    verdict: That of the sandbox, if it was asked already.
    """
    if source not in context.verdicts:
        if source.startswith(NO_PROGRAM):
            message = f"no program was written: {source.removeprefix(NO_PROGRAM).strip()}"
            found = Verdict("propose", message, 0.0)
        else:
            found = within_range(context, source, verdict or context.sandbox.vet(source))
        if found.program and verdict is None:  # compiles while the next program is being written
            context.optimizer.scorer.prepare([found.program])
        while len(context.verdicts) >= _KEPT:
            del context.verdicts[next(iter(context.verdicts))]
        context.verdicts[source] = found
    return context.verdicts[source]


def start_program(context: SearchContext) -> str:
    """Return the task's program that the method starts from, with its weights scaled into the range of the method.

    A reward that is multiplied by a positive number has the same optimum. The model then edits a program of the form
    that its answers must have, and no program trains with rewards of another size.
    """
    task, canonical = context.task, context.config.method.start in ("human", "canonical")
    return rescaled(task.rewards.human if canonical else task.rewards.initial, context.weights)


def rescaled(source: str, limits: tuple[float, float] | None) -> str:
    """Return a program with all weights divided by one number, so that none exceeds the upper limit.

    It is unchanged if none does.
    """
    try:
        weights = parse(source).weights
    except ProgramError:  # vetting says why
        return source
    largest = max(map(abs, weights.values()))
    if not limits or largest <= limits[1]:
        return source
    factor = limits[1] / largest
    return with_weights(source, {name: float(f"{weight * factor:.4g}") for name, weight in weights.items()})


def within_range(context: SearchContext, source: str, verdict: Verdict) -> Verdict:
    """Return the verdict, or a rejection if a weight is outside the range of the method.

    The start program is exempt: scaling cannot bring a negative weight into a range above 0, and nobody repairs it.
    """
    if verdict.program is None or not context.weights or source == start_program(context):
        return verdict
    low, high = context.weights
    for name, weight in verdict.program.weights.items():
        if not low <= weight <= high:
            message = (
                f"WEIGHTS: the weight of {name!r} is {weight:g}, expected a number from {low:g} to {high:g}; "
                "if the term should count for more or against, multiply the term itself"
            )
            return Verdict("parse", message, verdict.seconds)
    return verdict
