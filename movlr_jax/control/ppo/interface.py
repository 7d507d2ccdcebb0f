"""What a learner observes and commands, by the settings: for the policies of the package and for environments."""

from __future__ import annotations

import numpy as np

from movlr_jax.control.mpc.mpc2 import posture_space
from movlr_jax.control.ppo import actions as spaces
from movlr_jax.control.ppo.config import PolicyConfig
from movlr_jax.control.ppo.dynsyn import checked_groups, find_groups, grouped
from movlr_jax.control.ppo.observations import gait_view, joint_view
from movlr_jax.control.settings import Mpc2Settings, PpoSettings
from movlr_jax.errors import UserError
from movlr_jax.models.motors import TargetSettings
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import controls_text

Starts = tuple[np.ndarray, np.ndarray, np.ndarray]  # qpos [S, nq], qvel [S, nv], act [S, na]


def observation(config: PolicyConfig, task: Task, qpos: np.ndarray) -> spaces.Observe:
    """Return the observation function of the settings, relative to the start posture `qpos` [nq]."""
    more = {}
    if "gait" in config.observe:
        more["gait"] = gait_view(task, qpos)
    if "joints" in config.observe:
        more["joints"] = joint_view(task.model, qpos, config.joints)
    aside = task.scoring.motion.aside if task.scoring.motion else None
    return spaces.observation(task.model, task.layout, task.goals, config.observe, more, aside)


def action_space(config: PpoSettings, task: Task, starts: Starts) -> spaces.ActionSpace:
    """Return the action space of the settings, around the start states (qpos, qvel, act)."""
    kind, policy = config.action, config.ppo.policy
    if kind == "pd":
        return spaces.pd(task.model, config.pd, starts[0][0])
    if kind == "targets":
        return spaces.planned(task, TargetSettings())
    if task.course.rest is None:
        rest = spaces.resting_controls(task.model, starts[0][0], starts[2].mean(axis=0))
    else:
        rest = np.asarray(task.course.rest)
    if kind not in ("groups", "posture"):
        return spaces.controls(task.model, rest)
    if kind == "groups" and policy.muscle_groups:
        of = checked_groups(policy.muscle_groups, task.model.nu)
        return grouped(task.model, rest, of, config.groups.correction)
    physics = NativePhysics(task.model, task.layout, sim_dt=config.sim_dt, ctrl_dt=config.ctrl_dt)
    if kind == "posture":
        made = posture_space(config.muscle, task)
        moved = [task.adapter.planned_joints.index(name) for name in policy.joints]
        limits = policy.reach == "limits"
        return spaces.posture(made, physics, starts[0][0], rest, config.pd.beta, moved, limits)
    found = find_groups(
        task.model, task.layout, physics, starts, seconds=config.groups.seconds, count=config.groups.count
    )
    physics.close()
    return grouped(task.model, rest, found.of, config.groups.correction, {"silhouette": found.silhouette})


def acting_task(config: Mpc2Settings | PpoSettings, task: Task) -> Task:
    """Return `task` with the actuators that joint targets (PD) command, which its measures then also read.

    The controls in the programs that the package wrote for the task become those targets.
    """
    if task.course.holds_controls:
        raise UserError(
            f"optimizer.ppo.action=pd commands joint targets, but {task.name} plays the torques of its own "
            "motors again; use optimizer.ppo.action=controls"
        )
    posture = task.start(np.random.default_rng(0), config.ppo.starts)[0][0]
    space = spaces.pd(task.model, config.pd, posture)
    acting = task.replace(model=space.model, rest=space.rest)
    if not task.rewards.controls:
        return acting
    commanded = controls_text(space.model, acting.resting(posture))
    first = task.rewards.initial.replace(f"jnp.square({task.rewards.controls})", f"jnp.square({commanded})")
    human = first if task.rewards.human == task.rewards.initial else task.rewards.human
    return acting.replace(initial=first, human=human, controls=commanded)
