"""Environment variables that must be set before JAX and MuJoCo start."""

from __future__ import annotations

import importlib.util
import os
import sys

from movlr_jax._util.machine import cache_dir, processor, xla_knows
from movlr_jax.film.renderer import set_aside_unusable

FUSION_FLAG = "xla_cpu_use_fusion_emitters"
MEMORY_FLAG = "xla_gpu_temp_buffer_use_separate_color"
CACHE_SWITCH = "MOVLR_COMPILE_CACHE"  # off: compiled programs are not cached
MJX_THREADS = 16  # XLA threads on a CPU


def prepare_environment() -> None:
    """Set the variables that the user has not set. Commands and the public API call this; an import never does.

    JAX reads some of them when it is imported. If that was before, they are set in its configuration too.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    set_aside_unusable()
    # On a CPU, XLA's fusion emitters recompute deep kinematic chains and double the time that rewards take to
    # compile. jaxlib 0.10 is the last version that can switch them off.
    _set_xla_flag(FUSION_FLAG, "false")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and os.environ.get(CACHE_SWITCH) != "off":
        # each kind of processor has its own folder
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache_dir() / f"compiled-{processor()}")
        # s, long enough to cache physics but not rewards
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "2")
        if (jax := sys.modules.get("jax")) and jax.config.jax_compilation_cache_dir is None:
            jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
            seconds = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
            jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)


def prepare_physics(physics: str) -> None:
    """Set what MJX and Warp need, if `physics` uses them. Call it before the first JAX computation.

    A batch in MJX runs many loops. On few cores of a CPU, with one XLA thread per core, the loops can deadlock. They
    do not with more threads than cores.

    Warp captures a step as a CUDA graph, which contains addresses. With memory of its own for temporary arrays, a
    program finds them at the same addresses in each rollout, and one capture serves all: rollouts of 1,024 legs take
    8 % less time on an H200.
    """
    if physics in ("mjx", "warp"):
        os.environ.setdefault("PJRT_NPROC", str(max(MJX_THREADS, os.cpu_count() or 1)))
    if physics in ("auto", "warp") and importlib.util.find_spec("warp"):
        _set_xla_flag(MEMORY_FLAG, "true")


def _set_xla_flag(flag: str, value: str) -> None:
    """Add a flag to XLA_FLAGS, unless the user has set it or XLA does not know it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flag not in flags and xla_knows(flag):
        os.environ["XLA_FLAGS"] = f"{flags} --{flag}={value}".strip()
