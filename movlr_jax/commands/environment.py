"""Environment variables that must be set before JAX and MuJoCo start."""

from __future__ import annotations

import os
from pathlib import Path

from movlr_jax.film.renderer import set_aside_unusable
from movlr_jax.machine import cache_dir, processor, xla_knows

FUSION_FLAG = "xla_cpu_use_fusion_emitters"
CACHE_SWITCH = "MOVLR_COMPILE_CACHE"  # off: compiled programs are not cached
MJX_THREADS = 16  # XLA threads on a CPU


def prepare_environment() -> None:
    """Set the variables that the user has not set. Commands and the public API call this; an import never does."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    set_aside_unusable()
    # On a CPU, XLA's fusion emitters recompute deep kinematic chains and double the time that rewards take to
    # compile. jaxlib 0.10 is the last version that can switch them off.
    flags = os.environ.get("XLA_FLAGS", "")
    if FUSION_FLAG not in flags and xla_knows(FUSION_FLAG):
        os.environ["XLA_FLAGS"] = f"{flags} --{FUSION_FLAG}=false".strip()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and os.environ.get(CACHE_SWITCH) != "off":
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compile_cache())
        # s, long enough to cache physics but not rewards
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "2")


def prepare_physics(physics: str) -> None:
    """Set what MJX needs on a CPU, if `physics` is mjx or warp. Call it before the first JAX computation.

    A batch in MJX runs many loops. On few cores, with one XLA thread per core, the loops can deadlock. They do not
    with more threads than cores.
    """
    if physics in ("mjx", "warp"):
        os.environ.setdefault("PJRT_NPROC", str(max(MJX_THREADS, os.cpu_count() or 1)))


def compile_cache() -> Path:
    """Return the folder that caches compiled physics between runs. Each kind of processor has its own."""
    return cache_dir() / f"compiled-{processor()}"
