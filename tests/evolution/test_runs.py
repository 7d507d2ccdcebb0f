"""Runs of the commands: rewards that people wrote, full disks, runs that are resumed and harmed, sweeps."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from cli_cases import LEG, PLAIN, SUPPORT, TASK, Mistake

from movlr_jax.api import open_run
from movlr_jax.cli.export import main as export
from movlr_jax.cli.report import main as report
from movlr_jax.cli.search import main as search
from movlr_jax.models import model_adapter
from movlr_jax.storage.archive import Archive

pytestmark = pytest.mark.usefixtures("elsewhere")
DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole search, small as can be; tests take copies, which nothing has to be allowed for."""
    run = tmp_path_factory.mktemp("search") / "run"
    assert search([*PLAIN, "generations=2", f"run_dir={run}"]) == 0
    return run


def copy_of(run: Path, to: str = "copy") -> Path:
    return Path(shutil.copytree(run, Path.cwd() / to))


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


# Places that cannot be written.


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A small disk of its own, mounted; call it with a size to make it, or to make it larger."""
    folder, mounted = tmp_path / "disk", []

    def sized(size: str) -> Path:
        folder.mkdir(exist_ok=True)
        how = f"remount,size={size}" if mounted else f"size={size}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", how, "tmpfs", str(folder)], capture_output=True)
        if done.returncode:
            pytest.skip("no file system can be mounted here")
        mounted.append(size)
        return folder

    yield sized
    if mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_loses_nothing(mistake: Mistake, disk: Callable[[str], Path], finished: Path):
    """The search ends where the disk does; with more room it goes on from there, and ends as if there had been
    enough of it from the start."""
    root = disk("140k") / "run"
    said = mistake(search, *PLAIN, "generations=2", f"run_dir={root}", alone=False)
    assert said.startswith((f"cannot write {root}", f"cannot write the record in {root}"))
    assert "free space or choose another run_dir=..., then continue with resume=" in said
    assert not list(root.rglob("*.part")), "half a file takes room that is needed"
    disk("64m")
    assert search([f"resume={root}"]) == 0
    assert results(root) == results(finished)


def test_a_search_that_ended_after_a_contest_records_its_programs_and_goes_on(finished: Path):
    """The best of a generation is recorded before the programs of the generation are."""
    run = copy_of(finished)
    before = results(run)
    with Archive.open(run) as archive:
        for kind in ("evaluated", "criticised", "timing"):
            archive.forget(kind, 0)
        for kind in ("proposed", "trials", "ranked", "evaluated", "criticised", "timing"):
            archive.forget(kind, 1)
        archive.forget("finished", -1)
    assert report([str(run)]) == 0
    assert not open_run(run).candidates
    assert search([f"resume={run}"]) == 0
    assert results(run) == before


def results(run: Path) -> list[dict]:
    """What a run found, without times."""
    with Archive.open(run, write=False) as archive:
        evaluated = archive.events("evaluated")
    return [{k: v for k, v in e.data.items() if k != "timing"} for e in evaluated]


# Runs that are resumed, reported and evaluated.


def test_only_what_does_not_make_it_another_run_may_change(mistake: Mistake, finished: Path):
    run = copy_of(finished)
    said = mistake(search, f"resume={run}", "seed=1")
    assert (
        said == "seed cannot be changed when a run is resumed, only generations, films, preview, max_calls, "
        "max_cost_usd, workers, tracker; start a new run"
    )
    said = mistake(search, *PLAIN, "seed=1", f"resume={run}")
    assert said.startswith("seed cannot be changed when a run is resumed")
    said = mistake(search, TASK, *LEG[1:], f"resume={run}")
    assert said.startswith(f"{run} was created with other settings: task.name was 'described', is 'bottle_pour'; ")
    assert said.endswith(f"give only resume={run} to continue with the recorded settings")
    assert search([f"resume={run}", "generations=3"]) == 0
    assert len(results(run)) == 3
    assert results(run)[:2] == results(finished)
    best = (run / "best.py").read_text()
    said = mistake(search, f"resume={run}", "generations=1")
    assert said == f"generations=1: {run} already has 3 generations; give 3 or more"
    assert (run / "best.py").read_text() == best
    assert yaml.safe_load((run / "config.yaml").read_text())["generations"] == 3, "the next resume goes on to it"
    with Archive.open(run, write=False) as archive:
        assert (archive.get("run") or {})["settings"]["generations"] == 3, "as the report says"
    assert search([f"resume={run}"]) == 0
    assert (run / "best.py").read_text() == best


def test_run_recorded_before_records_opens_and_goes_on(elsewhere: Path, capfd: pytest.CaptureFixture[str]):
    """run_without_records.zip: a search of commit 3033ccb, whose events were no dataclasses yet."""
    with zipfile.ZipFile(DATA / "run_without_records.zip") as kept:
        kept.extractall("old")
    run = Path("old")
    before = results(run)
    assert report([str(run)]) == 0
    found = open_run(run)
    assert [(c.name, c.parent) for c in found.candidates] == [("g00k00", None), ("g01k00", "g00k00")]
    assert found.best.name == "g00k00"
    assert found.candidates[1].metrics == before[1]["metrics"]
    assert search([f"resume={run}", "generations=3"]) == 0
    assert results(run)[:2] == before
    assert len(results(run)) == 3
    assert "changed after" not in capfd.readouterr().err


def test_a_run_without_trials_is_read_but_does_not_go_on(mistake: Mistake, elsewhere: Path):
    """It was recorded before there were trials."""
    with zipfile.ZipFile(DATA / "run_before_trials.zip") as kept:
        kept.extractall("old")
    run = Path("old")
    with Archive.open(run) as archive:
        settings = yaml.safe_load(archive.read("config.yaml"))
        settings["task"]["settings"]["file"] = str(run.absolute() / "task.py")
        archive.put("config.yaml", yaml.safe_dump(settings).encode())
    assert report([str(run)]) == 0
    assert "g01k01" in (run / "report.html").read_text()
    assert export([str(run), "out=exported", "trust=true"]) == 0
    assert list(Path("exported").iterdir())
    assert [c.name for c in open_run(run).candidates] == ["g00k00", "g00k01", "g01k00", "g01k01"]
    before = contents(run)
    for more in ([], ["generations=3"]):
        said = mistake(search, f"resume={run}", "trust=true", *more, alone=False)
        assert said == (
            "old was recorded by a version that ran each program once, so it cannot go on in trials; its report and "
            "exports can be made, or start a new run"
        )
    assert contents(run) == before


def test_a_run_does_not_go_on_with_an_edited_model(mistake: Mistake, elsewhere: Path):
    model, task = elsewhere / "leg.xml", elsewhere / "kick.py"
    model.write_text(model_adapter("tiny_muscle").load().to_xml())
    task.write_text((SUPPORT / "tiny_task.py").read_text().replace("tiny_muscle", "leg.xml"))
    assert search([f"+task={task}", *LEG[1:], "run_dir=mine"]) == 0
    before = model.read_text()
    model.write_text(before.replace('mass="', 'mass="1'))
    assert model.read_text() != before
    assert mistake(search, "resume=mine", "generations=2") == (
        "the model of mine has changed since the run began, so its programs could not be compared; "
        "undo the change, or start a new run"
    )
    model.write_text(before)
    assert search(["resume=mine", "generations=2"]) == 0


def test_damaged_files_of_a_finished_run_are_made_again(finished: Path, capfd: pytest.CaptureFixture[str]):
    """Nothing else is: the second program keeps its files, and the record its numbers."""
    run = copy_of(finished)
    before = contents(run)
    assert search([f"resume={run}", "films=true"]) == 0
    if "no films: " in capfd.readouterr().err:
        pytest.skip("nothing draws here")
    filmed = contents(run)
    folder, kept = run / "gen_00", (run / "gen_01" / "k00.mp4").stat().st_mtime_ns
    for name in ("k00.npz", "k00.json", "k00_sheet.png"):
        (folder / name).write_bytes((folder / name).read_bytes()[:100])
    (folder / "k00.py").unlink()
    assert search([f"resume={run}", "films=true"]) == 0
    said = capfd.readouterr().err
    assert f"4 files of {run} are missing or changed after the search wrote them: gen_00" in said
    assert "gen_00/k00.npz" in said
    assert differing(run, filmed) <= {"run.db", "report.html"}
    assert (run / "gen_01" / "k00.mp4").stat().st_mtime_ns == kept
    for found, expected in zip(results(run), results(finished), strict=True):
        assert {**found, "film": None} == expected
    for name in ("gen_00/k00.npz", "gen_00/k00.json", "gen_00/k00.py"):
        assert contents(run)[name] == before[name]

    (folder / "k00.mp4").write_bytes(b"cut")
    (run / "gen_01" / "k00.npz").unlink()
    assert search([f"resume={run}"]) == 0, "a film that is not asked for is not made"
    assert (folder / "k00.mp4").read_bytes() == b"cut"
    assert search([f"resume={run}", "films=true"]) == 0
    assert differing(run, filmed) <= {"run.db", "report.html"}
    capfd.readouterr()
    assert search([f"resume={run}", "films=true"]) == 0
    assert "changed after" not in capfd.readouterr().err


def differing(run: Path, before: dict[str, bytes]) -> set[str]:
    return {name for name, data in contents(run).items() if before.get(name) != data}
