"""The optimisers of the package by name, each a class of its settings that builds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from movlr_jax.control.base import Optimizer
from movlr_jax.control.build import build_planner
from movlr_jax.control.ppo.config import REFERENCE
from movlr_jax.control.settings import Mpc2Settings, MppiSettings, PpoSettings, Say
from movlr_jax.control.suited import facts_of, suited

if TYPE_CHECKING:
    from movlr_jax.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Mppi(MppiSettings):
    """Plans over knots of the controls, or of joint targets in place of the torques of motors without servos."""

    def suited(self, task: Task) -> Self:
        given = self.plan_dt and self.horizon_s and self.knots and self.replan_every and self.mppi.density
        return self if given else suited(self, facts_of(task, self.space))

    def build(self, task: Task, physics: str, say: Say) -> Optimizer:
        return build_planner(self, task, physics, say)


@dataclass(frozen=True, kw_only=True)
class Mpc2(Mpc2Settings):
    """Plans over target postures, which a muscle law tracks (Wei et al., 2025), or around a policy."""

    def build(self, task: Task, physics: str, say: Say) -> Optimizer:
        return build_planner(self, task, physics, say)

    def acting(self, task: Task) -> Task:
        return _acting(self, task, self.prior.policy, "", "optimizer.prior.policy")


@dataclass(frozen=True, kw_only=True)
class Ppo(PpoSettings):
    """Trains one policy per program."""

    def build(self, task: Task, physics: str, say: Say) -> Optimizer:
        from movlr_jax.control.ppo.build import build_ppo  # Brax takes seconds to import

        return build_ppo(self, task, physics, say)

    def acting(self, task: Task) -> Task:
        return _acting(self, task, self.ppo.init, self.action, "optimizer.ppo.init")


@dataclass(frozen=True, kw_only=True)
class Dynsyn(Ppo):
    """PPO with policies that command groups of muscles which move together (He et al., 2024)."""

    @property
    def action(self) -> str:
        return "groups"


def _acting(config: Mpc2Settings | PpoSettings, task: Task, policy: str, action: str, option: str) -> Task:
    """Return `task` with servos in place of motors, if `action` or that of the file `policy` is PD."""
    if policy not in ("", REFERENCE):
        from movlr_jax.control.ppo.policy_file import policy_settings

        action = policy_settings(policy, config.ppo, option).policy.action
    if action != "pd":
        return task
    from movlr_jax.control.ppo.actions import acting_task

    return acting_task(config, task)
