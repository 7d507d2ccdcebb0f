"""Proposers, judges and critics by name: of this package, registered by a caller, or brought by other packages.

Those that the method and the models choose by themselves are made in `evolution.roles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from movlr_jax._util.parts import Parts

_SCRIPTED = "movlr_jax.evolution.scripted"  # above this layer, so named as another package would name them


@dataclass(frozen=True)
class Auto:
    """The part that method, llm and vlm choose."""


PROPOSERS: Parts[Any] = Parts(
    "proposer", "movlr_jax.proposers", {"auto": Auto, "scripted": f"{_SCRIPTED}.proposer:ScriptedProposer"}
)
JUDGES: Parts[Any] = Parts(
    "judge", "movlr_jax.judges", {"auto": Auto, "metrics": f"{_SCRIPTED}.metrics:MetricsJudge"}
)
CRITICS: Parts[Any] = Parts(
    "critic",
    "movlr_jax.critics",
    {
        "auto": Auto,
        "metrics": f"{_SCRIPTED}.metrics:MetricsCritic",
        "reflection": f"{_SCRIPTED}.metrics:ReflectionCritic",
        "none": f"{_SCRIPTED}.metrics:NoCritic",
    },
)
