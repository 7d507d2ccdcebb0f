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


def is_copy(name: str, params: dict[str, Any]) -> bool:
    """Return whether an equation copies a value; JAX 0.9 writes full_like with a `device_put` to no device."""
    return name == "copy" or (name == "device_put" and all(device is None for device in params["devices"]))
