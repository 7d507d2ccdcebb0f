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
from cli_cases import LEG, PLAIN, SUPPORT, Mistake

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.export import main as export
from movlr_jax.cli.report import main as report
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.errors import UserError
from movlr_jax.language.clients.replay import open_answers
from movlr_jax.storage import events
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.arrays import read_arrays

pytestmark = pytest.mark.usefixtures("elsewhere")
SECRET = b"of somebody else"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("search") / "run"
    assert search([*PLAIN, f"run_dir={run}"]) == 0
    return run


@pytest.fixture
def run(finished: Path, elsewhere: Path) -> Path:
    return Path(shutil.copytree(finished, elsewhere / "run"))


@pytest.fixture
def secret(elsewhere: Path) -> Path:
    path = elsewhere / "secret"
    path.write_bytes(SECRET)
    return path


def sql(run: Path, *statements: str) -> None:
    db = sqlite3.connect(run / "run.db")
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


# Links.


@pytest.mark.parametrize(
    "name", [".lock", ".report.html.part", "report.html", "groups.png", "run.db-journal"]
)
def test_a_link_is_not_followed(run: Path, secret: Path, name: str):
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    report([str(run)])
    assert secret.read_bytes() == SECRET
    page = run / "report.html"
    if page.is_file() and not page.is_symlink():
        assert base64.b64encode(SECRET).decode() not in page.read_text()


@pytest.mark.parametrize("name", [".lock", ".report.html.part"])
def test_a_second_name_of_a_file_is_not_written_through(run: Path, secret: Path, name: str):
    (run / name).unlink(missing_ok=True)
    (run / name).hardlink_to(secret)
    assert report([str(run)]) == 0
    assert secret.read_bytes() == SECRET


def test_a_linked_lock_is_told(mistake: Mistake, run: Path, secret: Path):
    (run / ".lock").unlink()
    (run / ".lock").symlink_to(secret)
    for command, argument in ((report, str(run)), (search, f"resume={run}")):
        assert mistake(command, argument, alone=False) == (
            f"{run / '.lock'} is a symbolic link, and links inside a run directory are not followed; remove it"
        )


def test_a_linked_folder_is_told_and_nothing_is_written_beyond_it(mistake: Mistake, run: Path):
    theirs = run.parent / "theirs"
    theirs.mkdir()
    shutil.rmtree(run / "gen_00")
    (run / "gen_00").symlink_to(theirs)
    said = mistake(search, f"resume={run}", "generations=2", alone=False)
    assert f"{run / 'gen_00'} is a symbolic link" in said
    with Archive.open(run, write=False) as archive, pytest.raises(UserError, match="is a symbolic link"):
        archive.put("gen_00/k00.py", b"")
    assert list(theirs.iterdir()) == []


def test_a_linked_record_or_reward_is_told(mistake: Mistake, run: Path, finished: Path, secret: Path):
    (run / "best.py").unlink()
    (run / "best.py").symlink_to(secret)
    assert "best.py is a symbolic link" in mistake(evaluate, *LEG, f"reward={run}")
    (run / "config.yaml").unlink()
    (run / "config.yaml").symlink_to(finished / "config.yaml")
    assert "config.yaml is a symbolic link" in mistake(search, f"resume={run}")
    (run / "run.db").unlink()
    (run / "run.db").symlink_to(finished / "run.db")
    assert "run.db is a symbolic link" in mistake(report, str(run))


@pytest.mark.parametrize("name", ["groups.png", ".lock", "config.yaml", "best.py"])
def test_a_pipe_keeps_nobody_waiting(run: Path, name: str):
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    began = time.monotonic()
    assert report([str(run)]) in (0, 2)
    assert search([f"resume={run}"]) in (0, 2)
    assert evaluate([*LEG, f"reward={run}"]) in (0, 2)
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
def test_a_database_of_another_make_is_told(mistake: Mistake, run: Path, kind: str):
    try:
        sql(run, *DATABASES[kind])
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot hold it: {error}")
    for command, argument in ((report, str(run)), (search, f"resume={run}")):
        said = mistake(command, argument)
        assert "run.db" in said
        assert "is not the record of a run" in said


def test_reading_a_record_can_be_stopped(tmp_path: Path):
    """SQLite works without Python's knowledge: SIGTERM ends it even so."""
    script = f"""
import sqlite3, sys
from movlr_jax.cli import outcome
from movlr_jax.storage import archive
def read(path):
    db = archive._connect(path)
    print("reading", flush=True)
    with archive._read_errors(path):
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
    "a number": ("ranked", 3),
    "null": ("run", None),
    "no JSON": ("ranked", b"{"),
    "bytes": ("ranked", b"\xff\xfe"),
    "deep": ("run", {"settings": {"a": DEEP}}),
    "very deep": ("run", b'{"settings": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "names": ("ranked", {"names": 3, "strengths": [1.0], "best": "g00k00"}),
    "strengths": ("ranked", {"names": ["g00k00"], "strengths": "high", "best": "g00k00"}),
    "strength": ("ranked", {"names": ["g00k00"], "strengths": [{}], "best": "g00k00"}),
    "best": ("ranked", {"names": ["g00k00"], "strengths": [0.0], "best": ["g00k00"]}),
    "comparisons": ("ranked", {"comparisons": [3]}),
    "sources": ("proposed", {"sources": 7, "notes": {"a": 1}}),
    "notes": ("proposed", {"sources": [], "notes": 5}),
    "problems": ("criticised", {"problems": 4, "advice": [{"action": 3}]}),
    "advice": ("criticised", {"advice": ["more"]}),
    "descriptions": ("described", {"candidates": [1]}),
    "descriptors": ("described", {"candidates": {"g00k00": {"descriptors": ["bent"]}}}),
    "stopped": ("stopped", {"reason": 3}),
    "timing": ("timing", {"optimise": "long"}),
    "finished": ("finished", {"best": {}, "wall_s": "long", "generations": []}),
    "film": ("finished", {"side_by_side": {"a": 1}}),
    "backends": ("run", {"backends": ["native"]}),
    "goals": ("run", {"goals": "far"}),
    "settings": ("run", {"settings": [1]}),
    "metrics": ("evaluated", {"metrics": [1.0]}),
    "weights": ("evaluated", {"weights": {"a": "heavy"}}),
    "huge": ("evaluated", b'{"weights": {"a": 1' + b"0" * 400 + b"}}"),
    "huger": ("evaluated", b'{"weights": {"a": 1' + b"0" * 5000 + b"}}"),
    "terms": ("evaluated", {"terms": {"a": 1}}),
    "learning": ("evaluated", {"learning": {"env_steps": 3, "terms": [1]}}),
    "full": ("full", {"name": ["g00k00"], "learning": 3}),
}  # fmt: skip


def put(run: Path, kind: str, data: Any) -> None:
    """`data` in place of the event of that kind."""
    generation = -1 if kind in ("run", "finished", "full") else 0
    candidate = 0 if kind == "evaluated" else -1
    text = data.decode("latin-1") if isinstance(data, bytes) else json.dumps(data)
    db = sqlite3.connect(run / "run.db")
    with db:
        value = "CAST(? AS TEXT)" if data == b"\xff\xfe" else "?"
        db.execute(
            "INSERT OR REPLACE INTO events (time, kind, generation, candidate, data) "
            f"VALUES (0.0, ?, ?, ?, {value})",
            (kind, generation, candidate, data if data == b"\xff\xfe" else text),
        )
    db.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_that_cannot_be_read_is_named(
    mistake: Mistake, run: Path, shape: str, capfd: pytest.CaptureFixture[str]
):
    kind, data = SHAPES[shape]
    put(run, kind, data)
    assert report([str(run), "scene=false"]) == 0
    of = {"evaluated": " of g00k00", "run": "", "finished": "", "full": ""}.get(kind, " of generation 0")
    said = capfd.readouterr().err
    assert f"the event '{kind}'{of} cannot be read: " in said
    page = (run / "report.html").read_text()
    assert f"the event &#39;{kind}&#39;{of} cannot be read: " in page
    assert len(said) < 1000
    resumed = mistake(search, f"resume={run}", "generations=2", alone=False)
    assert f"the event '{kind}'{of} cannot be read: " in resumed


@pytest.mark.parametrize(
    "change",
    [
        "generation = 'first'",
        "generation = 1e30",
        "kind = x'00ff'",
        "candidate = 10000000000",
        "time = 'early'",
    ],
)
def test_an_event_of_no_known_place_is_named(run: Path, change: str, capfd: pytest.CaptureFixture[str]):
    sql(run, f"UPDATE events SET {change} WHERE kind = 'evaluated'")
    assert report([str(run), "scene=false"]) == 0
    assert "cannot be read" in capfd.readouterr().err


def test_a_ranking_of_programs_that_do_not_exist_is_told(mistake: Mistake, run: Path):
    shown = {"first": "g00k00", "second": "g07k07", "winner": "first", "reason": ""}
    ranked = {"names": ["g00k00", "g07k07"], "strengths": [0.0, 1.0], "deviation": [1.0, 1.0], "p_best": [0.5, 0.5],
              "flip_rate": 0.0, "best": "g07k07", "comparisons": [shown]}  # fmt: skip
    put(run, "ranked", ranked)
    assert report([str(run), "scene=false"]) == 0
    assert "g07k07" in mistake(search, f"resume={run}", "generations=2", alone=False)


def test_a_call_that_cannot_be_read_is_named(run: Path, capfd: pytest.CaptureFixture[str]):
    with Archive.open(run) as archive:
        archive.log_call("k", "answered", {"purpose": "write"})
    for data in ('{"tokens_in": "many"}', "[]", "{", '{"cost_usd": "much", "sent": true}'):
        db = sqlite3.connect(run / "run.db")
        with db:
            db.execute("UPDATE calls SET data = ?", (data,))
        db.close()
        assert report([str(run), "scene=false"]) == 0
        assert "the call 1 cannot be read: " in capfd.readouterr().err
        with Archive.open(run) as archive, pytest.raises(UserError, match="the call 1 cannot be read"):
            archive.find_call("k")


LABEL = {"region": "knees", "label": "flexion", "confidence": 0.5}
DESCRIPTION = {"descriptors": [LABEL], "success": True, "alignment": 0.5}


@pytest.mark.parametrize(
    ("description", "complete"),
    [
        (DESCRIPTION, True),
        ({"problem": "no description: refused"}, True),
        (DESCRIPTION | {"descriptors": []}, True),
        (DESCRIPTION | {"alignment": None}, False),
        (DESCRIPTION | {"descriptors": [None]}, False),
        (DESCRIPTION | {"descriptors": [{"region": "knees", "label": "flexion"}]}, False),
        ({"descriptors": []}, False),
        (None, False),
    ],
)
def test_a_search_goes_on_only_with_complete_descriptions(description: Any, complete: bool):
    data = {"candidates": {"g00k00": description}}
    events.check("described", 0, -1, data, whole=False)  # a report shows what there is
    with contextlib.nullcontext() if complete else pytest.raises(events.Unreadable):
        events.check("described", 0, -1, data)


# The settings.


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 8)]
    return "\n".join(lines) + "\ntask: *a7\n"


CONFIGS: dict[str, Callable[[str], str]] = {
    "aliases": lambda text: bomb(),
    "a small alias": lambda text: text.replace("seed: 0", "seed: &s 0\ncandidates: *s"),
    "NUL": lambda text: text + "\0",
    "NUL, written out": lambda text: text.replace("physics: auto", 'physics: "au\\0to"'),
    "deep": lambda text: "seed: " + "[" * 5000 + "]" * 5000,
    "deep blocks": lambda text: "\n".join(" " * i + "a:" for i in range(1000)),
    "a long number": lambda text: text.replace("seed: 0", "seed: " + "9" * 5000),
    "a date that is none": lambda text: text.replace("seed: 0", "seed: 2001-99-99"),
    "a Boolean that is none": lambda text: text.replace("seed: 0", "seed: !!bool maybe"),
    "an object": lambda text: text.replace("seed: 0", "seed: !!python/object/apply:os.getcwd []"),
    "a long value": lambda text: text.replace("seed: 0", f"seed: {'x' * 300_000}"),
    "a long name": lambda text: f"{'x' * 300_000}: 1\n" + text,
    "too large": lambda text: text + "#" * 3_000_000,
    "a list": lambda text: "[]",
    "nothing": lambda text: "",
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_settings_of_another_make_are_told(mistake: Mistake, run: Path, kind: str):
    path = run / "config.yaml"
    path.write_text(CONFIGS[kind](path.read_text()))
    began = time.monotonic()
    said = mistake(search, f"resume={run}")
    assert len(said) < 1000
    assert time.monotonic() - began < 20


def test_what_is_set_anew_is_read_as_carefully(mistake: Mistake, run: Path):
    for value in ("[" * 2000, "&a [*a]", "!!bool maybe"):
        assert "generations=" in mistake(search, f"resume={run}", f"generations={value}")


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


def test_a_task_file_that_is_as_it_was_runs(own: tuple[Path, Path]):
    file, made = own
    assert search([f"resume={made}", "generations=2"]) == 0
    assert (file.parent / "trace").exists()


@pytest.mark.parametrize("why", ["changed", "another", "copied", "in the run"])
def test_a_task_file_that_is_another_asks_first(mistake: Mistake, own: tuple[Path, Path], why: str):
    file, made = own
    trace = file.parent / "trace"
    if why == "changed":
        file.write_text(file.read_text() + "# more\n")
    elif why == "copied":
        made = Path(shutil.copytree(made, made.with_name("copy")))
    else:
        theirs = (made if why == "in the run" else file.parent) / "theirs.py"
        theirs.write_text(file.read_text())
        config = made / "config.yaml"
        config.write_text(config.read_text().replace(str(file), str(theirs)) + "trust: true\n")
        file = theirs
    said = mistake(search, f"resume={made}", "generations=2")
    because = (
        "was not begun by you on this machine" if why == "copied" else "was changed since you began it here"
    )
    assert said == (
        f"{made} {because}, and asks for: task.settings.file={file}; check each of them, and give trust=true to "
        "allow them all"
    )
    assert not trace.exists()
    status = search([f"resume={made}", "generations=2", "trust=true"])
    whole = why in ("changed", "copied")
    assert trace.exists() == whole
    assert status == (0 if whole else 2), "who edits the record is told"


def test_a_task_file_that_the_person_names_is_theirs(own: tuple[Path, Path]):
    file, made = own
    file.write_text(file.read_text() + "# more\n")
    assert search([f"+task={file}", *LEG[1:], f"resume={made}"]) == 0


def test_a_run_goes_on_where_its_task_file_has_moved(
    own: tuple[Path, Path], mistake: Mistake, tmp_path: Path
):
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


def test_what_a_run_says_of_trust_counts_for_nothing(run: Path):
    path = run / "config.yaml"
    path.write_text(path.read_text().replace("trust: false", "trust: true"))
    assert compose([f"resume={run}"]).trust is False


@pytest.mark.parametrize("harm", ["cut", "text", "shape", "names", "texts"])
def test_a_trajectory_that_cannot_be_read_is_told(mistake: Mistake, run: Path, harm: str):
    """With its hash made to fit: whoever changes one can change the other."""
    path = "gen_00/k00.npz"
    with Archive.open(run) as archive:
        whole = archive.read(path)
        with np.load(io.BytesIO(whole)) as file:
            arrays = dict(file)
        made = {
            "cut": whole[: len(whole) // 2],
            "text": b"no arrays",
            "shape": npz({**arrays, "qpos": arrays["qpos"][:, :1]}),
            "names": npz({"time": arrays["time"]}),
            "texts": npz({**arrays, "qpos": arrays["qpos"].astype(str)}),
        }
        archive.put(path, made[harm])
    said = mistake(search, f"resume={run}", "films=true", alone=False)
    if "no films: " in said:
        pytest.skip("nothing draws here")
    assert said.startswith("cannot film: the trajectory cannot be read (")


def npz(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_a_ranking_that_no_judge_answered_can_be_gone_on_from():
    """Its strengths and flip rate are unknown, which is no fault of the record."""
    comparison = {
        "first": "g00k00",
        "second": "g00k01",
        "winner": "none",
        "reason": "silence",
        "answered": False,
    }
    unknown = [None, None]
    data = {"names": ["g00k00", "g00k01"], "strengths": unknown, "deviation": unknown, "p_best": unknown}
    ranked = data | {"flip_rate": None, "best": "g00k00", "comparisons": [comparison]}
    events.check("ranked", 0, -1, ranked)
    with pytest.raises(events.Unreadable, match="no flip_rate"):
        events.check("ranked", 0, -1, {name: value for name, value in ranked.items() if name != "flip_rate"})


# Sizes.


def grown(path: Path, size: int) -> Path:
    """Make a sparse file of `size` bytes of `path`, which keeps its first bytes."""
    os.truncate(path, size)
    return path


def memory_mb() -> float:
    """Return the largest memory that this process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("vouched", [False, True], ids=["changed", "the record lies"])
def test_a_sparse_file_is_told_before_it_is_read(mistake: Mistake, run: Path, vouched: bool):
    size = grown(run / "gen_00" / "k00.npz", 6 * 2**30).stat().st_size
    if vouched:
        sql(run, f"UPDATE files SET bytes = {size} WHERE path = 'gen_00/k00.npz'")
    before, began = memory_mb(), time.monotonic()
    said = mistake(export, str(run), "format=csv")
    assert ("expected at most" if vouched else "was changed after it was written") in said
    with Archive.open(run, write=False) as archive:
        assert archive.damaged() == ["gen_00/k00.npz"]
    assert "expected at most" in mistake(export, str(run / "gen_00" / "k00.npz"), "format=csv")
    assert memory_mb() - before < 200
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["best.py", "answers.jsonl", "walk_task.py", "run.db"])
def test_other_files_of_any_size_are_told(mistake: Mistake, run: Path, elsewhere: Path, name: str):
    path = run / name
    path.touch()
    grown(path, 7 * 2**30)
    before = memory_mb()
    if name == "best.py":
        said = mistake(evaluate, *LEG, f"reward={run}") + mistake(evaluate, *LEG, f"reward={path}")
    elif name == "answers.jsonl":
        with pytest.raises(UserError) as refused:
            open_answers(run)
        said = str(refused.value)
    elif name == "walk_task.py":
        config = run / "config.yaml"
        values = yaml.safe_load(config.read_text()) | {
            "task": {"name": "own", "settings": {"file": str(path)}}
        }
        config.write_text(yaml.safe_dump(values | {"model": "own"}))
        said = mistake(search, f"resume={run}")
    else:
        said = mistake(report, str(run))
    assert "expected at most" in said
    assert memory_mb() - before < 200


def test_an_array_that_claims_to_be_larger_than_its_file_is_told():
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9,)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("qpos.npy", header.getvalue() + bytes(8))
    with pytest.raises(ValueError, match="its arrays have 8,000,000,000 bytes, expected at most"):
        read_arrays(buffer.getvalue())


@pytest.mark.parametrize("what", ["events", "text", "calls"])
def test_a_record_of_too_much_is_told(mistake: Mistake, run: Path, what: str):
    with Archive.open(run) as archive:
        archive.log_call("k", "answered", {"purpose": "write"})
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {})"
    sql(run, {
        "events": many.format(60_000) + " INSERT INTO events (time, kind, generation, data) "
                  "SELECT 0.0, 'timing', x, '{\"optimise\": 1.0}' FROM n",
        "text": "UPDATE events SET data = '\"' || hex(zeroblob(75000000)) || '\"' WHERE kind = 'evaluated'",
        "calls": many.format(150_000) + " INSERT INTO calls (time, key, state, sent, data) "
                 "SELECT 0.0, 'k', 'answered', 0, '{}' FROM n",
    }[what])  # fmt: skip
    began, before = time.monotonic(), memory_mb()
    for command, words in ((report, str(run)), (search, f"resume={run}"), (export, str(run))):
        said = mistake(command, words)
        assert "run.db has " in said
        assert "expected at most" in said
    assert time.monotonic() - began < 60
    assert memory_mb() - before < 300


def test_a_report_of_many_generations_shows_the_latest(run: Path):
    rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2000)"
    sql(run, f"{rows} INSERT INTO events (time, kind, generation, data) "
             "SELECT 0.0, 'timing', x, '{\"optimise\": 1.0}' FROM n")  # fmt: skip
    assert report([str(run), "scene=false"]) == 0
    page = (run / "report.html").read_text()
    assert "The latest 1000 of 2001 generations" in page
