"""The notebooks run, in their short form."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from fake_servers import Asked, FakeServer, scripted_model
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))
HEAVY = ("judge_with_your_eyes", "language_model", "train_on_a_gpu")


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] if p.stem in HEAVY else []) for p in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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


def run(path: Path, folder: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    done = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    shown = [
        o
        for cell in done.cells
        if cell.cell_type == "code"
        for o in cell.outputs
        if o.output_type != "stream"
    ]
    assert any("text/html" in output.get("data", {}) for output in shown), "a result shows itself"


def test_there_are_six():
    assert len(NOTEBOOKS) == 6
