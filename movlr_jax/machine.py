"""What this process runs on and with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("mujoco", "jax", "jaxlib", "flax", "numpy", "myo-sim", "hydra-core")


def cores() -> int:
    """Cores that this process may run on, which a container or taskset may have cut."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def hardware() -> str:
    return f"{platform.machine()}, {cores()} cores, {platform.system()}"


def versions() -> dict[str, str]:
    """Of Python, this package and those its results depend on."""
    from movlr_jax import __version__

    found = {"movlr-jax": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found
