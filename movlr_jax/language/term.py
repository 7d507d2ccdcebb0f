"""One entry of the library of reward terms."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A named expression, the weight it usually starts with, and the need it serves.

    Kinds: place, turn, hold (objects); upright, height, balance, forward, straight, gait (walkers); steady, economy.
    """

    name: str
    kind: str
    weight: float
    expression: str
