"""MJX on a CPU under the XLA flags that the commands set, and under others.

Models whose tendons wrap run up to 160 times slower with the fusion emitters of jaxlib 0.10, so the commands switch
them off; later versions no longer have that switch. `relative` is steps/s over those of the first row, which is what
the commands set: where another row is above 1, the commands should set that. The last line of stdout is one JSON
object.

    nice python benchmarks/xla_flags.py --model myoarm_r
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from quick import read_options

from movlr_jax._util.machine import xla_knows
from movlr_jax.engine.environment import FUSION_FLAG


def measure(flags: str, model: str, rows: int, horizon_s: float) -> dict[str, Any]:
    """One row of the scaling benchmark in a Python of its own, for XLA reads its flags once."""
    arguments = ["--physics", "mjx", "--models", model, "--rows", str(rows), "--horizons-s", str(horizon_s)]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("scaling.py"), *arguments, "--repeats", "1", "--engine-only"],
        env={**os.environ, "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    return {**result["results"][0], "versions": result["versions"], "hardware": result["hardware"]}


def choices() -> list[str]:
    """What the commands set for this XLA, then what else it offers."""
    if xla_knows(FUSION_FLAG):
        return [f"--{FUSION_FLAG}=false", f"--{FUSION_FLAG}=true"]
    return ["", "--xla_cpu_opt_preset=FAST_RUNTIME", "--xla_cpu_opt_preset=FAST_COMPILE"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="tiny_muscle")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--horizon-s", type=float, default=0.1)
    given = read_options(parser, model=str(Path(__file__).with_name("cartpole.xml")), rows=4, horizon_s=0.032)
    measured = [(flags, measure(flags, given.model, given.rows, given.horizon_s)) for flags in choices()]
    first = measured[0][1]
    result = {
        "benchmark": "xla_flags",
        "model": given.model,
        "rows": given.rows,
        "results": [
            {
                "xla_flags": flags,
                "steps_per_s": row["engine_steps_per_s"],
                "relative": round(row["engine_steps_per_s"] / first["engine_steps_per_s"], 2),
                "compile_s": row["compile_s"],
            }
            for flags, row in measured
        ],
        "versions": first["versions"],
        "hardware": first["hardware"],
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
