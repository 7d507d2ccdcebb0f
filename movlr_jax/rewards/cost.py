"""What scoring states with a program takes, and how many states are scored at once."""

from __future__ import annotations

from dataclasses import dataclass

CHUNK_BYTES = 256 << 20  # of intermediate values that one program may hold at once
FEWEST = 64  # states that are scored at once: with fewer, loops cost more than what is computed in them


@dataclass(frozen=True)
class Cost:
    """Of one program, as its operations say; nothing where that is not known (a program that was not vetted)."""

    call_s: float = 0.0  # s, of one call, whatever the number of states: turns of loops
    state_s: float = 0.0  # s, of each state
    state_bytes: int = 0  # of intermediate values that live at the same time, of each state

    def at_once(self, states: int) -> int:
        """How many of so many states are scored at once, so that memory is bounded whatever the batch."""
        return min(states, max(FEWEST, CHUNK_BYTES // max(self.state_bytes, 1)))

    def seconds(self, states: int) -> float:
        """Of one core, for so many states."""
        return -(-states // max(self.at_once(states), 1)) * self.call_s + states * self.state_s
