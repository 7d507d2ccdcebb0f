"""The notebooks run, in their short form, and the reward for robots says what MuJoCo says."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

import jax
import mujoco
import nbformat
import numpy as np
import pytest
from cli_cases import SUPPORT
from fake_servers import Asked, FakeServer, scripted_model
from moving import episode_of
from nbclient import NotebookClient

import movlr_jax as mj
from movlr_jax.control.settings import OPTIMIZERS
from movlr_jax.rewards.program import Scorer
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
QUICK = "quickstart"


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[] if p.stem == QUICK else [pytest.mark.slow]) for p in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_from_its_first_cell_to_its_last(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(os.environ, "MOVLR_SHORT", "1")
    if path.stem == "language_model":
        for key in ("GEMINI_API_KEY", "OPENAI_API_KEY"):
            monkeypatch.delenv(key, raising=False)
        wanted: list[str] = []

        def answer(asked: Asked) -> dict[str, Any]:
            wanted.append(asked.wants)
            return scripted_model(asked)

        with FakeServer("openai", brain=answer) as server:
            monkeypatch.setenv("MOVLR_SERVER", server.url)
            run(path, tmp_path)
        assert {*wanted} >= {"program", "winner", "advice"}
    else:
        run(path, tmp_path)


def test_the_optimiser_of_the_example_optimises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(OPTIMIZERS, "_entries", dict(OPTIMIZERS._entries))
    runpy.run_path(str(EXAMPLES / "own_optimizer.py"))
    task = mj.load_task(SUPPORT / "tiny_task.py", episode_s=0.4)
    given: dict[str, Any] = {"optimizer": "cem", "run_dir": tmp_path}
    poor, good = (
        mj.evaluate_reward("human", task, f"optimizer.rounds={n}", **given).terms["foot_distance"]["mean"]
        for n in (1, 12)
    )
    assert good > poor + 0.003  # m, in the mean over the episode
    small = {"candidates": 2, "generations": 1, "trials": 1, "confirm": 0, "films": False}
    run = mj.run_search(task, "optimizer.rounds=2", optimizer="cem", run_dir=tmp_path / "run", **small)
    assert len(run.candidates) == 2


def run(path: Path, folder: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    done = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    shown = [o for cell in done.cells if cell.cell_type == "code" for o in cell.outputs if o.output_type != "stream"]
    assert any("text/html" in output.get("data", {}) for output in shown), "a result shows itself"


def test_terms_for_legged_robots_against_mujoco():
    """At rest in the start posture, and with both hips rolled outward by 0.3 rad."""
    task = mj.load_task("humanoid_walk", start_noise=0.0)
    model, data = task.model, mujoco.MjData(task.model)
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    wide = qpos.copy()
    for joint, angle in (("left_hip_roll", 0.3), ("right_hip_roll", -0.3)):
        wide[model.joint(joint).qposadr[0]] += angle
    steps = jax.tree.map(lambda x: np.asarray(x)[None, None], episode_of(task, [qpos, wide]).steps)
    first = jax.tree.map(lambda x: x[:, :, 0], steps)
    program = load(parse((EXAMPLES / "robot_terms.py").read_text(encoding="utf-8")))
    found = Scorer(task.layout, task.goals)([program], steps, np.zeros((1, 1, 2, model.nu), np.float32), first)
    terms = {name: value[0] for name, value in found.terms[0].items()}
    for i, posture in enumerate((qpos, wide)):
        data.qpos[:] = posture
        mujoco.mj_forward(model, data)
        assert terms["torques"][i] == pytest.approx(-np.sum(data.actuator_force**2), rel=1e-4, abs=1e-3)
        for term, body in (("feet_apart", "foot"), ("knees_apart", "shank")):
            apart = abs(data.body(f"left_{body}").xpos[1] - data.body(f"right_{body}").xpos[1])
            assert terms[term][i] == pytest.approx(-10 * max(0.16 - apart, apart - 0.3, 0), abs=1e-4)
    assert terms["feet_apart"][1] < -1.0
    assert terms["posture"][1] == pytest.approx(-2 * 0.3**2 / 12, abs=1e-6)
    assert terms["low_speed"].tolist() == [-1.0, -1.0], "it stands"
    assert terms["upright"].tolist() == [1.0, 1.0]
    assert terms["toes"][0] == pytest.approx(1.0, abs=1e-3)
