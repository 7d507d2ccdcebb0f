"""Entries of the library of reward terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A named expression, its usual initial weight, and its kind.

    Kinds: place, turn, hold (objects); upright, height, balance, forward, straight, gait (walkers);
    jump, turning, joint (any body that moves); steady, economy; spare (motions that the task does not ask for).
    """

    name: str
    kind: str
    weight: float
    expression: str


def tuple_of(names: Iterable[str]) -> str:
    """Return a tuple of names as source text."""
    return "(" + "".join(f'"{name}", ' for name in names).rstrip() + ")"
