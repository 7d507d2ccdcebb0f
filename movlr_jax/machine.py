"""What this process runs on and with."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("mujoco", "mujoco-mjx", "warp-lang", "jax", "jaxlib", "flax", "numpy", "myo-sim", "hydra-core")


def cores() -> int:
    """Cores that this process may run on, which a container or taskset may have cut."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def hardware() -> str:
    return f"{platform.machine()}, {cores()} cores, {platform.system()}"


def processor() -> str:
    """A short name of what this machine's processor can do: compiled code for it may use all of that."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = platform.processor()
    able = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), text)
    return f"{platform.machine()}-{hashlib.sha256(able.encode()).hexdigest()[:8]}"


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
