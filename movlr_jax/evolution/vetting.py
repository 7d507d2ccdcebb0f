"""Vetting of the programs of a generation: each is vetted once, and must fit the method's range of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from movlr_jax.errors import ProgramError
from movlr_jax.evolution.context import SearchContext, timed
from movlr_jax.language.settings import NO_PROGRAM
from movlr_jax.sandbox.source import parse, with_weights
from movlr_jax.sandbox.vet import Verdict


def start_program(context: SearchContext) -> str:
    """Return the task's program that the method starts from, with its weights scaled into the range of the method.

    A reward that is multiplied by a positive number has the same optimum. The model then edits a program of the form
    that its answers must have, and no program trains with rewards of another size.
    """
    task, canonical = context.task, context.config.method.start in ("human", "canonical")
    return rescaled(task.human_reward if canonical else task.initial_reward, context.weights)


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


def vet(context: SearchContext, source: str) -> Verdict:
    """Vet a program. Each program is vetted once per generation."""
    if source not in context.verdicts:
        no_program = source.startswith(NO_PROGRAM)
        message = f"no program was written: {source.removeprefix(NO_PROGRAM).strip()}"
        verdict = Verdict("propose", message, 0.0) if no_program else context.sandbox.vet(source)
        context.verdicts[source] = verdict = within_range(context, source, verdict)
        if verdict.program:  # compiles while the next program is being written
            context.optimizer.scorer.prepare([verdict.program])
    return context.verdicts[source]


def vet_all(context: SearchContext, sources: Sequence[str]) -> list[Verdict]:
    """Return the verdicts on all programs, vetted in parallel."""
    with timed(context, "vet"), context.reporter.stage("vet") as tick:
        new = [
            s for s in dict.fromkeys(sources) if s not in context.verdicts and not s.startswith(NO_PROGRAM)
        ]
        vetted = zip(new, context.sandbox.vet_all(new, tick), strict=True)
        context.verdicts.update((source, within_range(context, source, v)) for source, v in vetted)
        return [vet(context, source) for source in sources]


def within_range(context: SearchContext, source: str, verdict: Verdict) -> Verdict:
    """Return the verdict, or a rejection if a weight is outside the range of the method."""
    message = verdict.program and out_of_range(context, source, verdict.program.weights)
    return Verdict("parse", message, verdict.seconds) if message else verdict


def out_of_range(context: SearchContext, source: str, weights: Mapping[str, float]) -> str:
    """Return a sentence with the first weight outside the range of the method, empty if there is none.

    The start program is exempt: scaling cannot bring a negative weight into a range above 0, and nobody repairs it.
    """
    if not context.weights or source == start_program(context):
        return ""
    low, high = context.weights
    for name, weight in weights.items():
        if not low <= weight <= high:
            return (
                f"WEIGHTS: the weight of {name!r} is {weight:g}, expected a number from {low:g} to {high:g}; "
                "if the term should count for more or against, multiply the term itself"
            )
    return ""
