"""The cost of scoring states with a program, and the number of states to score at once."""

from __future__ import annotations

from dataclasses import dataclass

CHUNK_BYTES = 256 << 20  # limit of the intermediate values that one program holds at once
FEWEST = 64  # states that are scored at once: with fewer, the overhead of loops dominates


@dataclass(frozen=True)
class Cost:
    """The estimated cost of one program; zero if unknown (a program that was not vetted)."""

    call_s: float = 0.0  # s per call, independent of the number of states: loop overhead
    state_s: float = 0.0  # s per state
    state_bytes: int = 0  # intermediate values alive at the same time, per state

    def at_once(self, states: int) -> int:
        """Return how many of `states` states to score at once, so that memory does not grow with the batch."""
        return min(states, max(FEWEST, CHUNK_BYTES // max(self.state_bytes, 1)))

    def seconds(self, states: int) -> float:
        """Return the time on one core for `states` states, s."""
        return -(-states // max(self.at_once(states), 1)) * self.call_s + states * self.state_s
