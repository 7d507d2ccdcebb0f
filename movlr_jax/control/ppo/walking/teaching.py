"""The first policy imitates a teacher, which may have other observations, or follows a recorded stride.

DAgger (Ross et al., 2011): at first the teacher acts, then increasingly the learner. In all visited states,
the learner is fitted to the teacher's action distribution and value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from brax.training.acme import running_statistics
from brax.training.agents.ppo.networks import PPONetworks

from movlr_jax.control.ppo.actions import ActionSpace, Observe
from movlr_jax.control.ppo.trainer import PpoTrainer
from movlr_jax.control.ppo.update import Learner
from movlr_jax.control.ppo.walking.anticipation import at_phase
from movlr_jax.types import Array, Step

ROUNDS = 6  # of collecting data and fitting
_GROWN_S = 0.8  # s, until the start posture has given way to the recorded motion
_MOST = 0.98  # largest action that is taught; the squashing never reaches 1
_MINIBATCH = 2048
_LEARNING_RATE = 1e-3  # initial value; it decays to 0


@dataclass(frozen=True)
class Teacher:
    """A trained policy: its observation function, networks and parameters."""

    observe: Observe
    network: PPONetworks
    learner: Learner

    def mixed_with(self, policy: Callable[..., Any]) -> Callable[..., Any]:
        """Return `policy` mixed with this teacher, see `_mixed`."""
        normalizer, params = self.learner.normalizer, self.learner.params

        def labels(view: Step) -> tuple[jax.Array, jax.Array]:
            seen = self.observe(view)
            logits = self.network.policy_network.apply(normalizer, params.policy, seen)
            return logits, self.network.value_network.apply(normalizer, params.value, seen)

        return _mixed(self.network, labels, policy)


@dataclass(frozen=True)
class ReferenceTeacher:
    """Commands target angles of a stride, from the start posture on."""

    stride_frequency: float  # Hz
    targets: np.ndarray  # [PHASES, n] rad
    space: ActionSpace
    network: PPONetworks
    noise: float  # standard deviation of the learner's actions before squashing

    def action(self, view: Step) -> jax.Array:
        """Return the action [n] that commands the targets of the stride, grown in from the start posture."""
        targets = self.space.targets
        assert targets is not None
        grown = jnp.clip(view.time / _GROWN_S, 0.0, 1.0)
        stride = at_phase(jnp.asarray(self.targets, jnp.float32), self.stride_frequency * view.time)
        return jnp.clip(targets.action(targets.rest + grown * (stride - targets.rest)), -_MOST, _MOST)

    def mixed_with(self, policy: Callable[..., Any]) -> Callable[..., Any]:
        """Return `policy` mixed with this teacher, see `_mixed`."""
        scale = jnp.full(self.targets.shape[1], jnp.log(jnp.expm1(self.noise)))

        def labels(view: Step) -> tuple[jax.Array, jax.Array]:
            return jnp.concatenate([jnp.arctanh(self.action(view)), scale]), jnp.zeros(())

        return _mixed(self.network, labels, policy)


def _mixed(
    network: PPONetworks, labels: Callable[[Step], tuple[jax.Array, jax.Array]], policy: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a policy that acts at random as `policy` or as the teacher, and always logs the teacher's output.

    Its parameters are those of `policy` and the share of control steps at which `policy` acts. labels: the logits and
    the value of the teacher.
    """

    def act(params_and_share: Any, view: Step, key: jax.Array) -> Any:
        student_params, share = params_and_share
        choice_key, student_key, teacher_key = jax.random.split(key, 3)
        logits, value = labels(view)
        own_ctrl, extras = policy(student_params, view, student_key, None)
        raw = network.parametric_action_distribution.sample_no_postprocessing(logits, teacher_key)
        teacher_ctrl, _ = policy(student_params, view, student_key, raw)
        ctrl = jnp.where(jax.random.uniform(choice_key) < share, own_ctrl, teacher_ctrl)
        return ctrl, {**extras, "logits": logits, "value": value}

    return act


def divergence(network: PPONetworks, teacher: Array, student: Array) -> jax.Array:
    """Return KL(teacher | student) [...] of the actions before squashing, normal with logits [..., 2 na]."""
    p, q = (network.parametric_action_distribution.create_dist(x) for x in (teacher, student))
    return jnp.sum(jnp.log(q.scale / p.scale) + (p.scale**2 + (p.loc - q.loc) ** 2) / (2 * q.scale**2) - 0.5, axis=-1)


@dataclass(frozen=True)
class Imitation:
    """Teaches a learner to act as the teacher, in `steps` control steps."""

    teacher: Teacher | ReferenceTeacher
    steps: int

    def __call__(self, ppo: PpoTrainer, learner: Learner, key: jax.Array) -> Learner:
        config = ppo.config
        policy, fleet = self.teacher.mixed_with(ppo.explore), [ppo.fleet(config.envs)]
        segments = -(-self.steps // (ROUNDS * config.envs * config.unroll))

        def collect(learner: Learner, share: float, key: jax.Array) -> dict[str, np.ndarray]:
            params = jax.tree.map(lambda x: np.asarray(x)[None], ((learner.normalizer, learner.params.policy), share))
            found = []
            for segment_key in jax.random.split(key, segments):
                segment, fleet[0] = ppo.collect(params, fleet[0], segment_key, 1, policy)
                found.append({n: np.asarray(x)[segment.valid] for n, x in segment.trajectory.extras.items()})
            return {name: np.concatenate([f[name] for f in found]) for name in ("observation", "logits", "value")}

        return imitate(learner, ppo.network, collect, key, ppo.say)


def imitate(
    learner: Learner,
    network: PPONetworks,
    collect: Callable[[Learner, float, jax.Array], dict[str, np.ndarray]],
    key: jax.Array,
    say: Callable[[str], object],
    epochs: int = 12,
) -> Learner:
    """Return `learner` after `ROUNDS` rounds of `collect` and fitting to the teacher.

    collect: (learner, share of steps at which the learner acts, key) -> observation [S, no], and the logits [S, 2 na]
    and value [S] of the teacher.
    """
    data: list[dict[str, np.ndarray]] = []
    for number in range(ROUNDS):
        collect_key, fit_key = jax.random.split(jax.random.fold_in(key, number))
        data.append(collect(learner, min(number / (ROUNDS - 2), 1.0), collect_key))
        normalizer = running_statistics.update(learner.normalizer, jnp.asarray(data[-1]["observation"]))
        learner = learner.replace(normalizer=normalizer)
        known = {name: jnp.asarray(np.concatenate([d[name] for d in data])) for name in data[0]}
        params, error = _fit(network, learner, known, fit_key, epochs)
        learner = learner.replace(params=params)
        say(
            f"  imitation: {len(known['value']):,} control steps, "
            f"KL divergence from the teacher {float(error):.3g} nats"
        )
    return learner


def _fit(
    network: PPONetworks, learner: Learner, data: dict[str, jax.Array], key: jax.Array, epochs: int
) -> tuple[Any, jax.Array]:
    """Fit the networks for `epochs` and return their parameters and the mean divergence of the last epoch."""
    rows = min(len(data["value"]), _MINIBATCH)
    count = len(data["value"]) // rows
    optimizer = optax.adam(optax.linear_schedule(_LEARNING_RATE, 0.0, epochs * count))
    normalizer = learner.normalizer

    def loss(params: Any, part: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        logits = network.policy_network.apply(normalizer, params.policy, part["observation"])
        value = network.value_network.apply(normalizer, params.value, part["observation"])
        apart = divergence(network, part["logits"], logits).mean()
        return apart + jnp.square(value - part["value"]).mean(), apart

    def step(carry: Any, chosen: jax.Array) -> Any:
        params, state = carry
        grads, apart = jax.grad(loss, has_aux=True)(params, jax.tree.map(lambda x: x[chosen], data))
        change, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, change), state), apart

    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, len(data["value"]))[: count * rows]
        return jax.lax.scan(step, carry, order.reshape(count, rows))

    @jax.jit
    def run(params: Any) -> Any:
        carry, apart = jax.lax.scan(epoch, (params, optimizer.init(params)), jax.random.split(key, epochs))
        return carry[0], apart[-1].mean()

    return run(learner.params)
