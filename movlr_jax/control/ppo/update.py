"""One PPO update of one candidate as pure functions, with Brax's networks, advantages and running statistics.

Data consists of R rows of T steps. A row continues after the end of its episode: these steps are not `valid` and have
no weight, but the first of their observations gives the bootstrap value of a truncated episode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from brax.training.acme import running_statistics, specs
from brax.training.agents.ppo import losses
from brax.training.agents.ppo.networks import PPONetworks, make_ppo_networks

from movlr_jax.control.ppo.config import PpoConfig
from movlr_jax.types import Replaceable

_CONSTANT = 2e-6  # slightly above the smallest standard deviation that Brax allows
_FASTER = 1.5  # factor of the learning rate under target_kl
_RATES = (1e-5, 1e-2)  # its bounds
_CLIP = 10.0  # bound of rewards, in units of the root mean square of the returns


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner(Replaceable):
    """Training state of one candidate."""

    params: losses.PPONetworkParams
    optimizer: Any
    normalizer: Any  # running statistics of observations
    returns: jax.Array  # [N] discounted return of each simulation so far
    return_square: jax.Array  # [] sum of their squares
    return_count: jax.Array  # []


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch(Replaceable):
    """Data of one candidate: M segments of N simulations, R = M x N rows of T steps."""

    observation: jax.Array  # [R, T, no]
    last: jax.Array  # [R, no] after the last step
    raw_action: jax.Array  # [R, T, na] before squashing to [-1, 1]
    log_prob: jax.Array  # [R, T]
    reward: jax.Array  # [R, T]
    terminated: jax.Array  # [R, T] bool, the task ended the episode here
    valid: jax.Array  # [R, T] bool, up to the end of the episode
    ended: jax.Array  # [R] bool, by termination, truncation or divergence


def networks(config: PpoConfig, observations: int, actions: int) -> PPONetworks:
    """Return policy (tanh of a normal) and value networks of observations [no], normalised by running statistics."""
    return make_ppo_networks(
        observations,
        actions,
        partial(normalised, most=config.policy.clip_observation or None),  # pyright: ignore[reportArgumentType]
        policy_hidden_layer_sizes=config.policy.hidden,
        value_hidden_layer_sizes=config.policy.value_hidden,
    )


def normalised(observation: jax.Array, statistics: Any, most: float | None = None) -> jax.Array:
    """Return observations [..., no] normalised by running statistics, and 0 for those that have been constant.

    Divided by the smallest standard deviation, their rounding errors would affect the policy, and so would a constant
    that is another one elsewhere, such as the goals of another task. most: bound of the absolute values.
    """
    scaled = running_statistics.normalize(observation, statistics, most)
    return jnp.where(statistics.std <= _CONSTANT, 0.0, scaled)


def adam(config: PpoConfig) -> optax.GradientTransformation:
    step = (
        optax.inject_hyperparams(optax.adam)(learning_rate=config.update.learning_rate)
        if config.update.target_kl
        else optax.adam(config.update.learning_rate)
    )
    if not config.update.max_grad_norm:
        return step
    return optax.chain(optax.clip_by_global_norm(config.update.max_grad_norm), step)


def init(config: PpoConfig, network: PPONetworks, observations: int, key: jax.Array) -> Learner:
    policy_key, value_key = jax.random.split(key)
    params = losses.PPONetworkParams(
        policy=network.policy_network.init(policy_key),  # pyright: ignore[reportCallIssue]
        value=network.value_network.init(value_key),  # pyright: ignore[reportCallIssue]
    )
    if config.update.noise:
        params = params.replace(policy=_around_zero(params.policy, config.update.noise))
    return Learner(
        params=params,
        optimizer=adam(config).init(params),  # pyright: ignore[reportArgumentType]
        normalizer=running_statistics.init_state(specs.Array((observations,), jnp.dtype("float32"))),
        returns=jnp.zeros(config.envs),
        return_square=jnp.zeros(()),
        return_count=jnp.zeros(()),
    )


def _around_zero(policy: Any, noise: float) -> Any:
    """Change a policy so that its actions before squashing have mean near 0 and standard deviation near `noise`.

    The weights of the last layer are divided by 100 (Andrychowicz et al., 2021, section 3.2).
    """
    layers = policy["params"]
    last = max(layers, key=lambda name: int(name.rpartition("_")[2]))
    half = layers[last]["bias"].shape[0] // 2
    bias = jnp.concatenate([jnp.zeros(half), jnp.full(half, jnp.log(jnp.expm1(noise)))])
    changed = {"kernel": 0.01 * layers[last]["kernel"], "bias": bias}
    return {**policy, "params": {**layers, last: changed}}


def estimates(config: PpoConfig, data: Batch, values: jax.Array, last: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return value targets and generalised advantages [R, T] from values [R, T] and the last value `last` [R].

    Invalid steps are marked as truncated for Brax's GAE: they add nothing, and the sum stops before them. So a
    truncated episode is bootstrapped with the value of the observation after its last step.
    """
    targets, advantages = losses.compute_gae(
        truncation=1 - data.valid.astype(jnp.float32).T,
        termination=data.terminated.astype(jnp.float32).T,
        rewards=data.reward.T,
        values=values.T,
        bootstrap_value=last,
        lambda_=config.update.gae_lambda,
        discount=config.update.discount,
    )
    return targets.T, advantages.T


def loss(
    config: PpoConfig,
    network: PPONetworks,
    params: losses.PPONetworkParams,
    normalizer: Any,
    data: Batch,
    key: jax.Array,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the PPO loss and its parts, each a mean over the valid steps of `data`.

    L = E[-min(rho A, clip(rho, 1 - eps, 1 + eps) A)] + c_v/2 E[(V - V*)^2] - c_e E[H]
    """
    value, dist = network.value_network.apply, network.parametric_action_distribution
    valid = data.valid.astype(jnp.float32)
    count = jnp.maximum(valid.sum(), 1.0)

    def mean(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(data.valid, x, 0.0)) / count

    logits = network.policy_network.apply(normalizer, params.policy, data.observation)
    values = value(normalizer, params.value, data.observation)
    targets, advantages = estimates(config, data, values, value(normalizer, params.value, data.last))
    centred = advantages - mean(advantages)
    advantages = centred / (jnp.sqrt(mean(jnp.square(centred))) + 1e-8)
    log_prob = dist.log_prob(logits, data.raw_action)
    change = jnp.where(data.valid, log_prob - data.log_prob, 0.0)
    ratio = jnp.exp(change)
    clipped = jnp.clip(ratio, 1 - config.update.clip, 1 + config.update.clip)
    policy_loss = -mean(jnp.minimum(ratio * advantages, clipped * advantages))
    value_loss = 0.5 * config.update.value_loss * mean(jnp.square(targets - values))
    # time axis first, as in Brax, for the same random samples
    entropy = mean(dist.entropy(logits.swapaxes(0, 1), key).T)
    total = policy_loss + value_loss - config.update.entropy * entropy
    kl = mean(ratio - 1.0 - change)  # never negative, unlike the mean of -change
    return total, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "kl": kl}


def scaled(config: PpoConfig, learner: Learner, data: Batch) -> tuple[Learner, Batch]:
    """Divide rewards by the root mean square of the discounted returns so far.

    G_t = r_t + gamma G_(t-1), starting at zero in each episode (Engstrom et al., 2020, section 3).
    """
    reward = jnp.where(data.valid, data.reward, 0.0) * config.update.reward_scale
    if not config.update.normalise_returns:
        return learner, data.replace(reward=reward)  # pyright: ignore[reportAttributeAccessIssue]
    n, (rows, steps) = len(learner.returns), reward.shape
    rewards, valid = (x.reshape(rows // n, n, steps) for x in (reward, data.valid))

    def segment(total: jax.Array, this: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rewards, valid, ended = this

        def step(total: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            total = jnp.where(now[1], config.update.discount * total + now[0], total)
            return total, jnp.square(total) * now[1]

        total, squares = jax.lax.scan(step, total, (rewards.T, valid.T))
        return jnp.where(ended, 0.0, total), squares.sum()

    returns, squares = jax.lax.scan(segment, learner.returns, (rewards, valid, data.ended.reshape(-1, n)))
    square, count = learner.return_square + squares.sum(), learner.return_count + valid.sum()
    unit = jnp.sqrt(square / jnp.maximum(count, 1.0)) + 1e-8
    learner = learner.replace(returns=returns, return_square=square, return_count=count)  # pyright: ignore[reportAttributeAccessIssue]
    return learner, data.replace(reward=jnp.clip(reward / unit, -_CLIP, _CLIP))  # pyright: ignore[reportAttributeAccessIssue]


def seen(normalizer: Any, observation: jax.Array, valid: jax.Array) -> Any:
    """Update the running statistics with the valid observations [R, T, no]."""
    updated = running_statistics.update(normalizer, observation, weights=valid.astype(jnp.float32))
    return _where(jnp.any(valid), updated, normalizer)


def updater(config: PpoConfig, network: PPONetworks) -> Callable[..., tuple[Learner, dict[str, jax.Array]]]:
    """Return update(learner, batch, key) -> learner, measures: `epochs` passes over the batch in `minibatches`.

    Gradient steps with a non-finite gradient are skipped and counted.
    """
    step_of, gradient = adam(config), jax.grad(partial(loss, config, network), has_aux=True)

    def update(learner: Learner, data: Batch, key: jax.Array) -> tuple[Learner, dict[str, jax.Array]]:
        rows = len(data.last)
        valid = data.valid & jnp.isfinite(data.observation).all(-1) & jnp.isfinite(data.log_prob)
        # non-finite values would make the gradient NaN even with a weight of zero
        data = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, jnp.zeros_like(x)), data)
        data = data.replace(valid=valid)
        learner, data = scaled(config, learner, data)
        normalizer = learner.normalizer  # the one that was used to collect the data

        def step(carry: Any, part: tuple[Batch, jax.Array]) -> Any:
            params, state = carry
            grads, measures = gradient(params, normalizer, part[0], part[1])
            usable = jnp.isfinite(optax.tree.norm(grads)) & part[0].valid.any()
            change, new = step_of.update(grads, state)
            carry = _where(usable, (optax.apply_updates(params, change), new), carry)
            return carry, {**measures, "skipped": ~usable}

        def epoch(carry: Any, key: jax.Array) -> Any:
            order_key, *keys = jax.random.split(key, 1 + config.update.minibatches)
            order = jax.random.permutation(order_key, rows).reshape(config.update.minibatches, -1)
            return jax.lax.scan(step, carry, (jax.tree.map(lambda x: x[order], data), jnp.stack(keys)))

        carry, measures = jax.lax.scan(
            epoch, (learner.params, learner.optimizer), jax.random.split(key, config.update.epochs)
        )
        skipped = measures.pop("skipped").sum()
        if config.update.target_kl:
            carry = (carry[0], _adapted(config, carry[1], measures["kl"][-1].mean()))
        learner = learner.replace(  # pyright: ignore[reportAttributeAccessIssue]
            params=carry[0], optimizer=carry[1], normalizer=seen(normalizer, data.observation, data.valid)
        )
        return learner, {**{name: x.mean() for name, x in measures.items()}, "skipped": skipped}

    return update


def _adapted(config: PpoConfig, state: Any, kl: jax.Array) -> Any:
    """Return the state of Adam with the learning rate of the next batch. kl: mean over the last epoch, nats."""
    rate = optax.tree.get(state, "learning_rate")
    factor = jnp.where(
        kl > 2 * config.update.target_kl, 1 / _FASTER, jnp.where(kl < 0.5 * config.update.target_kl, _FASTER, 1.0)
    )
    return optax.tree.set(state, learning_rate=jnp.clip(rate * factor, *_RATES))


def _where(condition: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
