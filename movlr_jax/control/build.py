"""Build an optimiser and its physics from the settings, once per run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from movlr_jax.control.base import Optimizer
from movlr_jax.control.config import OptimizerConfig
from movlr_jax.control.episode import EpisodeRules
from movlr_jax.control.mpc.knots import ControlSpace
from movlr_jax.control.mpc.mpc2 import posture_space
from movlr_jax.control.mpc.planner import Planner, PlannerConfig, plan_steps
from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.physics.choose import planning_physics
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer
from movlr_jax.tasks import Task

PLANNERS, LEARNERS = ("mpc2", "mppi"), ("ppo", "dynsyn")
OPTIMIZERS = PLANNERS + LEARNERS


def build_optimizer(
    config: OptimizerConfig,
    task: Task,
    physics: str = "native",
    say: Callable[[str], object] = lambda text: None,
) -> Optimizer:
    """Return the optimiser `config.name` on `physics` (native, mjx, warp, auto). Raises UserError."""
    if config.name not in OPTIMIZERS:
        raise UserError(unknown_name("optimizer", config.name, OPTIMIZERS))
    if config.name in PLANNERS:
        return build_planner(config, task, physics, say)
    with needed(f"optimizer={config.name}", "ppo"):
        from movlr_jax.control.ppo.build import build_ppo
    return build_ppo(config, task, physics, say)


def scored_at_once(config: OptimizerConfig, task: Task) -> int:
    """Return the largest number of states scored in one batch per candidate: plans, training data or an episode."""
    plans = config.mppi.samples * plan_steps(config.horizon_s, config.ctrl_dt)
    batch = config.ppo.batch if config.name in LEARNERS else plans
    return max(batch, round(task.episode_s / config.ctrl_dt))


def build_planner(
    config: OptimizerConfig,
    task: Task,
    physics: str = "native",
    say: Callable[[str], object] = lambda text: None,
) -> Planner:
    """Return the planner `config.name`. Raises UserError.

    `physics` (native, mjx, warp, auto) rolls out the plans. Episodes always run in C MuJoCo on the unmodified model,
    so that motions planned in another engine or with fewer contacts are evaluated in the reference physics.
    """
    model, layout, notes = task.model, task.layout, {}
    if config.name == "mpc2" and config.prior.policy:
        with needed("optimizer.prior.policy", "ppo"):
            from movlr_jax.control.ppo.build import prior_space
        space, model = prior_space(config, task)
        notes = {"action": "added to the actions of a trained policy", "policy": config.prior.policy}
    elif config.name == "mpc2":
        space = posture_space(
            config.muscle, task, share=config.synergy, knots=config.knots, horizon_s=config.horizon_s
        )
    elif config.name == "mppi":
        space = ControlSpace(model, config.knots, config.horizon_s)
    else:
        raise UserError(unknown_name("optimizer", config.name, PLANNERS))
    planner = Planner(
        config.name,
        PlannerConfig(config.mppi, config.horizon_s, config.replan_every),
        space,
        planning_physics(
            physics, replace(task, model=model), sim_dt=config.plan_dt, ctrl_dt=config.ctrl_dt, say=say
        ),
        NativePhysics(model, layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt),
        Scorer(layout, task.goals),
        EpisodeRules(task.over, task.perturb),
        say,
    )
    planner.notes = notes
    return planner
