"""A first policy from another that sees other things: it acts, and learns what the other would have done.

Imitation in the learner's own states (DAgger; Ross et al., 2011): the teacher acts at first, the learner more and
more; learned are the teacher's distribution of actions and its value, wherever either has led.
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

from movlr_jax.control.ppo.actions import Observe
from movlr_jax.control.ppo.update import Learner
from movlr_jax.types import Array, Step

ROUNDS = 6  # of acting and learning
_MINIBATCH = 2048
_LEARNING_RATE = 1e-3  # at first; it falls to nothing


@dataclass(frozen=True)
class Teacher:
    """A trained policy: what it observes, its networks, what it has learned."""

    observe: Observe
    network: PPONetworks
    learner: Learner

    def beside(self, policy: Callable[..., Any]) -> Callable[..., Any]:
        """`policy` acting, now and then in place of the teacher, whose opinion is noted in any case.

        Its parameters: those of `policy`, and the share of control steps that it acts at.
        """
        mine, value = self.network.policy_network.apply, self.network.value_network.apply
        normalizer, params = self.learner.normalizer, self.learner.params

        def act(params_and_share: Any, view: Step, key: jax.Array) -> Any:
            own, share = params_and_share
            which, own_key, teacher_key = jax.random.split(key, 3)
            seen = self.observe(view)
            logits = mine(normalizer, params.policy, seen)
            command, extras = policy(own, view, own_key, None)
            raw = self.network.parametric_action_distribution.sample_no_postprocessing(logits, teacher_key)
            taught, _ = policy(own, view, own_key, raw)
            chosen = jnp.where(jax.random.uniform(which) < share, command, taught)
            note = {"logits": logits, "value": value(normalizer, params.value, seen)}
            return chosen, {**extras, **note}

        return act


def divergence(network: PPONetworks, teacher: Array, student: Array) -> jax.Array:
    """KL(teacher | student) [...] of the actions before they are bounded, normals by logits [..., 2 na]."""
    p, q = (network.parametric_action_distribution.create_dist(x) for x in (teacher, student))
    return jnp.sum(
        jnp.log(q.scale / p.scale) + (p.scale**2 + (p.loc - q.loc) ** 2) / (2 * q.scale**2) - 0.5, axis=-1
    )


def taught(
    learner: Learner,
    network: PPONetworks,
    watch: Callable[[Learner, float, jax.Array], dict[str, np.ndarray]],
    key: jax.Array,
    say: Callable[[str], object],
    epochs: int = 12,
) -> Learner:
    """`learner` after what it saw of its teacher in rounds of `watch`.

    watch (learner, share of steps at which it acts itself, key) -> observation [S, no], and the teacher's logits
    [S, 2 na] and value [S].
    """
    data: list[dict[str, np.ndarray]] = []
    for number in range(ROUNDS):
        watch_key, fit_key = jax.random.split(jax.random.fold_in(key, number))
        data.append(watch(learner, min(number / (ROUNDS - 2), 1.0), watch_key))
        seen = running_statistics.update(learner.normalizer, jnp.asarray(data[-1]["observation"]))
        learner = learner.replace(normalizer=seen)  # pyright: ignore[reportAttributeAccessIssue]
        known = {name: jnp.asarray(np.concatenate([d[name] for d in data])) for name in data[0]}
        params, error = _fit(network, learner, known, fit_key, epochs)
        learner = learner.replace(params=params)  # pyright: ignore[reportAttributeAccessIssue]
        say(f"  taught by {len(known['value']):,} control steps: {float(error):.3g} nats from the teacher")
    return learner


def _fit(
    network: PPONetworks, learner: Learner, data: dict[str, jax.Array], key: jax.Array, epochs: int
) -> tuple[Any, jax.Array]:
    """The networks' parameters after `epochs` over the data, and the mean divergence in the last of them."""
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
