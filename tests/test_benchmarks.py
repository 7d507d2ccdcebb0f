"""The benchmarks, as small as can be."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
PARTS = {
    "peer_cases",
    "peer_returns_hydrax",
    "peer_returns_judo",
    "peers_judo",
    "pendulum",
    "quick",
    "record",
    "workload",
}  # which benchmarks import or start
NAMES = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in PARTS)
HELP = """
import contextlib, io, json, runpy, sys

found = {}
for path in sys.argv[1:]:
    sys.argv = [path, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    found[path] = text.getvalue()
print(json.dumps(found))
"""


def run(script: str, *arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, "--quick", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_benchmark_has_help_and_a_quick_measurement():
    paths = [str(BENCHMARKS / f"{name}.py") for name in NAMES]
    done = subprocess.run([sys.executable, "-c", HELP, *paths], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(BENCHMARKS)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    for path, text in json.loads(done.stdout.splitlines()[-1]).items():
        assert "--quick" in text, path
        assert "within 60 s of processor time" in " ".join(text.split()), path


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_quick_measurement_of_every_benchmark_ends_within_a_minute(name: str):
    if name in ("shards", "warp_steps"):
        pytest.importorskip("ray" if name == "shards" else "warp")
    if name in ("ppo_candidates", "ppo_parity") and [int(n) for n in version("jax").split(".")[:2]] >= [0, 10]:
        pytest.skip("ppo.train of brax 0.14 needs jax < 0.10")
    before = cpu_s()
    done = subprocess.run([sys.executable, BENCHMARKS / f"{name}.py", "--quick"], capture_output=True, text=True,
                          check=False, cwd=BENCHMARKS.parent)  # fmt: skip
    used = cpu_s() - before
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    print(f"{name} --quick: {used:.0f} s of processor time")
    assert used < 60


def cpu_s() -> float:
    """Processor time of all processes that this one has waited for, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("physics", ["mjx", "warp"])
def test_candidate_throughput_on_the_physics_of_accelerators(physics):
    pytest.importorskip("warp" if physics == "warp" else "mujoco.mjx")
    result = run("candidate_throughput.py", "--model", "tiny_muscle", "--physics", physics)
    assert result["physics"] == physics
    assert (result["physics_traces"], result["planner_traces"], result["reward_traces"]) == (1, 1, 3)
    assert result["ratio_inline"] > 0
