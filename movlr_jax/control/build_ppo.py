"""From settings to a trainer of policies: its spaces, its start states, its physics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np

from movlr_jax.config import OptimizerConfig
from movlr_jax.control import spaces
from movlr_jax.control.dynsyn import find_groups, grouped
from movlr_jax.control.episode import World
from movlr_jax.control.mpc2 import posture_space
from movlr_jax.control.ppo import Ppo
from movlr_jax.control.prior import PriorSpace
from movlr_jax.physics.choose import choose, planning_physics
from movlr_jax.physics.domain import draw
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer
from movlr_jax.tasks import Task


def build_ppo(
    config: OptimizerConfig,
    task: Task,
    physics: str = "native",
    say: Callable[[str], object] = lambda text: None,
    seed: int = 0,
) -> Ppo:
    """PPO on `task`, trained in `physics`; episodes are evaluated in C MuJoCo. Raises UserError.

    Policies trained in another engine, or in worlds that differ as the task's ranges say, show there what they are
    worth.
    """
    starts = task.start(np.random.default_rng(seed), config.ppo.starts)
    space = action_space(config, task, starts)
    sim = NativePhysics(space.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    steps: dict[str, Any] = {"sim_dt": config.sim_dt, "ctrl_dt": config.ctrl_dt}
    train = sim
    domain = draw(task.ranges, config.ppo.envs, seed) if task.ranges else None
    if config.ppo.train_dt:
        steps["sim_dt"] = config.ppo.train_dt
    if choose(physics)[0] != "native":
        made = replace(task, model=space.model)
        train = planning_physics(physics, made, **steps, say=say, domain=domain)
    elif domain is not None or config.ppo.train_dt:
        coarse = config.ppo.train_dt > 0
        train = NativePhysics(space.model, task.layout, **steps, domain=domain, coarse=coarse)
    return Ppo(
        config.name,
        config.ppo,
        train,
        sim,
        Scorer(task.layout, task.goals),
        spaces.observation(task.model, task.layout, task.goals, config.ppo.observe),
        space,
        starts,
        episode_s=task.episode_s,
        world=World(task.over, task.perturb),
        seed=seed,
        say=say,
    )


def prior_space(config: OptimizerConfig, task: Task) -> tuple[PriorSpace, mujoco.MjModel]:
    """Plans around the policy of `config.prior`, which sees and commands as `config.ppo` says, and its model."""
    as_it_is = replace(config.ppo, init=config.prior.policy, env_steps=0)
    ppo = build_ppo(replace(config, name="ppo", ppo=as_it_is), task)
    return PriorSpace(ppo.acting(), ppo.space, config.knots, config.horizon_s), ppo.space.model


def action_space(
    config: OptimizerConfig, task: Task, starts: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> spaces.ActionSpace:
    """What the settings name, around the posture and the activations of the start states (qpos, qvel, act)."""
    kind = "groups" if config.name == "dynsyn" else config.ppo.action
    if kind == "pd":
        return spaces.pd(task.model, config.pd, starts[0][0])
    rest = spaces.resting_controls(task.model, starts[0][0], starts[2].mean(axis=0))
    if kind not in ("groups", "posture"):
        return spaces.controls(task.model, rest)
    physics = NativePhysics(task.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    if kind == "posture":
        made = posture_space(config.muscle, task)
        return spaces.posture(made, physics, starts[0][0], rest, config.pd.beta)
    found = find_groups(
        task.model, task.layout, physics, starts, seconds=config.groups.seconds, count=config.groups.count
    )
    physics.close()
    return grouped(task.model, rest, found, config.groups.correction)
