"""Batching of the policy of one simulation, the same for every physics backend.

Candidate k has rows k*N:(k+1)*N. Random keys depend only on the row within the candidate, so the behaviour of a
candidate does not depend on its position or on the number of candidates. Parameters have leading axis B, or K if all
rows of a candidate share them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from movlr_jax.types import Array, Policy, Step


def row_keys(key: jax.Array, rows: int, candidates: int) -> jax.Array:
    """Return keys [rows], the same for every candidate."""
    n = rows // candidates
    return jax.random.split(key, n)[jnp.arange(rows) % n]


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
    mine = jax.tree.map(lambda x: x.reshape(candidates, n, *x.shape[1:]), view)
    each = jax.vmap(jax.vmap(policy, in_axes=(None, 0, 0)), in_axes=(0, 0, None))
    done = each(params, mine, keys[:n])
    return controls_of(jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), done))


def controls_of(done: Any) -> tuple[Array, Any]:
    """Return the output of a policy as (controls, extras); extras are None if the policy returns only controls."""
    return done if isinstance(done, tuple) else (done, None)
