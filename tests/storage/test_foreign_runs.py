"""Run directories from other people: whatever they hold ends in a page or a sentence, and harms nothing."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cli_cases import LEG, SUPPORT, Mistake

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.export import main as export
from movlr_jax.cli.report import main as report
from movlr_jax.cli.search import main as search
from movlr_jax.errors import UserError
from movlr_jax.language.clients.replay import open_answers
from movlr_jax.storage import events
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.inside import read_arrays

pytestmark = pytest.mark.usefixtures("elsewhere")
SECRET = b"of somebody else"


@pytest.fixture
def secret(elsewhere: Path) -> Path:
    path = elsewhere / "secret"
    path.write_bytes(SECRET)
    return path


def sql(run: Path, statement: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(run / "run.db")) as db, db:
        db.execute(statement, values)


# Links.


def test_links_to_another_file_are_not_followed(run: Path, secret: Path):
    names = ("report.html", "groups.png", "run.db-journal")
    for name in names:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(secret)
    report([str(run)])
    assert secret.read_bytes() == SECRET
    page = run / "report.html"
    if page.is_file() and not page.is_symlink():
        assert base64.b64encode(SECRET).decode() not in page.read_text()


def test_hard_link_as_lock_is_not_written_through(run: Path, secret: Path):
    (run / ".lock").unlink()
    (run / ".lock").hardlink_to(secret)
    assert report([str(run)]) == 0
    assert secret.read_bytes() == SECRET


def test_linked_folder_is_refused_and_nothing_is_written_in_it(mistake: Mistake, run: Path):
    theirs = run.parent / "theirs"
    theirs.mkdir()
    shutil.rmtree(run / "gen_00")
    (run / "gen_00").symlink_to(theirs)
    said = mistake(search, f"resume={run}", "generations=2", alone=False)
    assert f"{run / 'gen_00'} is a symbolic link" in said
    with Archive.open(run, write=False) as archive, pytest.raises(UserError, match="is a symbolic link"):
        archive.put("gen_00/k00.py", b"")
    assert list(theirs.iterdir()) == []


def test_linked_files_of_a_run_are_refused(mistake: Mistake, run: Path, finished: Path):
    for name, command, words in (
        ("best.py", evaluate, [*LEG, f"reward={run}"]),
        (".lock", report, [str(run)]),
        (".lock", search, [f"resume={run}"]),
        ("config.yaml", search, [f"resume={run}"]),
        ("run.db", report, [str(run)]),
    ):
        (run / name).unlink()
        (run / name).symlink_to(finished / name)
        said = mistake(command, *words, alone=False)
        assert f"{name} is a symbolic link, and links inside a run directory are not followed" in said
        (run / name).unlink()
        shutil.copy(finished / name, run / name)


@pytest.mark.parametrize(
    ("name", "command"),
    [("groups.png", report), (".lock", report), (".lock", search), ("config.yaml", search), ("best.py", evaluate)],
)
def test_pipe_keeps_no_command_waiting(run: Path, name: str, command: Callable[[list[str]], int]):
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    began = time.monotonic()
    words = {report: [str(run)], search: [f"resume={run}"], evaluate: [*LEG, f"reward={run}"]}
    assert command(words[command]) in (0, 2)
    assert time.monotonic() - began < 60


# The database.

NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
DATABASES = {
    "view": ("ALTER TABLE events RENAME TO kept",
             f"CREATE VIEW events AS {NUMBERS} SELECT x AS id, 0.0 AS time, 'run' AS kind, -1 AS generation, "
             "-1 AS candidate, '{}' AS data FROM n"),
    "trigger": ("CREATE TRIGGER t AFTER INSERT ON files BEGIN DELETE FROM events; END",),
    "column": ("DROP TABLE events", "CREATE TABLE events (id INTEGER PRIMARY KEY, time REAL, kind TEXT, generation "
               "INTEGER, candidate INTEGER, data TEXT AS (hex(zeroblob(900000000))))"),
    "no events": ("DROP TABLE events",),
}  # fmt: skip


@pytest.mark.parametrize("kind", DATABASES)
def test_database_of_another_schema_is_refused(mistake: Mistake, run: Path, kind: str):
    try:
        for statement in DATABASES[kind]:
            sql(run, statement)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot hold it: {error}")
    said = mistake(report, str(run))
    assert "run.db" in said
    assert "is not the record of a run" in said


def test_long_query_is_ended_by_a_signal(tmp_path: Path):
    script = f"""
import sys
from movlr_jax.cli import outcome
from movlr_jax.storage.database import connect, read_errors
def read(path):
    db = connect(path)
    print("reading", flush=True)
    with read_errors(path):
        db.execute({f"{NUMBERS} SELECT count(*) FROM n"!r}).fetchall()
sys.exit(outcome.run_one(read, {str(tmp_path / "run.db")!r}))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130, said
    assert "Traceback" not in said


# Events.

DEEP: Any = 0
for _ in range(300):
    DEEP = [DEEP]
SHAPES: dict[str, tuple[str, Any]] = {
    "a list": ("evaluated", [1, 2]),
    "null": ("run", None),
    "no JSON": ("ranked", b"{"),
    "bytes": ("ranked", b"\xff\xfe"),
    "deep": ("run", {"settings": {"a": DEEP}}),
    "very deep": ("run", b'{"settings": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "names": ("ranked", {"names": 3, "strengths": [1.0], "best": "g00k00"}),
    "strength": ("ranked", {"names": ["g00k00"], "strengths": [{}], "best": "g00k00"}),
    "comparisons": ("ranked", {"comparisons": [3]}),
    "sources": ("proposed", {"sources": 7, "notes": {"a": 1}}),
    "advice": ("criticised", {"advice": ["more"]}),
    "descriptors": ("described", {"candidates": {"g00k00": {"descriptors": ["bent"]}}}),
    "timing": ("timing", {"optimise": "long"}),
    "finished": ("finished", {"best": {}, "wall_s": "long", "generations": []}),
    "goals": ("run", {"goals": "far"}),
    "weights": ("evaluated", {"weights": {"a": "heavy"}}),
    "huge": ("evaluated", b'{"weights": {"a": 1' + b"0" * 400 + b"}}"),
    "huger": ("evaluated", b'{"weights": {"a": 1' + b"0" * 5000 + b"}}"),
    "learning": ("evaluated", {"learning": {"env_steps": 3, "terms": [1]}}),
    "full": ("full", {"name": ["g00k00"], "learning": 3}),
}


def put(run: Path, kind: str, data: Any) -> None:
    """Put `data` in place of the event of that kind."""
    generation = -1 if kind in ("run", "finished", "full") else 0
    candidate = 0 if kind == "evaluated" else -1
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    columns = "INSERT OR REPLACE INTO events (time, kind, generation, candidate, data)"
    sql(run, f"{columns} VALUES (0.0, ?, ?, ?, CAST(? AS TEXT))", kind, generation, candidate, text)


def fault_of(run: Path) -> str:
    """What a report says of the one event that cannot be read, and why the run is not resumed."""
    with Archive.open(run, write=False) as archive:
        (fault,) = archive.readable_events()[1]
    with pytest.raises(UserError, match=r"cannot be read: .*; the run cannot be continued"):
        Archive.open(run, whole=True)
    assert len(fault) < 1000
    return fault


@pytest.mark.parametrize("shape", SHAPES)
def test_unreadable_event_is_named(run: Path, shape: str):
    kind, data = SHAPES[shape]
    put(run, kind, data)
    of = {"evaluated": " of g00k00", "run": "", "finished": "", "full": ""}.get(kind, " of generation 0")
    assert fault_of(run).startswith(f"the event '{kind}'{of} cannot be read: ")


def test_unreadable_event_is_named_by_commands(mistake: Mistake, run: Path, capfd: pytest.CaptureFixture[str]):
    put(run, "ranked", {"comparisons": [3]})
    assert report([str(run), "scene=false"]) == 0
    assert "the event 'ranked' of generation 0 cannot be read: " in capfd.readouterr().err
    assert "the event &#39;ranked&#39; of generation 0 cannot be read: " in (run / "report.html").read_text()
    resumed = mistake(search, f"resume={run}", "generations=2", alone=False)
    assert "the event 'ranked' of generation 0 cannot be read: " in resumed


@pytest.mark.parametrize("change", ["generation = 'first'", "kind = x'00ff'", "candidate = 1e10", "time = 'early'"])
def test_event_with_invalid_columns_is_named(run: Path, change: str):
    sql(run, f"UPDATE events SET {change} WHERE kind = 'evaluated'")
    assert "cannot be read" in fault_of(run)


def test_ranking_of_unknown_programs_is_not_resumed(mistake: Mistake, run: Path):
    shown = {"first": "g00k00", "second": "g07k07", "winner": "first", "reason": ""}
    ranked = {"names": ["g00k00", "g07k07"], "strengths": [0.0, 1.0], "deviation": [1.0, 1.0], "p_best": [0.5, 0.5],
              "flip_rate": 0.0, "best": "g07k07", "comparisons": [shown]}  # fmt: skip
    put(run, "ranked", ranked)
    assert report([str(run), "scene=false"]) == 0
    assert "g07k07" in mistake(search, f"resume={run}", "generations=2", alone=False)


def test_unreadable_call_is_named(run: Path, capfd: pytest.CaptureFixture[str]):
    with Archive.open(run) as archive:
        archive.log_call("k", "answered", {"purpose": "write"})
    for data in ('{"tokens_in": "many"}', "[]", "{", '{"cost_usd": "much", "sent": true}'):
        sql(run, "UPDATE calls SET data = ?", data)
        with Archive.open(run) as archive, pytest.raises(UserError, match="the call 1 cannot be read"):
            archive.find_call("k")
    assert report([str(run), "scene=false"]) == 0
    assert "the call 1 cannot be read: " in capfd.readouterr().err


LABEL = {"region": "knees", "label": "flexion", "confidence": 0.5}
DESCRIPTION = {"descriptors": [LABEL], "success": True, "alignment": 0.5}


@pytest.mark.parametrize(
    ("description", "complete"),
    [
        (DESCRIPTION, True),
        ({"problem": "no description: refused"}, True),
        (DESCRIPTION | {"alignment": None}, False),
        (DESCRIPTION | {"descriptors": [{"region": "knees", "label": "flexion"}]}, False),
        (None, False),
    ],
)
def test_description_must_be_complete_for_a_resumed_search(description: Any, complete: bool):
    data = {"candidates": {"g00k00": description}}
    events.check("described", 0, -1, data, whole=False)  # a report shows what there is
    with contextlib.nullcontext() if complete else pytest.raises(events.Unreadable):
        events.check("described", 0, -1, data)


def test_ranking_without_answers_may_have_no_strengths():
    shown = {"first": "g00k00", "second": "g00k01", "winner": "none", "reason": "silence", "answered": False}
    unknown = [None, None]
    data = {"names": ["g00k00", "g00k01"], "strengths": unknown, "deviation": unknown, "p_best": unknown}
    ranked = data | {"flip_rate": None, "best": "g00k00", "comparisons": [shown]}
    events.check("ranked", 0, -1, ranked)
    with pytest.raises(events.Unreadable, match="no flip_rate"):
        events.check("ranked", 0, -1, {name: value for name, value in ranked.items() if name != "flip_rate"})


# The settings.


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 8)]
    return "\n".join(lines) + "\ntask: *a7\n"


CONFIGS: dict[str, Callable[[str], str]] = {
    "aliases": lambda text: bomb(),
    "NUL": lambda text: text + "\0",
    "NUL, written out": lambda text: text.replace("physics: auto", 'physics: "au\\0to"'),
    "deep": lambda text: "seed: " + "[" * 5000 + "]" * 5000,
    "deep blocks": lambda text: "\n".join(" " * i + "a:" for i in range(1000)),
    "a long number": lambda text: text.replace("seed: 0", "seed: " + "9" * 5000),
    "an invalid date": lambda text: text.replace("seed: 0", "seed: 2001-99-99"),
    "an invalid Boolean": lambda text: text.replace("seed: 0", "seed: !!bool maybe"),
    "an object": lambda text: text.replace("seed: 0", "seed: !!python/object/apply:os.getcwd []"),
    "a long value": lambda text: text.replace("seed: 0", f"seed: {'x' * 300_000}"),
    "too large": lambda text: text + "#" * 3_000_000,
    "nothing": lambda text: "",
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_malformed_settings_are_refused_soon(mistake: Mistake, run: Path, kind: str):
    path = run / "config.yaml"
    path.write_text(CONFIGS[kind](path.read_text()))
    began = time.monotonic()
    assert len(mistake(search, f"resume={run}")) < 1000
    assert time.monotonic() - began < 20


# The task file that a run names.

HARMLESS = SUPPORT / "tiny_task.py"


@pytest.fixture
def own(elsewhere: Path, run: Path) -> tuple[Path, Path]:
    """A task file and a run of it, and the file leaves a trace when it runs."""
    file = elsewhere / "task.py"
    file.write_text(HARMLESS.read_text() + f"\nopen({str(elsewhere / 'trace')!r}, 'a').write('x')\n")
    made = elsewhere / "own"
    assert search([f"+task={file}", *LEG[1:], f"run_dir={made}"]) == 0
    (elsewhere / "trace").unlink()
    return file, made


def test_unchanged_task_file_runs_and_so_does_one_that_is_given(own: tuple[Path, Path], mistake: Mistake):
    file, made = own
    trace = file.parent / "trace"
    assert search([f"resume={made}", "generations=2"]) == 0
    assert trace.exists()
    trace.unlink()
    file.write_text(file.read_text() + "# more\n")
    assert mistake(search, f"resume={made}", "generations=3") == needs_trust(made, file)
    assert not trace.exists()
    assert search([f"resume={made}", "generations=3", "trust=true"]) == 0
    assert trace.exists()
    file.write_text(file.read_text() + "# more\n")
    settings = [word for word in LEG[1:] if not word.startswith("generations=")]
    assert search([f"+task={file}", *settings, f"resume={made}", "generations=3"]) == 0


def needs_trust(made: Path, file: Path) -> str:
    return (
        f"{made} was changed since you began it here, and asks for: task.settings.file={file}; check each of them, "
        "and give trust=true to allow them all"
    )


def test_task_file_in_the_run_needs_trust(mistake: Mistake, own: tuple[Path, Path]):
    file, made = own
    theirs, config = made / "theirs.py", made / "config.yaml"
    theirs.write_text(file.read_text())
    config.write_text(config.read_text().replace(str(file), str(theirs)) + "trust: true\n")
    assert mistake(search, f"resume={made}", "generations=2") == needs_trust(made, theirs)
    assert search([f"resume={made}", "generations=2", "trust=true"]) == 2, "who edits the record is told"
    assert not (file.parent / "trace").exists()


def test_moved_run_is_resumed_with_its_moved_task_file(own: tuple[Path, Path], mistake: Mistake, tmp_path: Path):
    file, made = own
    moved, run = tmp_path / "there" / "mine.py", tmp_path / "there" / "run"
    moved.parent.mkdir()
    file.rename(moved)
    made.rename(run)
    assert "there is no task file" in mistake(search, f"resume={run}", "generations=2")
    assert search([f"+task={moved}", f"resume={run}", "generations=2"]) == 0
    assert report([str(run), f"+task={moved}"]) == 0
    assert "Left out: the 3-D view" not in (run / "report.html").read_text()
    assert "seed cannot be changed" in mistake(search, f"+task={moved}", f"resume={run}", "seed=1")
    moved.write_text(moved.read_text() + "# more\n")
    said = mistake(search, f"+task={moved}", f"resume={run}", "generations=3")
    assert "was created with other settings: task.settings.file was" in said


# Arrays and sizes.


def npz(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize("harm", ["cut", "shape", "names", "texts"])
def test_unreadable_trajectory_with_a_valid_hash_is_refused(mistake: Mistake, run: Path, harm: str):
    path = "gen_00/k00.npz"
    with Archive.open(run) as archive:
        whole = archive.read(path)
        with np.load(io.BytesIO(whole)) as file:
            arrays = dict(file)
        made = {
            "cut": whole[: len(whole) // 2],
            "shape": npz({**arrays, "qpos": arrays["qpos"][:, :1]}),
            "names": npz({"time": arrays["time"]}),
            "texts": npz({**arrays, "qpos": arrays["qpos"].astype(str)}),
        }
        archive.put(path, made[harm])
    said = mistake(search, f"resume={run}", "films=true", alone=False)
    if "no films: " in said:
        pytest.skip("nothing draws here")
    assert said.startswith("cannot film: the trajectory cannot be read (")


@contextlib.contextmanager
def bounded(seconds: float = 60.0, megabytes: float = 300.0):
    """Assert that the context takes no more than these."""

    def largest_mb() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    before, began = largest_mb(), time.monotonic()
    yield
    assert time.monotonic() - began < seconds
    assert largest_mb() - before < megabytes


@pytest.mark.parametrize("vouched", [False, True], ids=["changed", "the record lies"])
def test_sparse_trajectory_is_refused_before_it_is_read(mistake: Mistake, run: Path, vouched: bool):
    size = 6 * 2**30
    os.truncate(run / "gen_00" / "k00.npz", size)
    if vouched:
        sql(run, f"UPDATE files SET bytes = {size} WHERE path = 'gen_00/k00.npz'")
    with bounded(20, 200):
        said = mistake(export, str(run), "format=csv")
        assert ("expected at most" if vouched else "was changed after it was written") in said
        with Archive.open(run, write=False) as archive:
            assert archive.damaged() == ["gen_00/k00.npz"]
        assert "expected at most" in mistake(export, str(run / "gen_00" / "k00.npz"), "format=csv")


@pytest.mark.parametrize("name", ["best.py", "answers.jsonl", "walk_task.py", "run.db"])
def test_sparse_file_is_refused(mistake: Mistake, run: Path, name: str):
    path = run / name
    path.touch()
    os.truncate(path, 7 * 2**30)
    with bounded(megabytes=200):
        if name == "best.py":
            said = mistake(evaluate, *LEG, f"reward={run}") + mistake(evaluate, *LEG, f"reward={path}")
        elif name == "answers.jsonl":
            with pytest.raises(UserError) as refused:
                open_answers(run)
            said = str(refused.value)
        elif name == "walk_task.py":
            task = {"name": "own", "settings": {"file": str(path)}}
            config = run / "config.yaml"
            values = yaml.safe_load(config.read_text()) | {"task": task, "model": "own"}
            config.write_text(yaml.safe_dump(values))
            said = mistake(search, f"resume={run}")
        else:
            said = mistake(report, str(run))
        assert "expected at most" in said


def test_array_that_claims_to_be_larger_than_its_file_is_refused():
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9,)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("qpos.npy", header.getvalue() + bytes(8))
    with pytest.raises(ValueError, match="its arrays have 8,000,000,000 bytes, expected at most"):
        read_arrays(buffer.getvalue())


@pytest.mark.parametrize("what", ["events", "text", "calls"])
def test_database_with_too_much_is_refused(mistake: Mistake, run: Path, what: str):
    with Archive.open(run) as archive:
        archive.log_call("k", "answered", {"purpose": "write"})
    many = f"{NUMBERS[:-1]} WHERE x < {{}})"
    sql(run, {
        "events": many.format(60_000) + " INSERT INTO events (time, kind, generation, data) "
                  "SELECT 0.0, 'timing', x, '{\"optimise\": 1.0}' FROM n",
        "text": "UPDATE events SET data = '\"' || hex(zeroblob(75000000)) || '\"' WHERE kind = 'evaluated'",
        "calls": many.format(150_000) + " INSERT INTO calls (time, key, state, sent, data) "
                 "SELECT 0.0, 'k', 'answered', 0, '{}' FROM n",
    }[what])  # fmt: skip
    with bounded():
        said = mistake(report, str(run))
        assert "run.db has " in said
        assert "expected at most" in said


def test_report_of_many_generations_shows_the_latest(run: Path):
    rows = f"{NUMBERS[:-1]} WHERE x < 2000)"
    sql(run, f"{rows} INSERT INTO events (time, kind, generation, data) "
             "SELECT 0.0, 'timing', x, '{\"optimise\": 1.0}' FROM n")  # fmt: skip
    assert report([str(run), "scene=false"]) == 0
    assert "The latest 1000 of 2001 generations" in (run / "report.html").read_text()
