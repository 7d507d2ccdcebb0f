"""The number of samples that suits a machine: `optimizer.mppi.samples=auto`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from movlr_jax._util.machine import cache_dir, hardware, processor, versions
from movlr_jax._util.settings import plain
from movlr_jax.control.mpc.planner import Planner
from movlr_jax.physics.common import model_bytes
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_SLACK = 1.1  # time per row of the choice over that of the best
_LONGEST_S = 1.0  # of a replan: slower ones would make searches long, not better
_REPEATS = 3
_REWARD = 'WEIGHTS = {"still": 1.0}\ndef reward(state, action):\n    return {"still": -jnp.mean(state.qvel**2)}\n'


def largest(seconds: Mapping[int, float]) -> int:
    """Return the largest N whose time per sample is within 10 % of the best; seconds: N -> s per replan."""
    best = min(s / n for n, s in seconds.items())
    return max(n for n, s in seconds.items() if s / n <= _SLACK * best)


def measured(replan_s: Callable[[int], float | None], sizes: Iterable[int]) -> dict[int, float]:
    """Return N -> s per replan for growing `sizes`, until a replan takes longer than a second.

    replan_s(N) returns None if N samples do not fit into memory.
    """
    found: dict[int, float] = {}
    for n in sizes:
        took = replan_s(n)
        if took is None or (took > _LONGEST_S and found):
            break
        found[n] = took
        if took > _LONGEST_S:
            break
    return found or {min(sizes): 0.0}


def chosen(planner: Planner, candidates: int, say: Callable[[str], object]) -> int:
    """Return the number of samples for `candidates` candidates on this machine; it is measured once."""
    path = cache_dir() / "samples" / f"{_digest(planner, candidates)}.json"
    with contextlib.suppress(OSError, ValueError, KeyError):
        n = int(json.loads(path.read_text(encoding="utf-8"))["samples"])
        say(f"optimizer.mppi.samples=auto: {n}, as measured before on this machine ({path})")
        return n
    say("optimizer.mppi.samples=auto: measuring replans of more and more samples, once for this machine")
    seconds = measured(lambda n: replan_seconds(planner, candidates, n), SIZES)
    n = largest(seconds)
    milliseconds = {size: round(1e3 * s, 2) for size, s in seconds.items()}
    say(f"optimizer.mppi.samples=auto: {n}; ms per replan of {candidates} candidates by samples: {milliseconds}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"samples": n, "replan_ms": milliseconds}) + "\n", encoding="utf-8")
    return n


def replan_seconds(planner: Planner, candidates: int, n: int) -> float | None:
    """Return the time of a replan with N = `n`, the best of three; None if its rollouts do not fit into memory."""
    p = planner
    if p.physics.parts(candidates * n * p.config.mppi.worlds, p.horizon) > 1:
        return None
    config = replace(p.config, mppi=replace(p.config.mppi, samples=n))
    sized = Planner(config, p.task, p.space, p.physics, p.sim_physics)
    rows = [np.repeat(x, candidates, axis=0) for x in p.task.start(np.random.default_rng(0), 1)]
    start, key = p.sim_physics.start(*rows), jax.random.key(0)
    controllers = sized.optimise([load(parse(_REWARD))] * candidates, key)
    home = p.space.held(start)
    plan, best = sized.init(home), np.inf
    for i in range(1 + _REPEATS):  # the first one compiles
        begun = time.perf_counter()
        jax.block_until_ready(controllers.replan(plan, start, start.step, home, key, key).mean)
        best = min(best, time.perf_counter() - begun) if i else best
    return None if len(sized.batches.of(candidates, n)) > 1 else best


def _digest(planner: Planner, candidates: int) -> str:
    """Return a hash of what the time of a replan depends on."""
    model = model_bytes(planner.physics.model)  # pyright: ignore[reportAttributeAccessIssue]
    devices = [device.device_kind for device in jax.local_devices()]
    about: list[Any] = [hardware(), processor(), devices, versions(), planner.physics.name, candidates]
    about += [plain(planner.config), planner.horizon]
    return hashlib.sha256(repr(about).encode() + model).hexdigest()[:16]
