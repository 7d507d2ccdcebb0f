"""One entry of the library of reward terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A named expression, the weight it usually starts with, and the need it serves.

    Kinds: place, turn, hold (objects); upright, height, balance, forward, straight, gait (walkers);
    jump, turning, joint (any body that moves); steady, economy; spare (what a body can do and nobody asked for).
    """

    name: str
    kind: str
    weight: float
    expression: str


def tuple_of(names: Iterable[str]) -> str:
    """A tuple of names as source text."""
    return "(" + "".join(f'"{name}", ' for name in names).rstrip() + ")"
