"""The run directory: every artefact and every event of a search, safe against crashes.

A file is written under a temporary name, fsynced, renamed, and only then recorded in `run.db`. After a crash, every
file is either recorded, or discarded on resume, so a run can be resumed from any point.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import IO, Any

from movlr_jax._util.progress import stop_if_asked
from movlr_jax.errors import UserError, resuming, shortened
from movlr_jax.storage.events import Unreadable, check, parse_call, parse_event
from movlr_jax.storage.inside import inside, open_regular, read_inside, refuse_linked_folders

_APPLICATION_ID = 0x6D6F766C  # "movl": identifies run.db as a file of movlr-jax
_VERSION = 1
_DATABASE = (
    "run.db",
    "run.db-wal",
    "run.db-shm",
    "run.db-journal",
)  # the database and SQLite's temporary files
SETTINGS = "config.yaml"
# Files that a process that died while creating a run directory may have left, in addition to its lock.
_BEGUN = (*_DATABASE, f".{SETTINGS}.part")
FILE_BYTES = 2**28 + 2**20  # size limit of a file: more than any film, and than an episode of `ARRAYS_BYTES`
BANK_BYTES = 2**31  # the same of the episodes of a generation
_RECORD_BYTES = 2**29  # of run.db
_TEXT_BYTES = 2**25  # of one event or call in it
_MOST = {"events": 30_000, "calls": 100_000, "files": 200_000}  # rows of run.db
_LOOK = 20_000  # SQLite instructions between checks for Ctrl-C
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
# Every attempt at a call of a model, recorded before it is sent. state: under_way, then answered or failed; lost if
# the process died before the call ended; refused if it was given up; retracted if a person took it back; reused for
# no call, but an answer that was also that of an equal question about something else. Created when needed.
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
    """One recorded step of a run; generation and candidate are -1 if it belongs to none."""

    time: float
    kind: str
    generation: int
    candidate: int
    data: dict[str, Any]


def _event(time: Any, kind: Any, generation: Any, candidate: Any, text: Any) -> Event:
    """Return the event in a row of run.db. Raises Unreadable."""
    return Event(time, kind, generation, candidate, parse_event(time, kind, generation, candidate, text))


class InUse(UserError):
    """Another process is working in a folder."""


class Archive:
    """An open run directory. Only one process may write to it; close it, or use it as a context manager."""

    def __init__(self, root: Path, lock: Any, db: sqlite3.Connection):
        self.root, self._lock, self._db = root, lock, db

    @classmethod
    def create(cls, root: Path, config_yaml: str) -> Archive:
        """Create a run in `root`, which must not exist or be empty. Raises UserError."""
        with _write_errors(root), contextlib.ExitStack() as undo:
            there = {path.name for path in root.iterdir()} if root.exists() else set()
            if there and not (".lock" in there and there <= {".lock", *_BEGUN}):
                raise UserError(
                    f"the run directory {root} is not empty; choose another run_dir=..., "
                    f"or continue with {resuming(root)}"
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
            archive.put(SETTINGS, config_yaml.encode())
            undo.pop_all()  # success: keep the lock and the database open
        return archive

    @classmethod
    def open(cls, root: Path, *, write: bool = True, whole: bool = False) -> Archive:
        """Open an existing run. Raises UserError if `root` is missing, not a run or broken, InUse if it is in use.

        whole: also raise if an event is invalid or lacks data that a resumed search needs.
        """
        if not root.is_dir():
            raise UserError(f"there is no run directory {root}; runs are in runs/<task>/<time>/")
        path = root / "run.db"
        for name in _DATABASE:
            inside(root, name)
        if not path.is_file():
            raise UserError(f"{root} is not a run directory of movlr-jax: it has no run.db")
        if (
            size := sum(f.lstat().st_size for f in map(root.joinpath, _DATABASE) if f.exists())
        ) > _RECORD_BYTES:
            raise UserError(
                f"{path} has {size:,} bytes, expected at most {_RECORD_BYTES:,}; the run cannot be read"
            )
        with _write_errors(root), contextlib.ExitStack() as undo:
            db = undo.enter_context(contextlib.closing(_connect(path, read_only=not write)))
            _check(db, path)  # before any change: the database may belong to another program
            if write:
                refuse_linked_folders(root)
            lock = undo.enter_context(_lock(root)) if write else None
            archive = cls(root, lock, db)
            if whole:
                archive._check_events()
            if write:
                _make_durable(db)
            undo.pop_all()
        if (
            write and archive._has_calls()
        ):  # this process has the lock, so the senders of these calls have ended
            archive._write("UPDATE calls SET state = 'lost' WHERE state = 'under_way'")
        return archive

    def put(self, relative: str, data: bytes) -> Path:
        """Write a file atomically, record it and return its path."""
        inside(self.root, str(PurePath(relative).parent))
        path = write_atomically(self.root / relative, data)
        self._write(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?)",
            (relative, hashlib.sha256(data).hexdigest(), len(data)),
        )
        return path

    def has(self, relative: str) -> bool:
        """Return whether `put` wrote this file and its data are still the same."""
        return self.wrote(relative) and not self.lost(relative)

    def wrote(self, relative: str) -> bool:
        """Return whether `put` wrote this file, which may be lost since."""
        return bool(self._read("SELECT 1 FROM files WHERE path = ?", (relative,)))

    def lost(self, relative: str) -> bool:
        """Return whether `put` wrote this file, but it is missing or was changed since."""
        rows = self._read("SELECT sha256, bytes FROM files WHERE path = ?", (relative,))
        try:
            return bool(rows) and self._hash(relative, rows[0][1]) != rows[0][0]
        except (UserError, OSError):
            return True

    def _hash(self, relative: str, size: Any) -> str:
        """Return the hash of a file, "" if it has another size than was recorded. Raises UserError and OSError."""
        path = inside(self.root, relative)
        if path.lstat().st_size != size:
            return ""
        with open_regular(path, BANK_BYTES, os.O_NOFOLLOW) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def damaged(self) -> list[str]:
        """Return all files of the run that are missing or were changed after they were written."""
        return [path for (path,) in self._read("SELECT path FROM files ORDER BY path") if self.lost(path)]

    def read(self, relative: str, most: int = FILE_BYTES) -> bytes:
        """Return the data that `put` wrote. Raises UserError if the file is missing, was changed or is too large.

        most: bytes, of a file that fits its record.
        """
        rows = self._read("SELECT sha256, bytes FROM files WHERE path = ?", (relative,))
        path = inside(self.root, relative)
        whole = bool(rows) and path.exists() and path.lstat().st_size == rows[0][1]  # before anything is read
        data = read_inside(self.root, relative, most) if whole else b"" if path.exists() else None
        if not whole or data is None or hashlib.sha256(data).hexdigest() != rows[0][0]:
            again = "" if relative == SETTINGS else f", or make it again with {resuming(self.root)}"
            raise UserError(
                f"{self.root / relative} {'is missing' if data is None else 'was changed after it was written'}; "
                f"restore it{again}"
            )
        return data

    def record(self, kind: str, data: Mapping[str, Any], generation: int = -1, candidate: int = -1) -> None:
        """Record a step; it replaces an earlier record of the same step."""
        self._write(
            "INSERT OR REPLACE INTO events (time, kind, generation, candidate, data) VALUES (?, ?, ?, ?, ?)",
            (time.time(), kind, generation, candidate, json.dumps(data)),
        )

    def get(self, kind: str, generation: int = -1, candidate: int = -1) -> dict[str, Any] | None:
        """Return the record of a step, None if there is none. Raises UserError if it is unreadable."""
        rows = self._read(
            f"SELECT {_EVENT} FROM events WHERE kind = ? AND generation = ? AND candidate = ?",
            (kind, generation, candidate),
        )
        with self._needed():
            return parse_event(*rows[0]) if rows else None

    def forget(self, kind: str, generation: int) -> None:
        """Remove the record of a step, so that a search takes it again."""
        self._write("DELETE FROM events WHERE kind = ? AND generation = ?", (kind, generation))

    def events(self, kind: str | None = None) -> list[Event]:
        """Return all events, or those of one kind, ordered by generation, candidate and time.

        Raises UserError if one is unreadable.
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
            for event in events:  # a search that ended between a contest and the records of its programs
                names.update(event.data["programs"] if event.kind == "trials" else ())
            for event in events:
                if event.kind == "ranked" and event.data["best"] not in names:
                    best = shortened(event.data["best"])
                    raise Unreadable(
                        f"{best} is recorded as the best of generation {event.generation}, but it was not evaluated"
                    )

    def readable_events(self) -> tuple[list[Event], list[str]]:
        """Return the events that a report can show, including incomplete ones, and messages about the others."""
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
        """Convert Unreadable to a UserError, for records that the caller needs."""
        try:
            yield
        except Unreadable as error:
            raise UserError(f"{self.root / 'run.db'}: {error}; the run cannot be continued") from None

    def begin_call(self, key: str, data: Mapping[str, Any]) -> int:
        """Record a call that is about to be sent, with its maximum cost. Returns its number."""
        return self.log_call(key, "under_way", data)

    def end_call(self, call: int, state: str, data: Mapping[str, Any]) -> None:
        """Record the final state of a call."""
        self._write(
            "UPDATE calls SET state = ?, cost_usd = ?, data = ? WHERE id = ?",
            (state, data.get("cost_usd"), json.dumps(data), call),
        )

    def log_call(self, key: str, state: str, data: Mapping[str, Any]) -> int:
        """Record a call with its state and cost. Returns its number."""
        with _write_errors(self.root):
            self._db.executescript(_CALLS)
        sent = bool(data.get("sent", True)) and not data.get("replayed")
        values = (time.time(), key, state, sent, data.get("cost_usd"), json.dumps(data))
        return self._write(
            "INSERT INTO calls (time, key, state, sent, cost_usd, data) VALUES (?, ?, ?, ?, ?, ?)", values
        )

    def retract_call(self, key: str) -> None:
        """Record that the newest answer under a key was taken back. `find_call` no longer finds it."""
        self._write(
            "UPDATE calls SET state = 'retracted' "
            "WHERE id = (SELECT MAX(id) FROM calls WHERE key = ? AND state = 'answered')",
            (key,),
        )

    def find_call(self, key: str) -> dict[str, Any] | None:
        """Return the record of an answered or refused call, None if it has not ended. Raises UserError."""
        rows = self._calls("WHERE key = ? AND state IN ('answered', 'refused') ORDER BY id LIMIT 1", (key,))
        return self._call(rows[0]) if rows else None

    def log_reuse(self, known: Mapping[str, Any], about: str) -> None:
        """Record, once, that a known answer was also that of an equal call about something else."""
        key = known["key"]
        rows = self._calls("WHERE key = ? AND state = 'reused'", (key,))
        if about not in (known.get("about"), *(self._call(row).get("about") for row in rows)):
            place = {name: known.get(name) for name in ("purpose", "provider", "model", "sample")}
            self.log_call(key, "reused", {**place, "about": about, "sent": False, "cost_usd": 0.0})

    def calls(self) -> list[dict[str, Any]]:
        """Return every attempt in order of time, with its key and state. Raises UserError."""
        return [self._call(row) for row in self._calls("ORDER BY id")]

    def readable_calls(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the readable calls, and messages about the others."""
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
        """Return the number of calls that were sent, and their known cost in USD.

        A call that has not ended counts with its maximum cost.
        """
        if not self._has_calls():
            return 0, 0.0
        return self._read("SELECT COUNT(*), COALESCE(SUM(cost_usd), 0.0) FROM calls WHERE sent")[0]

    def _write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute one change, which is on disk when this returns. Returns the number of the row."""
        with _write_errors(self.root):
            return self._db.execute(statement, values).lastrowid or 0

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises UserError if the database is broken."""
        with _database_errors(self.root / "run.db"), _read_errors(self.root):
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
    """Return the record in a row of the calls. Raises Unreadable."""
    number, key, state, data = row
    return {**parse_call(number, data), "key": key, "state": state}


def write_atomically(path: Path, data: bytes) -> Path:
    """Write `data` to `path` completely or not at all. Raises UserError."""
    with _write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        with _alone(temporary) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(path)
            except OSError:
                temporary.unlink(missing_ok=True)  # free the space if the disk is full
                raise
        _sync(path.parent)
    return path


def check_writable(folder: Path) -> None:
    """Create `folder` if needed. Raises UserError if no file can be written in it."""
    with _write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep other processes out of `root`, which is created if needed. Raises UserError if one is working there."""
    with _write_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        lock = _lock(root)
    with lock:
        yield


def new_run_dir(base: Path, task: str) -> Path:
    """Create and return `<base>/<task>/<time>`, a different folder for each run started in the same second."""
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for suffix in ["", *(f"_{i}" for i in range(1, 1000))]:
        path = base / task / (stamp + suffix)
        with _write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise UserError(f"too many runs were started in {base / task} in this second; try again")


def _connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    whole = read_only and not path.with_name("run.db-wal").exists()
    fixed = whole and not os.access(path.parent, os.W_OK)  # SQLite must write no files next to it, either
    where = f"{path.absolute().as_uri()}?mode=ro&immutable=1" if fixed else path
    # every statement commits by itself; in a notebook another thread writes while this one waits
    db = sqlite3.connect(where, isolation_level=None, check_same_thread=False, uri=fixed)
    db.text_factory = lambda text: text.decode("utf-8", "replace")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TEXT_BYTES)
    db.set_progress_handler(lambda: 0, _LOOK)  # lets Python handle signals during long SQLite statements
    return db


def _make_durable(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Raise UserError unless `db` is the intact database of a run in a supported format."""
    with _database_errors(path):
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION_ID:
        raise UserError(f"{path} was not written by movlr-jax; is {path.parent} another program's folder?")
    if version != _VERSION:
        raise UserError(f"{path} has format {version}, but this version of movlr-jax reads format {_VERSION}")
    with _database_errors(path):
        if unknown := sorted(_schema(db) - _run_schema()):
            raise UserError(
                f"{path} is not the record of a run: {unknown[0][0]} {unknown[0][1]!r:.100} in it was not created by "
                "movlr-jax; the run cannot be read"
            )
        if missing := {"events", "files"} - {name for _, name, _ in _schema(db)}:
            raise UserError(
                f"{path} is not the record of a run: it has no table {min(missing)}; the run cannot be read"
            )
        result = db.execute("PRAGMA quick_check").fetchone()[0]
        for name in sorted(_MOST.keys() & {name for _, name, _ in _schema(db)}):
            if (count := db.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]) > _MOST[name]:
                raise UserError(
                    f"{path} has {count:,} {name}, expected at most {_MOST[name]:,}; the run cannot be read"
                )
    if result != "ok":
        raise UserError(f"{path} is broken ({shortened(result)}); the run cannot be read")


def _schema(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return (type, name, SQL with normalised whitespace) of everything in a database's schema."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {(str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in rows}


@functools.cache
def _run_schema() -> set[tuple[str, str, str]]:
    """Return the schema of run.db; any other view or trigger is rejected, because it might never terminate."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_SCHEMA + _CALLS)
        return _schema(db)


@contextlib.contextmanager
def _database_errors(path: Path) -> Iterator[None]:
    """Convert SQLite's errors about a broken file to a UserError."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        stop_if_asked()  # an interrupted statement also raises DatabaseError
        if "too big" in str(error):
            raise UserError(
                f"{path} has a text of more than {_TEXT_BYTES:,} bytes, expected at most that; the run cannot be read"
            ) from None
        if "readonly" in str(error):
            raise UserError(f"{path.parent} cannot be changed: you may only read it") from None
        raise UserError(f"{path} is broken ({error}); the run cannot be read") from None


def _lock(root: Path) -> Any:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = open(os.open(inside(root, ".lock"), flags, 0o666), "rb+", buffering=0)  # noqa: SIM115 - held for as long as the lock is
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InUse(f"another process is working in {root}; wait for it, or work in another folder") from None
    return file


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[IO[bytes]]:
    """Open an empty file at `path`, as soon as no other process or thread has it open here."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            there = path.lstat()
            if not stat.S_ISREG(there.st_mode) or there.st_nlink > 1:
                path.unlink()  # other files stay as they are
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o666), "rb+") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            try:
                current = os.path.samestat(path.lstat(), os.fstat(file.fileno()))
            except FileNotFoundError:  # the other one has renamed it
                current = False
            if current:
                file.truncate(0)  # what a crash left
                yield file
                return


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Convert errors while writing to a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {_advice(path)}") from error
    except sqlite3.OperationalError as error:
        stop_if_asked()
        raise UserError(f"cannot write the record in {path}: {error}; {_advice(path)}") from error


@contextlib.contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Convert errors while reading the database to a UserError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        stop_if_asked()
        raise UserError(f"cannot read the record in {path}: {error}") from error


def _advice(path: Path) -> str:
    """Return advice for a full disk; it names the run to resume if `path` is in one."""
    run = None
    with contextlib.suppress(OSError):  # folders that may not be entered
        folders = (path, *path.parents)
        run = next((f for f in folders if all((f / name).is_file() for name in (SETTINGS, "run.db"))), None)
    return "free space or choose another run_dir=..." + (
        f", then continue with {resuming(run)}" if run else ""
    )
