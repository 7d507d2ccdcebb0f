"""The run directory: every artefact and every event of a search, safe against crashes.

A file is written under a temporary name, fsynced, renamed, and only then recorded in `run.db`. What a
crash leaves is either recorded or of no account, so a run resumes from any point.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from movlr_jax.errors import UserError

_APPLICATION_ID = 0x6D6F766C  # "movl": marks run.db as ours
_VERSION = 1
# What a process that died while it made a run directory may have left, beside its lock.
_BEGUN = ("run.db", "run.db-wal", "run.db-shm", "run.db-journal", ".config.yaml.part")
_SCHEMA = """
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    generation INTEGER NOT NULL DEFAULT -1,
    candidate INTEGER NOT NULL DEFAULT -1,
    data TEXT NOT NULL,
    UNIQUE (kind, generation, candidate)
);
CREATE TABLE files (path TEXT PRIMARY KEY, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL);
"""
# Every attempt at a call of a model, written down before it is sent. state: under_way, then answered or failed; lost
# where the process died meanwhile; refused: given up. Made when first needed.
_CALLS = """
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    sent INTEGER NOT NULL,
    cost_usd REAL,
    data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS calls_by_key ON calls (key, state);
"""


@dataclass(frozen=True)
class Event:
    """One recorded step of a run; -1 where it belongs to no generation or candidate."""

    time: float
    kind: str
    generation: int
    candidate: int
    data: dict[str, Any]


class Archive:
    """An open run directory. One process at a time; close it, or use it as a context."""

    def __init__(self, root: Path, lock: Any, db: sqlite3.Connection):
        self.root, self._lock, self._db = root, lock, db

    @classmethod
    def create(cls, root: Path, config_yaml: str) -> Archive:
        """A new run in `root`, which must be new or empty. Raises UserError."""
        with _told(root), contextlib.ExitStack() as undo:
            there = {path.name for path in root.iterdir()} if root.exists() else set()
            if there and not (".lock" in there and there <= {".lock", *_BEGUN}):
                raise UserError(
                    f"the run directory {root} is not empty; choose another run_dir=..., "
                    f"or go on with resume={root}"
                )
            root.mkdir(parents=True, exist_ok=True)
            lock = undo.enter_context(_lock(root))
            for name in _BEGUN:
                (root / name).unlink(missing_ok=True)
            db = undo.enter_context(contextlib.closing(_connect(root / "run.db")))
            _make_durable(db)
            db.executescript(
                f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION_ID}; "
                f"PRAGMA user_version = {_VERSION}; COMMIT;"
            )
            archive = cls(root, lock, db)
            archive.put("config.yaml", config_yaml.encode())
            undo.pop_all()  # all went well: lock and record stay open
        return archive

    @classmethod
    def open(cls, root: Path, *, write: bool = True) -> Archive:
        """An existing run. Raises UserError when `root` is missing, foreign, broken or in use."""
        if not root.is_dir():
            raise UserError(f"there is no run directory {root}; runs are kept under runs/<task>/<time>/")
        path = root / "run.db"
        if not path.is_file():
            raise UserError(f"{root} is no run directory of movlr-jax: it has no run.db")
        with _told(root), contextlib.ExitStack() as undo:
            db = undo.enter_context(contextlib.closing(_connect(path)))
            _check(db, path)  # before anything here is changed: it may be another program's
            lock = undo.enter_context(_lock(root)) if write else None
            if write:
                _make_durable(db)
            undo.pop_all()
        archive = cls(root, lock, db)
        if write and archive._has_calls():  # nobody else works here: whoever sent these is gone
            archive._write("UPDATE calls SET state = 'lost' WHERE state = 'under_way'")
        return archive

    def put(self, relative: str, data: bytes) -> Path:
        """Writes a file atomically and records it. Returns its path."""
        path = self.root / relative
        write_atomically(path, data)
        self._write(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?)",
            (relative, hashlib.sha256(data).hexdigest(), len(data)),
        )
        return path

    def has(self, relative: str) -> bool:
        """Whether `put` wrote a file to its end, and it is still there."""
        row = self._db.execute("SELECT 1 FROM files WHERE path = ?", (relative,)).fetchone()
        return row is not None and (self.root / relative).is_file()

    def read(self, relative: str) -> bytes:
        """What `put` wrote. Raises UserError when it is missing, or was changed by somebody else."""
        path = self.root / relative
        row = self._db.execute("SELECT sha256 FROM files WHERE path = ?", (relative,)).fetchone()
        data = path.read_bytes() if path.is_file() else None
        if not row or data is None or hashlib.sha256(data).hexdigest() != row[0]:
            raise UserError(
                f"{path} {'is missing' if data is None else 'was changed since it was written'}; "
                "bring it back, or resume with films=false"
            )
        return data

    def record(self, kind: str, data: Mapping[str, Any], generation: int = -1, candidate: int = -1) -> None:
        """Records a step; a step recorded again replaces the earlier one."""
        self._write(
            "INSERT OR REPLACE INTO events (time, kind, generation, candidate, data) VALUES (?, ?, ?, ?, ?)",
            (time.time(), kind, generation, candidate, json.dumps(data)),
        )

    def get(self, kind: str, generation: int = -1, candidate: int = -1) -> dict[str, Any] | None:
        """What was recorded of a step, or None when it has not happened."""
        row = self._db.execute(
            "SELECT data FROM events WHERE kind = ? AND generation = ? AND candidate = ?",
            (kind, generation, candidate),
        ).fetchone()
        return json.loads(row[0]) if row else None

    def events(self, kind: str | None = None) -> list[Event]:
        """All events, or those of one kind, in the order of generation, candidate and time."""
        rows = self._db.execute(
            "SELECT time, kind, generation, candidate, data FROM events WHERE ? IS NULL OR kind = ? "
            "ORDER BY generation, candidate, id",
            (kind, kind),
        )
        return [Event(t, k, g, c, json.loads(d)) for t, k, g, c, d in rows]

    def begin_call(self, key: str, data: Mapping[str, Any]) -> int:
        """Writes down a call that is about to be sent, with the most that it may cost. Returns its number."""
        return self.log_call(key, "under_way", data)

    def end_call(self, call: int, state: str, data: Mapping[str, Any]) -> None:
        """What became of a call that was begun."""
        self._write(
            "UPDATE calls SET state = ?, cost_usd = ?, data = ? WHERE id = ?",
            (state, data.get("cost_usd"), json.dumps(data), call),
        )

    def log_call(self, key: str, state: str, data: Mapping[str, Any]) -> int:
        """Writes down a call with its end and its price. Returns its number."""
        with _told(self.root):
            self._db.executescript(_CALLS)
        sent = bool(data.get("sent", True)) and not data.get("replayed")
        values = (time.time(), key, state, sent, data.get("cost_usd"), json.dumps(data))
        return self._write(
            "INSERT INTO calls (time, key, state, sent, cost_usd, data) VALUES (?, ?, ?, ?, ?, ?)", values
        )

    def find_call(self, key: str) -> dict[str, Any] | None:
        """What was answered to a call, or that it was refused; None when it has no end yet."""
        if not self._has_calls():
            return None
        row = self._db.execute(
            "SELECT state, data FROM calls WHERE key = ? AND state IN ('answered', 'refused') ORDER BY id",
            (key,),
        ).fetchone()
        return {**json.loads(row[1]), "state": row[0]} if row else None

    def calls(self) -> list[dict[str, Any]]:
        """Every attempt, in the order of time, with its key and state."""
        if not self._has_calls():
            return []
        rows = self._db.execute("SELECT key, state, data FROM calls ORDER BY id")
        return [{**json.loads(data), "key": key, "state": state} for key, state, data in rows]

    def spent(self) -> tuple[int, float]:
        """Calls sent over the wire, and their price in USD as far as it is known; the most that it may be of those
        that have no end."""
        if not self._has_calls():
            return 0, 0.0
        return self._db.execute(
            "SELECT COUNT(*), COALESCE(SUM(cost_usd), 0.0) FROM calls WHERE sent"
        ).fetchone()

    def _write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """One change, on the disk when this returns. Returns the number of the row."""
        with _told(self.root):
            return self._db.execute(statement, values).lastrowid or 0

    def _has_calls(self) -> bool:
        return bool(self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone())

    def close(self) -> None:
        self._db.close()
        if self._lock:
            self._lock.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_atomically(path: Path, data: bytes) -> Path:
    """Writes `data` so that `path` is either the whole of it or what it was before. Raises UserError."""
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # a part of a film takes room on a full disk
            raise
        _sync(path.parent)
    return path


def new_run_dir(base: Path, task: str) -> Path:
    """`<base>/<task>/<time>`, made now so that two runs of the same second cannot share it."""
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for suffix in ["", *(f"_{i}" for i in range(1, 1000))]:
        path = base / task / (stamp + suffix)
        with _told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise UserError(f"there are too many runs in {base / task} of this second")


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)  # every statement commits by itself


def _make_durable(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Raises UserError unless `db` is a sound record of a run, in a format that is read here."""
    try:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        sound = db.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise UserError(f"{path} is broken ({error}); the run cannot be read") from None
    if application != _APPLICATION_ID:
        raise UserError(f"{path} was not written by movlr-jax; is {path.parent} another program's folder?")
    if version != _VERSION:
        raise UserError(f"{path} has format {version}, this version of movlr-jax reads {_VERSION}")
    if sound != "ok":
        raise UserError(f"{path} is broken ({sound}); the run cannot be read")


def _lock(root: Path) -> Any:
    file = open(root / ".lock", "w")  # noqa: SIM115 - held open for as long as the lock is
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(
            f"another process is working in {root}; wait for it, or choose another run_dir=..."
        ) from None
    return file


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns what the disk refuses into a sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; make room or choose another run_dir=..., "
            "then go on with resume=<run directory>"
        ) from error
    except sqlite3.OperationalError as error:
        raise UserError(
            f"cannot write the record in {path}: {error}; make room or choose another run_dir=..., "
            "then go on with resume=<run directory>"
        ) from error
