"""From settings to a trainer of policies: its spaces, its start states, its physics."""

from __future__ import annotations

import copy
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
from movlr_jax.errors import UserError
from movlr_jax.physics.choose import choose, planning_physics
from movlr_jax.physics.domain import draw
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer
from movlr_jax.tasks import Task

_DAMPED = 0.2  # s, damping of the springs that help a learner, beside their stiffness


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
    model = space.model
    if config.ppo.assist:
        model = assisted(model, starts[0].mean(axis=0), config.ppo.assist)
    if choose(physics)[0] != "native":
        made = replace(task, model=model)
        train = planning_physics(physics, made, **steps, say=say, domain=domain)
    elif domain is not None or config.ppo.train_dt or config.ppo.assist:
        coarse = config.ppo.train_dt > 0
        train = NativePhysics(model, task.layout, **steps, domain=domain, coarse=coarse)
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
        made = posture_space(config.muscle, task, config.ppo.keep)
        return spaces.posture(made, physics, starts[0][0], rest, config.pd.beta)
    found = find_groups(
        task.model, task.layout, physics, starts, seconds=config.groups.seconds, count=config.groups.count
    )
    physics.close()
    return grouped(task.model, rest, found, config.groups.correction)


def assisted(model: mujoco.MjModel, qpos: np.ndarray, share: float) -> mujoco.MjModel:
    """A copy whose floating base springs hold upright and in heading, as at `qpos` [nq].

    Yu et al., 2018: who learns to walk is helped, and less and less. share 1: about each axis as stiff as weight
    makes an upright body topple, M g h. Raises UserError for a base without hinges.
    """
    model, data = copy.copy(model), mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    hinge = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
    hinges = np.flatnonzero(hinge & (model.body_parentid[model.jnt_bodyid] == 0))
    if not len(hinges):
        raise UserError(
            f"optimizer.ppo.assist={share:g} holds the hinges of a floating base, and this one has none; set it to 0"
        )
    for j in hinges:
        body, dof, at = model.body_rootid[model.jnt_bodyid[j]], model.jnt_dofadr[j], model.jnt_qposadr[j]
        weight = model.body_subtreemass[body] * np.linalg.norm(model.opt.gravity)
        stiffness = share * weight * data.subtree_com[body][2]
        model.jnt_stiffness[j] += stiffness
        model.dof_damping[dof] += _DAMPED * stiffness
        model.qpos_spring[at] = qpos[at]
    return model
