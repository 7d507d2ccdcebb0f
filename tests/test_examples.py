"""The notebooks run, in their short form."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(os.environ, "MOVLR_SHORT", "1")
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    done = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = [
        o
        for cell in done.cells
        if cell.cell_type == "code"
        for o in cell.outputs
        if o.output_type != "stream"
    ]
    assert any("text/html" in output.get("data", {}) for output in shown), "a result shows itself"


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
