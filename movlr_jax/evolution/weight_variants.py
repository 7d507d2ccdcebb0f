"""Weight variants: each program also runs with varied weights in the same batch. Weights need no compilation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from movlr_jax.errors import ProgramError
from movlr_jax.evolution.gates import fault
from movlr_jax.language.base import Evaluation
from movlr_jax.sandbox.source import parse, with_weights
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks import Task

_SPREAD = 0.4  # standard deviation of the logarithm of a weight


def with_variants(
    verdicts: Sequence[Verdict],
    n: int,
    seed: int,
    generation: int,
    limits: tuple[float, float] | None = None,
) -> list[Verdict]:
    """Return the K verdicts, followed by n x K variants: each program n times with weights varied around its own.

    limits: range of the weights of the method, if it has one.
    """
    rows = list(verdicts)
    for i in range(n):
        for k, verdict in enumerate(verdicts):
            rng = np.random.default_rng([seed, generation, k, i])
            rows.append(_varied(verdict, rng, limits))
    return rows


def _varied(verdict: Verdict, rng: np.random.Generator, limits: tuple[float, float] | None) -> Verdict:
    program = verdict.program
    if program is None:
        return verdict
    weights = {
        name: float(f"{weight * math.exp(rng.normal(0.0, _SPREAD)):.4g}")
        for name, weight in program.weights.items()
    }
    weights = scaled(weights, limits)
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
    task: Task, rows: Sequence[Evaluation], k: int, count: int
) -> tuple[Evaluation, dict[str, Any] | None]:
    """Return the evaluation of candidate k with its best weights, and the scores of all its variants.

    The best has the least fault (`gates.fault`), and among these the highest score.
    rows: Evaluations of the batch that `with_variants` made of `count` programs.
    The scores are None without variants, or if the program was rejected.
    """
    variants = rows[k::count]
    if len(variants) == 1 or not variants[0].weights:
        return variants[0], None
    scores = [score_of(task, variant) for variant in variants]
    best = max(range(len(scores)), key=lambda i: (-fault(variants[i])[0], scores[i], -i))
    tried = [
        {"weights": variant.weights, "score": score if math.isfinite(score) else None}
        for variant, score in zip(variants, scores, strict=True)
    ]
    return variants[best], {"adopted": best, "tried": tried}


def score_of(task: Task, evaluation: Evaluation) -> float:
    """Return the task score of one episode, -inf if it failed or the simulation diverged."""
    if evaluation.failed or evaluation.metrics.get("diverged_fraction", 0.0) > 0:
        return -math.inf
    score = task.score(dict(evaluation.metrics))
    return score if math.isfinite(score) else -math.inf
