"""Proposers, judges and critics by name: of this package, registered by a caller, or brought by other packages.

An entry is a class or function without arguments that makes one. Those that speak to a language or vision model are
made from `llm=` and `vlm=` (`evolution.parts`) and are not listed here.
"""

from __future__ import annotations

from collections.abc import Callable

from movlr_jax._util.registry import Registry
from movlr_jax.language.base import Critic, Judge, Proposer
from movlr_jax.language.critics.feedback import NoCritic, ReflectionCritic
from movlr_jax.language.judges.metrics import MetricsCritic, MetricsJudge
from movlr_jax.language.proposers.scripted import ScriptedProposer

AUTO = "auto"  # as llm, vlm and method say
PROPOSERS: Registry[Callable[[], Proposer]] = Registry(
    "proposer", "movlr_jax.proposers", {"scripted": ScriptedProposer}
)
JUDGES: Registry[Callable[[], Judge]] = Registry("judge", "movlr_jax.judges", {"metrics": MetricsJudge})
CRITICS: Registry[Callable[[], Critic]] = Registry(
    "critic",
    "movlr_jax.critics",
    {"metrics": MetricsCritic, "reflection": ReflectionCritic, "none": NoCritic},
)
