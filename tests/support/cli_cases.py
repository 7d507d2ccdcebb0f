"""The smallest searches, and what their tests call a mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SUPPORT = Path(__file__).parent
TASK = "+task=bottle_pour"
QUICK = [TASK, "candidates=1", "generations=1", "episode_s=0.064", "optimizer.mppi.samples=2",
         "optimizer.horizon_s=0.032", "films=false", "trials=1", "confirm=0"]  # fmt: skip
# the same of the small leg, where it does not matter what is searched for
LEG = [f"+task={SUPPORT / 'tiny_task.py'}", "optimizer=mppi", *QUICK[1:]]
# asks for nothing beyond its run directory
PLAIN = ["model=tiny_muscle", 'instruction="lift the foot"', *LEG[1:]]

Main = Callable[[list[str]], int]
Mistake = Callable[..., str]
