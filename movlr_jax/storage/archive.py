"""The run directory: every artefact and every event of a search, safe against crashes.

A file is written under a temporary name, fsynced, renamed, and only then recorded in `run.db`. After a crash, every
file is either recorded, or discarded on resume, so a run can be resumed from any point.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, Any, TypeVar

from movlr_jax.errors import UserError, resuming, shortened
from movlr_jax.storage import database
from movlr_jax.storage.database import Database
from movlr_jax.storage.events import Unreadable, check, parse_call, parse_event
from movlr_jax.storage.inside import inside, linked, open_regular, read_inside
from movlr_jax.storage.writing import is_part, lock, write_atomically, write_errors

SETTINGS = "config.yaml"
FILE_BYTES = 2**28 + 2**20  # size limit of a file: more than any film, and than an episode of `ARRAYS_BYTES`
T = TypeVar("T")
_EVENT = "time, kind, generation, candidate, data"


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


def _shown_event(*row: Any) -> Event:
    """Return the event in a row, which may lack what a resumed search needs. Raises Unreadable."""
    event = _event(*row)
    check(event.kind, event.generation, event.candidate, event.data, whole=False)
    return event


class Archive:
    """An open run directory. Only one process may write to it; close it, or use it as a context manager."""

    def __init__(self, root: Path, lock: IO[bytes] | None, db: Database):
        self.root, self._lock, self._db = root, lock, db

    @classmethod
    def create(cls, root: Path, config_yaml: str) -> Archive:
        """Create a run in `root`, which must not exist or be empty. Raises UserError."""
        with write_errors(root), contextlib.ExitStack() as undo:
            there = {path.name for path in root.iterdir()} if root.exists() else set()
            # by a process that died
            left = {name for name in there if name in database.FILES or is_part(name)}
            if there and there != {".lock", *left}:
                raise UserError(
                    f"the run directory {root} is not empty; choose another run_dir=..., "
                    f"or continue with {resuming(root)}"
                )
            root.mkdir(parents=True, exist_ok=True)
            held = undo.enter_context(lock(root))
            for name in left:
                (root / name).unlink()
            archive = cls(root, held, undo.enter_context(contextlib.closing(Database.create(root))))
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
        with write_errors(root), contextlib.ExitStack() as undo:
            # checked before any change: the database may belong to another program
            db = undo.enter_context(contextlib.closing(Database.open(root, read_only=not write)))
            archive = cls(root, undo.enter_context(lock(root)) if write else None, db)
            if whole:
                archive._check_events()
            if write:
                _tidy(root)
                db.make_durable()
            undo.pop_all()
        if write and db.has_calls:  # this process has the lock, so the senders of these calls have ended
            db.write("UPDATE calls SET state = 'lost' WHERE state = 'under_way'")
        return archive

    def put(self, relative: str, data: bytes) -> Path:
        """Write a file atomically, record it and return its path."""
        inside(self.root, str(PurePath(relative).parent))
        path = write_atomically(self.root / relative, data)
        self._db.write(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (relative, hashlib.sha256(data).hexdigest(), len(data))
        )
        return path

    def has(self, relative: str) -> bool:
        """Return whether `put` wrote this file and its data are still the same."""
        return self._recorded(relative) is not None and not self.lost(relative)

    def lost(self, relative: str) -> bool:
        """Return whether `put` wrote this file, but it is missing or was changed since."""
        if (known := self._recorded(relative)) is None:
            return False
        sha256, size = known
        try:
            path = inside(self.root, relative)
            if path.lstat().st_size != size:
                return True
            with open_regular(path, FILE_BYTES, os.O_NOFOLLOW) as file:
                return hashlib.file_digest(file, "sha256").hexdigest() != sha256
        except (UserError, OSError):
            return True

    def _recorded(self, relative: str) -> tuple[Any, ...] | None:
        """Return the sha256 and the bytes of a file that `put` wrote, None for other files."""
        rows = self._db.read("SELECT sha256, bytes FROM files WHERE path = ?", (relative,))
        return rows[0] if rows else None

    def damaged(self) -> list[str]:
        """Return all files of the run that are missing or were changed after they were written."""
        return [path for (path,) in self._db.read("SELECT path FROM files ORDER BY path") if self.lost(path)]

    def read(self, relative: str) -> bytes:
        """Return the data that `put` wrote. Raises UserError if the file is missing, was changed or is too large."""
        known, path = self._recorded(relative), inside(self.root, relative)
        whole = known is not None and path.exists() and path.lstat().st_size == known[1]  # before anything is read
        data = read_inside(self.root, relative, FILE_BYTES) if whole else b"" if path.exists() else None
        if known is None or not whole or data is None or hashlib.sha256(data).hexdigest() != known[0]:
            again = "" if relative == SETTINGS else f", or make it again with {resuming(self.root)}"
            raise UserError(
                f"{self.root / relative} {'is missing' if data is None else 'was changed after it was written'}; "
                f"restore it{again}"
            )
        return data

    def record(self, kind: str, data: Mapping[str, Any], generation: int = -1, candidate: int = -1) -> None:
        """Record a step; it replaces an earlier record of the same step."""
        self._db.write(
            "INSERT OR REPLACE INTO events (time, kind, generation, candidate, data) VALUES (?, ?, ?, ?, ?)",
            (time.time(), kind, generation, candidate, json.dumps(data)),
        )

    def get(self, kind: str, generation: int = -1, candidate: int = -1) -> dict[str, Any] | None:
        """Return the record of a step, None if there is none. Raises UserError if it is unreadable."""
        rows = self._db.read(
            f"SELECT {_EVENT} FROM events WHERE kind = ? AND generation = ? AND candidate = ?",
            (kind, generation, candidate),
        )
        with self._needed():
            return parse_event(*rows[0]) if rows else None

    def forget(self, kind: str, generation: int) -> None:
        """Remove the record of a step, so that a search takes it again."""
        self._db.write("DELETE FROM events WHERE kind = ? AND generation = ?", (kind, generation))

    def events(self, kind: str | None = None) -> list[Event]:
        """Return all events, or those of one kind, ordered by generation, candidate and time.

        Raises UserError if one is unreadable.
        """
        with self._needed():
            return [_event(*row) for row in self._event_rows(kind)]

    def _event_rows(self, kind: str | None = None) -> list[tuple[Any, ...]]:
        return self._db.read(
            f"SELECT {_EVENT} FROM events WHERE ? IS NULL OR kind = ? ORDER BY generation, candidate, id",
            (kind, kind),
        )

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
        return _readable(self._event_rows(), _shown_event)

    @contextlib.contextmanager
    def _needed(self) -> Iterator[None]:
        """Convert Unreadable to a UserError, for records that the caller needs."""
        try:
            yield
        except Unreadable as error:
            raise UserError(f"{self.root / 'run.db'}: {error}; the run cannot be continued") from None

    def end_call(self, call: int, state: str, data: Mapping[str, Any]) -> None:
        """Record the final state of a call."""
        self._db.write(
            "UPDATE calls SET state = ?, cost_usd = ?, data = ? WHERE id = ?",
            (state, data.get("cost_usd"), json.dumps(data), call),
        )

    def log_call(self, key: str, state: str, data: Mapping[str, Any]) -> int:
        """Record a call with its state and its cost, the largest that it may have if it is under way.

        Returns its number.
        """
        self._db.need_calls()
        sent = bool(data.get("sent", True)) and not data.get("replayed")
        values = (time.time(), key, state, sent, data.get("cost_usd"), json.dumps(data))
        return self._db.write(
            "INSERT INTO calls (time, key, state, sent, cost_usd, data) VALUES (?, ?, ?, ?, ?, ?)", values
        )

    def retract_call(self, key: str) -> None:
        """Record that the newest answer under a key was taken back. `find_call` no longer finds it."""
        self._db.write(
            "UPDATE calls SET state = 'retracted' "
            "WHERE id = (SELECT MAX(id) FROM calls WHERE key = ? AND state = 'answered')",
            (key,),
        )

    def find_call(self, key: str) -> dict[str, Any] | None:
        """Return the record of an answered or refused call, None if it has not ended. Raises UserError."""
        ended = self._calls("WHERE key = ? AND state IN ('answered', 'refused') ORDER BY id LIMIT 1", (key,))
        return ended[0] if ended else None

    def log_reuse(self, known: Mapping[str, Any], about: str) -> None:
        """Record, once, that a known answer was also that of an equal call about something else."""
        key = known["key"]
        reused = self._calls("WHERE key = ? AND state = 'reused'", (key,))
        if about not in [call.get("about") for call in (known, *reused)]:
            place = {name: known.get(name) for name in ("purpose", "provider", "model", "sample")}
            self.log_call(key, "reused", {**place, "about": about, "sent": False, "cost_usd": 0.0})

    def calls(self) -> list[dict[str, Any]]:
        """Return every attempt in order of time, with its key and state. Raises UserError."""
        return self._calls("ORDER BY id")

    def readable_calls(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the readable calls, and messages about the others."""
        return _readable(self._call_rows("ORDER BY id"), _call)

    def _calls(self, which: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        with self._needed():
            return [_call(*row) for row in self._call_rows(which, values)]

    def _call_rows(self, which: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if not self._db.has_calls:
            return []
        return self._db.read(f"SELECT id, key, state, data FROM calls {which}", values)

    def spent(self) -> tuple[int, float]:
        """Return the number of calls that were sent, and their known cost in USD.

        A call that has not ended counts with its maximum cost.
        """
        if not self._db.has_calls:
            return 0, 0.0
        return self._db.read("SELECT COUNT(*), COALESCE(SUM(cost_usd), 0.0) FROM calls WHERE sent")[0]

    def close(self) -> None:
        self._db.close()
        if self._lock:
            self._lock.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _tidy(root: Path) -> None:
    """Remove what a crash left. Raises UserError if a folder is a symbolic link: files would be written elsewhere."""
    for base, folders, files in os.walk(root):
        for path in (Path(base) / name for name in folders):
            if path.is_symlink():
                raise linked(path)
        for name in filter(is_part, files):
            (Path(base) / name).unlink(missing_ok=True)


def _call(number: int, key: Any, state: Any, text: Any) -> dict[str, Any]:
    """Return the record in a row of the calls. Raises Unreadable."""
    return {**parse_call(number, text), "key": key, "state": state}


def _readable(rows: Iterable[tuple[Any, ...]], read: Callable[..., T]) -> tuple[list[T], list[str]]:
    """Return what `read` makes of the rows, and its messages about those that are Unreadable."""
    found, faults = [], []
    for row in rows:
        try:
            found.append(read(*row))
        except Unreadable as error:
            faults.append(str(error))
    return found, faults
