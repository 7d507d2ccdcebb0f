"""Estimates of the memory that a batch needs and of the free memory, and arrays that JAX reads without a copy."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import jax
import mujoco
import numpy as np

GIB = 2**30
_SHARE = 0.7  # of the free memory for a batch: XLA's own needs are not known in advance
_ALIGNED = 64  # bytes; JAX's CPU device copies arguments that do not begin at a multiple of it
_COPIES = 3  # copies of a simulation's data that a step holds at once: before, after, and intermediate values


def free_memory(device: Any) -> int:
    """Return the bytes that a batch may use on a JAX device; for a CPU device, its share of the free memory."""
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return int(_SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0)))
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(_SHARE * pages / len(jax.local_devices()))


def row_bytes(model: mujoco.MjModel, template: object, steps: int) -> int:
    """Return the bytes of one row of a rollout of `steps` control steps: its trajectory and the simulation data."""
    recorded = 1 + model.nq + model.nv + model.na + model.nsensordata + 2 * model.nu
    number = np.dtype(np.float32).itemsize
    data = sum(x.nbytes for x in jax.tree.leaves(template) if hasattr(x, "nbytes"))
    return recorded * number * (steps + 2) + _COPIES * data


def out_of_memory(error: Exception) -> bool:
    """Return whether an error of JAX says that a device has not enough memory."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def aligned(shape: tuple[int, ...], block: np.ndarray | None = None) -> np.ndarray:
    """Return an array of float32 that JAX's CPU device reads without a copy, in `block` or in new memory."""
    size = math.prod(shape) * np.dtype(np.float32).itemsize
    if block is None:
        block = np.empty(size + _ALIGNED, np.uint8)
    first = -block.ctypes.data % _ALIGNED
    return block[first : first + size].view(np.float32).reshape(shape)


class Scratch:
    """The memory of an array, used again by the next one of the same shape as soon as nothing refers to it."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, ...], np.ndarray] = {}
        self._alone = 0  # references to a block without an array in it; every array adds one

    def array(self, shape: tuple[int, ...]) -> tuple[np.ndarray, bool]:
        """Return an array as `aligned` does, and whether it still has the values of the one before."""
        again = shape in self._blocks and sys.getrefcount(self._blocks[shape]) == self._alone
        if not again:
            self._blocks = {shape: aligned(shape).base}
            self._alone = sys.getrefcount(self._blocks[shape])
        return aligned(shape, self._blocks[shape]), again
