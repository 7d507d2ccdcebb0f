"""Hydra as its users know it: sweeps by launchers, settings printed, files of one's own; mistakes stay sentences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cli_cases import LEG, TASK
from outcomes import outcome

from movlr_jax.__main__ import main as movlr_jax
from movlr_jax._util.settings import from_mapping
from movlr_jax.cli.report import main as report
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.config.schema import Config
from movlr_jax.report.sweep import read_members

pytestmark = pytest.mark.usefixtures("elsewhere")


def experiment(folder: Path, text: str) -> list[str]:
    """A file of the user's own, and the arguments that use it."""
    (folder / "mine" / "experiment").mkdir(parents=True)
    (folder / "mine" / "experiment" / "short.yaml").write_text(f"# @package _global_\n{text}")
    return ["--config-dir", str(folder / "mine"), "+experiment=short"]


# Settings, printed.


def test_cfg_prints_what_run_would_use(capfd: pytest.CaptureFixture[str]):
    overrides = ["+task=stand", "model=ms_human_700", "candidates=7"]
    assert search([*overrides, "--cfg", "job"]) == 0
    assert from_mapping(Config, yaml.safe_load(capfd.readouterr().out)) == compose(overrides)
    assert search([*overrides, "--cfg=job", "-p", "optimizer.mppi"]) == 0
    assert yaml.safe_load(capfd.readouterr().out)["samples"] == 12  # tuned for this task and model
    assert search([TASK, "--cfg", "hydra", "-p", "hydra.sweep"]) == 0
    assert yaml.safe_load(capfd.readouterr().out)["subdir"] == "${hydra.job.num}"


def test_completion_knows_tasks_and_settings(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def completed(line: str) -> list[str]:
        monkeypatch.setenv("COMP_LINE", line)
        assert movlr_jax(["-sc", "query=bash"]) == 0
        return capfd.readouterr().out.split()

    assert completed("movlr-jax sea") == ["search"]
    assert "+task=bottle_pour" in completed("movlr-jax search +task=bo")
    assert "optimizer.mppi.samples=" in completed("movlr-jax search optimizer.mppi.sa")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/movlr-jax"])
    assert movlr_jax(["-sc", "install=bash"]) == 0
    assert "complete -o nospace -o default -F hydra_bash_completion movlr-jax" in capfd.readouterr().out


# Files of one's own.


def test_experiment_file_overrides_tuned_settings_and_command_line_overrides_both(elsewhere: Path):
    text = "candidates: 9\noptimizer: {mppi: {samples: 5}}\n"
    folder = Path(experiment(elsewhere, text)[1])
    tuned = ["+task=stand", "model=ms_human_700"]
    config = compose([*tuned, "+experiment=short"], folder)
    assert (config.candidates, config.optimizer.mppi.samples, config.optimizer.replan_every) == (9, 5, 4)
    assert compose([*tuned, "+experiment=short", "candidates=2"], folder).candidates == 2
    (folder / "task").mkdir()
    (folder / "task" / "high_bottle.yaml").write_text(
        "# @package _global_\ndefaults: [bottle_pour]\ntask: {settings: {lift_m: [0, 0, 0.2]}}\n"
    )
    assert compose(["+task=high_bottle"], folder).task.settings["lift_m"] == [0, 0, 0.2]


# Sweeps.


def test_sweep_is_one_folder_with_page_and_goes_on_where_it_was(elsewhere: Path, capfd: pytest.CaptureFixture[str]):
    own = experiment(elsewhere, "candidates: 2\n")
    given = ["-m", *LEG, *own, "seed=range(0,2)", "hydra.sweep.dir=sweep", "hydra.sweep.subdir=s${seed}"]
    given.remove("candidates=1")
    assert search(given) == 0
    said = capfd.readouterr().err
    assert "sweep: 2 jobs by basic in" in said
    assert "job 2 of 2: " in said
    runs = [outcome(Path("sweep") / name) for name in ("s0", "s1")]
    assert [len(evaluated) for _, _, evaluated in runs] == [2, 2]
    job = yaml.safe_load(Path("sweep/s1/job.yaml").read_text())
    assert (job["status"], "seed=1" in job["overrides"]) == (0, True)
    assert search(given) == 0  # the runs are there already
    assert [outcome(Path("sweep") / name) for name in ("s0", "s1")] == runs
    page = Path("sweep/report.html").read_text()
    assert "2 jobs" in page
    assert 'href="s1/report.html"' in page
    Path("sweep/report.html").unlink()
    assert report(["sweep"]) == 0
    assert Path("sweep/report.html").read_text() == page


def test_jobs_that_fail_are_told_and_kept_for_page(capfd: pytest.CaptureFixture[str]):
    task = next(word for word in LEG if word.startswith("+task="))
    others = [word for word in LEG if word != task]
    assert search(["-m", task, *others, "model=no_leg,no_arm", "run_dir=sweep"]) == 2
    said = capfd.readouterr().err
    assert "Traceback" not in said
    for name, member in zip(("no_leg", "no_arm"), read_members(Path("sweep")), strict=True):
        assert f"model={name}" in member.error
        assert f"failed: {member.error}" in said


@pytest.mark.slow
def test_jobs_over_joblib_find_same_programs_as_one_after_another(elsewhere: Path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    given = ["-m", *LEG, "candidates=3", "generations=2", "seed=range(0,8)"]
    for name, launcher in (("one", "basic"), ("many", "joblib")):
        command = [sys.executable, "-m", "movlr_jax.search", *given, f"run_dir={name}"]
        subprocess.run([*command, f"hydra/launcher={launcher}"], check=True)
    for seed in range(8):
        assert outcome(Path("many") / str(seed)) == outcome(Path("one") / str(seed))
