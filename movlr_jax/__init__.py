"""Evolution of reward programs in JAX for musculoskeletal and humanoid control.

    import movlr_jax as mj

    task = mj.load_task("bottle_pour")
    result = mj.evaluate_reward("human", task)
    run = mj.run_search(task, candidates=4, generations=3)

Importing the package changes no environment variable. JAX and MuJoCo are loaded when something of it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from movlr_jax._util.parts import service, setting
from movlr_jax.api import (
    RewardResult,
    SearchCandidate,
    SearchRun,
    evaluate_reward,
    load_reward,
    load_task,
    open_run,
    register_critic,
    register_judge,
    register_law,
    register_method,
    register_model,
    register_optimizer,
    register_proposer,
    register_rule,
    register_task,
    run_search,
)
from movlr_jax.errors import UserError
from movlr_jax.version import __version__

if TYPE_CHECKING:
    from movlr_jax.control.mpc.rules import PlanningRule
    from movlr_jax.control.muscle_controllers import MuscleLaw
    from movlr_jax.control.settings import OptimizerSettings
    from movlr_jax.language.base import Critique, Evaluation, Preference, ProposalRequest, TermAdvice
    from movlr_jax.models import ModelAdapter, ModelInfo
    from movlr_jax.rewards.function import RewardFunction
    from movlr_jax.storage.trajectory import EpisodeRecord
    from movlr_jax.tasks import Task, simple_task

__all__ = [
    "Critique",
    "EpisodeRecord",
    "Evaluation",
    "ModelAdapter",
    "ModelInfo",
    "MuscleLaw",
    "OptimizerSettings",
    "PlanningRule",
    "Preference",
    "ProposalRequest",
    "RewardFunction",
    "RewardResult",
    "SearchCandidate",
    "SearchRun",
    "Task",
    "TermAdvice",
    "UserError",
    "__version__",
    "evaluate_reward",
    "load_reward",
    "load_task",
    "open_run",
    "register_critic",
    "register_judge",
    "register_law",
    "register_method",
    "register_model",
    "register_optimizer",
    "register_proposer",
    "register_rule",
    "register_task",
    "run_search",
    "service",
    "setting",
    "simple_task",
]

_LATER = {  # name -> module, imported at first use
    **dict.fromkeys(("Critique", "Evaluation", "Preference", "ProposalRequest", "TermAdvice"), "language.base"),
    "EpisodeRecord": "storage.trajectory",
    "ModelAdapter": "models",
    "ModelInfo": "models",
    "MuscleLaw": "control.muscle_controllers",
    "OptimizerSettings": "control.settings",
    "PlanningRule": "control.mpc.rules",
    "RewardFunction": "rewards.function",
    "Task": "tasks",
    "simple_task": "tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
