"""Build the PPO trainer from the settings, and the plan space around a policy or a recorded stride."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax._util.settings import changed
from movlr_jax.control.mpc.knots import PlanSpace, between
from movlr_jax.control.ppo.actions import ActionSpace, Starts, action_space
from movlr_jax.control.ppo.config import REFERENCE, PpoConfig, motion_files
from movlr_jax.control.ppo.observations import observation
from movlr_jax.control.ppo.policy_file import acting_settings, other_actions, policy_settings
from movlr_jax.control.ppo.trainer import Agent, PpoTrainer
from movlr_jax.control.ppo.walking.springs import assisted
from movlr_jax.control.ppo.walking.symmetry import made_networks
from movlr_jax.control.ppo.walking.teaching import PRIOR, first_policy, reference_teacher
from movlr_jax.control.settings import Mpc2Settings, PpoSettings
from movlr_jax.control.targets import posture_of
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.models.motors import targetable
from movlr_jax.physics.base import Physics
from movlr_jax.physics.choose import choose, planning_physics
from movlr_jax.physics.domain import draw
from movlr_jax.physics.native import NativePhysics
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task
from movlr_jax.tasks.walking.strides import stride_starts
from movlr_jax.types import Policy, SimState, Step

_NOISE = 0.3  # of the first policy that commands joint targets, unless it is given
_SEED = 0  # of the start states and the domain randomisation, the same for all searches


def build_ppo(
    config: PpoSettings, task: Task, physics: str = "native", say: Callable[[str], object] = lambda text: None
) -> PpoTrainer:
    """Return PPO for `task`, trained in `physics`. Raises UserError.

    Episodes always run in C MuJoCo, so that policies trained in another engine or with domain randomisation
    (`task.course.ranges`) are evaluated in the reference physics.
    """
    config = replace(config, ppo=shaped(config.ppo, task))
    if config.action == "auto":
        config = replace(config, ppo=_with_action(config.ppo, task))
    guidance = config.ppo.guidance
    starts = task.start(np.random.default_rng(_SEED), config.ppo.starts)
    space = action_space(config, task, starts)
    if groups := tuple(space.notes.get("groups", {}).values()):  # policies keep the groups that they command
        config = replace(config, ppo=changed(config.ppo, action="groups", muscle_groups=groups))
    if config.ppo.init and (note := other_actions(config.ppo.init, acting_settings(config))):
        say(f"note: {note}")
    sim = NativePhysics(space.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    domain = draw(task.course.ranges, config.ppo.envs, _SEED) if task.course.ranges else None
    steps: dict[str, Any] = {"sim_dt": config.ppo.train_dt or config.sim_dt, "ctrl_dt": config.ctrl_dt}
    train, model = sim, space.model
    if guidance.assist:
        speed = np.asarray(task.goals.get("velocity", np.zeros(3)), float)
        model = assisted(model, starts[0].mean(axis=0), guidance.assist, speed, guidance.carry)
    if choose(physics)[0] != "native":
        made = replace(task, model=model)
        train = planning_physics(physics, made, **steps, say=say, domain=domain, graph=config.warp_graph)
    elif domain is not None or config.ppo.train_dt or guidance.assist:
        train = NativePhysics(model, task.layout, **steps, domain=domain, coarse=config.ppo.train_dt > 0)
    observe = observation(config.ppo.policy, task, starts[0][0])
    view = jax.tree.map(lambda x: np.asarray(x)[0], sim.start(*starts).step)
    (observations,) = jax.eval_shape(observe, view).shape
    network = made_networks(config.ppo, task, observations, space.size)
    first = first_policy(config, task, view, space, say)
    agent = Agent(observe, space, network, *_all_starts(config.ppo, task, starts), first)
    return PpoTrainer(config, task, agent, train, sim, say)


def _all_starts(config: PpoConfig, task: Task, starts: Starts) -> tuple[Starts, np.ndarray]:
    """Return the start states of a training and their times [S] s: also in the middle of strides and recordings.

    Raises UserError.
    """
    guidance = config.guidance
    found: list[tuple[np.ndarray, ...]] = [(*starts, np.zeros(len(starts[0])))]
    if share := guidance.stride_starts:
        if task.layout.reference_by != "phase" or not task.reference:
            raise UserError(
                f"optimizer.ppo.stride_starts={share:g} needs a recorded stride: give "
                "reference=people, or reference=FILE.mot reference_by=phase"
            )
        count = round(share * config.starts)
        time, *states = stride_starts(task, np.random.default_rng(_SEED + 1), count)
        found.append((*states, time))
    if guidance.motions:
        files = motion_files(guidance.motions)
        if not files:
            raise UserError(
                f"optimizer.ppo.motions={list(guidance.motions)}: no recorded episode there; give the run_dir of an "
                "evaluation, or files such as gen_00/k00.npz of a search"
            )
        episodes = [EpisodeRecord.read(file, task.model) for file in files]
        rng, count = np.random.default_rng(_SEED + 2), round(guidance.motion_starts * config.starts)
        chosen = [episodes[i] for i in rng.integers(len(episodes), size=count)]
        at = [(episode, rng.integers(len(episode.time))) for episode in chosen]
        found.append(
            tuple(np.array([getattr(e, name)[t] for e, t in at]) for name in ("qpos", "qvel", "act", "time"))
        )
    qpos, qvel, act, times = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return (qpos, qvel, act), times


def shaped(config: PpoConfig, task: Task) -> PpoConfig:
    """Return `config` with the settings of the initial policy, and with all commanded joints named.

    So a policy trained on two legs can command the legs of a full body. Raises UserError if a joint is not planned.
    """
    if config.init:
        config = policy_settings(config.init, config)
    planned = task.adapter.planned_joints
    for name in config.policy.joints:
        if name not in planned:
            raise UserError(unknown_name("optimizer.ppo.joints: planned joint", name, planned))
    return changed(config, joints=config.policy.joints or planned)


def _with_action(config: PpoConfig, task: Task) -> PpoConfig:
    """Return `config` with joint targets as actions where motors without servos drive limbs, else controls.

    A policy that has learned controls goes on with them.
    """
    limbs = targetable(task.model, posture_of(task)).any()
    if config.init or task.course.holds_controls or not limbs:
        return changed(config, action="controls")
    return changed(config, action="targets", noise=config.update.noise or _NOISE)


class PriorSpace(PlanSpace):
    """Plans that are added to the actions of a policy, which acts in closed loop in every rollout and in the episode.

    The motion of the policy alone is always one of the samples, so few samples can improve on it (as in residual
    MPPI, Wang et al., 2024).
    """

    def __init__(
        self,
        numbers: Callable[[Step, jax.Array], jax.Array],
        space: ActionSpace,
        knots: int,
        horizon_s: float,
        spline: str = "linear",
    ):
        """numbers: the policy, (step, key) -> action [size] in [-1, 1]."""
        ones = np.ones(space.size, np.float32)
        super().__init__(-ones, ones, knots, horizon_s, spline)
        self._numbers, self._space = numbers, space

    def policy(self, physics: Physics) -> Policy:
        """Return the policy. Its noise depends only on time, so that rollouts and the episode draw the same noise."""

        def policy(params: Any, view: Step, key: jax.Array) -> jax.Array:
            drawn = jax.random.fold_in(jax.random.key(0), jnp.round(view.time / physics.ctrl_dt).astype(int))
            added = between(params["knots"], view.time - params["start"], self.horizon_s, self.spline)
            numbers = jnp.clip(self._numbers(view, drawn) + added, -1.0, 1.0)
            return self._space.controls(numbers, view, physics.sim_dt, physics.ctrl_dt)

        return policy

    def held(self, state: SimState) -> np.ndarray:
        """Return plans [R, knots, size] of zeros, which add nothing."""
        return np.zeros((len(state.time), self.knots, len(self.lower)), np.float32)


def prior_space(
    config: Mpc2Settings, task: Task, say: Callable[[str], object] = lambda text: None
) -> tuple[PriorSpace, mujoco.MjModel]:
    """Return the plan space around the policy or the recorded stride `config.prior`, and its model.

    The file of a policy defines its shapes. Raises UserError.
    """
    names = ("ctrl_dt", "sim_dt", "warp_graph", "ppo", "pd", "groups", "muscle")
    acting = PpoSettings(**{name: getattr(config, name) for name in names})
    if config.prior.policy == REFERENCE:
        numbers, space = _stride(acting, task, say)
    else:
        settings = policy_settings(config.prior.policy, config.ppo, PRIOR)
        untrained = replace(settings, init=config.prior.policy, env_steps=0)
        ppo = build_ppo(replace(acting, ppo=untrained), task, say=say)
        numbers, space = ppo.acting(sample=ppo.config.acts == "sample"), ppo.space
    return PriorSpace(numbers, space, config.knots, config.horizon_s, config.spline), space.model


def _stride(
    config: PpoSettings, task: Task, say: Callable[[str], object]
) -> tuple[Callable[[Step, jax.Array], jax.Array], ActionSpace]:
    """Return the actions that command the recorded stride, which no training has changed, and their space."""
    config = replace(config, ppo=shaped(changed(config.ppo, init="", action="posture"), task))
    starts = task.start(np.random.default_rng(_SEED), 1)
    space = action_space(config, task, starts)
    sim = NativePhysics(space.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    view = jax.tree.map(lambda x: np.asarray(x)[0], sim.start(*starts).step)
    sim.close()
    teacher = reference_teacher(config, task, view, space, say, PRIOR)
    return lambda view, key: teacher.action(view), space
