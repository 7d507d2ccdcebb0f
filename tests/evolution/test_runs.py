"""Runs of the commands: rewards that people wrote, full disks, runs that are resumed and harmed, sweeps."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_cases import LEG, PLAIN, QUICK, SUPPORT, TASK, Mistake
from played_search import played

from movlr_jax.api import open_run
from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.export import main as export
from movlr_jax.cli.report import main as report
from movlr_jax.cli.search import main as search
from movlr_jax.errors import UserError
from movlr_jax.evolution.criticise import in_a_line
from movlr_jax.models import model_adapter
from movlr_jax.records import Evaluation
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


# Rewards that people wrote.

REWARDS = [
    ("x = = 1", "the program is not Python: line 1: invalid syntax"),
    (
        'WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": state.pos("foott")[0]}\n',
        "line 3: there is no body 'foott'; did you mean 'foot'",
    ),
    ('WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return 3\n', "reward returned a int, expected a dict"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "sentence"), REWARDS, ids=["syntax", "name", "int"])
def test_a_reward_that_is_wrong_is_told(mistake: Mistake, elsewhere: Path, source: str, sentence: str):
    Path("mine.py").write_text(source)
    said = mistake(evaluate, *LEG, "reward=mine.py", alone=False)
    assert said.startswith(f"reward mine.py: {sentence}")
    assert list(elsewhere.iterdir()) == [elsewhere / "mine.py"]


def test_a_reward_that_cannot_be_read_is_told(mistake: Mistake, elsewhere: Path):
    Path("mine.py").write_bytes(b"\xff\xfe\x00")
    assert "cannot read the reward 'mine.py': 'utf-8' codec" in mistake(evaluate, *LEG, "reward=mine.py")
    Path("empty").mkdir()
    said = mistake(evaluate, *LEG, "reward=empty")
    assert said == "empty has no best.py: it is not a run directory, or no generation has finished"
    for name in ("humn", ""):
        assert f"there is no reward '{name}': give a file" in mistake(evaluate, *LEG, f"reward={name}")


def test_a_diverging_simulation_is_told(mistake: Mistake, capfd: pytest.CaptureFixture[str]):
    """Steps of 3 s: no model survives that. MuJoCo's own warnings stay out of sight and out of the folder."""
    violent = [*LEG, "optimizer.sim_dt=3", "optimizer.ctrl_dt=3", "optimizer.plan_dt=3", "episode_s=30"]
    said = mistake(search, *violent, "run_dir=run", alone=False)
    assert said.startswith("every program of generation 0 failed")
    assert "the simulation diverged" in said
    assert Path("run/report.html").is_file()
    with Archive.open(Path("run"), write=False) as archive:
        evaluated = archive.get("evaluated", 0, 0)
    assert evaluated
    assert "the simulation diverged" in evaluated["reason"]

    assert evaluate([*violent, "reward=human"]) == 2
    captured = capfd.readouterr()
    assert captured.err.strip().splitlines()[-1].startswith("reward human: the simulation diverged")
    assert json.loads(captured.out.strip().splitlines()[-1])["diverged_fraction"] == 1.0
    assert "WARNING" not in captured.err
    assert sorted(path.name for path in Path().iterdir()) == ["run", "runs"]
    left = sorted(path.name for path in Path("runs").rglob("*.*"))
    assert left == [".begun", "human_seed0.npz", "human_seed0.yaml"], "no film"


# Places that cannot be written.


@pytest.mark.parametrize("place", ["file", "file/run", "/proc/movlr"])
def test_a_place_that_cannot_be_written_is_told(mistake: Mistake, elsewhere: Path, place: str):
    Path("file").write_text("not a folder")
    assert mistake(search, *LEG, f"run_dir={place}").startswith(f"cannot write {place}: ")
    assert contents(elsewhere) == {"file": b"not a folder"}


def test_a_run_directory_is_not_written_over(mistake: Mistake, finished: Path):
    run = copy_of(finished)
    before = contents(run)
    said = mistake(search, *LEG, f"run_dir={run}")
    assert (
        said
        == f"the run directory {run} is not empty; choose another run_dir=..., or continue with resume={run}"
    )
    assert contents(run) == before


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


def test_a_disk_too_full_to_begin_is_told(mistake: Mistake, disk: Callable[[str], Path]):
    assert mistake(search, *LEG, f"run_dir={disk('8k') / 'run'}").startswith("cannot write ")


def test_no_room_for_a_film_is_told(
    mistake: Mistake, disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capfd
):
    """Films are encoded in the folder for temporary files: the numbers are printed even so."""
    monkeypatch.setattr(tempfile, "tempdir", str(disk("4k")))
    films = [a for a in LEG if not a.startswith("films")]
    assert evaluate([*films, "reward=initial"]) == 2
    captured = capfd.readouterr()
    said = captured.err.strip().splitlines()[-1]
    if "no films: " in captured.err:
        pytest.skip("nothing draws here")
    assert said.startswith("no film: ")
    assert "No space left on device; free space in" in said
    assert "object_position_error_m" in json.loads(captured.out.strip().splitlines()[-1])


def results(run: Path) -> list[dict]:
    """What a run found, without times."""
    with Archive.open(run, write=False) as archive:
        evaluated = archive.events("evaluated")
    return [{k: v for k, v in e.data.items() if k != "timing"} for e in evaluated]


# Runs that are resumed, reported and evaluated.


def harm(run: Path, kind: str) -> Path:
    db, config = run / "run.db", run / "config.yaml"
    if kind in ("empty", "text", "foreign", "cut"):
        for ending in ("-wal", "-shm"):
            Path(f"{db}{ending}").unlink(missing_ok=True)
    if kind == "empty":
        db.write_bytes(b"")
    elif kind == "text":
        db.write_text("no database" * 1000)
    elif kind == "cut":
        db.write_bytes(db.read_bytes()[: db.stat().st_size // 2])
    elif kind == "foreign":
        db.unlink()
        with sqlite3.connect(db) as other:
            other.execute("CREATE TABLE holidays (place TEXT)")
        other.close()
    elif kind == "no db":
        db.unlink()
    elif kind == "no config":
        config.unlink()
    elif kind == "config is no yaml":
        config.write_text("a: [1,\n b")
    elif kind == "config is a list":
        config.write_text("- a\n")
    elif kind == "config is empty":
        config.write_text("")
    elif kind == "config cut in a value":
        config.write_text(config.read_text().partition("model:")[0])
    elif kind == "config cut between values":
        config.write_text(config.read_text().partition("sandbox:")[0])
    elif kind == "config of another version":
        config.write_text(config.read_text() + "nonsense: 3\n")
    return run


@pytest.mark.parametrize(
    ("kind", "resumed", "reported"),
    [
        ("empty", "was not written by movlr-jax", "was not written by movlr-jax"),
        ("text", "is broken (file is not a database)", "is broken (file is not a database)"),
        ("cut", "is broken", "is broken"),
        ("foreign", "was not written by movlr-jax", "was not written by movlr-jax"),
        (
            "no db",
            "is not a run directory of movlr-jax: it has no run.db",
            "is neither a run directory nor a folder with runs",
        ),
        ("no config", "is not a run directory of movlr-jax: it has no config.yaml", None),
        ("config is no yaml", "config.yaml is broken (line 2: ", None),
        ("config is a list", "config.yaml is broken (it is ['a'], expected settings); it was changed", None),
        (
            "config is empty",
            "config.yaml is broken (it is empty); it was changed after the search wrote it",
            None,
        ),
        (
            "config cut in a value",
            "config.yaml is broken (model is not set; give model=...); it was changed",
            None,
        ),
        ("config cut between values", "config.yaml was changed after it was written; restore it", None),
        ("config of another version", "config.yaml is broken (there is no setting 'nonsense'", None),
    ],
)
def test_a_broken_or_foreign_run_is_told(
    mistake: Mistake, finished: Path, kind: str, resumed: str, reported: str | None
):
    run = harm(copy_of(finished), kind)
    before = contents(run)
    assert resumed in mistake(search, f"resume={run}")
    if reported:
        assert reported in mistake(report, str(run))
        assert contents(run) == before
    else:
        assert report([str(run)]) == 0


def test_a_run_whose_record_is_gone_is_still_a_reward(finished: Path, capsys: pytest.CaptureFixture[str]):
    run = harm(copy_of(finished), "text")
    assert evaluate([*LEG, f"reward={run}"]) == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["reward"] == str(run / "best.py")


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
    assert said.startswith(
        f"{run} was created with other settings: task.name was 'described', is 'bottle_pour'; "
    )
    assert said.endswith(f"give only resume={run} to continue with the recorded settings")
    assert search([f"resume={run}", "generations=3"]) == 0
    assert len(results(run)) == 3
    assert results(run)[:2] == results(finished)
    best = (run / "best.py").read_text()
    said = mistake(search, f"resume={run}", "generations=1")
    assert said == f"generations=1: {run} already has 3 generations; give 3 or more"
    assert (run / "best.py").read_text() == best
    assert yaml.safe_load((run / "config.yaml").read_text())["generations"] == 3, (
        "the next resume goes on to it"
    )
    with Archive.open(run, write=False) as archive:
        assert (archive.get("run") or {})["settings"]["generations"] == 3, "as the report says"
    assert search([f"resume={run}"]) == 0
    assert (run / "best.py").read_text() == best


def recorded_before(run: Path, **changed: Any) -> Path:
    """Give a run the settings, events and entries that earlier versions recorded and this one has not; `changed`:
    those that were not the default."""
    gone = dict.fromkeys(("proposals", "variants", "parents", "islands", "bank")) | {
        "search": "plain",
        "inner_weights": 0,
        **changed,
    }
    with Archive.open(run) as archive:
        settings = yaml.safe_load(archive.read("config.yaml"))
        planner = {"race": False, "value": {"use": False, "rounds": 4, "hidden": [64, 64]}}
        settings = {**settings, **gone, "optimizer": {**settings["optimizer"], **planner}}
        archive.put("config.yaml", yaml.safe_dump(settings).encode())
        begun = archive.get("run") or {}
        flat = {**gone, "optimizer.race": False, "optimizer.value.use": False, "optimizer.value.rounds": 4}
        archive.record("run", {**begun, "settings": {**begun["settings"], **flat}})
        for g in range(2):
            proposed, ranked = archive.get("proposed", g) or {}, archive.get("ranked", g) or {}
            screened = [{"source": "x", "reason": "others promise more"}]
            archive.record("proposed", {**proposed, "chosen": ["its own"], "screened": screened}, g)
            archive.record("ranked", {**ranked, "worth": [0.5] * len(ranked["names"])}, g)
            returns = {"program": "g00k00", "motions": ["g00k00"], "returns": [1.0], "agree": 1, "decided": 1}
            archive.record("returns", returns, g)
            evaluated = archive.get("evaluated", g, 0) or {}
            tried = [{"weights": evaluated["weights"], "score": 1.0}]
            archive.record("evaluated", {**evaluated, "inner": {"adopted": 0, "tried": tried}}, g, 0)
        archive.put("gen_00/bank.npz", b"episodes")
    return run


def test_a_run_of_an_earlier_version_is_read_and_goes_on(finished: Path, capfd: pytest.CaptureFixture[str]):
    run = recorded_before(copy_of(finished))
    before = results(run)
    assert report([str(run)]) == 0
    assert export([str(run), "out=exported"]) == 0
    for same in ([], PLAIN[:2]):
        assert search([f"resume={run}", *same, "generations=2"]) == 0
    assert search([f"resume={run}", "generations=3"]) == 0
    assert results(run)[: len(before)] == before
    assert len(results(run)) > len(before)
    assert "changed after" not in capfd.readouterr().err


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


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_without_trials_is_read_but_does_not_go_on(mistake: Mistake, elsewhere: Path, ended: bool):
    """It was recorded before there were trials."""
    with zipfile.ZipFile(DATA / "run_before_trials.zip") as kept:
        kept.extractall("old")
    run = Path("old")
    with Archive.open(run) as archive:
        settings = yaml.safe_load(archive.read("config.yaml"))
        settings["task"]["settings"]["file"] = str(run.absolute() / "task.py")
        archive.put("config.yaml", yaml.safe_dump(settings).encode())
        if not ended:
            archive.forget("finished", -1)
    assert report([str(run)]) == 0
    assert "g01k01" in (run / "report.html").read_text()
    assert export([str(run), "out=exported", "trust=true"]) == 0
    assert list(Path("exported").iterdir())
    found = open_run(run)
    assert [c.name for c in found.candidates] == ["g00k00", "g00k01", "g01k00", "g01k01"]
    assert found.best
    assert found.best.name == "g00k00"
    before = contents(run)
    for more in ([], ["generations=3"]):
        said = mistake(search, f"resume={run}", "trust=true", *more, alone=False)
        assert said == (
            "old was recorded by a version that ran each program once, so it cannot go on in trials; its report and "
            "exports can be made, or start a new run"
        )
    assert contents(run) == before


@pytest.mark.parametrize("part", ["search=bank", "inner_weights=2"])
def test_a_search_with_a_part_that_is_gone_does_not_go_on(mistake: Mistake, finished: Path, part: str):
    """Not even where the task is named and the settings are compared; its report is still made."""
    name, _, value = part.partition("=")
    run = recorded_before(copy_of(finished), **{name: yaml.safe_load(value)})
    for given in ([], PLAIN[:2], [TASK, *LEG[1:]]):
        said = mistake(search, *given, f"resume={run}")
        assert said == f"this version of movlr-jax has no {part}; use the version that recorded it"
    assert report([str(run)]) == 0
    assert mistake(search, *LEG, part).startswith(f"there is no setting {name!r}")


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


def test_a_file_that_was_changed_is_not_read(finished: Path):
    run = copy_of(finished)
    states = run / "gen_00" / "k00.npz"
    with Archive.open(run, write=False) as archive:
        states.write_bytes(archive.read("gen_00/k00.npz")[:-100])
        with pytest.raises(
            UserError, match="was changed after it was written; restore it, or make it again with"
        ):
            archive.read("gen_00/k00.npz")
        assert archive.damaged() == ["gen_00/k00.npz"]


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


def test_one_process_at_a_time(mistake: Mistake, finished: Path):
    run = copy_of(finished)
    with Archive.open(run):
        assert f"another process is working in {run}" in mistake(search, f"resume={run}")


# Sweeps.


def seeds(run: Path) -> Sequence[int]:
    with Archive.open(run, write=False) as archive:
        about, finish = archive.get("run"), archive.get("finished")
    assert about
    assert finish
    return about["seed"]


def test_a_sweep_runs_every_job_in_a_folder_of_its_own(capfd: pytest.CaptureFixture[str]):
    assert search(["-m", *LEG, "seed=0,1", "run_dir=sweep"]) == 0
    assert [seeds(Path("sweep") / name) for name in ("0", "1")] == [0, 1]
    said = capfd.readouterr().err
    assert "job 1 of 2" in said
    assert "job 2 of 2" in said


def test_a_job_that_fails_does_not_keep_the_others_from_running(mistake: Mistake, capfd):
    """The mass of one is refused where the task is built; -m may be left out."""
    assert search([*QUICK, "task.settings.bottle_kg=-1,0.3"]) == 2
    said = capfd.readouterr().err
    assert "task.settings.bottle_kg=-1: it must be more than 0" in said
    assert "Traceback" not in said
    (run,) = (Path("runs") / "bottle_pour").iterdir()
    assert seeds(run) == 0


def test_a_motion_from_words_is_reported_with_the_last_critique(tmp_path: Path):
    """Nothing is measured in it but falls; a motion with measures is reported with these."""
    context = played(tmp_path / "run", [["first"]], lambda name, g, n: "never run")
    unmeasured, walk = (
        Evaluation(1, k, "", metrics=metrics)
        for k, metrics in enumerate(({"fell": 0.0}, {"distance_m": 5.0}))
    )
    with context.archive as archive:
        assert in_a_line(context, unmeasured, [unmeasured] * 2) == "2 ran"
        critique = {"author": "someone", "success": False, "problems": ["knees are straight", "slow"]}
        archive.record("criticised", critique, 0)
        assert in_a_line(context, unmeasured, [unmeasured] * 2) == "someone: no success; knees are straight"
        archive.record("criticised", critique | {"success": True, "problems": []}, 1)
        assert in_a_line(context, unmeasured, [unmeasured] * 2) == "someone: success"
        assert in_a_line(context, walk, [walk] * 2) == "moved 5 m"
