"""How a policy of one simulation acts on a batch: the same for every physics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from movlr_jax.types import Policy, Step


def act(policy: Policy, params: Any, view: Step, key: jax.Array, candidates: int) -> Any:
    """`policy` on all rows of `view` [B]; candidate k owns rows k*N:(k+1)*N.

    params have leading axis B, or K = `candidates`: a candidate's rows then share its parameters. Random keys
    follow the row within the candidate, so that what a candidate does depends neither on its place nor on K.
    """
    rows = len(view.time)
    n = rows // candidates
    keys = jax.random.split(key, n)
    leaves = jax.tree.leaves(params)
    if not leaves or len(leaves[0]) == rows:
        return jax.vmap(policy)(params, view, keys[jnp.arange(rows) % n])
    mine = jax.tree.map(lambda x: x.reshape(candidates, n, *x.shape[1:]), view)
    done = jax.vmap(jax.vmap(policy, in_axes=(None, 0, 0)), in_axes=(0, 0, None))(params, mine, keys)
    return jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), done)
