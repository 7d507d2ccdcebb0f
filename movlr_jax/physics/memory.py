"""How much memory a batch takes, and how much there is."""

from __future__ import annotations

import os
from typing import Any

import jax
import mujoco
import numpy as np

GIB = 2**30
_SHARE = 0.7  # of the free memory that a batch may take: XLA's own needs are not known beforehand
_COPIES = 3  # of a simulation's data that a step holds at once: before, after, and what lies between


def free_memory(device: Any) -> int:
    """Bytes that a batch may take on `device` of JAX; of a CPU, its part of what the machine has free."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(_SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(_SHARE * pages / len(jax.local_devices()))


def row_bytes(model: mujoco.MjModel, template: object, steps: int) -> int:
    """Bytes of one row of a rollout of `steps` control steps: its trajectory, and the simulation at work."""
    seen = 1 + model.nq + model.nv + model.na + model.nsensordata + 2 * model.nu
    number = np.dtype(np.float32).itemsize
    data = sum(x.nbytes for x in jax.tree.leaves(template) if hasattr(x, "nbytes"))
    return seen * number * (steps + 2) + _COPIES * data
