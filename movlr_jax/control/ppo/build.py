"""Build the PPO trainer from the settings: observations, actions, start states and physics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import mujoco
import numpy as np

from movlr_jax.control.config import OptimizerConfig
from movlr_jax.control.mpc.mpc2 import posture_space
from movlr_jax.control.mpc.prior import PriorSpace
from movlr_jax.control.ppo import actions as spaces
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.control.ppo.dynsyn import find_groups, grouped
from movlr_jax.control.ppo.observations import gait_view, joint_view
from movlr_jax.control.ppo.policy_file import load_policy, policy_settings
from movlr_jax.control.ppo.teaching import Teacher
from movlr_jax.control.ppo.trainer import Agent, Ppo
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.physics.choose import choose, planning_physics
from movlr_jax.physics.domain import draw
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import Task
from movlr_jax.types import Step

_TEACHER = "optimizer.ppo.teacher"
_SEED = 0  # of the start states and the domain randomisation, the same for all searches
_DAMPED = 0.2  # s, ratio of damping to stiffness of the assisting springs


def build_ppo(
    config: OptimizerConfig,
    task: Task,
    physics: str = "native",
    say: Callable[[str], object] = lambda text: None,
) -> Ppo:
    """Return PPO for `task`, trained in `physics`. Raises UserError.

    Episodes always run in C MuJoCo, so that policies trained in another engine or with domain randomisation
    (`task.ranges`) are evaluated in the reference physics.
    """
    config = replace(config, ppo=shaped(config.ppo, task))
    starts = task.start(np.random.default_rng(_SEED), config.ppo.starts)
    space = action_space(config, task, starts)
    sim = NativePhysics(space.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    steps: dict[str, Any] = {"sim_dt": config.sim_dt, "ctrl_dt": config.ctrl_dt}
    train = sim
    domain = draw(task.ranges, config.ppo.envs, _SEED) if task.ranges else None
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
    observe = observation(config.ppo, task, starts[0][0])
    teacher = _teacher(config.ppo, task, sim.start(*starts).step, space.size)
    return Ppo(config, task, Agent(observe, space, starts, teacher), train, sim, say)


def observation(config: PpoConfig, task: Task, qpos: np.ndarray) -> spaces.Observe:
    """Return the observation function of the settings, relative to the start posture `qpos` [nq]."""
    more = {}
    if "gait" in config.observe:
        more["gait"] = gait_view(task, qpos)
    if "joints" in config.observe:
        more["joints"] = joint_view(task.model, qpos, config.joints)
    return spaces.observation(task.model, task.layout, task.goals, config.observe, more)


def _teacher(config: PpoConfig, task: Task, starts: Step, actions: int) -> Teacher | None:
    """Load the teacher of the settings with the observations named in its file. Raises UserError."""
    if not config.teacher:
        return None
    settings = policy_settings(config.teacher, config, _TEACHER)
    start = jax.tree.map(lambda x: np.asarray(x)[0], starts)
    observe = observation(settings, task, start.qpos)
    (observations,) = jax.eval_shape(observe, start).shape
    network = learning.networks(settings, observations, actions)
    fresh = learning.init(settings, network, observations, jax.random.key(0))
    return Teacher(observe, network, load_policy(config.teacher, fresh, _TEACHER))


def shaped(config: PpoConfig, task: Task) -> PpoConfig:
    """Return `config` with the settings of the initial policy, and with all commanded joints named.

    So a policy trained on two legs can command the legs of a full body. Raises UserError if a joint is not planned.
    """
    if config.init:
        config = policy_settings(config.init, config)
    planned = task.adapter.planned_joints
    for name in config.joints:
        if name not in planned:
            raise UserError(unknown_name("optimizer.ppo.joints: planned joint", name, planned))
    return replace(config, joints=config.joints or planned)


def prior_space(config: OptimizerConfig, task: Task) -> tuple[PriorSpace, mujoco.MjModel]:
    """Return the plan space around the policy `config.prior`, and its model. Its file defines its shapes."""
    settings = policy_settings(config.prior.policy, config.ppo, "optimizer.prior.policy")
    untrained = replace(settings, init=config.prior.policy, env_steps=0)
    ppo = build_ppo(replace(config, name="ppo", ppo=untrained), task)
    return PriorSpace(ppo.acting(), ppo.space, config.knots, config.horizon_s), ppo.space.model


def action_space(
    config: OptimizerConfig, task: Task, starts: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> spaces.ActionSpace:
    """Return the action space of the settings, around the start states (qpos, qvel, act)."""
    kind = "groups" if config.name == "dynsyn" else config.ppo.action
    if kind == "pd":
        return spaces.pd(task.model, config.pd, starts[0][0])
    rest = spaces.resting_controls(task.model, starts[0][0], starts[2].mean(axis=0))
    if kind not in ("groups", "posture"):
        return spaces.controls(task.model, rest)
    physics = NativePhysics(task.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    if kind == "posture":
        made = posture_space(config.muscle, task)
        moved = [task.adapter.planned_joints.index(name) for name in config.ppo.joints]
        return spaces.posture(made, physics, starts[0][0], rest, config.pd.beta, moved)
    found = find_groups(
        task.model, task.layout, physics, starts, seconds=config.groups.seconds, count=config.groups.count
    )
    physics.close()
    return grouped(task.model, rest, found, config.groups.correction)


def assisted(model: mujoco.MjModel, qpos: np.ndarray, share: float) -> mujoco.MjModel:
    """Return a copy of the model with springs that hold the floating base upright and in heading, as at `qpos` [nq].

    Assistance as in the curriculum of Yu et al. (2018). share: stiffness of each hinge in units of M g h, which
    balances gravity. Raises UserError for a base without hinges.
    """
    model, data = copy.copy(model), mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    hinge = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
    hinges = np.flatnonzero(hinge & (model.body_parentid[model.jnt_bodyid] == 0))
    if not len(hinges):
        raise UserError(
            f"optimizer.ppo.assist={share:g} needs a floating base with hinges, but this one has none; set it to 0"
        )
    for j in hinges:
        body, dof, at = model.body_rootid[model.jnt_bodyid[j]], model.jnt_dofadr[j], model.jnt_qposadr[j]
        weight = model.body_subtreemass[body] * np.linalg.norm(model.opt.gravity)
        stiffness = share * weight * data.subtree_com[body][2]
        model.jnt_stiffness[j] += stiffness
        model.dof_damping[dof] += _DAMPED * stiffness
        model.qpos_spring[at] = qpos[at]
    return model
