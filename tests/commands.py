"""The smallest search of the real arm, and what its tests call a mistake."""

from __future__ import annotations

from collections.abc import Callable

TASK = "+task=bottle_pour"
QUICK = [TASK, "candidates=1", "generations=1", "episode_s=0.064", "optimizer.mppi.samples=2",
         "optimizer.horizon_s=0.032", "films=false"]  # fmt: skip

Main = Callable[[list[str]], int]
Mistake = Callable[..., str]
