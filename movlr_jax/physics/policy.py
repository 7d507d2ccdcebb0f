"""How a policy of one simulation acts on a batch: the same for every physics.

Candidate k owns rows k*N:(k+1)*N. Random keys follow the row within the candidate, so that what a candidate does
depends neither on its place nor on how many there are. Parameters have leading axis B, or K: a candidate's rows then
share them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from movlr_jax.types import Array, Policy, Step


def row_keys(key: jax.Array, rows: int, candidates: int) -> jax.Array:
    """[rows] keys, the same for every candidate."""
    n = rows // candidates
    return jax.random.split(key, n)[jnp.arange(rows) % n]


def shared(params: Any, rows: int) -> bool:
    """Whether the rows of a candidate share their parameters."""
    leaves = jax.tree.leaves(params)
    return bool(leaves) and len(leaves[0]) != rows


def act(policy: Policy, params: Any, view: Step, key: jax.Array, candidates: int) -> tuple[Array, Any]:
    """`policy` on all rows of `view` [B]: controls [B, nu], and what else it returns."""
    rows = len(view.time)
    if not shared(params, rows):
        return controls_of(jax.vmap(policy)(params, view, row_keys(key, rows, candidates)))
    n = rows // candidates
    mine = jax.tree.map(lambda x: x.reshape(candidates, n, *x.shape[1:]), view)
    each = jax.vmap(jax.vmap(policy, in_axes=(None, 0, 0)), in_axes=(0, 0, None))
    done = each(params, mine, jax.random.split(key, n))
    return controls_of(jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), done))


def controls_of(done: Any) -> tuple[Array, Any]:
    """What a policy returned as (controls, what it returned beside them or None)."""
    return done if isinstance(done, tuple) else (done, None)
