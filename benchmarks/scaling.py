"""Steps/s of the engine against raw physics, and what compiling costs, over batch, horizon and model.

One row per (model, rows, horizon); each starts cold. The last line of stdout is one JSON object with all of them.

    nice python benchmarks/scaling.py --physics native --models tiny_muscle myoarm_r ms_human_700_legs
    python benchmarks/scaling.py --physics warp --rows 512 2048 8192 --models humanoid ms_human_700_legs full700
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from movlr_jax.engine import environment

os.environ[environment.CACHE_SWITCH] = "off"
environment.prepare_environment()
environment.prepare_physics("mjx")

from quick import read_options  # noqa: E402
from record import circumstances, write  # noqa: E402
from workload import rates, workload  # noqa: E402

from movlr_jax.control.build import build_planner  # noqa: E402
from movlr_jax.errors import UserError  # noqa: E402


def measure(physics: str, model: str, rows: int, horizon_s: float, repeats: int, raw: bool) -> dict[str, Any]:
    """One row of the table. Raises UserError."""
    config, task = workload(model, rows, horizon_s)
    begun = time.perf_counter()
    planner = build_planner(config.optimizer, task, physics, lambda text: print(text, file=sys.stderr))
    built = time.perf_counter() - begun
    speed = rates(planner, task, rows, repeats, raw)
    plans = planner.physics
    compiled = {what: s for what, s in getattr(plans, "compile_s", {}).items() if what.startswith("rollout")}
    result = {
        "model": model,
        "actuators": task.model.nu,
        "dofs": task.model.nv,
        "rows": rows,
        "horizon_s": horizon_s,
        "control_steps": planner.horizon,
        "build_s": round(built, 2),
        "compile_s": round(sum(compiled.values()), 2),
        "parts": plans.parts(rows, planner.horizon),
        "changes": list(getattr(plans, "changes", ())),
        **speed,
    }
    planner.sim_physics.close()
    plans.close()
    return result


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Engine steps/s over the batch, one line per model and horizon; raw physics dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    lines = dict.fromkeys((r["model"], r["horizon_s"]) for r in results)
    for i, (model, horizon) in enumerate(lines):
        mine = [r for r in results if (r["model"], r["horizon_s"]) == (model, horizon)]
        at = [r["rows"] for r in mine]
        label = f"{model}, {horizon:g} s"
        axes.plot(at, [r["engine_steps_per_s"] for r in mine], "o-", color=f"C{i % 10}", label=label)
        if "raw_steps_per_s" in mine[0]:
            axes.plot(at, [r["raw_steps_per_s"] for r in mine], "--", color=f"C{i % 10}")
    axes.set(xscale="log", yscale="log", xlabel="rows of a batch", ylabel="steps/s (dashed: raw physics)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--physics", default="native", choices=("native", "mjx", "warp"))
    parser.add_argument("--models", nargs="+", default=["tiny_muscle", "myoarm_r", "ms_human_700_legs"])
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--horizons-s", type=float, nargs="+", default=[0.2, 0.4])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--engine-only", action="store_true", help="without raw physics, which compiles, too")
    parser.add_argument("--out", type=Path, help="folder for the JSON and the plot")
    given = read_options(parser, models=["tiny_muscle"], rows=[4], horizons_s=[0.032], repeats=1)
    results = []
    try:
        for model in given.models:
            for rows in given.rows:
                for horizon in given.horizons_s:
                    results.append(measure(given.physics, model, rows, horizon, given.repeats, not given.engine_only))
                    print(json.dumps(results[-1]), file=sys.stderr)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    result = {"benchmark": "scaling", **circumstances(), "physics": given.physics, "results": results}
    if given.out:
        stem = given.out / f"scaling_{given.physics}"
        write(stem.with_suffix(".json"), result)
        plot(results, stem.with_suffix(".png"))
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
