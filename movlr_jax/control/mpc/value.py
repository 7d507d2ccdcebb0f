"""A value function of the state at the end of a plan, so that a planner sees beyond its horizon.

As in POLO (Lowrey et al., 2019): the returns of the best rollouts of each plan, continued by the value of their last
states, are what the value of the states along them is fitted to. Here K values, one per reward program, learn at once
from the rollouts that the planner makes anyway. Values are means of discounted rewards, in the unit of the reward:

    V(s_t) = (1 - g) sum_i g^i r_(t+i),   g = exp(-ctrl_dt / time_s)

An episode that the task ends (a fall) keeps the reward of its last step for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from movlr_jax.control.config import OptimizerConfig
from movlr_jax.control.mpc.value_config import ValueConfig
from movlr_jax.control.ppo.interface import observation
from movlr_jax.rewards.reads import reads_of
from movlr_jax.rewards.state import STEP_SIZES
from movlr_jax.tasks import Task
from movlr_jax.types import Array, SimState, Step, Trajectory

_GAIT = ("gait", "joints")
_OTHERS = ("qpos", "qvel", "act", "touch", "goal")
_FAR = 5.0  # bound of normalised observations, standard deviations
_CHUNK = 50  # gradient steps of one compiled call
_SLOW = 0.05  # share by which the weights of the targets follow


@struct.dataclass
class Learned:
    """The value functions of one candidate: `members` networks of the same shape."""

    weights: Any  # [members, ...] of each layer
    slow: Any  # the same, following slowly: those of targets and plans
    optimizer: Any


@struct.dataclass
class Unit:
    """What networks see and predict, in standard units, of one candidate."""

    middle: Array  # [no]
    scale: Array  # [no]
    reward: Array  # [] mean
    spread: Array  # []


def first_weights(config: ValueConfig, observations: int, key: jax.Array) -> Any:
    """Return the weights of all members: layers of tanh, and a linear one that predicts 0."""
    sizes = (observations, *config.hidden, 1)

    def member(key: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        layers = []
        keys = jax.random.split(key, len(sizes) - 1)
        for i, (a, b) in enumerate(itertools.pairwise(sizes)):
            last = i == len(sizes) - 2
            layers.append((jax.random.normal(keys[i], (a, b)) * (0.0 if last else a**-0.5), jnp.zeros(b)))
        return layers

    return jax.vmap(member)(jax.random.split(key, config.members))


def predicted(weights: Any, unit: Unit, seen: Array) -> jax.Array:
    """Return the values [members, ...] of observations [..., no]."""
    x = jnp.clip((seen - unit.middle) / unit.scale, -_FAR, _FAR)

    def member(layers: Any) -> jax.Array:
        y = x
        for weight, bias in layers[:-1]:
            y = jnp.tanh(y @ weight + bias)
        return (y @ layers[-1][0] + layers[-1][1])[..., 0]

    return jnp.asarray(unit.reward + unit.spread * jax.vmap(member)(weights))


def targets(rewards: Array, values: Array, ended: Array, discount: float, td_lambda: float) -> jax.Array:
    """Return what the values of the first T states of a rollout are fitted to, [..., T]: TD(lambda).

    y_t = (1 - g) r_t + g ((1 - lambda) V(s_(t+1)) + lambda y_(t+1)),   y_T = V(s_T)

    rewards [..., T]; values [..., T + 1]; ended [..., T] bool, whether the episode is over after a step: its value is
    then the reward of that step.
    """

    def back(after: Any, now: Any) -> Any:
        reward, value, over = now
        mixed = (1 - td_lambda) * value + td_lambda * after
        y = (1 - discount) * reward + discount * jnp.where(over, reward, mixed)
        return y, y

    last = values[..., -1]
    steps: Any = tuple(jnp.moveaxis(x, -1, 0) for x in (rewards, values[..., 1:], ended))
    return jnp.moveaxis(jax.lax.scan(back, last, steps, reverse=True)[1], 0, -1)


def plan_costs(rewards: Array, value: Array, ended: Array, discount: float) -> jax.Array:
    """Return the costs [...] of plans, -((1 - g) sum_i g^i r_i + g^T V(s_T)).

    rewards, ended [..., T]; value [...] of the last states.
    """
    rewards, ended = absorbed(rewards, ended)
    last = jnp.where(ended[..., -1], rewards[..., -1], value)
    steps = rewards.shape[-1]
    weights = (1 - discount) * discount ** jnp.arange(steps)
    return -(rewards @ weights + discount**steps * last)


def absorbed(rewards: Array, ended: Array) -> tuple[jax.Array, jax.Array]:
    """Return rewards that stay from the step on that ended the episode, and the flags, which stay as well."""
    over = jnp.cumsum(ended, axis=-1) > 0
    at = jnp.take_along_axis(rewards, jnp.argmax(over, axis=-1)[..., None], axis=-1)
    return jnp.where(over, at, rewards), over


class Memory:
    """The last `capacity` pieces of T steps that each of K candidates learns from."""

    def __init__(self, capacity: int):
        self._capacity, self._total = capacity, 0
        # observations [K, C, T + 1, no], rewards [K, C, T], ends [K, C, T]
        self.held: list[np.ndarray] = []

    @property
    def count(self) -> int:
        return min(self._total, self._capacity)

    def add(self, *new: np.ndarray) -> None:
        """Keep observations [K, n, T + 1, no], rewards [K, n, T] and ends [K, n, T]."""
        if not self.held:
            self.held = [np.zeros((len(x), self._capacity, *x.shape[2:]), x.dtype) for x in new]
        n = new[0].shape[1]
        at = (self._total + np.arange(n)) % self._capacity
        for held, x in zip(self.held, new, strict=True):
            held[:, at] = x
        self._total += n

    def drawn(self, rng: np.random.Generator, updates: int, size: int) -> list[np.ndarray]:
        """Return random pieces [updates, K, size, ...], the same places for all candidates."""
        picked = rng.integers(self.count, size=(updates, size))
        return [np.moveaxis(x[:, picked], 1, 0) for x in self.held]


class HorizonValue:
    """The values of K candidates: learns from the rollouts of plans, and adds to the costs of plans."""

    def __init__(self, config: OptimizerConfig, task: Task, ctrl_dt: float):
        self.config, self.task = config.value, task
        self.discount = float(np.exp(-ctrl_dt / self.config.time_s))
        walks = {"heading", "stride_frequency"} <= set(task.goals)
        what = self.config.observe or (_GAIT if walks else _OTHERS)
        start = task.start(np.random.default_rng(0), 1)
        ppo = replace(
            config.ppo, observe=tuple(what), joints=config.ppo.joints or task.adapter.planned_joints
        )
        self.observe = observation(ppo, task, start[0][0])
        shape: Any = lambda *n: jax.ShapeDtypeStruct(n, jnp.float32)  # noqa: E731
        view = Step(time=shape(), **{n: shape(task.layout.sizes[size]) for n, size in STEP_SIZES.items()})
        self.reads = reads_of(self.observe, view).sensors
        (self.observations,) = jax.eval_shape(self.observe, view).shape
        self.see = jax.jit(jax.vmap(self.observe))
        self.step = optax.adam(self.config.learning_rate)
        self._value = jax.jit(jax.vmap(self._pessimistic))
        self._learn = jax.jit(self._learned)
        self._cost = jax.jit(partial(plan_costs, discount=self.discount))
        self.learned: Learned | None = None
        self.unit: Unit | None = None

    def begin(self, candidates: int, seed: int = 0) -> None:
        """Forget everything, for `candidates` new values."""
        self.candidates, self.unit, self.learned = candidates, None, None
        self._plans, self._played = Memory(self.config.capacity), Memory(self.config.capacity)
        self._rng, self._key = np.random.default_rng(seed), jax.random.key(seed)
        self.errors: list[float] = []

    def costs(
        self, rollouts: Trajectory, totals: Sequence[Array], initial: Step, state: SimState, rows: int
    ) -> np.ndarray:
        """Return the costs [rows, N] of plans from their rollouts [B, T], and note the best ones to learn from.

        totals: rewards [B / K, T] of each candidate. state [rows]: where the plans begin; initial [B]: where the
        episodes began.
        """
        rewards = np.stack([np.asarray(t) for t in totals]).reshape(rows, -1, totals[0].shape[-1])
        n, t = rewards.shape[1:]
        ended = np.zeros((rows, n, t), bool)
        if self.task.over is not None:
            ended[:] = np.asarray(self.task.over(rollouts.steps, initial)).reshape(rows, n, t)
        plain = -rewards.mean(axis=-1)
        cost, k = plain, len(totals)
        if self.learned is not None:
            last = jax.tree.map(lambda x: np.asarray(x)[:, -1], rollouts.steps)
            values = self._value(self.learned.slow, self.unit, self.see(last).reshape(k, rows // k * n, -1))
            cost = np.array(self._cost(rewards, values.reshape(rows, n), ended))
        cost = np.where(np.asarray(rollouts.diverged).reshape(rows, n), np.inf, cost)
        self._note(rollouts, rewards, ended, cost, state, k)
        return cost

    def _note(
        self,
        rollouts: Trajectory,
        rewards: np.ndarray,
        ended: np.ndarray,
        cost: np.ndarray,
        state: SimState,
        k: int,
    ) -> None:
        """Keep the observations, rewards and ends of the best rollouts of every row."""
        (rows, n, t), kept = rewards.shape, min(self.config.kept, rewards.shape[1])
        best = np.argsort(cost, axis=1, kind="stable")[:, :kept]
        flat = (np.arange(rows)[:, None] * n + best).ravel()
        steps = jax.tree.map(
            lambda x: np.asarray(x)[flat].reshape(len(flat) * t, *np.shape(x)[2:]), rollouts.steps
        )
        along = np.asarray(self.see(steps)).reshape(rows, kept, t, self.observations)
        here = np.asarray(self.see(jax.tree.map(lambda x: np.asarray(x, np.float32), state.step)))
        seen = np.concatenate(
            [np.broadcast_to(here[:, None, None], (rows, kept, 1, here.shape[-1])), along], axis=2
        )
        r = np.take_along_axis(rewards, best[..., None], axis=1)
        over = np.take_along_axis(ended, best[..., None], axis=1)
        usable = np.isfinite(np.take_along_axis(cost, best, axis=1)).reshape(k, -1).all(axis=0)
        self._plans.add(*(x.reshape(k, -1, *x.shape[2:])[:, usable] for x in (seen, r, over)))

    def played(self, episodes: Trajectory, rewards: np.ndarray, start: Step, steps: int) -> None:
        """Keep episodes [B, T] and their rewards [B, T], in pieces of `steps` steps. start [B]: their first steps."""
        rows, t = rewards.shape
        flat = jax.tree.map(
            lambda x: np.asarray(x, np.float32).reshape(rows * t, *np.shape(x)[2:]), episodes.steps
        )
        first = jax.tree.map(lambda x: np.asarray(x, np.float32), start)
        seen = np.concatenate(
            [np.asarray(self.see(first))[:, None], np.asarray(self.see(flat)).reshape(rows, t, -1)], axis=1
        )
        over = np.zeros((rows, t), bool)
        if self.task.over is not None:
            over = np.asarray(self.task.over(episodes.steps, start))
        rewards, over = (np.asarray(x) for x in absorbed(rewards, over))
        each = lambda x: x.reshape(self.candidates, -1, *x.shape[1:])  # noqa: E731
        for at in range(0, t - steps + 1, max(1, steps // 4)):
            part = slice(at, at + steps)
            live = (~over[:, part.start]).reshape(self.candidates, -1).any(axis=0)
            self._played.add(
                *(each(x)[:, live] for x in (seen[:, at : at + steps + 1], rewards[:, part], over[:, part]))
            )

    def fit(self) -> None:
        """Set the units by what was seen so far, and fit all K values to it from new weights."""
        data = [m for m in (self._plans, self._played) if m.count]
        if not data:
            return
        seen, rewards = (
            np.concatenate([m.held[i][:, : m.count].reshape(self.candidates, -1, n) for m in data], axis=1)
            for i, n in ((0, self.observations), (1, 1))
        )
        self.unit = Unit(
            middle=seen.mean(axis=1),
            scale=np.maximum(seen.std(axis=1), 1e-3),
            reward=rewards.mean(axis=(1, 2)),
            spread=np.maximum(rewards.std(axis=(1, 2)), 1e-3),
        )
        self._key, key = jax.random.split(self._key)
        weights = first_weights(self.config, self.observations, key)
        one = Learned(weights, weights, self.step.init(weights))
        self.learned = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x)[None], self.candidates, axis=0), one)
        for _ in range(-(-self.config.fits // _CHUNK)):
            self._updated(_CHUNK)

    def learn(self) -> None:
        """Take `updates` gradient steps for all K values, once they are fitted. Call it once per plan."""
        if self.learned is not None and self.config.updates:
            self._updated(self.config.updates)

    def _updated(self, updates: int) -> None:
        """Take gradient steps on rollouts of plans and pieces of episodes, half and half."""
        data = [m for m in (self._plans, self._played) if m.count]
        sizes = (
            [self.config.batch] if len(data) == 1 else [-(-self.config.batch // 2), self.config.batch // 2]
        )
        parts = [m.drawn(self._rng, updates, size) for m, size in zip(data, sizes, strict=True)]
        batch = [np.concatenate(x, axis=2) for x in zip(*parts, strict=True)]
        self.learned, error = self._learn(self.learned, self.unit, *batch)
        self.errors.append(float(np.mean(error)))

    def _pessimistic(self, weights: Any, unit: Unit, seen: Array) -> jax.Array:
        """Return the value [...] of observations [..., no]: the mean of the members less their disagreement."""
        values = predicted(weights, unit, seen)
        return values.mean(axis=0) - self.config.pessimism * values.std(axis=0)

    def _learned(
        self, learned: Learned, unit: Unit, seen: Array, rewards: Array, ended: Array
    ) -> tuple[Learned, jax.Array]:
        """Take the gradient steps of K candidates on seen [U, K, b, T + 1, no], rewards and ended [U, K, b, T]."""
        config = self.config

        def error(weights: Any, unit: Unit, seen: Array, goal: Array) -> jax.Array:
            off = (predicted(weights, unit, seen[:, :-1]) - goal) / unit.spread
            return jnp.mean(optax.losses.huber_loss(off))

        def one(learned: Learned, unit: Unit, seen: Array, rewards: Array, ended: Array) -> Any:
            rewards, ended = absorbed(rewards, ended)
            values = predicted(learned.slow, unit, seen)
            spread = partial(jnp.broadcast_to, shape=values[..., 1:].shape)
            goal = targets(spread(rewards), values, spread(ended), self.discount, config.td_lambda)
            loss, slope = jax.value_and_grad(error)(learned.weights, unit, seen, goal)
            change, optimizer = self.step.update(slope, learned.optimizer)
            weights = optax.apply_updates(learned.weights, change)
            slow = optax.incremental_update(weights, learned.slow, _SLOW)
            return Learned(weights, slow, optimizer), loss

        def update(learned: Learned, data: tuple[Array, Array, Array]) -> Any:
            return jax.vmap(one)(learned, unit, *data)

        return jax.lax.scan(update, learned, (seen, rewards, ended))
