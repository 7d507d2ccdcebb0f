"""Batching of the policy of one simulation, the same for every physics backend.

Candidate k has rows k*N:(k+1)*N. Random keys depend only on the row within the candidate, so the behaviour of a
candidate does not depend on its position or on the number of candidates. The trials of a program count as candidates
here: each has a key of its own. Parameters have leading axis B, or K if all rows of a candidate share them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from movlr_jax.types import Array, Policy, Step


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
