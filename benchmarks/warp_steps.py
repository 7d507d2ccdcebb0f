"""Where the time of a step of Warp goes: ms per step, solver iterations, and the kernels, without JAX around them.

For each model, all rows start at the task's start states with random controls and step as one CUDA graph, once for
each setting of the solver. Then the kernels of ten steps are timed one by one. With --bare, a model is not in a task,
and its settings are those of its file, as in benchmarks of others. With --drawn, Warp also lists the points of
tendons that only drawing needs, which our engine leaves out. The last line of stdout is one JSON object.

    python benchmarks/warp_steps.py --models ms_human_700_legs myoarm_r --rows 1024 --limits 100,50,1e-8 8,12,1e-6
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

environment.prepare_environment()
environment.prepare_physics("mjx")

import mujoco  # noqa: E402
import numpy as np  # noqa: E402
from quick import read_options  # noqa: E402
from record import circumstances, longest, write  # noqa: E402
from workload import workload  # noqa: E402

from movlr_jax.control.build import build_planner, close  # noqa: E402
from movlr_jax.errors import UserError  # noqa: E402
from movlr_jax.models import model_adapter, nominal_qpos  # noqa: E402
from movlr_jax.models.spec import compile_spec  # noqa: E402
from movlr_jax.physics.mjx import check_warp  # noqa: E402
from movlr_jax.physics.mjx_model import ContactCounts, flatten_tree, probe_contacts, reads_wrap_points, warp_sizes  # noqa: E402
from movlr_jax.types import Array  # noqa: E402

STEPS, TIMED = 50, 10  # steps of a run, and of those timed kernel by kernel
SHOWN = 25  # kernels in the result
JACOBIANS = ("dense", "sparse", "auto")  # by MuJoCo's numbers


def in_task(name: str, rows: int) -> tuple[mujoco.MjModel, ContactCounts, Sequence[Array]]:
    """Return the model as a planner simulates it, the contacts to expect, and start states. Raises UserError."""
    config, task = workload(name, rows, 0.2)
    planner = build_planner(config.optimizer, task, "warp", lambda text: print(text, file=sys.stderr))
    physics: Any = planner.physics
    close(planner)
    return physics.model, physics._probe, task.start(np.random.default_rng(0), min(rows, 64))


def alone(name: str) -> tuple[mujoco.MjModel, ContactCounts, Sequence[Array]]:
    """Return the same for a model without a task. Raises UserError."""
    check_warp()
    adapter = model_adapter(name)
    model = compile_spec(adapter.load())
    flatten_tree(model)
    start = nominal_qpos(model, adapter)[None], np.zeros((1, model.nv)), np.zeros((1, model.na))
    return model, probe_contacts(model, start), start


def measure(
    model: mujoco.MjModel,
    probe: ContactCounts,
    start: Sequence[Array],
    rows: int,
    limits: list[tuple[int, int, float]],
    repeats: int,
    drawn: bool,
) -> dict[str, Any]:
    """One row of the table."""
    import warp as wp  # pyright: ignore[reportMissingImports]
    from mujoco.mjx.third_party import mujoco_warp as mjw  # pyright: ignore[reportMissingImports]

    rng, cuda = np.random.default_rng(0), wp.get_device().is_cuda
    begin = [np.resize(x, (rows, *x.shape[1:])) for x in start]
    controls = rng.uniform(0.0, 0.3, (rows, model.nu)).astype(np.float32)
    sizes = warp_sizes(probe, rows)
    found: dict[str, Any] = {
        "rows": rows,
        "dofs": model.nv,
        "dt": model.opt.timestep,
        "cone": int(model.opt.cone),
        "jacobian": int(model.opt.jacobian),
        **sizes,
        "limits": [],
    }

    def put_model() -> Any:
        put = mjw.put_model(model)
        put.opt.warn_overflow = 0
        if not drawn and not reads_wrap_points(model):
            put.tendon_num.zero_()
        return put

    def fresh() -> Any:
        data = mjw.make_data(model, nworld=rows, **sizes)
        for field, value in zip(("qpos", "qvel", "act"), begin, strict=True):
            if value.size:
                getattr(data, field).assign(value.astype(np.float32))
        data.ctrl.assign(controls)
        return data

    for iterations, line_search, tolerance in limits:
        put = put_model()
        put.opt.iterations, put.opt.ls_iterations = iterations, line_search
        put.opt.tolerance.fill_(tolerance)
        data = fresh()
        mjw.step(put, data)  # loads the kernels
        step = partial(mjw.step, put, data)
        if cuda:
            with wp.ScopedCapture() as capture:
                mjw.step(put, data)
            assert capture.graph is not None
            step = partial(wp.capture_launch, capture.graph)
        taken, counts = [], list[np.ndarray]()
        for repeat in range(repeats + 1):
            began = fresh()
            for field in ("qpos", "qvel", "act", "qacc_warmstart"):
                wp.copy(getattr(data, field), getattr(began, field))
            wp.synchronize()
            begun = time.perf_counter()
            for _ in range(STEPS):
                step()
                if not repeat:
                    counts.append(data.solver_niter.numpy().copy())
            wp.synchronize()
            taken.append(1e3 * (time.perf_counter() - begun) / STEPS)
        each = np.array(counts)
        found["limits"].append(
            {
                "iterations": iterations,
                "line_search": line_search,
                "tolerance": tolerance,
                "ms_per_step": round(statistics.median(taken[1:]), 3),
                "steps_per_s": round(1e3 * rows / statistics.median(taken[1:])),
                "mean_iterations": round(float(each.mean()), 1),
                "slowest_row": [round(float(x), 1) for x in np.quantile(each.max(axis=1), (0.1, 0.5, 0.9, 1.0))],
                "finite": round(float(np.isfinite(data.qpos.numpy()).all(axis=1).mean()), 4),
                "most_rows": int(data.nefc.numpy().max()),
                "contacts": int(data.nacon.numpy()[0]),
            }
        )
        print(json.dumps(found["limits"][-1]), file=sys.stderr)
    if cuda:
        put, data = put_model(), fresh()
        for _ in range(3):
            mjw.step(put, data)
        wp.timing_begin(cuda_filter=wp.TIMING_ALL)
        for _ in range(TIMED):
            mjw.step(put, data)
        events = [(result.name, result.elapsed) for result in wp.timing_end()]
        found["kernel_ms"] = round(sum(ms for _, ms in events) / TIMED, 3)
        found["kernels"] = longest(events, TIMED, SHOWN)
    return found


def limit(text: str) -> tuple[int, int, float]:
    iterations, line_search, tolerance = text.split(",")
    return int(iterations), int(line_search), float(tolerance)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["ms_human_700_legs"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1024])
    parser.add_argument(
        "--limits",
        type=limit,
        nargs="+",
        default=[(100, 50, 1e-8), (100, 50, 1e-6), (8, 12, 1e-6), (5, 8, 1e-5)],
        help="iterations,line search steps,tolerance",
    )
    parser.add_argument("--bare", action="store_true", help="the model without a task")
    parser.add_argument("--drawn", action="store_true", help="with the points of tendons that drawing needs")
    parser.add_argument("--jacobian", choices=JACOBIANS, default="auto", help="how Jacobians are stored")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for the JSON")
    given = read_options(parser, models=["tiny_muscle"], rows=[4], repeats=1)
    results = []
    try:
        for model in given.models:
            for rows in given.rows:
                found = alone(model) if given.bare else in_task(model, rows)
                found[0].opt.jacobian = JACOBIANS.index(given.jacobian)
                row = measure(*found, rows, given.limits, given.repeats, given.drawn)
                results.append({"model": model, "bare": given.bare, "drawn": given.drawn, **row})
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    result = {"benchmark": "warp_steps", **circumstances(), "results": results}
    if given.out:
        write(given.out / "warp_steps.json", result)
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
