"""Weight variants: each program also runs with varied weights in the same batch. Weights need no compilation.

The weights vary at random, or are fitted to the comparisons so far: the first variant has the most probable weights,
the others are drawn from their posterior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from movlr_jax.errors import ProgramError
from movlr_jax.evolution.gates import merit, score_of
from movlr_jax.evolution.preferences import FittedWeights
from movlr_jax.language.base import Evaluation
from movlr_jax.sandbox.source import MAX_WEIGHT, parse, with_weights
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.storage.layout import candidate_name
from movlr_jax.tasks import Task

_SPREAD = 0.4  # standard deviation of the logarithm of a weight


def with_variants(
    verdicts: Sequence[Verdict],
    n: int,
    seed: int,
    generation: int,
    limits: tuple[float, float] | None = None,
    fits: Sequence[FittedWeights | None] = (),
) -> list[Verdict]:
    """Return the K verdicts, followed by n x K variants: each program n times with weights varied around its own.

    limits: range of the weights of the method, if it has one. fits: fitted weights of each program, None for random.
    """
    rows = list(verdicts)
    for i in range(n):
        for k, verdict in enumerate(verdicts):
            fit = fits[k] if fits else None
            if verdict.program is None:
                rows.append(verdict)
            elif fit:
                rows.append(_with(verdict, [fit.weights, *fit.draws][i], limits))
            else:
                rng = np.random.default_rng([seed, generation, k, i])
                rows.append(_with(verdict, _varied(verdict.program.weights, rng), limits))
    return rows


def _varied(weights: Mapping[str, float], rng: np.random.Generator) -> dict[str, float]:
    varied = {name: weight * math.exp(rng.normal(0.0, _SPREAD)) for name, weight in weights.items()}
    return {name: float(f"{np.clip(weight, -MAX_WEIGHT, MAX_WEIGHT):.4g}") for name, weight in varied.items()}


def _with(verdict: Verdict, weights: Mapping[str, float], limits: tuple[float, float] | None) -> Verdict:
    """Return the verdict on the same program with other weights."""
    program, weights = verdict.program, scaled(weights, limits)
    assert program
    return replace(
        verdict, program=replace(program, source=with_weights(program.source, weights), weights=weights)
    )


def scaled(weights: Mapping[str, float], limits: tuple[float, float] | None) -> dict[str, float]:
    """Return the weights, divided by one number if the magnitude of any exceeds the upper limit."""
    factor = limits[1] / max(limits[1], *map(abs, weights.values())) if limits else 1.0
    return {name: float(f"{weight * factor:.4g}") for name, weight in weights.items()}


def rescaled(source: str, limits: tuple[float, float] | None) -> str:
    """Return a program with its weights scaled below the upper limit; unchanged if none exceeds it."""
    try:
        weights = parse(source).weights
    except ProgramError:  # vetting says why
        return source
    if not limits or max(map(abs, weights.values())) <= limits[1]:
        return source
    return with_weights(source, scaled(weights, limits))


def adopt(
    task: Task, rows: Sequence[Evaluation], k: int, count: int, fit: FittedWeights | None = None
) -> tuple[Evaluation, dict[str, Any] | None]:
    """Return the evaluation of candidate k with its best weights, and the scores of all its variants.

    The best has the least fault (`gates.fault`), and among these the highest score.
    rows: Evaluations of the batch that `with_variants` made of `count` programs.
    fit: what the variants were made from; it is recorded with them.
    The scores are None without variants, or if the program was rejected.
    """
    variants = rows[k::count]
    if len(variants) == 1 or not variants[0].weights:
        return variants[0], None
    scores = [score_of(task, variant) for variant in variants]
    best = max(range(len(scores)), key=lambda i: (*merit(task, variants[i]), -i))
    tried = [
        {"weights": variant.weights, "score": score if math.isfinite(score) else None}
        for variant, score in zip(variants, scores, strict=True)
    ]
    about = {"fitted": {"weights": fit.weights, "deviation": fit.deviation}} if fit else {}
    return variants[best], {"adopted": best, "tried": tried, **about}


def row_names(generation: int, variants: Sequence[Mapping[str, Any] | None], rows: int) -> list[str]:
    """Return the names of the rows of a batch: the adopted variant of a candidate has its name, as `g01k02`.

    Another variant has its number in addition, as `g01k02.3`. `variants` are the scores that `adopt` returned.
    """
    names = []
    for row in range(rows):
        i, k = divmod(row, len(variants))
        name = candidate_name(generation, k)
        names.append(name if i == (variants[k] or {}).get("adopted", 0) else f"{name}.{i}")
    return names
