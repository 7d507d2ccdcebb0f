"""Static optimisation of muscle activations: Newton's method on the dual problem against scipy's NNLS.

Postures at which episodes start, with the contacts of the feet; processor time, one thread, the two in turn. The last
line of stdout is one JSON object.

    OMP_NUM_THREADS=1 python benchmarks/static_optimisation.py --out benchmarks/results
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from quick import read_options
from record import circumstances, write
from scipy.optimize import nnls
from workload import FULL, workload

from movlr_jax.biomech.static_optimisation import least_forces
from movlr_jax.control.build import build_planner
from movlr_jax.errors import UserError


def by_nnls(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the same as `least_forces` by the active-set method of Lawson and Hanson (1974)."""
    stacked = np.vstack([columns, np.eye(columns.shape[1])])
    return nnls(stacked, np.append(target, np.zeros(columns.shape[1])), maxiter=10**5)[0]


def measure(model: str, postures: int, repeats: int) -> dict[str, Any]:
    """One row of the table. Raises UserError."""
    config, task = workload(model, 4)
    planner = build_planner(config.optimizer, task, "native")
    optimiser, rows = planner.space.static, list[tuple[float, float, float]]()
    errors, shape = list[float](), (0, 0)
    for qpos in task.start(np.random.default_rng(0), postures)[0]:
        (columns, target), assembly = _timed(lambda q=qpos: optimiser.problem(q), 1)
        ours, ours_s = _timed(lambda c=columns, t=target: least_forces(c, t), repeats)
        theirs, theirs_s = _timed(lambda c=columns, t=target: by_nnls(c, t), repeats)
        rows.append((assembly, ours_s, theirs_s))
        errors.append(float(np.abs(ours - theirs).max() / theirs.max()))
        shape = columns.shape
    assembly, ours_s, theirs_s = (1e3 * statistics.median(x) for x in zip(*rows, strict=True))
    return {
        "model": model,
        "muscles": task.model.nu,
        "torques": shape[0],
        "unknowns": shape[1],
        "assembly_ms": round(assembly, 2),
        "newton_ms": round(ours_s, 2),
        "nnls_ms": round(theirs_s, 2),
        "speed_up": round(statistics.median(t / o for _, o, t in rows), 1),
        "speed_up_with_assembly": round(statistics.median((a + t) / (a + o) for a, o, t in rows), 1),
        "greatest_difference": max(errors),  # as a share of the greatest force
    }


def _timed(function: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    """Return what `function` returns, and its shortest processor time, s."""
    times, result = list[float](), None
    for _ in range(repeats):
        begun = time.process_time()
        result = function()
        times.append(time.process_time() - begun)
    return result, min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["myoarm_r", "ms_human_700_legs", FULL])
    parser.add_argument("--postures", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for the JSON")
    given = read_options(parser, models=["tiny_muscle"], postures=2, repeats=1)
    try:
        results = [measure(model, given.postures, given.repeats) for model in given.models]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    result = {"benchmark": "static_optimisation", **circumstances(), "results": results}
    if given.out:
        write(given.out / "static_optimisation.json", result)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
