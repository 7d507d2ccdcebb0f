"""A policy compiled for the batches of native physics, which calls it from the host."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.physics.policy import act
from movlr_jax.rewards.reads import Reads, reads_of
from movlr_jax.types import Policy, Step


class HostPolicy:
    """`policy` for whole batches of K candidates, compiled once per shape; `traces` counts the compilations.

    A policy that reads nothing of the state besides its time, as plans of controls do, gives all controls of a
    rollout in one call. The others run at every control step.
    """

    def __init__(self, policy: Policy, candidates: int, traces: Counter[str]):
        self._policy, self._reads = policy, dict[Any, Reads]()

        def batched(params: Any, view: Step, key: jax.Array, t: jax.Array) -> Any:
            return act(policy, params, view, jax.random.fold_in(key, t), candidates)

        @jax.jit
        def now(params: Any, view: Step, key: jax.Array, t: jax.Array) -> Any:
            traces[f"policy[{len(view.time)}]"] += 1
            return batched(params, view, key, t)

        @jax.jit
        def ahead(params: Any, view: Step, key: jax.Array, times: jax.Array) -> Any:
            traces[f"policy[{len(view.time)}]"] += 1

            def at(t: jax.Array, time: jax.Array) -> Any:
                return batched(params, view.replace(time=time), key, t)  # pyright: ignore[reportAttributeAccessIssue]

            return jax.vmap(at, out_axes=1)(jnp.arange(len(times)), times)

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

    def now(self, params: Any, view: Step, key: jax.Array, t: int) -> tuple[np.ndarray, Any]:
        """Return the controls [B, nu] of control step `t` and the extras of the policy."""
        rows, given = len(view.time), _twice(params, view)
        return jax.tree.map(lambda x: np.asarray(x)[:rows], self._now(*given, key, np.int32(t)))

    def ahead(self, params: Any, view: Step, key: jax.Array, times: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return controls [B, T, nu] and extras [B, T, ...] at `times` [T, B] s, for a policy that reads no state."""
        rows, given = len(view.time), _twice(params, view)
        times = np.repeat(times, 2, axis=1) if rows == 1 else times
        return jax.tree.map(lambda x: np.asarray(x)[:rows], self._ahead(*given, key, times))


def _twice(params: Any, view: Step) -> tuple[Any, Any]:
    """Return a batch of one row as two equal rows; others as they are.

    With one row, constants have the shape of the whole batch, and XLA folds chains of them that it does not fold if
    they are broadcast, so the results would be rounded differently than in a batch.
    """
    if len(view.time) > 1:
        return params, view
    return jax.tree.map(lambda x: np.repeat(np.asarray(x), 2, axis=0), (params, view))
