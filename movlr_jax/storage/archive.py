"""The run directory: every artefact and every event of a search, safe against crashes.

A file is written under a temporary name, fsynced, renamed, and only then recorded in `run.db`. What a
crash leaves is either recorded or of no account, so a run resumes from any point.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from movlr_jax.errors import UserError, shortened
from movlr_jax.progress import stop_if_asked
from movlr_jax.storage.events import Unreadable, check, told, told_call
from movlr_jax.storage.inside import inside, read_inside, refuse_linked_folders

_APPLICATION_ID = 0x6D6F766C  # "movl": marks run.db as ours
_VERSION = 1
# What a process that died while it made a run directory may have left, beside its lock.
_DATABASE = (
    "run.db",
    "run.db-wal",
    "run.db-shm",
    "run.db-journal",
)  # the record, and what SQLite keeps beside it
_BEGUN = (*_DATABASE, ".config.yaml.part")
_LOOK = 20_000  # instructions of SQLite between two looks at whether somebody asked to stop
_EVENT = "time, kind, generation, candidate, data"
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


def _event(time: Any, kind: Any, generation: Any, candidate: Any, text: Any) -> Event:
    """The event of a row of run.db. Raises Unreadable."""
    return Event(time, kind, generation, candidate, told(time, kind, generation, candidate, text))


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
    def open(cls, root: Path, *, write: bool = True, whole: bool = False) -> Archive:
        """An existing run. Raises UserError when `root` is missing, foreign, broken or in use.

        whole: also when an event lacks what a search that goes on needs of it, or holds something else.
        """
        if not root.is_dir():
            raise UserError(f"there is no run directory {root}; runs are kept under runs/<task>/<time>/")
        path = root / "run.db"
        for name in _DATABASE:
            inside(root, name)
        if not path.is_file():
            raise UserError(f"{root} is no run directory of movlr-jax: it has no run.db")
        with _told(root), contextlib.ExitStack() as undo:
            db = undo.enter_context(contextlib.closing(_connect(path)))
            _check(db, path)  # before anything here is changed: it may be another program's
            if write:
                refuse_linked_folders(root)
            lock = undo.enter_context(_lock(root)) if write else None
            archive = cls(root, lock, db)
            if whole:
                archive._check_events()
            if write:
                _make_durable(db)
            undo.pop_all()
        if write and archive._has_calls():  # nobody else works here: whoever sent these is gone
            archive._write("UPDATE calls SET state = 'lost' WHERE state = 'under_way'")
        return archive

    def put(self, relative: str, data: bytes) -> Path:
        """Writes a file atomically and records it. Returns its path."""
        inside(self.root, str(PurePath(relative).parent))
        path = write_atomically(self.root / relative, data)
        self._write(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?)",
            (relative, hashlib.sha256(data).hexdigest(), len(data)),
        )
        return path

    def has(self, relative: str) -> bool:
        """Whether `put` wrote a file to its end, and it is still there."""
        rows = self._read("SELECT 1 FROM files WHERE path = ?", (relative,))
        return bool(rows) and inside(self.root, relative).is_file()

    def read(self, relative: str) -> bytes:
        """What `put` wrote. Raises UserError when it is missing, or was changed by somebody else."""
        rows = self._read("SELECT sha256 FROM files WHERE path = ?", (relative,))
        data = read_inside(self.root, relative)
        if not rows or data is None or hashlib.sha256(data).hexdigest() != rows[0][0]:
            raise UserError(
                f"{self.root / relative} {'is missing' if data is None else 'was changed since it was written'}; "
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
        """What was recorded of a step, or None when it has not happened. Raises UserError where it cannot be read."""
        rows = self._read(
            f"SELECT {_EVENT} FROM events WHERE kind = ? AND generation = ? AND candidate = ?",
            (kind, generation, candidate),
        )
        with self._needed():
            return told(*rows[0]) if rows else None

    def events(self, kind: str | None = None) -> list[Event]:
        """All events, or those of one kind, in the order of generation, candidate and time.

        Raises UserError where one cannot be read.
        """
        rows = self._read(
            f"SELECT {_EVENT} FROM events WHERE ? IS NULL OR kind = ? ORDER BY generation, candidate, id",
            (kind, kind),
        )
        with self._needed():
            return [_event(*row) for row in rows]

    def _check_events(self) -> None:
        with self._needed():
            events = self.events()
            for event in events:
                check(event.kind, event.generation, event.candidate, event.data)
            names = {event.data["name"] for event in events if event.kind == "evaluated"}
            for event in events:
                if event.kind == "ranked" and event.data["best"] not in names:
                    best = shortened(event.data["best"])
                    raise Unreadable(f"the best of generation {event.generation}, {best}, was not evaluated")

    def readable_events(self) -> tuple[list[Event], list[str]]:
        """The events that a report can show, also where they lack something, and what is wrong with the others."""
        events, faults = [], []
        for row in self._read(f"SELECT {_EVENT} FROM events ORDER BY generation, candidate, id"):
            try:
                event = _event(*row)
                check(event.kind, event.generation, event.candidate, event.data, whole=False)
                events.append(event)
            except Unreadable as error:
                faults.append(str(error))
        return events, faults

    @contextlib.contextmanager
    def _needed(self) -> Iterator[None]:
        """Turns what cannot be read, and is needed, into a sentence."""
        try:
            yield
        except Unreadable as error:
            raise UserError(f"{self.root / 'run.db'}: {error}; the run cannot be continued") from None

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
        """What was answered to a call, or that it was refused; None when it has no end yet. Raises UserError."""
        rows = self._calls("WHERE key = ? AND state IN ('answered', 'refused') ORDER BY id LIMIT 1", (key,))
        return self._call(rows[0]) if rows else None

    def calls(self) -> list[dict[str, Any]]:
        """Every attempt, in the order of time, with its key and state. Raises UserError."""
        return [self._call(row) for row in self._calls("ORDER BY id")]

    def readable_calls(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The calls that can be read, and what is wrong with the others."""
        calls, faults = [], []
        for row in self._calls("ORDER BY id"):
            try:
                calls.append(_call(row))
            except Unreadable as error:
                faults.append(str(error))
        return calls, faults

    def _calls(self, which: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if not self._has_calls():
            return []
        return self._read(f"SELECT id, key, state, data FROM calls {which}", values)

    def _call(self, row: tuple[Any, ...]) -> dict[str, Any]:
        with self._needed():
            return _call(row)

    def spent(self) -> tuple[int, float]:
        """Calls sent over the wire, and their price in USD as far as it is known; the most that it may be of those
        that have no end."""
        if not self._has_calls():
            return 0, 0.0
        return self._read("SELECT COUNT(*), COALESCE(SUM(cost_usd), 0.0) FROM calls WHERE sent")[0]

    def _write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """One change, on the disk when this returns. Returns the number of the row."""
        with _told(self.root):
            return self._db.execute(statement, values).lastrowid or 0

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises UserError where the database is broken."""
        with _sound(self.root / "run.db"), _told(self.root):
            return self._db.execute(query, values).fetchall()

    def _has_calls(self) -> bool:
        return bool(self._read("SELECT 1 FROM sqlite_master WHERE name = 'calls'"))

    def close(self) -> None:
        self._db.close()
        if self._lock:
            self._lock.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _call(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row of the calls. Raises Unreadable."""
    number, key, state, data = row
    return {**told_call(number, data), "key": key, "state": state}


def write_atomically(path: Path, data: bytes) -> Path:
    """Writes `data` so that `path` is either the whole of it or what it was before. Raises UserError."""
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        try:
            temporary.unlink(missing_ok=True)  # a crash's, or a link to a file that is not ours
            with open(temporary, "xb") as file:
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
    db = sqlite3.connect(path, isolation_level=None)  # every statement commits by itself
    db.text_factory = lambda text: text.decode("utf-8", "replace")
    db.set_progress_handler(lambda: 0, _LOOK)  # Python hears signals while SQLite works
    return db


def _make_durable(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Raises UserError unless `db` is a sound record of a run, in a format that is read here."""
    with _sound(path):
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION_ID:
        raise UserError(f"{path} was not written by movlr-jax; is {path.parent} another program's folder?")
    if version != _VERSION:
        raise UserError(f"{path} has format {version}, this version of movlr-jax reads {_VERSION}")
    with _sound(path):
        if strange := sorted(_schema(db) - _own_schema()):
            raise UserError(
                f"{path} is not the record of a run: {strange[0][0]} {strange[0][1]!r:.100} in it was not made by "
                "movlr-jax; the run cannot be read"
            )
        if lacking := {"events", "files"} - {name for _, name, _ in _schema(db)}:
            raise UserError(
                f"{path} is not the record of a run: it has no table {min(lacking)}; the run cannot be read"
            )
        sound = db.execute("PRAGMA quick_check").fetchone()[0]
    if sound != "ok":
        raise UserError(f"{path} is broken ({shortened(sound)}); the run cannot be read")


def _schema(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """(type, name, SQL without its layout) of all that a database declares."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {(str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in rows}


@functools.cache
def _own_schema() -> set[tuple[str, str, str]]:
    """What a run's record may declare; a view or a trigger of somebody else might never end."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_SCHEMA + _CALLS)
        return _schema(db)


@contextlib.contextmanager
def _sound(path: Path) -> Iterator[None]:
    """Turns what SQLite says of a broken file into a sentence."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        stop_if_asked()  # which is how SQLite says that it was interrupted
        raise UserError(f"{path} is broken ({error}); the run cannot be read") from None


def _lock(root: Path) -> Any:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = open(os.open(inside(root, ".lock"), flags, 0o666), "rb+", buffering=0)  # noqa: SIM115 - held for as long as the lock is
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
        raise UserError(f"cannot write {path}: {error.strerror or error}; {_advice(path)}") from error
    except sqlite3.OperationalError as error:
        stop_if_asked()
        raise UserError(f"cannot write the record in {path}: {error}; {_advice(path)}") from error


def _advice(path: Path) -> str:
    """What helps where the disk is full; names the run to resume where `path` lies in one."""
    run = next((folder for folder in (path, *path.parents) if (folder / "run.db").is_file()), None)
    return "make room or choose another run_dir=..." + (f", then go on with resume={run}" if run else "")
