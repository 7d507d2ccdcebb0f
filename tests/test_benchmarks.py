"""The benchmarks, as small as can be."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
KEYS = [
    "physics",
    "model",
    "k",
    "generations",
    "candidates_per_min",
    "inline_candidates_per_min",
    "process_candidates_per_min",
    "ratio_inline",
    "physics_traces",
    "planner_traces",
    "engine_steps_per_s",
    "raw_steps_per_s",
    "efficiency",
]


def run(script: str, *arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, "--quick", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_candidate_throughput_says_what_it_measured(tmp_path: Path):
    begun = time.monotonic()
    result = run("candidate_throughput.py", "--model", "tiny_muscle", "--inline", "0", "--out", str(tmp_path))
    elapsed = time.monotonic() - begun
    assert all(key in result for key in KEYS)
    assert (result["physics"], result["model"], result["k"], result["generations"]) == (
        "native",
        "tiny_muscle",
        2,
        3,
    )
    assert (result["physics_traces"], result["planner_traces"], result["reward_traces"]) == (1, 1, 3)
    assert 0 < result["seconds"] < elapsed
    assert result["candidates_per_min"] > 60 * 6 / elapsed  # two candidates in each of three generations
    kept = json.loads((tmp_path / "candidate_throughput_native_tiny_muscle.json").read_text())
    assert kept == result
    assert (tmp_path / "candidate_throughput_native_tiny_muscle.png").stat().st_size > 1000


def test_scaling_measures_every_row(tmp_path: Path):
    result = run("scaling.py", "--out", str(tmp_path))
    (row,) = result["results"]
    assert (row["model"], row["rows"], row["actuators"]) == ("tiny_muscle", 4, 7)
    assert row["engine_steps_per_s"] > 0
    assert (tmp_path / "scaling_native.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("physics", ["mjx", "warp"])
def test_candidate_throughput_on_the_physics_of_accelerators(physics):
    pytest.importorskip("warp" if physics == "warp" else "mujoco.mjx")
    result = run("candidate_throughput.py", "--model", "tiny_muscle", "--physics", physics)
    assert result["physics"] == physics
    assert (result["physics_traces"], result["planner_traces"], result["reward_traces"]) == (1, 1, 3)
    assert result["ratio_inline"] > 0
