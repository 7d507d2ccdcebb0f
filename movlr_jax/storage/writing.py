"""Files and folders that commands write: atomically, by one process at a time, with errors that say what to do."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO

from movlr_jax._util.progress import stop_if_asked
from movlr_jax.errors import UserError, resuming
from movlr_jax.storage.inside import inside

RUN_FILES = ("config.yaml", "run.db")  # a folder with these is a run


class InUse(UserError):
    """Another process is working in a folder."""


def write_atomically(path: Path, data: bytes) -> Path:
    """Write `data` to `path` completely or not at all. Raises UserError."""
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:  # a full disk, or Ctrl-C
            part.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return path


def is_part(name: str) -> bool:
    """Return whether a file was left by a crash while it was written."""
    return name.startswith(".") and name.endswith(".part")


def check_writable(folder: Path) -> None:
    """Create `folder` if needed. Raises UserError if no file can be written in it."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def new_run_dir(base: Path, task: str) -> Path:
    """Create and return `<base>/<task>/<time>`, a different folder for each run started in the same second."""
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for suffix in ["", *(f"_{i}" for i in range(1, 1000))]:
        path = base / task / (stamp + suffix)
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise UserError(f"too many runs were started in {base / task} in this second; try again")


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep other processes out of `root`, which is created if needed. Raises InUse if one is working there."""
    with write_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        file = lock(root)
    with file:
        yield


def lock(root: Path) -> IO[bytes]:
    """Return the locked file `.lock` of a folder; closing it frees the lock. Raises InUse, UserError and OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = open(os.open(inside(root, ".lock"), flags, 0o666), "rb+", buffering=0)  # noqa: SIM115 - returned
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InUse(f"another process is working in {root}; wait for it, or work in another folder") from None
    return file


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Convert errors while writing to a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {_advice(path)}") from error
    except sqlite3.OperationalError as error:
        stop_if_asked()
        raise UserError(f"cannot write the record in {path}: {error}; {_advice(path)}") from error


def _advice(path: Path) -> str:
    """Return advice for a full disk; it names the run to resume if `path` is in one."""
    run = None
    with contextlib.suppress(OSError):  # folders that may not be entered
        folders = (path, *path.parents)
        run = next((f for f in folders if all((f / name).is_file() for name in RUN_FILES)), None)
    then = f", then continue with {resuming(run)}" if run else ""
    return f"free space or choose another run_dir=...{then}"
