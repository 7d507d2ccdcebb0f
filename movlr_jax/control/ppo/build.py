"""Build the PPO trainer from the settings: observations, actions, start states and physics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import mujoco
import numpy as np
from brax.training.agents.ppo.networks import PPONetworks

from movlr_jax.biomech.world import world_of
from movlr_jax.control.config import OptimizerConfig
from movlr_jax.control.mpc.prior import PriorSpace
from movlr_jax.control.ppo import actions as spaces
from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.anticipation import learned_targets
from movlr_jax.control.ppo.config import REFERENCE, PpoConfig, motion_files
from movlr_jax.control.ppo.interface import Starts, action_space, observation
from movlr_jax.control.ppo.policy_file import acting_settings, load_policy, other_actions, policy_settings
from movlr_jax.control.ppo.symmetry import action_reflection, observation_reflection, symmetric
from movlr_jax.control.ppo.teaching import ReferenceTeacher, Teacher
from movlr_jax.control.ppo.trainer import Agent, Ppo
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.physics.choose import choose, planning_physics
from movlr_jax.physics.domain import draw
from movlr_jax.physics.native import NativePhysics
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.strides import stride_starts
from movlr_jax.tasks.walking.walker import Walker
from movlr_jax.types import Step

_TEACHER, _PRIOR = "optimizer.ppo.teacher", "optimizer.prior.policy"
_SEED = 0  # of the start states and the domain randomisation, the same for all searches
_STILL = np.zeros(3)
_SAG, _STRAY = 0.03, 0.1  # m, up and down, and to the side
_DISTANT = 1e3  # m
_HUNG, _HELD, _HELD_DT = (
    0.5,
    20.0,
    0.005,
)  # m above the ground, assist and carry, s: to learn a stride in the air
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
    if groups := tuple(space.notes.get("groups", {}).values()):  # policies keep the groups that they command
        config = replace(config, ppo=replace(config.ppo, action="groups", muscle_groups=groups))
    if config.ppo.init and (note := other_actions(config.ppo.init, acting_settings(config))):
        say(f"note: {note}")
    sim = NativePhysics(space.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    steps: dict[str, Any] = {"sim_dt": config.sim_dt, "ctrl_dt": config.ctrl_dt}
    train = sim
    domain = draw(task.ranges, config.ppo.envs, _SEED) if task.ranges else None
    if config.ppo.train_dt:
        steps["sim_dt"] = config.ppo.train_dt
    model = space.model
    if config.ppo.assist:
        speed = np.asarray(task.goals.get("velocity", _STILL), float)
        model = assisted(model, starts[0].mean(axis=0), config.ppo.assist, speed, config.ppo.carry)
    if choose(physics)[0] != "native":
        made = replace(task, model=model)
        train = planning_physics(physics, made, **steps, say=say, domain=domain, graph=config.warp_graph)
    elif domain is not None or config.ppo.train_dt or config.ppo.assist:
        coarse = config.ppo.train_dt > 0
        train = NativePhysics(model, task.layout, **steps, domain=domain, coarse=coarse)
    observe = observation(config.ppo, task, starts[0][0])
    view = jax.tree.map(lambda x: np.asarray(x)[0], sim.start(*starts).step)
    (observations,) = jax.eval_shape(observe, view).shape
    network = _networks(config.ppo, task, observations, space.size)
    teacher = _teacher(config, task, view, space, say)
    starts, times = _with_motions(config.ppo, task, *_with_strides(config.ppo, task, starts))
    starts, times, levels = _on_levels(config.ppo, task, starts, times)
    return Ppo(config, task, Agent(observe, space, network, starts, times, levels, teacher), train, sim, say)


def _reference_teacher(
    optimizer: OptimizerConfig,
    task: Task,
    start: Step,
    space: spaces.ActionSpace,
    say: Callable[[str], object],
    setting: str = _TEACHER,
) -> ReferenceTeacher:
    """Return the teacher of a recorded stride, which `setting` names. Raises UserError."""
    if space.targets is None or not task.reference or task.layout.reference_by != "phase":
        posture = "" if setting == _PRIOR else "optimizer.ppo.action=posture, and "
        raise UserError(
            f"{setting}={REFERENCE} needs joint targets as actions and a recorded stride: give {posture}"
            "reference=people or reference=FILE.mot reference_by=phase"
        )
    hung = Walker(task.model, task.adapter).moved(np.asarray(start.qpos, float), np.array([0.0, 0.0, _HUNG]))
    held = assisted(space.model, hung, _HELD, carry=_HELD)
    held.opt.timestep, held.opt.integrator = _HELD_DT, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    targets, left = learned_targets(task, space, held, hung, optimizer.ctrl_dt)
    say(f"  reference: targets of the stride learned in the air, {np.rad2deg(left):.1f} degrees off")
    frequency = float(task.goals["stride_frequency"])
    network = learning.networks(optimizer.ppo, 1, space.size)
    return ReferenceTeacher(frequency, targets, space, network, optimizer.ppo.noise or 0.3)


def _networks(config: PpoConfig, task: Task, observations: int, actions: int) -> PPONetworks:
    """Return policy and value networks of the settings. Raises UserError."""
    network = learning.networks(config, observations, actions)
    if not config.mirror:
        return network
    return symmetric(network, observation_reflection(config, task), action_reflection(config, task))


def _with_strides(config: PpoConfig, task: Task, starts: Starts) -> tuple[Starts, np.ndarray | None]:
    """Return the start states of a training, with those in the middle of strides, and their times.

    Raises UserError.
    """
    if not config.stride_starts:
        return starts, None
    if task.layout.reference_by != "phase" or not task.reference:
        raise UserError(
            f"optimizer.ppo.stride_starts={config.stride_starts:g} needs a recorded stride: give "
            "reference=people, or reference=FILE.mot reference_by=phase"
        )
    count = round(config.stride_starts * config.starts)
    time, *states = stride_starts(task, np.random.default_rng(_SEED + 1), count)
    qpos, qvel, act = (np.concatenate(both) for both in zip(starts, states, strict=True))
    return (qpos, qvel, act), np.concatenate([np.zeros(len(starts[0])), time])


def _with_motions(
    config: PpoConfig, task: Task, starts: Starts, times: np.ndarray | None
) -> tuple[Starts, np.ndarray | None]:
    """Return the start states and times of a training, with those in the middle of the recorded episodes.

    Raises UserError.
    """
    if not config.motions:
        return starts, times
    files = motion_files(config.motions)
    if not files:
        raise UserError(
            f"optimizer.ppo.motions={list(config.motions)}: no recorded episode there; give the run_dir of an "
            "evaluation, or files such as gen_00/k00.npz of a search"
        )
    episodes = [EpisodeRecord.read(file, task.model) for file in files]
    rng, count = np.random.default_rng(_SEED + 2), round(config.motion_starts * config.starts)
    chosen = [episodes[i] for i in rng.integers(len(episodes), size=count)]
    at = [(episode, rng.integers(len(episode.time))) for episode in chosen]
    more = [np.array([getattr(e, name)[t] for e, t in at]) for name in ("qpos", "qvel", "act", "time")]
    times = np.zeros(len(starts[0])) if times is None else times
    qpos, qvel, act, times = (np.concatenate(both) for both in zip((*starts, times), more, strict=True))
    return (qpos, qvel, act), times


def _on_levels(
    config: PpoConfig, task: Task, starts: Starts, times: np.ndarray | None
) -> tuple[Starts, np.ndarray | None, int]:
    """Return the start states and times of a training on each level of the ground, and the number of levels.

    Raises UserError.
    """
    if not config.curriculum:
        return starts, times, 1
    if not len(task.levels):
        raise UserError(
            f"optimizer.ppo.curriculum=true: {task.name} has no harder ground to begin on; leave it out "
            "(humanoid_stairs has, and a task of your own with Task.levels)"
        )
    walker, (qpos, *rest) = Walker(task.model, task.adapter), starts
    moved = [walker.moved(q, np.array(move)) for move in task.levels for q in qpos]
    count = len(task.levels)
    qvel, act = (np.tile(x, (count, 1)) for x in rest)
    return (np.array(moved), qvel, act), None if times is None else np.tile(times, count), count


def _teacher(
    optimizer: OptimizerConfig,
    task: Task,
    start: Step,
    space: spaces.ActionSpace,
    say: Callable[[str], object],
) -> Teacher | ReferenceTeacher | None:
    """Load the teacher of the settings with the observations named in its file. Raises UserError."""
    config = optimizer.ppo
    if not config.teacher:
        return None
    actions = space.size
    if config.teacher == REFERENCE:
        return _reference_teacher(optimizer, task, start, space, say)
    settings = policy_settings(config.teacher, config, _TEACHER)
    if note := other_actions(config.teacher, acting_settings(optimizer), _TEACHER):
        say(f"note: {note}")
    observe = observation(settings, task, np.asarray(start.qpos))
    (observations,) = jax.eval_shape(observe, start).shape
    network = _networks(settings, task, observations, actions)
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


def prior_space(
    config: OptimizerConfig, task: Task, say: Callable[[str], object] = lambda text: None
) -> tuple[PriorSpace, mujoco.MjModel]:
    """Return the plan space around the policy or the recorded stride `config.prior`, and its model.

    The file of a policy defines its shapes. Raises UserError.
    """
    if config.prior.policy == REFERENCE:
        numbers, space = _stride(config, task, say)
    else:
        settings = policy_settings(config.prior.policy, config.ppo, _PRIOR)
        untrained = replace(settings, init=config.prior.policy, env_steps=0)
        ppo = build_ppo(replace(config, name="ppo", ppo=untrained), task, say=say)
        numbers, space = ppo.acting(), ppo.space
    return PriorSpace(numbers, space, config.knots, config.horizon_s, config.spline), space.model


def _stride(
    config: OptimizerConfig, task: Task, say: Callable[[str], object]
) -> tuple[Callable[[Step, jax.Array], jax.Array], spaces.ActionSpace]:
    """Return the actions that command the recorded stride, which no training has changed, and their space."""
    config = replace(config, ppo=shaped(replace(config.ppo, init="", action="posture"), task))
    starts = task.start(np.random.default_rng(_SEED), 1)
    space = action_space(config, task, starts)
    sim = NativePhysics(space.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    view = jax.tree.map(lambda x: np.asarray(x)[0], sim.start(*starts).step)
    sim.close()
    teacher = _reference_teacher(config, task, view, space, say, _PRIOR)
    return lambda view, key: teacher.action(view), space


def assisted(
    model: mujoco.MjModel, qpos: np.ndarray, share: float, velocity: np.ndarray = _STILL, carry: float = 0.0
) -> mujoco.MjModel:
    """Return a copy of the model with springs that hold the floating base upright and in heading, as at `qpos` [nq].

    Assistance as in the curriculum of Yu et al. (2018). share: stiffness of each hinge in units of M g h, which
    balances gravity. carry: share of the weight that a spring carries at the height of the start; others keep the
    line and the `velocity` [3] m/s, in units of M g per _STRAY and 1 m/s. Raises UserError for a base without hinges.
    """
    model, data = copy.copy(model), mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    base, world = model.body_parentid[model.jnt_bodyid] == 0, world_of(model)
    hinges = np.flatnonzero(base & (model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE))
    if not len(hinges):
        raise UserError(
            f"optimizer.ppo.assist={share:g} needs a floating base with hinges, but this one has none; set it to 0"
        )

    def spring(j: Any, stiffness: float, damping: float, at: Any) -> None:
        model.jnt_stiffness[j] += stiffness
        model.dof_damping[model.jnt_dofadr[j]] += damping
        model.qpos_spring[model.jnt_qposadr[j]] = at

    for j in hinges:
        root = model.body_rootid[model.jnt_bodyid[j]]
        weight = model.body_subtreemass[root] * np.linalg.norm(model.opt.gravity)
        stiffness = share * weight * world.height(data.subtree_com[root])
        spring(j, stiffness, _DAMPED * stiffness, qpos[model.jnt_qposadr[j]])
    for j in np.flatnonzero(base & (model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE)) if carry else ():
        mass = model.body_subtreemass[model.body_rootid[model.jnt_bodyid[j]]]
        force, at = carry * mass * np.linalg.norm(model.opt.gravity), qpos[model.jnt_qposadr[j]]
        up, speed = abs(data.xaxis[j] @ world.up) > 0.5, float(data.xaxis[j] @ velocity)
        if speed:  # a spring to a distant place pulls with the same force everywhere
            spring(j, force * speed / _DISTANT, force, _DISTANT)
        else:
            stiffness = force / (_SAG if up else _STRAY)
            # at the height of the start, the spring carries this share of the weight
            spring(
                j,
                stiffness,
                float(np.sqrt(stiffness * mass)),
                at + up * np.sign(data.xaxis[j] @ world.up) * _SAG,
            )
    return model
