"""Policies that treat left and right alike: what a mirrored body sees leads to mirrored actions (Yu et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.training.agents.ppo.networks import PPONetworks

from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.control.ppo.observations import GAIT_MIRROR
from movlr_jax.errors import UserError
from movlr_jax.tasks import Task

_SIDES = {"_l": "_r", "_r": "_l"}


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


def joint_reflection(config: PpoConfig, task: Task) -> Reflection:
    """Return the reflection of the angles of the commanded joints, whose names end in _l and _r. Raises UserError.

    Signs are those by which the adapter turns the joints into clinical angles, which are the same on both sides.
    """
    signs = {c.joint: c.sign for c in task.adapter.opensim}
    names = list(config.joints)
    partners = [name[:-2] + _SIDES.get(name[-2:], "") for name in names]
    if missing := next(
        (name for name, other in zip(names, partners, strict=True) if other not in names), None
    ):
        raise UserError(
            f"optimizer.ppo.mirror=true needs joints in pairs, as hip_flexion_l and hip_flexion_r, but {missing} has "
            "no partner among optimizer.ppo.joints"
        )
    sign = np.array(
        [signs.get(a, 1.0) * signs.get(b, 1.0) for a, b in zip(names, partners, strict=True)], np.float32
    )
    return Reflection(np.array([names.index(name) for name in partners]), sign)


def observation_reflection(config: PpoConfig, task: Task) -> Reflection:
    """Return the reflection of what the policy observes. Raises UserError for other observations than these two."""
    joints = joint_reflection(config, task)
    known = {"gait": Reflection(*GAIT_MIRROR), "joints": joints.then(joints)}  # angles, then velocities
    if strange := next((name for name in config.observe if name not in known), None):
        raise UserError(
            f"optimizer.ppo.mirror=true needs observations that can be reflected, gait and joints, not {strange}"
        )
    first, *rest = (known[name] for name in config.observe)
    for part in rest:
        first = first.then(part)
    return first


def symmetric(network: PPONetworks, seen: Reflection, acted: Reflection) -> PPONetworks:
    """Return networks whose outputs are means over an observation and its reflection.

    With M the reflections, pi(s) = (g(s) + M g(M s)) / 2 and V(s) = (v(s) + v(M s)) / 2. So pi(M s) = M pi(s) for any
    weights. The scales of the actions, the second half of the outputs, change places without a sign.
    """
    outputs = acted.then(Reflection(acted.index, np.ones_like(acted.sign)))
    policy, value = network.policy_network, network.value_network

    def act(normalizer: Any, params: Any, observation: jax.Array) -> jax.Array:
        here = policy.apply(normalizer, params, observation)
        return 0.5 * (here + outputs(policy.apply(normalizer, params, seen(observation))))

    def judge(normalizer: Any, params: Any, observation: jax.Array) -> jax.Array:
        here = value.apply(normalizer, params, observation)
        return 0.5 * (here + value.apply(normalizer, params, seen(jnp.asarray(observation))))

    acting, judging = replace(policy, apply=act), replace(value, apply=judge)
    return PPONetworks(acting, judging, network.parametric_action_distribution)  # pyright: ignore[reportCallIssue]
