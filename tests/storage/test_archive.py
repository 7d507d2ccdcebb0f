"""The run directory: what a crash, a full disk or another program can do to it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from movlr_jax.errors import UserError
from movlr_jax.storage.archive import Archive, Event
from movlr_jax.storage.writing import new_run_dir

CONFIG = "task: bottle_pour\nseed: 7\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "now"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` except the lock and what SQLite keeps next to an open database."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != ".lock"]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files if p.suffix not in (".db-wal", ".db-shm")}


def recorded(archive: Archive) -> dict[str, tuple[str, int]]:
    with contextlib.closing(sqlite3.connect(archive.root / "run.db")) as db:
        return {path: (sha, size) for path, sha, size in db.execute("SELECT * FROM files")}


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_file_is_written_and_recorded(root: Path):
    with Archive.create(root, CONFIG) as archive:
        for data in (b"WEIGHTS = {}\n", b"new"):
            path = archive.put("gen_00/k00.py", data)
            assert path == root / "gen_00" / "k00.py"
            assert path.read_bytes() == archive.read("gen_00/k00.py") == data
            assert recorded(archive)["gen_00/k00.py"] == (hashlib.sha256(data).hexdigest(), len(data))
        assert (root / "config.yaml").read_text() == CONFIG
    assert set(contents(root)) == {"run.db", "config.yaml", "gen_00/k00.py"}, "nothing temporary stays"


def test_events_are_read_as_recorded_the_latest_of_each_step_in_order(root: Path):
    data = {"terms": [1, None, True], "text": 'quote " and é 猫', "nested": {"a": []}}
    with Archive.create(root, CONFIG) as archive:
        archive.record("run", {"seed": 7})
        for generation, candidate in ((1, 0), (0, 2), (0, 1), (0, -1)):
            archive.record("evaluated", {"try": 1}, generation, candidate)
        archive.record("evaluated", data, 0, 1)
    with Archive.open(root) as archive:
        assert archive.get("evaluated", 0, 1) == data
        assert archive.get("evaluated", 1, 3) is None
        assert archive.get("run") == {"seed": 7}
        events = archive.events()
        assert len(archive.events("evaluated")) == 4
    places = [(e.generation, e.candidate) for e in events]
    assert places == [(-1, -1), (0, -1), (0, 1), (0, 2), (1, 0)]
    assert all(isinstance(e, Event) and e.time > 1.6e9 for e in events)


def test_interrupt_before_the_rename_leaves_the_old_file(root: Path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with Archive.create(root, CONFIG) as archive:
        archive.put("best.py", b"old")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", interrupted)
            for name in ("best.py", "gen_00/k00.npz"):
                with pytest.raises(KeyboardInterrupt):
                    archive.put(name, b"new and longer")
        assert set(recorded(archive)) == {"config.yaml", "best.py"}
        assert archive.read("best.py") == b"old"
    (root / "gen_00" / ".k00.npz.0a1b2c3d.part").write_bytes(b"left by a crash")
    Archive.open(root).close()
    assert not list(root.rglob(".*.part"))


def test_killed_process_leaves_a_run_that_opens(root: Path):
    """SIGKILL amid a stream of writes: everything recorded is there, whole, and the lock is free."""
    script = textwrap.dedent(f"""
        from pathlib import Path
        from movlr_jax.storage.archive import Archive
        archive = Archive.create(Path({str(root)!r}), {CONFIG!r})
        for i in range(10**6):
            archive.put(f"gen_{{i:02d}}/k00.npz", bytes([i % 256]) * 20_000)
            archive.record("evaluated", {{"i": i}}, i, 0)
            print(i, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 5:
            break
    with pytest.raises(UserError, match="another process is working in"):
        Archive.open(root)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with Archive.open(root) as archive:
        events = archive.events("evaluated")
        assert [e.data["i"] for e in events] == list(range(len(events)))
        assert len(events) >= 6
        for path, (sha, size) in recorded(archive).items():
            data = (root / path).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (size, sha)
        assert len(recorded(archive)) - 1 - len(events) in (0, 1)  # config.yaml; a file before its event


def test_full_disk_is_reported_and_leaves_file_record_and_lock_as_they_were(root: Path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk)
        with pytest.raises(UserError, match="No space left") as kept:
            Archive.create(root, CONFIG)
    with Archive.open(root) as archive:
        assert archive.events() == []
        archive.put("best.py", b"old")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", full_disk)
            with pytest.raises(UserError, match=r"cannot write .*best\.py: No space left on device; free space"):
                archive.put("best.py", b"new")
        assert archive.read("best.py") == b"old"
        archive.put("best.py", b"newer")
    assert kept, "an exception keeps the frames it came through: they must not keep the lock"


def test_place_that_cannot_be_written_is_reported(root: Path):
    with Archive.create(root, CONFIG) as archive:
        archive.put("film", b"a file, not a folder")
        with pytest.raises(UserError, match=r"cannot write .*k00\.mp4: File exists"):
            archive.put("film/k00.mp4", b"")
        with pytest.raises(UserError, match=r"cannot write .*film: Not a directory"):
            Archive.create(root / "film", CONFIG)
        with pytest.raises(UserError, match="cannot write"):
            new_run_dir(root / "film", "bottle_pour")


def test_folder_with_a_run_takes_no_other_run(root: Path):
    root.mkdir(parents=True)
    Archive.create(root, CONFIG).close()
    before = contents(root)
    with pytest.raises(UserError, match=rf"{root} is not empty; choose another run_dir=.*resume={root}"):
        Archive.create(root, CONFIG)
    assert contents(root) == before


def test_folder_without_a_run_is_not_opened_and_left_as_it_is(root: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"there is no run directory .*nowhere"):
        Archive.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"is not a run directory of movlr-jax: it has no run\.db"):
        Archive.open(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with contextlib.closing(sqlite3.connect(tmp_path / "run.db")) as db, db:
        db.execute("CREATE TABLE mine (x)")
    before = contents(tmp_path)
    with pytest.raises(UserError, match="was not written by movlr-jax"):
        Archive.open(tmp_path)
    assert contents(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]
    Archive.create(root, CONFIG).close()
    with contextlib.closing(sqlite3.connect(root / "run.db")) as db, db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match="has format 99, but this version of movlr-jax reads format 1"):
        Archive.open(root)


def test_half_made_run_is_made_anew(tmp_path: Path):
    for name in (".lock", "run.db", "run.db-journal", ".config.yaml.0a1b2c3d.part"):
        (tmp_path / name).write_bytes(b"half")
    with Archive.create(tmp_path, "seed: 0\n") as archive:
        assert archive.read("config.yaml") == b"seed: 0\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.db").write_bytes(b"of another program")
    with pytest.raises(UserError, match="is not empty"):
        Archive.create(tmp_path / "other", "")


@pytest.mark.parametrize("harm", ["text", "empty", "cut", "middle"])
def test_broken_database_is_reported_and_left_as_it_is(root: Path, harm: str):
    with Archive.create(root, CONFIG) as archive:
        for i in range(200):
            archive.record("evaluated", {"text": "x" * 200}, i, 0)
    path = root / "run.db"
    whole = path.read_bytes()
    broken = {
        "text": b"this is no database, it only says so " * 100,
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "middle": whole[:4096] + b"\xff" * 8192 + whole[12288:],
    }
    path.write_bytes(broken[harm])
    for _ in range(2):  # the first failure keeps no lock
        with pytest.raises(UserError, match=rf"{root}.*(is broken|was not written by movlr-jax)"):
            Archive.open(root)
    assert path.read_bytes() == broken[harm]


def test_run_has_one_writer_at_a_time_and_any_readers(root: Path):
    with Archive.create(root, CONFIG) as archive:
        with pytest.raises(UserError, match=rf"another process is working in {root}; wait for it"):
            Archive.open(root)
        archive.record("run", {"seed": 7})
        with Archive.open(root, write=False) as reader:
            assert reader.get("run") == {"seed": 7}
    before = contents(root)
    with Archive.open(root, write=False) as reader:
        assert reader.get("run") == {"seed": 7}
    assert contents(root) == before, "a reader changes nothing"


def test_newest_answer_of_a_call_is_retracted(root: Path):
    with Archive.create(root, CONFIG) as archive:
        for key, answer in (("a", "1"), ("a", "2"), ("b", "3")):
            archive.log_call(key, "answered", {"answer": answer, "sent": False})
        archive.retract_call("a")
        calls = [(c["answer"], c["state"]) for c in archive.calls()]
        assert calls == [("1", "answered"), ("2", "retracted"), ("3", "answered")]
        archive.retract_call("a")
        assert archive.find_call("a") is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_read_only_run_is_read_by_another_user(root: Path):
    with Archive.create(root, CONFIG) as archive:
        archive.record("started", {"task": "stand"})
    for folder in (root, *root.parents[:-2]):
        folder.chmod(0o755)
    code = f"""
        import os
        from pathlib import Path
        from movlr_jax.errors import UserError
        from movlr_jax.storage.archive import Archive
        root = Path({str(root)!r})
        Archive.open(root, write=False).close()
        root.as_uri()  # so that all is imported that is needed: Python may lie where others may not read
        os.setgid(65534)
        os.setuid(65534)
        with Archive.open(root, write=False) as archive:
            print([event.kind for event in archive.events()])
        try:
            Archive.open(root)
        except UserError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert not done.stderr
    read, told = done.stdout.splitlines()
    assert read == "['started']"
    assert "broken" not in told
    assert "Permission denied" in told or "you may only read it" in told
    assert {p.name for p in root.iterdir()} == {"run.db", "config.yaml", ".lock"}
