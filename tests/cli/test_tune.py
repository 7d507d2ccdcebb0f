"""Studies over settings and weights, on a task that takes seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_cases import SUPPORT, Mistake

from movlr_jax.cli.tune import main
from movlr_jax.engine import tune
from movlr_jax.sandbox.source import parse

TASK = f"+task={SUPPORT / 'tiny_task.py'}"


def ctrl_c(*_: Any) -> None:
    raise KeyboardInterrupt


def test_study_begins_with_what_is_set_goes_on_and_keeps_its_best(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
):
    space = tmp_path / "space.yaml"
    space.write_text(
        "optimizer.mppi.sigma: {low: 0.02, high: 0.3}\nweights.foot_distance: {low: 10.0, high: 90.0}\n"
        "task.settings.forward_m: {low: 0.2, high: 0.24}\n"
    )
    given = [TASK, f"space={space}", "seeds=0", f"run_dir={tmp_path / 'study'}", "reward=initial"]
    given += ["optimizer.mppi.samples=4", "optimizer.horizon_s=0.05", "task.settings.forward_m=0.25"]

    def ran(*more: str) -> tuple[int, str, str]:
        status = main([*given, *more])
        said = capsys.readouterr()
        return status, said.out, said.err

    with monkeypatch.context() as patch:
        # in the trial of the current settings, which is then made again
        patch.setattr(tune, "_trial", ctrl_c)
        assert ran("trials=2")[0] == 130
    status, out, _ = ran("trials=2")
    first = json.loads(out.splitlines()[-1])
    assert (status, first["trials"]) == (0, 2)
    status, out, _ = ran("trials=3")
    result = json.loads(out.splitlines()[-1])
    assert result["trials"] == 3
    assert result["score"] >= max(first["score"], first["score_before"])
    assert result["score_before"] == first["score_before"]
    assert first["score_before"] is not None
    optuna = pytest.importorskip("optuna")
    study = optuna.load_study(storage=f"sqlite:///{tmp_path / 'study' / 'study.db'}", study_name="tune")
    # of 100 and 0.25, which the space does not reach
    assert [*study.trials[0].params.values()] == [0.2, 90.0, 0.24]
    best = parse((tmp_path / "study" / "best.py").read_text())
    assert best.weights["foot_distance"] == pytest.approx(result["weights.foot_distance"], rel=1e-5)
    settings = yaml.safe_load((tmp_path / "study" / "best.yaml").read_text())
    assert settings["optimizer"]["mppi"]["sigma"] == pytest.approx(result["optimizer.mppi.sigma"])
    assert 0.2 <= settings["task"]["settings"]["forward_m"] <= 0.24
    status, _, err = ran("trials=4", "optimizer.mppi.keep=1")
    assert status == 2
    assert "other settings" in err


def test_trial_that_fails_is_not_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Its goal is 5 m away: the score of the trial that works is below -100. The other one has no finite measure."""
    given = small_study(tmp_path)
    task = (tmp_path / "kick.py").read_text().replace("[forward_m, 0.0, 0.25]", "[5.0, 0.0, 0.25]")
    task = task.replace("goals=", "measure=lambda read: {'far': 1.0 if forward_m == 0.25 else float('nan')}, goals=")
    (tmp_path / "kick.py").write_text(task)
    (tmp_path / "space.yaml").write_text("task.settings.forward_m: {low: 0.25, high: 0.5}\n")
    assert main([*given, "trials=2", "task.settings.forward_m=0.25"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out.splitlines()[-1])
    assert (result["trials"], result["best_trial"]) == (2, 0)
    assert result["score"] == result["score_before"] < -100
    assert "trial 1, seed 0: the metrics of the episode are not finite" in said.err


REWARD = '''"""Hold still."""

WEIGHTS = {"still": 1.0}


def reward(state, action):
    return {"still": -jnp.sum(state.qvel**2)}
'''


def small_study(folder: Path) -> list[str]:
    """Return the arguments of a study in `folder` of one trial, whose task and reward are files there."""
    (folder / "kick.py").write_text((SUPPORT / "tiny_task.py").read_text())
    (folder / "mine.py").write_text(REWARD)
    (folder / "space.yaml").write_text("weights.still: {low: 0.5, high: 2.0}\n")
    return [f"+task={folder / 'kick.py'}", f"reward={folder / 'mine.py'}", f"space={folder / 'space.yaml'}",
            f"run_dir={folder / 'study'}", "seeds=0", "trials=1", "optimizer.mppi.samples=4",
            "optimizer.horizon_s=0.05"]  # fmt: skip


def test_study_of_edited_file_does_not_go_on(tmp_path: Path, mistake: Mistake):
    command = small_study(tmp_path)
    assert main(command) == 0
    best = (tmp_path / "study" / "best.py").read_text()
    for edited, said in (("mine.py", "content of the reward"), ("kick.py", "content of the task file")):
        path = tmp_path / edited
        before = path.read_text()
        path.write_text(before.replace("qvel**2", "qvel**4").replace("0.25", "0.2"))
        told = mistake(main, *command, "trials=2", alone=False)
        assert f"study.db was created with other {said}; undo the change, or give another run_dir=" in told
        assert (tmp_path / "study" / "best.py").read_text() == best
        path.write_text(before)
