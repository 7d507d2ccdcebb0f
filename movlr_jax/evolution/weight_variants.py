"""Weight variants: each program also runs with varied weights in the same batch. Weights need no compilation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from movlr_jax.evolution.evaluation import Outcome
from movlr_jax.sandbox.source import with_weights
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks import Task

_SPREAD = 0.4  # standard deviation of the logarithm of a weight


def with_variants(verdicts: Sequence[Verdict], n: int, seed: int, generation: int) -> list[Verdict]:
    """Return the K verdicts, followed by n x K variants: each program n times with weights varied around its own."""
    rows = list(verdicts)
    for i in range(n):
        for k, verdict in enumerate(verdicts):
            rng = np.random.default_rng([seed, generation, k, i])
            rows.append(_varied(verdict, rng))
    return rows


def _varied(verdict: Verdict, rng: np.random.Generator) -> Verdict:
    program = verdict.program
    if program is None:
        return verdict
    weights = {
        name: float(f"{weight * math.exp(rng.normal(0.0, _SPREAD)):.4g}")
        for name, weight in program.weights.items()
    }
    return replace(
        verdict, program=replace(program, source=with_weights(program.source, weights), weights=weights)
    )


def adopt(
    task: Task, batch: Sequence[Verdict], outcomes: Sequence[Outcome], k: int, count: int
) -> tuple[Verdict, Outcome, dict[str, Any] | None]:
    """Return the verdict and outcome of candidate k with its best weights, and the scores of all its variants.

    The scores are None without variants, or if the program was rejected.
    """
    rows = range(k, len(batch), count)
    program = batch[k].program
    if len(rows) == 1 or program is None:
        return batch[k], outcomes[k], None
    scores = [score_of(task, outcomes[row]) for row in rows]
    best = rows[int(np.argmax(scores))]
    tried = [
        {"weights": dict(p.weights), "score": score if math.isfinite(score) else None}
        for row, score in zip(rows, scores, strict=True)
        if (p := batch[row].program)
    ]
    return batch[best], outcomes[best], {"adopted": (best - k) // count, "tried": tried}


def score_of(task: Task, outcome: Outcome) -> float:
    """Return the task score of one outcome, -inf if it failed or the simulation diverged."""
    if outcome.reason or outcome.metrics.get("diverged_fraction", 0.0) > 0:
        return -math.inf
    score = task.score(dict(outcome.metrics))
    return score if math.isfinite(score) else -math.inf
