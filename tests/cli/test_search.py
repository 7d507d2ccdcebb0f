"""The search as its user runs it, on the small leg with little time and few samples."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_cases import LEG, Mistake
from outcomes import outcome

from movlr_jax._util.progress import Reporter
from movlr_jax.api import open_run
from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.control.build import build_optimizer
from movlr_jax.engine.description import describe, to_yaml
from movlr_jax.engine.parts import build_context
from movlr_jax.engine.tasks import task_of
from movlr_jax.evolution import loop
from movlr_jax.evolution.context import SearchContext
from movlr_jax.evolution.loop import evolve
from movlr_jax.language.base import Evaluation, Preference
from movlr_jax.language.registry import JUDGES
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task

QUICK = [*LEG, "candidates=2", "generations=3", "episode_s=0.16", "optimizer.mppi.samples=4",
         "optimizer.horizon_s=0.16", "confirm=1"]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whole search with films."""
    run = tmp_path_factory.mktemp("search") / "run"
    assert search([*QUICK, "films=true", f"run_dir={run}"]) == 0
    return run


def test_search_leaves_everything_behind(finished: Path):
    for g in range(3):
        for k in range(2):
            for ending in ("py", "json", "npz", "mp4"):
                assert (finished / f"gen_{g:02d}/k{k:02d}.{ending}").stat().st_size > 0
    page = (finished / "report.html").read_text()
    assert "no language or vision model used" in page
    with Archive.open(finished, write=False) as archive:
        finish = archive.get("finished")
        assert finish
        best = finish["best"]
        ranked = archive.get("ranked", 2)
    assert ranked
    assert ranked["best"] == best
    source = next(e for e in outcome(finished)[2] if e["name"] == best)["source"]
    assert (finished / "best.py").read_text() == source
    assert (finished / "side_by_side.mp4").exists() == (best != "g00k00"), "the first program next to itself"


def test_killed_interrupted_and_resumed_it_ends_as_if_nothing_had_happened(finished: Path, tmp_path: Path):
    run = tmp_path / "stopped"
    command = [sys.executable, "-m", "movlr_jax.search"]
    anew = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}  # compiled by itself it is the same search
    child = subprocess.Popen([*command, *QUICK, f"run_dir={run}"], stderr=subprocess.DEVNULL, env=anew)
    _wait_for_more(run, 0)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = _evaluated(run)
    assert not _count(run, "finished")

    child = subprocess.Popen([*command, f"resume={run}"], stderr=subprocess.PIPE, text=True)
    _wait_for_more(run, done)
    for _ in range(3):  # a terminal and a parent process may send one each
        os.kill(child.pid, signal.SIGINT)
        time.sleep(0.1)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in said
    assert f"resume={run}" in said
    assert (run / "report.html").exists()
    assert not _count(run, "finished")
    assert search([f"resume={run}"]) == 0
    assert outcome(run) == outcome(finished)


class Newest:
    """Prefers the newer program, so that each generation has another best."""

    name = "newest"

    def compare(self, task: Task, first: Evaluation, second: Evaluation) -> Preference:
        return Preference("first" if first.name > second.name else "second", "it is newer")


@pytest.mark.slow
def test_extended_run_that_is_interrupted_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(JUDGES, "newest", Newest)
    root = tmp_path / "a run"  # a name that an override must quote

    def interrupted(step: str, at: int, *settings: str) -> int:
        """Resume, with a Ctrl-C in a step of generation `at`."""
        real = getattr(loop, step)

        def stop(context: SearchContext, *given: Any) -> Any:
            programs = given[0] if isinstance(given[0], list) else [given[0]]
            if at in given or getattr(programs[0], "generation", None) == at:
                raise KeyboardInterrupt
            return real(context, *given)

        with monkeypatch.context() as patch:
            patch.setattr(loop, step, stop)
            return search([f"resume='{root}'", *settings])

    assert search([*LEG, "judge=newest", "ranking=paper", "generations=1", f"run_dir='{root}'"]) == 0
    assert interrupted("criticise", 2, "generations=4") == 130
    run = open_run(root)
    assert not run.finished
    assert run.best.name.startswith("g02"), "the newest ranking counts, not that of the end before"
    assert run.best.source == (root / "best.py").read_text()
    assert search([f"resume='{root}'"]) == 0, "as the interrupted one said; it knows how many generations it has"
    run = open_run(root)
    assert run.finished
    assert run.best.source == (root / "best.py").read_text()
    assert run.best.name.startswith("g03")
    with Archive.open(root, write=False) as archive:
        sessions = [event.data["wall_s"] for event in archive.events("session")]
        spent = archive.get("finished")["wall_s"]
    assert len(sessions) == 3, "the search, the one that was interrupted, and the last"
    assert sum(sessions[:2]) < spent <= sum(sessions)
    assert interrupted("film_candidates", 1, "films=true") == 130  # of a generation that is complete
    assert (root / "best.py").read_text() == run.best.source
    assert "already has" not in capfd.readouterr().err


def test_folder_of_any_name_holds_run_and_hint_to_continue_can_be_pasted(elsewhere: Path, mistake: Mistake):
    folder = "it's a;b#(c)&d ü=1"
    shutil.copy(LEG[0].removeprefix("+task="), "ü=1.py")
    given = ["+task=ü=1.py", *LEG[1:], f"run_dir={folder}"]
    assert search(given) == 0
    assert (elsewhere / folder / "best.py").exists()
    (hint,) = shlex.split(mistake(search, *given).rpartition(" continue with ")[2])
    assert search([hint]) == 0


def test_physics_is_traced_once_for_each_size_of_batch(tmp_path: Path):
    config = compose(QUICK)
    with Archive.create(tmp_path / "run", to_yaml(config)) as archive:
        task = task_of(config)
        planner = build_optimizer(config.optimizer, task)
        context = build_context(config, task, planner, archive, Reporter())
        archive.record("run", describe(context))
        try:
            evolve(context)
        finally:
            context.sandbox.close()
    # once for each number of programs and trials that share a batch, however many such batches there are
    assert set(planner.physics.traces.values()) == {1}
    assert len(planner.physics.traces) <= 6
    # the simulation itself, whose batches of two sizes may have parts of the same size
    assert max(planner.sim_physics.traces.values()) <= 2


def test_evaluate_prints_fixed_metrics_as_its_last_line(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    quick = [a for a in QUICK if not a.startswith(("candidates", "generations"))]
    best = next(e for e in outcome(finished)[2] if e["source"] == (finished / "best.py").read_text())
    one = ["trials=1", f"seed={best['seed']}"]
    assert evaluate([*quick, *one, "films=true", f"reward={finished}", f"run_dir={tmp_path}"]) == 0
    printed = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert {
        "success",
        "object_position_error_m",
        "effort",
        "joint_limit_fraction",
        "smoothness",
        "diverged_fraction",
        "wall_s_per_sim_s",
        "physics_steps_per_s",
    } <= set(printed)
    assert Path(printed["film"]).stat().st_size > 0
    # the search optimised the same program in the same trial, in a batch with others
    for name, value in best["metrics"].items():
        assert printed[name] == value


def _wait_for_more(run: Path, done: int) -> None:
    """Return as soon as more than `done` programs are recorded as evaluated."""
    deadline = time.monotonic() + 120
    while _evaluated(run) <= done:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _evaluated(run: Path) -> int:
    return _count(run, "evaluated")


def _count(run: Path, kind: str) -> int:
    path = run / "run.db"
    if not path.exists():
        return 0
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        (found,) = db.execute("SELECT count(*) FROM events WHERE kind = ?", (kind,)).fetchone()
        db.close()
    except sqlite3.OperationalError:  # the schema is not there yet
        return 0
    return found
