"""run.db, the SQLite database of a run. A foreign one is bounded and checked before it is read."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from movlr_jax._util.progress import stop_if_asked
from movlr_jax.errors import UserError, shortened
from movlr_jax.storage.inside import inside
from movlr_jax.storage.writing import write_errors

FILES = ("run.db", "run.db-wal", "run.db-shm", "run.db-journal")  # with SQLite's temporary files
_APPLICATION_ID = 0x6D6F766C  # "movl": identifies run.db as a file of movlr-jax
_VERSION = 1
_BYTES = 2**29  # of the database
_TEXT_BYTES = 2**25  # of one event or call in it
_ROWS = {"events": 30_000, "calls": 100_000, "files": 200_000}
_INSTRUCTIONS = 20_000  # of SQLite, between checks for Ctrl-C
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


class Database:
    """An open run.db. A change is on disk when `write` returns. Methods raise UserError."""

    def __init__(self, path: Path, *, read_only: bool = False):
        self.path, self._db = path, connect(path, read_only)

    @classmethod
    def create(cls, root: Path) -> Database:
        """Create the database in `root`, where there is none."""
        database = cls(root / FILES[0])
        database.make_durable()
        database._db.executescript(
            f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {_VERSION}; COMMIT;"
        )
        return database

    @classmethod
    def open(cls, root: Path, *, read_only: bool) -> Database:
        """Open an existing database, and change nothing in it. Raises UserError if it is not that of a run."""
        path = root / FILES[0]
        for name in FILES:
            inside(root, name)
        if not path.is_file():
            raise UserError(f"{root} is not a run directory of movlr-jax: it has no run.db")
        size = sum(file.lstat().st_size for name in FILES if (file := root / name).exists())
        if size > _BYTES:
            raise UserError(f"{path} has {size:,} bytes, expected at most {_BYTES:,}; the run cannot be read")
        database = cls(path, read_only=read_only)
        try:
            database._check()
        except BaseException:
            database.close()
            raise
        return database

    def make_durable(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")

    def write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute one change. Returns the number of the row."""
        with write_errors(self.path.parent):
            return self._db.execute(statement, values).lastrowid or 0

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with read_errors(self.path):
            return self._db.execute(query, values).fetchall()

    @property
    def has_calls(self) -> bool:
        return bool(self.read("SELECT 1 FROM sqlite_master WHERE name = 'calls'"))

    def need_calls(self) -> None:
        """Create the table of calls if there is none."""
        with write_errors(self.path.parent):
            self._db.executescript(_CALLS)

    def close(self) -> None:
        self._db.close()

    def _check(self) -> None:
        """Raise UserError unless this is the intact database of a run in a supported format."""
        path = self.path
        ((application,),) = self.read("PRAGMA application_id")
        ((version,),) = self.read("PRAGMA user_version")
        if application != _APPLICATION_ID:
            raise UserError(f"{path} was not written by movlr-jax; is {path.parent} another program's folder?")
        if version != _VERSION:
            raise UserError(f"{path} has format {version}, but this version of movlr-jax reads format {_VERSION}")
        with read_errors(path):
            schema = _schema(self._db)
        tables = {name for _, name, _ in schema}
        # a view or a trigger might never terminate
        problems = [
            f"{kind} {name!r:.100} in it was not created by movlr-jax"
            for kind, name, _ in sorted(schema - _run_schema())
        ]
        problems += [f"it has no table {name}" for name in ("events", "files") if name not in tables]
        if problems:
            raise UserError(f"{path} is not the record of a run: {problems[0]}; the run cannot be read")
        ((result,), *_) = self.read("PRAGMA quick_check")
        if result != "ok":
            raise UserError(f"{path} is broken ({shortened(result)}); the run cannot be read")
        for name in sorted(_ROWS.keys() & tables):
            ((count,),) = self.read(f"SELECT COUNT(*) FROM {name}")
            if count > _ROWS[name]:
                raise UserError(
                    f"{path} has {count:,} {name}, expected at most {_ROWS[name]:,}; the run cannot be read"
                )


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    whole = read_only and not path.with_name("run.db-wal").exists()
    fixed = whole and not os.access(path.parent, os.W_OK)  # SQLite must write no files next to it, either
    where = f"{path.absolute().as_uri()}?mode=ro&immutable=1" if fixed else path
    # every statement commits by itself; in a notebook another thread writes while this one waits
    db = sqlite3.connect(where, isolation_level=None, check_same_thread=False, uri=fixed)
    db.text_factory = lambda text: text.decode("utf-8", "replace")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _TEXT_BYTES)
    # lets Python handle signals during long SQLite statements
    db.set_progress_handler(lambda: 0, _INSTRUCTIONS)
    return db


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Convert errors while reading the database to a UserError."""
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


def _schema(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return (type, name, SQL with normalised whitespace) of everything in a database's schema."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {(str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in rows}


@functools.cache
def _run_schema() -> set[tuple[str, str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_SCHEMA + _CALLS)
        return _schema(db)
