"""Reward programs of given terms."""

from __future__ import annotations

from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load


def program(*terms: str) -> RewardProgram:
    """Return the program of the terms t0, t1, ... with weights 1, 2, ..."""
    lines = "\n".join(f"        't{i}': {term}," for i, term in enumerate(terms))
    weights = {f"t{i}": 1.0 + i for i in range(len(terms))}
    return load(parse(f"WEIGHTS = {weights}\n\n\ndef reward(state, action):\n    return {{\n{lines}\n    }}\n"))
