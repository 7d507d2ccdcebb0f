"""Candidates over workers: what travels, and that neither their number nor their deaths change a result."""

from __future__ import annotations

import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cli_cases import SUPPORT
from outcomes import outcome

from movlr_jax.config.compose import compose
from movlr_jax.engine.parts import task_and_optimizer
from movlr_jax.errors import ProgramError
from movlr_jax.evolution.evaluation import evaluate, make_probe
from movlr_jax.evolution.workers.shard import evaluate_shard, shards, unpack
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.vet import Sandbox

SEARCH = [f"+task={SUPPORT / 'tiny_task.py'}", "optimizer=mppi", "candidates=5", "generations=3", "episode_s=0.3",
          "optimizer.mppi.samples=4", "optimizer.horizon_s=0.08", "films=false", "trials=2", "confirm=1"]  # fmt: skip
PROGRAMS = [
    'WEIGHTS = {"near": 2.0, "still": 0.125}\ndef reward(state, action):\n'
    '    near = -jnp.linalg.norm(state.pos("foot") - state.goal("foot_pos"))\n'
    '    return {"near": near, "still": -jnp.sum(state.qvel ** 2)}\n',
    'WEIGHTS = {"up": 1.0}\ndef reward(state, action):\n    return {"up": state.pos("foot")[2]}\n',
    'WEIGHTS = {"up": 1.0}\ndef reward(state, action):\n    return {"up": state.pos("fot")[2]}\n',
    'WEIGHTS = {"lazy": 3.0}\ndef reward(state, action):\n    return {"lazy": -jnp.mean(action ** 2)}\n',
    'WEIGHTS = {"up": 0.3}\ndef reward(state, action):\n    return {"up": state.pos("foot")[2]}\n',
]


def results(run: Path) -> tuple[str, list, list, list[bytes]]:
    """What a search came to, and the trajectories."""
    return *outcome(run), [p.read_bytes() for p in sorted(run.rglob("k*.npz"))]


def test_a_program_travels_as_operations_that_are_checked_again(tiny, probe: Probe):
    sandbox = Sandbox(probe)
    try:
        verdict = sandbox.vet(PROGRAMS[0])
    finally:
        sandbox.close()
    assert verdict.program
    (shard,) = shards([verdict], 1, seeds=[0], folder=None)
    travelling = pickle.dumps(shard)
    assert b"def reward" not in travelling
    assert b"jnp" not in travelling
    arrived = unpack(*pickle.loads(travelling).programs[0], tiny.layout)
    assert (arrived.structure, arrived.weights, arrived.cost) == (
        verdict.program.structure, verdict.program.weights, verdict.program.cost,
    )  # fmt: skip
    assert arrived.source == ""
    document, _ = shard.programs[0]
    forbidden = document.replace(b'"sub"', b'"pure_callback"')
    assert forbidden != document
    with pytest.raises(ProgramError):
        unpack(forbidden, verdict.program.weights, tiny.layout)
    with pytest.raises(ProgramError):  # terms that are not those of the program
        unpack(document, {"near": 2.0}, tiny.layout)


def test_parts_of_a_batch_are_bitwise_the_same_as_the_whole_batch():
    """Whatever other programs and trials are simulated with them; trials of other seeds differ."""
    config = compose([*SEARCH, "episode_s=0.16"])
    task, optimizer = task_and_optimizer(config)
    sandbox = Sandbox(make_probe(task, optimizer.sim_physics, 0))
    try:
        verdicts = sandbox.vet_all(PROGRAMS)
    finally:
        sandbox.close()
    assert [v.accepted for v in verdicts] == [True, True, False, True, True]
    seeds = (3, 8)
    ran = evaluate(optimizer, task, verdicts, seeds)
    assert [[e.failed for e in row] for row in ran] == [[not v.accepted] * 2 for v in verdicts]
    whole = [[replace(e, timing={}) for e in row] for row in ran if not row[0].failed]
    assert all(one.seed == 3 and two.seed == 8 and one.metrics != two.metrics for one, two in whole)
    ((alone,),) = evaluate(optimizer, task, verdicts[1:2], seeds[1:])
    assert replace(alone, timing={}) == whole[1][1]
    for size in (1, 3):
        parts = [
            row for shard in shards(verdicts, size, seeds, None) for row in evaluate_shard(optimizer, task, shard)
        ]
        assert [[replace(e, timing={}) for e in row] for row in parts] == whole


# With Ray itself.


def search(run: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "movlr_jax.search", *SEARCH, f"run_dir={run}", *arguments]
    log = run.with_suffix(".log").open("w")
    return subprocess.Popen(command, stderr=log, stdout=log, text=True)


def workers_of(driver: int, doing: str = "") -> list[int]:
    """Process ids of the workers of the local cluster that a search began; doing: only those in this call."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                names[int(folder.name)] = (folder / "cmdline").read_bytes()
            except OSError:
                continue
    raylets = [p for p, parent in parents.items() if parent == driver]
    return [
        p
        for p, parent in parents.items()
        if parent in raylets and names.get(p, b"").startswith(f"ray::Worker{doing}".encode())
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The search in one process."""
    run = tmp_path_factory.mktemp("workers") / "alone"
    assert search(run).wait(1800) == 0
    return run


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_number_of_workers_changes_nothing(alone: Path, tmp_path: Path, count: int):
    pytest.importorskip("ray")
    run = tmp_path / "run"
    assert search(run, "workers=ray", f"workers.count={count}").wait(1800) == 0
    assert results(run) == results(alone)
    said = run.with_suffix(".log").read_text()
    assert f"workers: {count} of Ray on this machine" in said
    assert "steps/s" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_workers_that_are_killed_lose_nothing(tmp_path: Path):
    """MOVLR_KILLS kills (4 unless set) at random moments, over as many searches as that takes.

    MOVLR_GENERATIONS: generations of a search, 3 unless set; more of them start fewer clusters.
    """
    pytest.importorskip("ray")
    kills, seed, generations = (
        int(os.environ.get(f"MOVLR_{name}", default))
        for name, default in (("KILLS", "4"), ("SEED", "0"), ("GENERATIONS", "3"))
    )
    longer, chance = f"generations={generations}", random.Random(seed)
    assert search(tmp_path / "alone", longer).wait(1800) == 0
    done = searches = again = 0
    while done < kills:
        run = tmp_path / f"run{searches}"
        driver = search(run, longer, "workers=ray", "workers.count=2")
        searches += 1
        while driver.poll() is None and done < kills:
            time.sleep(chance.uniform(0.0, 4.0))
            busy, until = chance.random() < 0.7, time.monotonic() + 30  # mostly in the middle of a shard
            while busy and not workers_of(driver.pid, ".evaluate") and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(chance.uniform(0.0, 1.0) if busy else 0.0)
            if there := workers_of(driver.pid, ".evaluate" if busy else ""):
                os.kill(chance.choice(there), signal.SIGKILL)
                done += 1
        assert driver.wait(1800) == 0
        assert results(run) == results(tmp_path / "alone")
        again += len(re.findall("are evaluated again by another one", run.with_suffix(".log").read_text()))
        candidates = len(results(run)[2]) * searches
        print(
            f"{done} kills, {searches} searches, {again} shards evaluated again, {candidates} candidates: none lost"
        )


@pytest.mark.slow
def test_a_worker_that_hangs_is_given_up(alone: Path, tmp_path: Path):
    pytest.importorskip("ray")
    run = tmp_path / "run"
    driver = search(run, "workers=ray", "workers.count=2", "workers.deadline_s=60")
    stopped = None
    while driver.poll() is None and stopped is None:
        time.sleep(0.2)
        if (run / "gen_00").exists():  # a generation is done, so the workers are ready
            stopped = workers_of(driver.pid)[0]
            os.kill(stopped, signal.SIGSTOP)
    assert driver.wait(1800) == 0
    assert "is given up (no progress for 60 s)" in run.with_suffix(".log").read_text()
    assert results(run) == results(alone)
    assert stopped
    assert not Path(f"/proc/{stopped}").exists()


@pytest.mark.slow
def test_a_cluster_of_others_is_left_alone_and_one_that_ends_is_told(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # another program's, that has ended
    run = tmp_path / "run"
    driver = search(run, "workers=ray", "workers.count=1")
    while driver.poll() is None and "workers: 1 of Ray" not in run.with_suffix(".log").read_text():
        time.sleep(0.05)  # it ends while the worker starts
    raylets = [p for p in Path("/proc").iterdir() if p.name.isdigit() and raylet_of(p, driver.pid)]
    assert len(raylets) == 1, run.with_suffix(".log").read_text()
    os.kill(int(raylets[0].name), signal.SIGKILL)
    assert driver.wait(600) == 2
    assert "Ray has ended on all machines" in run.with_suffix(".log").read_text()
    assert search(run, f"resume={run}").wait(1800) == 0
    assert results(run) == results(alone)


def raylet_of(process: Path, driver: int) -> bool:
    try:
        parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        return parent == driver and b"raylet/raylet" in (process / "cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False
