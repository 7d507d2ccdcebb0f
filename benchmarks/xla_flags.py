"""Guards the XLA flag that the commands set: MJX on a CPU with fusion emitters, and without, as the commands have it.

Models whose tendons wrap run up to 160 times slower with them. `gain` is steps/s without over steps/s with; where a
new JAX makes it 1 the flag can go, where it falls below 1 the flag must. The last line of stdout is one JSON object.

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

FLAG = "--xla_cpu_use_fusion_emitters"


def measure(emitters: bool, model: str, rows: int, horizon_s: float) -> dict[str, Any]:
    """One row of the scaling benchmark in a Python of its own, for XLA reads its flags once."""
    arguments = ["--physics", "mjx", "--models", model, "--rows", str(rows), "--horizons-s", str(horizon_s)]
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("scaling.py"), *arguments, "--repeats", "1"],
        env={**os.environ, "XLA_FLAGS": f"{FLAG}={str(emitters).lower()}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    return {**result["results"][0], "versions": result["versions"], "hardware": result["hardware"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="tiny_muscle")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--horizon-s", type=float, default=0.1)
    given = parser.parse_args()
    without, with_them = (measure(on, given.model, given.rows, given.horizon_s) for on in (False, True))
    result = {
        "benchmark": "xla_flags",
        "model": given.model,
        "rows": given.rows,
        "steps_per_s": without["engine_steps_per_s"],
        "steps_per_s_with_emitters": with_them["engine_steps_per_s"],
        "gain": round(without["engine_steps_per_s"] / with_them["engine_steps_per_s"], 2),
        "compile_s": without["compile_s"],
        "compile_s_with_emitters": with_them["compile_s"],
        "versions": without["versions"],
        "hardware": without["hardware"],
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
