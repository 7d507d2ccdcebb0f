"""Evaluation of a checked document on reachable and extreme states, in a child that never saw the program's text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from movlr_jax.rewards.cost import Cost
from movlr_jax.rewards.program import bounded, compiler_options
from movlr_jax.rewards.state import Layout
from movlr_jax.sandbox.cost import Measured, slower
from movlr_jax.sandbox.graph import read, run
from movlr_jax.sandbox.inputs import flat, inputs
from movlr_jax.types import Array, Step

_EXTREMES = (-1e3, 0.0, 1e3)
_RUNS, _RUNS_S = 3, 2.0  # runs of a program that seems slow, and s of processor time after which they end


@dataclass(frozen=True)
class Probe:
    """The states that a program is tested on, which the task really reaches."""

    layout: Layout
    goals: Mapping[str, Array]
    steps: Step  # [N, T, ...]
    actions: Array  # [N, T, nu]
    initial: Step  # [N, ...]


def states(probe: Probe) -> tuple[list[np.ndarray], int]:
    """Return the inputs of a reward [M, ...] without goals, and how many of the M states the task reached.

    These are start states and rollout states. The other states are extreme, in all fields at once or in one field.
    """
    n, t = np.shape(probe.actions)[:2]

    def rows(x: Any) -> np.ndarray:
        x = np.asarray(x, np.float32)
        return x.reshape(n * t, *x.shape[2:])

    initial = jax.tree.map(lambda x: np.repeat(np.asarray(x, np.float32), t, axis=0), probe.initial)
    reached = flat(jax.tree.map(rows, probe.steps), rows(probe.actions), initial, {})
    start = flat(probe.initial, np.asarray(probe.actions)[:, 0], probe.initial, {})
    reached = [np.concatenate([np.asarray(a, np.float32), b]) for a, b in zip(start, reached, strict=True)]
    far = [
        [np.full_like(x[:1], value) if field in (None, k) else x[:1] for k, x in enumerate(reached)]
        for value in _EXTREMES
        for field in (None, *range(len(reached)))
    ]
    return [np.concatenate([x, *(f[k] for f in far)]) for k, x in enumerate(reached)], n + n * t


def examine(
    text: bytes, terms: list[str], weights: list[float], probe: Probe, cost: Cost, batch: int
) -> dict[str, Any]:
    """Return {"terms": counts for each term, "states": how many states were scored, "cpu_s": for how long}.

    The counts are those of states and non-finite values, and whether the term is constant. `cost` is the estimated
    one: a program that is `slower` is measured again.
    """
    graph = read(text, terms, inputs(probe.layout))
    goals = [np.asarray(probe.goals[name], np.float32) for name in sorted(probe.goals)]
    values, reached = states(probe)

    def instant(*x: Any) -> list[jax.Array]:
        return run(graph, [*x, *goals])

    rows = len(values[0])
    run_all = jax.jit(jax.vmap(instant), compiler_options=compiler_options()).lower(*values).compile()
    cpu_s, found = _timed(run_all, values)
    if slower(Measured(cost), cpu_s, rows, batch):
        runs_s = [cpu_s]
        while len(runs_s) < _RUNS and sum(runs_s) < _RUNS_S:
            runs_s.append(_timed(run_all, values)[0])
        cpu_s = min(runs_s)
    report = {}
    for i, (term, weight) in enumerate(zip(terms, weights, strict=True)):
        value = np.asarray(found[i])
        finite = bounded(np, value, np.asarray(weight, np.float32))
        report[term] = {
            "states": reached,
            "bad": int((~finite[:reached]).sum()),
            "extremes": len(value) - reached,
            "far": int((~finite[reached:]).sum()),
            "constant": bool((value == value[0]).all()),
        }
    return {"terms": report, "states": rows, "cpu_s": cpu_s}


def _timed(work: Callable[..., Any], values: list[np.ndarray]) -> tuple[float, Any]:
    """Return the processor time of all threads, which does not depend on what else runs here, and the results."""
    began = time.process_time()
    found = jax.device_get(work(*values))
    return time.process_time() - began, found
