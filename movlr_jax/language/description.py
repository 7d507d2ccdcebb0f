"""The critique that a description and the statistics of the terms make, as MotionVL has it."""

from __future__ import annotations

from movlr_jax.language import prompts
from movlr_jax.language.base import Critique, Evaluation


def described(best: Evaluation, author: str) -> Critique:
    """Return the critique of a motion from its description and the statistics of its terms."""
    seen = best.description
    success = bool(seen.get("success", best.metrics.get("success", 0.0)))
    problems = [seen["problem"]] if "problem" in seen else prompts.labels(best)
    text = prompts.fill("descriptors_text", seen=seen, statistics=prompts.statistics(best))
    return Critique(success, problems, (), author, text, alignment=seen.get("alignment"))
