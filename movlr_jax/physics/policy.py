"""Batching of the policy of one simulation, the same for every physics backend.

Candidate k has rows k*N:(k+1)*N. Random keys depend only on the row within the candidate, so the behaviour of a
candidate does not depend on its position or on the number of candidates. The trials of a program count as candidates
here: each has a key of its own. Parameters have leading axis B, or K if all rows of a candidate share them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.rewards.reads import Reads, reads_of
from movlr_jax.types import Array, Policy, Step

# A batch of one row is computed as two equal rows. With one row, constants have the shape of the whole batch, and
# XLA folds chains of them that it does not fold if they are broadcast: it would round otherwise than in a batch.
_TWICE = np.zeros(2, int)


def row_keys(key: jax.Array, t: Array | int, rows: int, candidates: int) -> jax.Array:
    """Return the keys [rows] of control step `t`, the same for every candidate.

    key: One key, or the keys [E] of E trials: candidate c belongs to trial c % E.
    """
    n, row = rows // candidates, jnp.arange(rows)
    if not key.ndim:
        return jax.random.split(jax.random.fold_in(key, t), n)[row % n]
    each = jax.vmap(lambda one: jax.random.split(jax.random.fold_in(one, t), n))(key)
    return each[row // n % len(key), row % n]


def shared(params: Any, rows: int) -> bool:
    """Return whether the rows of a candidate share their parameters."""
    leaves = jax.tree.leaves(params)
    return bool(leaves) and len(leaves[0]) != rows


def act(policy: Policy, params: Any, view: Step, keys: jax.Array, candidates: int) -> tuple[Array, Any]:
    """Apply `policy` to all rows of `view` [B] with `keys` [B]. Returns controls [B, nu] and the policy's extras."""
    rows = len(view.time)
    if not shared(params, rows):
        return controls_of(jax.vmap(policy)(params, view, keys))
    n = rows // candidates
    mine, each_key = jax.tree.map(lambda x: x.reshape(candidates, n, *x.shape[1:]), (view, keys))
    each = jax.vmap(jax.vmap(policy, in_axes=(None, 0, 0)))
    done = each(params, mine, each_key)
    return controls_of(jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), done))


def controls_of(done: Any) -> tuple[Array, Any]:
    """Return the output of a policy as (controls, extras); extras are None if the policy returns only controls."""
    return done if isinstance(done, tuple) else (done, None)


class HostPolicy:
    """`policy` for whole batches of K candidates in native physics, which calls it from the host.

    It is compiled once per shape; `traces` counts the compilations.

    A policy that reads nothing of the state besides its time, as plans of controls do, gives all controls of a
    rollout in one call. The others run at every control step.
    """

    def __init__(self, policy: Policy, candidates: int, traces: Counter[str]):
        self._policy, self._reads = policy, dict[Any, Reads]()

        @partial(jax.jit, static_argnames="rows")
        def now(params: Any, view: Step, key: jax.Array, t: jax.Array, numbers: jax.Array, rows: int) -> Any:
            traces[f"policy[{len(view.time)}]"] += 1
            keys = row_keys(key, t, rows, candidates)
            return act(policy, params, view, keys[numbers], candidates)

        @jax.jit
        def ahead(params: Any, view: Step, key: jax.Array, times: jax.Array) -> Any:
            rows = len(view.time)
            traces[f"policy[{rows}]"] += 1

            def each(t: jax.Array, time: jax.Array) -> Any:
                then = view.replace(time=time)
                return act(policy, params, then, row_keys(key, t, rows, candidates), candidates)

            return jax.vmap(each, out_axes=1)(jnp.arange(len(times)), times)

        self._now, self._ahead = now, ahead

    def reads(self, params: Any, view: Step, key: jax.Array) -> Reads:
        """Return what the policy reads, given arrays of a batch."""
        leaves, tree = jax.tree.flatten((params, view))
        known = (tree, *[(x.shape[1:], x.dtype) for x in leaves])
        if known not in self._reads:
            shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in leaves]
            one = jax.ShapeDtypeStruct((), key.dtype)
            call = lambda view, params, key: self._policy(params, view, key)  # noqa: E731
            params, view = tree.unflatten(shapes)
            self._reads[known] = reads_of(call, view, params, one)
        return self._reads[known]

    def every_step(
        self, params: Any, rows: int, key: jax.Array, device: Any, at: slice
    ) -> Callable[[Step, int], tuple[np.ndarray, Any]]:
        """Return the policy of the rows `at` of a rollout of `rows`.

        It is a function (their view, control step) -> controls and extras. `params` are moved to `device` once,
        None: to JAX's default device.
        """
        numbers, count = np.arange(rows)[at], at.stop - at.start
        if rows == 1:
            numbers = _TWICE
        if len(numbers) != rows:
            params = jax.tree.map(lambda x: np.asarray(x)[numbers], params)
        params = jax.device_put(params, device)

        def now(view: Step, t: int) -> tuple[np.ndarray, Any]:
            if rows == 1:
                view = jax.tree.map(lambda x: x[_TWICE], view)
            done = self._now(params, view, key, np.int32(t), numbers, rows)
            return jax.tree.map(lambda x: np.asarray(x)[:count], done)

        return now

    def ahead(self, params: Any, view: Step, key: jax.Array, times: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return controls [B, T, nu] and extras [B, T, ...] at `times` [T, B] s, for a policy that reads no state."""
        rows = len(view.time)
        if rows == 1:
            params, view = jax.tree.map(lambda x: np.asarray(x)[_TWICE], (params, view))
            times = np.repeat(times, 2, axis=1)
        return jax.tree.map(lambda x: np.asarray(x)[:rows], self._ahead(params, view, key, times))
