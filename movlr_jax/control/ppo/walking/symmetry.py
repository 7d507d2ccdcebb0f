"""Policies that treat left and right alike: what a mirrored body sees leads to mirrored actions (Yu et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from brax.training.agents.ppo.networks import PPONetworks

from movlr_jax.control.ppo import update as learning
from movlr_jax.control.ppo.config import PolicyConfig, PpoConfig
from movlr_jax.control.ppo.observations import GAIT_MIRROR
from movlr_jax.errors import UserError
from movlr_jax.tasks import Task

# of joints on the two sides: what their names end or begin with
_SIDES = (("_l", "_r"), ("_left", "_right"))


@dataclass(frozen=True)
class Reflection:
    """How the entries of a vector change if the body is reflected: entry i becomes sign[i] x[index[i]]."""

    index: np.ndarray  # [n]
    sign: np.ndarray  # [n]

    def __call__(self, x: jax.Array) -> jax.Array:
        """Reflect vectors [..., n]."""
        return x[..., self.index] * self.sign

    def then(self, other: Reflection) -> Reflection:
        """Return the reflection of a vector that continues with the entries of another one."""
        index = np.concatenate([self.index, other.index + len(self.index)])
        return Reflection(index, np.concatenate([self.sign, other.sign]))


def made_networks(config: PpoConfig, task: Task, observations: int, actions: int) -> PPONetworks:
    """Return policy and value networks of the settings. Raises UserError."""
    network = learning.networks(config, observations, actions)
    if not config.policy.mirror:
        return network
    return symmetric(network, observation_reflection(config.policy, task), action_reflection(config.policy, task))


def action_reflection(config: PolicyConfig, task: Task) -> Reflection:
    """Return the reflection of actions, of which each moves one joint. Raises UserError for other actions."""
    if config.action == "posture":
        return joint_reflection(config.joints, task)
    model = task.model
    joint = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
    if config.action not in ("auto", "controls", "pd") or not joint.all():
        raise UserError(
            f"optimizer.ppo.mirror=true with optimizer.ppo.action={config.action} and {task.adapter.name}: every "
            "action must move one joint; give optimizer.ppo.action=posture"
        )
    across = joint_reflection([model.joint(i).name for i in model.actuator_trnid[:, 0]], task)
    # a negative gear turns the joint the other way
    turns = np.sign(model.actuator_gear[:, 0]).astype(np.float32)
    return replace(across, sign=across.sign * turns * turns[across.index])


def joint_reflection(joints: Sequence[str], task: Task) -> Reflection:
    """Return the reflection of the angles of `joints`, of which each has a partner on the other side.

    Partners have names as hip_l and hip_r, or l_hip and r_hip; joints of the spine are their own. Their signs follow
    from the axes of the joints in the reference posture of the model, in which the plane of symmetry is y = 0.

    Raises:
        UserError: If a joint has no partner.
    """
    names = list(joints)
    partners = [_partner(name) for name in names]
    if missing := next((a for a, b in zip(names, partners, strict=True) if b not in names), None):
        raise UserError(
            f"optimizer.ppo.mirror=true needs joints in pairs, as hip_flexion_l and hip_flexion_r, but {missing} has "
            "no partner among those that the actions move"
        )
    data = mujoco.MjData(task.model)
    mujoco.mj_kinematics(task.model, data)
    joint = [task.model.joint(name).id for name in names]
    axes, index = data.xaxis[joint], np.array([names.index(name) for name in partners])
    # a rotation about an axis in the plane changes its direction, one about the normal does not; slides the reverse
    slides = task.model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE
    sign = np.sign(np.sum(axes * [-1.0, 1.0, -1.0] * axes[index], axis=1)) * np.where(slides, -1.0, 1.0)
    return Reflection(index, sign.astype(np.float32))


def _partner(name: str) -> str:
    """Return the name of the joint on the other side, the same if the name has no side."""
    for ends in _SIDES:
        for this, other in (ends, ends[::-1]):
            if name.endswith(this):
                return name.removesuffix(this) + other
            begin = f"{this[1:]}_"
            if name.startswith(begin):
                return f"{other[1:]}_" + name.removeprefix(begin)
    return name


def observation_reflection(config: PolicyConfig, task: Task) -> Reflection:
    """Return the reflection of what the policy observes. Raises UserError for other observations than these two."""
    joints = joint_reflection(config.joints, task)
    known = {"gait": Reflection(*GAIT_MIRROR), "joints": joints.then(joints)}  # angles, then velocities
    if strange := next((name for name in config.observe if name not in known), None):
        raise UserError(
            f"optimizer.ppo.mirror=true needs observations that can be reflected, gait and joints, not {strange}"
        )
    return reduce(Reflection.then, (known[name] for name in config.observe))


def symmetric(network: PPONetworks, seen: Reflection, acted: Reflection) -> PPONetworks:
    """Return networks whose outputs are means over an observation and its reflection.

    With M the reflections, pi(s) = (g(s) + M g(M s)) / 2 and V(s) = (v(s) + v(M s)) / 2. So pi(M s) = M pi(s) for any
    weights. The scales of the actions, the second half of the outputs, change places without a sign.
    """
    outputs = acted.then(Reflection(acted.index, np.ones_like(acted.sign)))

    def both(part: Any, reflected: Callable[[jax.Array], jax.Array]) -> Any:
        def apply(normalizer: Any, params: Any, observation: jax.Array) -> jax.Array:
            there = part.apply(normalizer, params, seen(jnp.asarray(observation)))
            return 0.5 * (part.apply(normalizer, params, observation) + reflected(there))

        return replace(part, apply=apply)

    policy, value = both(network.policy_network, outputs), both(network.value_network, lambda values: values)
    return PPONetworks(policy, value, network.parametric_action_distribution)  # pyright: ignore[reportCallIssue]
