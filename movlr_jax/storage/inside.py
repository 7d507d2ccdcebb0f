"""Access to the files of an untrusted run directory; symbolic links inside it are not followed."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path, PurePath

from movlr_jax.errors import UserError


def is_inside(relative: str) -> bool:
    """Return whether a path stays below the folder that it is relative to."""
    path = PurePath(relative)
    return not ("\0" in relative or path.is_absolute() or ".." in path.parts)


def inside(root: Path, relative: str) -> Path:
    """Return `root / relative`. Raises UserError if it is outside `root` or a part of it is a symbolic link."""
    if not is_inside(relative):
        raise UserError(f"{relative!r:.200} is not a path inside the run directory {root}")
    path = root
    for part in PurePath(relative).parts:
        path = path / part
        if path.is_symlink():
            raise linked(path)
    return path


def linked(path: Path) -> UserError:
    return UserError(f"{path} is a symbolic link, and links inside a run directory are not followed; remove it")


def read_inside(root: Path, relative: str, most: int) -> bytes | None:
    """Return the data of a file inside `root`, None if it does not exist.

    Raises UserError for links, for pipes and other special files, and for more than `most` bytes.
    """
    try:
        return read_bounded(inside(root, relative), most, os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot read {root / relative}: {error.strerror or error}") from None


def read_bounded(path: Path, most: int, flags: int = 0) -> bytes:
    """Return the data of a regular file. Raises UserError for others and for more than `most` bytes, and OSError."""
    with open_regular(path, most, flags) as file:
        data = file.read(most + 1)  # the size of a file of /proc is 0
    if len(data) > most:
        raise UserError(f"{path} has more bytes than its size says; copy it first")
    return data


def open_regular(path: Path, most: int, flags: int = 0) -> BufferedReader:
    """Open a regular file of at most `most` bytes. Raises UserError and OSError."""
    # O_NONBLOCK: opening a pipe would wait for a writer
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags), "rb")  # noqa: SIM115 - returned
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode):
        file.close()
        raise UserError(f"{path} is not a regular file; remove it")
    if about.st_size > most:
        file.close()
        raise UserError(f"{path} has {about.st_size:,} bytes, expected at most {most:,}")
    return file
