"""What a run may make happen: obeyed for runs that were begun here, else listed and asked for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from cli_cases import LEG, PLAIN, Mistake

import movlr_jax as mj
from movlr_jax.cli.export import main as export
from movlr_jax.cli.gait import main as gait
from movlr_jax.cli.report import main as report
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.config.schema import Config
from movlr_jax.config.trust import TASK, acts, began
from movlr_jax.control.optimizers import Mpc2
from movlr_jax.control.settings import OPTIMIZERS
from movlr_jax.engine.export import settings_of_policy
from movlr_jax.errors import UserError
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.begun import OPENED

pytestmark = pytest.mark.usefixtures("elsewhere")
SERVER = {"name": "openai_compatible", "model": "m", "base_url": "http://192.0.2.7/v1", "key_env": "AWS_SECRET"}


@pytest.fixture
def trap(elsewhere: Path) -> tuple[Path, Path]:
    """A task file, and what it leaves behind when it runs."""
    ran = elsewhere / "ran"
    file = elsewhere / "walk_task.py"
    file.write_text(f"open({str(ran)!r}, 'w').close()\n\n\ndef task():\n    raise SystemExit\n")
    return file, ran


def edit(run: Path, **settings: Any) -> None:
    """Change the settings of a run, and its record so that it vouches for them."""
    config = run / "config.yaml"
    values = yaml.safe_load(config.read_text())
    for name, value in settings.items():
        merged = isinstance(value, dict) and isinstance(values.get(name), dict) and name != "task"
        values[name] = {**values[name], **value} if merged else value
    config.write_text(yaml.safe_dump(values))
    data = config.read_bytes()
    db = sqlite3.connect(run / "run.db")
    with db:
        found = (hashlib.sha256(data).hexdigest(), len(data))
        db.execute("UPDATE files SET sha256 = ?, bytes = ? WHERE path = 'config.yaml'", found)
        file = values["task"]["settings"].get("file")
        if file and Path(file).is_file():
            event = {"path": file, "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}
            db.execute("DELETE FROM events WHERE kind = 'task_file'")
            db.execute("INSERT INTO events (time, kind, data) VALUES (0, 'task_file', ?)", (json.dumps(event),))
        (text,) = db.execute("SELECT data FROM events WHERE kind = 'run'").fetchone()
        event = json.loads(text)
        event["settings"] |= {k: v for k, v in settings.items() if not isinstance(v, dict)}
        db.execute("UPDATE events SET data = ? WHERE kind = 'run'", (json.dumps(event),))
    db.close()


def test_every_setting_of_run_is_known_to_act_or_to_be_data():
    """A new setting in words must be sorted here, and into `acts` if it reaches beyond the run directory."""
    config = compose(PLAIN)
    assert acts(config) == {}
    data = {
        "episode_s", "tuned", "reference_by", "instruction", "physics", "ranking", "run_dir", "resume", "trust",
        "reward", "tuned_settings", "method",
    }  # fmt: skip
    acting = {"task", "model", "optimizer", "reference", "llm", "vlm", "proposer", "judge", "critic", "workers",
              "tracker", "sandbox"}  # fmt: skip
    numbers = {f.name for f in dataclasses.fields(Config) if get_type_hints(Config)[f.name] in _NUMBERS}
    assert {f.name for f in dataclasses.fields(Config)} == data | acting | numbers


_NUMBERS = (int, float, bool, int | None, float | None)


@pytest.mark.parametrize(
    ("settings", "listed"),
    [
        ({"llm": SERVER}, "llm.name=openai_compatible, llm.model=m, llm.base_url=http://192.0.2.7/v1, llm.key_env="),
        ({"vlm": {"name": "gemini", "model": "g", "key_env": "HOME"}}, "vlm.key_env=HOME"),
        ({"vlm": {"name": "person", "host": "0.0.0.0"}}, "vlm.host=0.0.0.0"),
        ({"llm": {"name": "replay", "run": "/home/x"}}, "llm.run=/home/x"),
        ({"sandbox": "process"}, "sandbox=process"),
        ({"workers": {"name": "ray", "address": "ray://192.0.2.7:10001"}}, "workers.address=ray://192.0.2.7:10001"),
        ({"tracker": {"name": "mlflow", "uri": "http://192.0.2.7"}}, "tracker.uri=http://192.0.2.7"),
        ({"tracker": {"name": "wandb", "project": "theirs"}}, "tracker.project=theirs"),
        ({"model": "/home/x/arm.xml"}, "model=/home/x/arm.xml"),
        ({"model": "../arm.xml"}, "model=../arm.xml"),
        ({"reference": "/proc/self/environ"}, "reference=/proc/self/environ"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_run_of_others_asks_for_is_listed(run: Path, settings: dict[str, Any], listed: str):
    edit(run, **settings)
    with pytest.raises(UserError) as refused:
        compose([f"resume={run}"])
    said = str(refused.value)
    assert said.startswith(f"{run} was not begun by you on this machine, and asks for: ")
    assert listed in said
    assert "trust=true to allow them all" in said


@pytest.mark.parametrize("name", ["ppo.init", "ppo.teacher", "ppo.motions", "prior.policy"])
def test_files_of_policies_are_listed_but_not_those_of_package(run: Path, name: str):
    group, _, last = name.partition(".")
    config = compose(PLAIN)
    for value, acting in (("humanoid_walk", False), ("../../../x", True), ("/x.npz", True), ("policies/x", True)):
        if name == "ppo.motions" and not acting:
            continue
        values = OPTIMIZERS.record(Mpc2())
        values[group][last] = [value] if name == "ppo.motions" else value
        optimizer = OPTIMIZERS.read(values, "optimizer")
        assert (f"optimizer.{name}" in acts(dataclasses.replace(config, optimizer=optimizer))) == acting
    edit(run, optimizer=values)
    with pytest.raises(UserError, match=f"optimizer.{name}="):
        compose([f"resume={run}"])


PATHS: dict[str, Callable[[Path, Path], str]] = {
    "absolute": lambda file, run: str(file),
    "relative": lambda file, run: file.name,
    "of the process": lambda file, run: f"/proc/self/cwd/{file.name}",
    "dots": lambda file, run: f"{run}/../{file.name}",
    "a link": lambda file, run: str(_linked(file)),
    "in the run": lambda file, run: str(shutil.copy(file, run / "task.py")),
}


def _linked(file: Path) -> Path:
    link = file.with_name("link.py")
    link.symlink_to(file)
    return link


@pytest.mark.parametrize("where", PATHS)
def test_task_file_of_run_of_others_asks_wherever_it_is(run: Path, trap: tuple[Path, Path], where: str):
    file, ran = trap
    edit(run, task={"name": "own", "settings": {"file": PATHS[where](file, run)}}, model="own")
    with pytest.raises(UserError, match=r"was not begun by you on this machine, and asks for: task\.settings\.file="):
        compose([f"resume={run}"])
    assert not ran.exists()


@pytest.mark.parametrize("where", ["absolute", "in the run"])
def test_no_command_runs_task_file_of_run_of_others(
    run: Path, trap: tuple[Path, Path], where: str, capfd: pytest.CaptureFixture[str]
):
    file, ran = trap
    edit(run, task={"name": "own", "settings": {"file": PATHS[where](file, run)}}, model="own")
    assert report([str(run)]) == 0
    for command, words in (
        (search, [f"resume={run}", "generations=2"]),
        (search, [f"replay={run}", "run_dir=again"]),
        (export, [str(run)]),
        (export, [str(run / "gen_00" / "k00.npz")]),
        (gait, [str(run)]),
    ):
        assert command(words) == 2
        assert "was not begun by you on this machine, and asks for: task.settings.file=" in capfd.readouterr().err
    with pytest.raises(UserError, match="was not begun by you"):
        _ = mj.open_run(run).task
    with pytest.raises(UserError, match="was not begun by you"):
        mj.run_search(resume=run)
    assert not ran.exists()


def test_settings_next_to_trajectory_and_policy_of_others_ask_too(
    run: Path, trap: tuple[Path, Path], mistake: Mistake
):
    file, ran = trap
    edit(run, task={"name": "own", "settings": {"file": str(file)}}, model="own")
    shutil.copy(run / "gen_00" / "k00.npz", "theirs.npz")
    shutil.copy(run / "config.yaml", "theirs.yaml")
    shutil.copy(run / "config.yaml", "config.yaml")
    assert f"task.settings.file={file}" in mistake(export, "theirs.npz")
    with pytest.raises(UserError, match=r"task\.settings\.file="):
        settings_of_policy("theirs.npz", "", [])
    assert settings_of_policy("theirs.npz", "", [], trust=True).task.name == "own"
    assert not ran.exists()


def test_report_asks_only_for_what_it_shows(run: Path, capfd: pytest.CaptureFixture[str]):
    edit(run, llm=SERVER, tracker={"name": "wandb"})
    assert report([str(run)]) == 0
    assert "begun" not in capfd.readouterr().err
    assert compose([f"resume={run}"], parts=TASK).llm.key_env == "AWS_SECRET"


def test_what_user_gives_is_users(run: Path):
    edit(run, tracker={"name": "mlflow", "uri": "http://192.0.2.7"}, workers={"name": "ray", "address": "auto"})
    with pytest.raises(UserError, match=r"asks for: workers\.name=ray") as refused:
        compose([f"resume={run}", "tracker=none"])
    assert "tracker" not in str(refused.value)
    with pytest.raises(UserError, match=r"tracker\.uri=http://192"):
        compose([f"resume={run}", "tracker.project=mine", "workers=none"])
    assert compose([f"resume={run}", "tracker=none", "workers=none"]).tracker.name == "none"


def test_run_that_was_begun_here_is_obeyed_and_that_is_recorded(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere / "state"))
    assert search([*LEG, "sandbox=process", "run_dir=run"]) == 0
    Path("run").rename("moved")
    assert search(["resume=moved", "generations=2"]) == 0
    assert "begun" not in capfd.readouterr().err
    (line,) = (elsewhere / "state" / "movlr-jax" / OPENED).read_text().splitlines()
    opened = json.loads(line)
    assert opened["because"] == "you began it here"
    assert opened["obeyed"]["sandbox"] == "process"
    with Archive.open(Path("moved"), write=False) as archive:
        (event,) = archive.events("obeyed")
    assert event.data["settings"]["sandbox"] == "process"
    assert event.data["trust"] is False
    assert (elsewhere / "state" / "movlr-jax").stat().st_mode & 0o077 == 0


def begun(run: Path) -> None:
    """As a search does that the user begins here with a weaker sandbox."""
    edit(run, sandbox="process")
    began(run, compose([f"resume={run}", "trust=true"]))


@pytest.mark.parametrize("how", ["copied", "copied over", "edited", "of no id", "of another's id"])
def test_what_is_not_run_that_was_begun_asks(run: Path, elsewhere: Path, how: str):
    begun(run)
    compose([f"resume={run}"])
    theirs = Path(shutil.copytree(run, elsewhere / "theirs"))
    if how == "copied":
        run = theirs
    elif how == "copied over":
        shutil.copytree(theirs, run, dirs_exist_ok=True)
    elif how == "edited":
        edit(run, llm=SERVER)
    elif how == "of no id":
        (run / ".begun").unlink()
    else:
        (run / ".begun").write_text("../../../" + "0" * 23)
    with pytest.raises(UserError, match="sandbox=process"):
        compose([f"resume={run}"])


@pytest.mark.parametrize("state", ["relative", "a file", "open to others", "read-only"])
def test_without_state_folder_run_begins_and_going_on_asks(
    run: Path, elsewhere: Path, state: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    folder = elsewhere / "state"
    folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    if state == "relative":
        monkeypatch.setenv("XDG_STATE_HOME", "state")
        monkeypatch.setenv("HOME", "state")
    elif state == "a file":
        (folder / "movlr-jax").touch()
    elif state == "open to others":
        (folder / "movlr-jax").mkdir()
        (folder / "movlr-jax").chmod(0o777)
    else:
        monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    begun(run)
    assert "going on with it will need trust=true" in capfd.readouterr().err
    with pytest.raises(UserError, match="sandbox=process"):
        compose([f"resume={run}"])
    assert compose([f"resume={run}", "trust=true"]).sandbox == "process"
    assert not list(folder.rglob("*.json"))


def test_sandbox_of_report_is_not_better_than_that_of_run(run: Path):
    edit(run, sandbox="process")
    assert report([str(run), "scene=false"]) == 0
    page = (run / "report.html").read_text()
    assert "<b>process</b>" in page
    assert search([f"resume={run}", "generations=2", "trust=true"]) == 0
    with Archive.open(run, write=False) as archive:
        assert str((archive.get("run") or {})["backends"]["sandbox"]).startswith("process: WEAKER")


def test_value_cannot_look_like_lines_of_message(run: Path):
    edit(run, reference="/x\n\x1b[2J, and nothing else")
    with pytest.raises(UserError) as refused:
        compose([f"resume={run}"])
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_film_outside_run_is_not_shown(run: Path, elsewhere: Path):
    (elsewhere / "secret").write_bytes(b"of somebody else")
    db = sqlite3.connect(run / "run.db")
    for path in (str(elsewhere / "secret"), "../secret"):
        (text,) = db.execute("SELECT data FROM events WHERE kind = 'evaluated'").fetchone()
        with db:
            data = json.dumps(json.loads(text) | {"film": path})
            db.execute("UPDATE events SET data = ? WHERE kind = 'evaluated'", (data,))
        assert mj.open_run(run).best.film is None
    db.close()
