"""What an episode lacks of the requested motion."""

from __future__ import annotations

from dataclasses import dataclass

HOLD_S = 0.5  # s at the end of an episode, in which what should be reached is measured


@dataclass(frozen=True)
class Need:
    """A problem of a motion in words, and the kind of reward term that would help."""

    problem: str
    kind: str  # kind of term: place, turn, hold, steady, economy, ...; see evolution.scripted.terms
