"""The option `--quick` of the benchmarks: the smallest measurement, which shows that a benchmark works."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# a task of the tests that takes seconds: the leg with 7 muscles lifts its foot
TINY_TASK = Path(__file__).resolve().parent.parent / "tests" / "support" / "tiny_task.py"
TINY = [
    f"+task={TINY_TASK}", "optimizer=mppi", "optimizer.mppi.samples=4", "optimizer.horizon_s=0.08",
    "episode_s=0.3",
]  # fmt: skip


def read_options(parser: argparse.ArgumentParser, **quick: Any) -> argparse.Namespace:
    """Parse the command line. `--quick` makes `quick` the defaults of the options; options that are given count."""
    text = " ".join(["the smallest measurement, within 60 s of processor time:", *_words(quick)])
    parser.add_argument("--quick", action="store_true", help=text.removesuffix(":").replace("%", "%%"))
    given = parser.parse_args()
    if given.quick:
        parser.set_defaults(**quick)
        given = parser.parse_args()
    return given


def _words(quick: Mapping[str, Any]) -> list[str]:
    """Return options as they are written on a command line. Those without a value there (None) are left out."""
    words = []
    for name, value in quick.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        if value is not None:
            words += ["--" + name.replace("_", "-"), *(Path(str(v)).name for v in values)]
    return words


def searched(folder: Path) -> Path:
    """Return the run directory of a search that takes seconds, in `folder`."""
    command = [sys.executable, "-m", "movlr_jax.search", *TINY, "candidates=2", "generations=1", "films=false"]
    subprocess.run([*command, f"run_dir={folder / 'run'}"], check=True, stdout=sys.stderr)
    return folder / "run"
