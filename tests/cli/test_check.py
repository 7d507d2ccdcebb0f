"""The command that vets: a corpus of programs with what must become of each, folders, files and mistakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from movlr_jax.cli import check as module
from movlr_jax.cli.check import main as check
from movlr_jax.rewards.program import Scorer
from movlr_jax.sandbox import confine
from movlr_jax.sandbox.vet import Sandbox, Verdict

FOLDER = Path(__file__).parent.parent / "sandbox"
# programs with attacks and bombs among them; what language models like to write
CORPORA = ["rewards", pytest.param("legitimate", marks=pytest.mark.slow)]
TASK = "+task=bottle_pour"
SANDBOX = "sandbox=process" if confine.missing() else "sandbox=confined"


def lines(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("name", CORPORA)
def test_corpus(name: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Every accept accepted, every reject rejected; what the guard is for either way, and finite where it runs."""
    kept: dict[str, object] = {}
    vet_all = Sandbox.vet_all

    def recording(self: Sandbox, sources, done=None) -> list[Verdict]:
        kept["verdicts"] = vet_all(self, sources, done)
        return kept["verdicts"]  # pyright: ignore

    def probing(*arguments):
        kept["probe"] = make_probe(*arguments)
        return kept["probe"]

    make_probe = module.make_probe
    monkeypatch.setattr(Sandbox, "vet_all", recording)
    monkeypatch.setattr(module, "make_probe", probing)
    file = FOLDER / f"{name}.jsonl"
    corpus = [json.loads(line) for line in file.read_text().splitlines()]
    rejected = any(c["want"] == "reject" for c in corpus)
    assert check([TASK, SANDBOX, f"reward={file}"]) == rejected
    found = lines(capfd.readouterr().out)
    assert [f["name"] for f in found] == [c["name"] for c in corpus]
    wrong = [
        (f, c.get("why")) for f, c in zip(found, corpus, strict=True) if c["want"] not in (f["verdict"], "guard")
    ]
    assert wrong == []
    for line in found:
        assert set(line) == {"name", "verdict", "stage", "message", "seconds", "notes"}
        assert (line["message"] is None) == (line["verdict"] == "accept")
    probe = kept["probe"]
    guarded = [
        v.program
        for v, c in zip(kept["verdicts"], corpus, strict=True)  # pyright: ignore
        if c["want"] == "guard" and v.program
    ]
    assert bool(guarded) == (name == "rewards")
    if not guarded:
        return
    scorer = Scorer(probe.layout, probe.goals)  # pyright: ignore
    batch = [
        np.stack([x] * len(guarded)) if not hasattr(x, "replace") else _stacked(x, len(guarded))
        for x in (probe.steps, probe.actions, probe.initial)  # pyright: ignore
    ]
    scores = scorer(guarded, *batch)  # pyright: ignore
    assert np.isfinite(scores.totals).all()


def _stacked(step, times: int):
    return type(step)(**{name: np.stack([value] * times) for name, value in vars(step).items()})


def test_file_folder_and_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    good = 'WEIGHTS: dict[str, float] = {"a": 1.0}\n\n\ndef reward(state, action) -> dict[str, Array]:\n'
    good += '    return {"a": action[0]}\n'
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "one.py").write_text(good)
    (tmp_path / "folder" / "two.py").write_text(good.replace("action[0]", "actions[0]"))
    assert check([TASK, SANDBOX, f"reward={tmp_path / 'folder'}"]) == 1
    one, two = lines(capfd.readouterr().out)
    assert (Path(one["name"]).name, one["verdict"], one["message"]) == ("one.py", "accept", None)
    assert (Path(two["name"]).name, two["verdict"], two["stage"]) == ("two.py", "reject", "trace")
    assert two["message"].startswith("line 5: there is no name 'actions'; did you mean 'action'")
    shutil.copy(tmp_path / "folder" / "one.py", tmp_path / "alone.py")
    assert check([TASK, SANDBOX, f"reward={tmp_path / 'alone.py'}"]) == 0
    assert [line["verdict"] for line in lines(capfd.readouterr().out)] == ["accept"]
