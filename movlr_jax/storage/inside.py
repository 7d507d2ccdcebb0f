"""Access to untrusted files: those of a run directory, where links are not followed, and the arrays in npz files."""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
import zlib
from pathlib import Path, PurePath

import numpy as np

from movlr_jax.errors import UserError

ARRAYS_BYTES = 2**28  # uncompressed: more than any policy or an hour of motion of a whole body


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


def open_regular(path: Path, most: int, flags: int = 0) -> io.BufferedReader:
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


def read_array_file(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file that somebody names. Raises ValueError, UserError and OSError."""
    return read_arrays(read_bounded(path, ARRAYS_BYTES + 2**20))


def read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file, of at most `ARRAYS_BYTES` in total. Raises ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            size = sum(_size(members, member) for member in members.infolist())
        if size > ARRAYS_BYTES:
            raise ValueError(f"its arrays have {size:,} bytes, expected at most {ARRAYS_BYTES:,}")
        with np.load(io.BytesIO(data)) as file:
            return dict(file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"it is not a valid npz file: {error}") from None
    except (OSError, LookupError, TypeError, SyntaxError, RuntimeError, MemoryError, OverflowError) as error:
        raise ValueError(f"its arrays cannot be read: {error or type(error).__name__}") from None


def _size(members: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return the bytes of an array: of its data, or of the shape that it claims, which is allocated first."""
    with members.open(member) as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, kind = read(file)
        except ValueError:  # no array, which `np.load` returns as bytes
            return member.file_size
    return max(member.file_size, math.prod(shape) * kind.itemsize)
