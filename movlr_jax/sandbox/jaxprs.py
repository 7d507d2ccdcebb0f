"""Compatibility with different versions of JAX: the parameters of a jaxpr's equations."""

from __future__ import annotations

from typing import Any


def scan_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a `scan` equation with `num_consts` and `num_carry`, as JAX 0.9 and 0.10 have them.

    JAX 0.11 replaced the two counts by `ft_in`, a flat tree of (consts, carry, xs).
    """
    if "ft_in" not in params:
        return params
    consts, carry, _ = params["ft_in"].unpack()
    return params | {"num_consts": len(consts), "num_carry": len(carry)}
