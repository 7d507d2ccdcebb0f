"""The hardware and the package versions that this process runs on."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("mujoco", "mujoco-mjx", "warp-lang", "jax", "jaxlib", "flax", "numpy", "myo-sim", "hydra-core")


CORES = "MOVLR_CORES"  # environment variable: the cores that this process should use at most


def cores() -> int:
    """Return the number of cores that this process may use, which a container, taskset or MOVLR_CORES may limit."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if (quota := cpu_quota()) is not None:
        there = min(there, max(1, math.ceil(quota)))
    wanted = os.environ.get(CORES, "")
    return min(there, int(wanted)) if wanted.isdigit() and int(wanted) else there


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return how many cores' worth of time the control groups of this process leave it, as `docker --cpus` sets it.

    None without a limit. The limits of all groups above hold too. In a container, the path of the group may be that
    of the host, which is not there; its files are then at the top. root: of the file systems.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    shares = [0.0]
    for _, kinds, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if kinds and "cpu" not in kinds.split(","):
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for name in (kinds, "cpu") if kinds else ("", "unified"):  # version 1 has a folder for each kind
            top = root / "sys/fs/cgroup" / name
            shares += [_share(top.joinpath(*parts[:n])) for n in range(len(parts) + 1)]
    return min(filter(None, shares), default=None)


def _share(group: Path) -> float:
    """Return quota / period of a control group of version 2 or 1, 0 if there is no limit."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period, *_ = " ".join((group / file).read_text(encoding="utf-8") for file in files).split()
            return max(0.0, float(quota) / float(period))
    return 0.0


def hardware() -> str:
    return f"{platform.machine()}, {cores()} cores, {platform.system()}"


def processor() -> str:
    """Return a short name for the processor's instruction set, which compiled code may depend on."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = platform.processor()
    features = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), text)
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"


def cache_dir() -> Path:
    """Return this package's folder in the user's cache; it may not exist yet."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        root = Path(tempfile.gettempdir()) / f"user-{os.getuid()}"
    return root / "movlr-jax"


def xla_knows(flag: str) -> bool:
    """Return whether the installed XLA accepts `--flag=false` in XLA_FLAGS; an unknown flag aborts the process.

    A child process tries the flag, which takes about 1 s; the result is cached for this version of jaxlib.
    """
    try:
        answer = cache_dir() / "xla-flags" / f"{flag}-{version('jaxlib')}"
    except PackageNotFoundError:
        return False
    with contextlib.suppress(OSError):
        return answer.read_text(encoding="utf-8") == "yes"
    environment = os.environ | {"XLA_FLAGS": f"--{flag}=false", "JAX_PLATFORMS": "cpu"}
    code = "import jax; jax.devices()"
    try:
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return False
    known = done.returncode == 0
    if known or b"Unknown flag" in done.stderr:  # other failures have other causes
        with contextlib.suppress(OSError):
            answer.parent.mkdir(parents=True, exist_ok=True)
            part = answer.with_name(f"{answer.name}.{os.getpid()}")
            part.write_text("yes" if known else "no", encoding="utf-8")
            part.replace(answer)
    return known


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of the packages that its results depend on."""
    from movlr_jax.version import __version__

    found = {"movlr-jax": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found
