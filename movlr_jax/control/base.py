"""The protocols that every planner and trainer implements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax

from movlr_jax.physics.base import Physics
from movlr_jax.rewards.program import RewardProgram, Scorer
from movlr_jax.types import Progress, SimState, Trajectory


class Controllers(Protocol):
    """K controllers, ready to act: what an optimiser returns."""

    @property
    def learning(self) -> Sequence[Mapping[str, Any]]:
        """What each training was like, one per program and key; none where nothing is trained."""
        ...

    @property
    def nonfinite(self) -> Sequence[Mapping[str, int]]:
        """Per candidate, term -> values that the guard replaced while control was sought, so far."""
        ...

    def rollout(self, start: SimState, *, steps: int, key: jax.Array) -> Trajectory:
        """Evaluation episodes: `start` and the result have leading axis K x E.

        key: One key, or the keys [E] of E trials; the noise of a trial comes from its own key alone.
        """
        ...


class Optimizer(Protocol):
    """K reward programs in, K controllers out, in one batch. Built with its task and physics, compiled once."""

    name: str
    physics: Physics  # where plans are rolled out, or policies trained
    sim_physics: Physics  # where episodes are evaluated
    scorer: Scorer
    notes: Mapping[str, Any]  # what is worth recording of how it was built

    @property
    def steps_done(self) -> int:
        """Simulation steps of all its physics since it was built."""
        ...

    def optimise(
        self,
        programs: Sequence[RewardProgram],
        key: jax.Array,
        progress: Progress | None = None,
        folder: Path | None = None,
    ) -> Controllers:
        """key: one key, or the keys [E] of E trials. folder: where long work is kept, to go on with after a crash."""
        ...
