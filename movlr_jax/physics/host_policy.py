"""A policy compiled for the batches of native physics, which calls it from the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.physics.policy import act, row_keys, shared
from movlr_jax.rewards.reads import Reads, reads_of
from movlr_jax.types import Policy, Step

# A batch of one row is computed as two equal rows. With one row, constants have the shape of the whole batch, and
# XLA folds chains of them that it does not fold if they are broadcast: it would round otherwise than in a batch.
_TWICE = np.zeros(2, int)
_PART = 128  # rows of a part of a batch; each call of a compiled policy takes 0.2 ms besides its rows


class HostPolicy:
    """`policy` for whole batches of K candidates, compiled once per shape; `traces` counts the compilations.

    A policy that reads nothing of the state besides its time, as plans of controls do, gives all controls of a
    rollout in one call. The others run at every control step; `workers` run them on parts of a batch of at least
    twice `_PART` rows, because XLA computes the loop of the muscle controller `torque` largely on one core.
    """

    def __init__(self, policy: Policy, candidates: int, traces: Counter[str], workers: Executor):
        self._policy, self._reads, self._workers = policy, dict[Any, Reads](), workers

        @partial(jax.jit, static_argnames="rows")
        def now(params: Any, view: Step, key: jax.Array, t: jax.Array, numbers: jax.Array, rows: int) -> Any:
            traces[f"policy[{len(view.time)}]"] += 1
            keys = row_keys(jax.random.fold_in(key, t), rows, candidates)
            return act(policy, params, view, keys[numbers], candidates)

        @jax.jit
        def ahead(params: Any, view: Step, key: jax.Array, times: jax.Array) -> Any:
            rows = len(view.time)
            traces[f"policy[{rows}]"] += 1

            def each(t: jax.Array, time: jax.Array) -> Any:
                then = view.replace(time=time)  # pyright: ignore[reportAttributeAccessIssue]
                return act(
                    policy, params, then, row_keys(jax.random.fold_in(key, t), rows, candidates), candidates
                )

            return jax.vmap(each, out_axes=1)(jnp.arange(len(times)), times)

        self._now, self._ahead = now, ahead

    def reads(self, params: Any, view: Step, key: jax.Array) -> Reads:
        """Return what the policy reads, given arrays of a batch."""
        leaves, tree = jax.tree.flatten((params, view))
        known = (tree, *[(x.shape[1:], x.dtype) for x in leaves])
        if known not in self._reads:
            shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in leaves]
            one = jax.ShapeDtypeStruct(key.shape, key.dtype)
            call = lambda view, params, key: self._policy(params, view, key)  # noqa: E731
            params, view = tree.unflatten(shapes)
            self._reads[known] = reads_of(call, view, params, one)
        return self._reads[known]

    def every_step(self, params: Any, rows: int, key: jax.Array, device: Any) -> Callable[[Step, int], Any]:
        """Return the policy of a rollout of `rows`: (view [B], control step) -> controls [B, nu] and extras.

        `params` are moved to `device` once; None: to JAX's default device.
        """
        # policies with shared parameters are matrix products, which use all cores, and round by the size of a batch
        whole = 1 < rows < 2 * _PART or shared(params, rows)
        count = 1 if whole else max(1, rows // _PART)
        size = -(-rows // count)
        begins = [min(i * size, rows - size) for i in range(count)]  # parts of one size are compiled once
        places: list[Any] = [slice(begin, begin + size) for begin in begins] if rows > 1 else [_TWICE]

        def of(at: Any, tree: Any) -> Any:
            return tree if whole else jax.tree.map(lambda x: np.asarray(x)[at], tree)

        parts = [(jax.device_put(of(at, params), device), at, np.arange(rows)[at]) for at in places]

        def now(view: Step, t: int) -> tuple[np.ndarray, Any]:
            def act_on(part: tuple[Any, Any, np.ndarray]) -> Any:
                params, at, numbers = part
                return jax.tree.map(
                    np.asarray, self._now(params, of(at, view), key, np.int32(t), numbers, rows)
                )

            if count == 1:
                return jax.tree.map(lambda x: x[:rows], act_on(parts[0]))
            done = list(self._workers.map(act_on, parts))
            return jax.tree.map(lambda *x: _joined(x, places, rows), *done)

        return now

    def ahead(self, params: Any, view: Step, key: jax.Array, times: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return controls [B, T, nu] and extras [B, T, ...] at `times` [T, B] s, for a policy that reads no state."""
        rows, given = len(view.time), _twice(params, view)
        times = np.repeat(times, 2, axis=1) if rows == 1 else times
        return jax.tree.map(lambda x: np.asarray(x)[:rows], self._ahead(*given, key, times))


def _joined(parts: Sequence[np.ndarray], places: Sequence[slice], rows: int) -> np.ndarray:
    """Return an array [rows, ...] of `parts` [n, ...] at `places`, which may overlap."""
    whole = np.empty((rows, *parts[0].shape[1:]), parts[0].dtype)
    for part, place in zip(parts, places, strict=True):
        whole[place] = part
    return whole


def _twice(params: Any, view: Step) -> tuple[Any, Any]:
    """Return a batch of one row as two equal rows; others as they are."""
    if len(view.time) > 1:
        return params, view
    return jax.tree.map(lambda x: np.asarray(x)[_TWICE], (params, view))
