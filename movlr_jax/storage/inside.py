"""Access to the files of an untrusted run directory; symbolic links inside it are not followed."""

from __future__ import annotations

import os
import stat
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
    return UserError(
        f"{path} is a symbolic link, and links inside a run directory are not followed; remove it"
    )


def read_inside(root: Path, relative: str, most: int | None = None) -> bytes | None:
    """Return the data of a file, None if it does not exist.

    Raises UserError for links, for pipes and other special files, and for more than `most` bytes.
    """
    path = inside(root, relative)
    try:
        # O_NONBLOCK: opening a pipe would wait for a writer
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise UserError(f"{path} is not a regular file; remove it")
        if most is not None and about.st_size > most:
            raise UserError(f"{path} has {about.st_size:,} bytes, expected at most {most:,}")
        return file.read()


def refuse_linked_folders(root: Path) -> None:
    """Raise UserError if a folder inside `root` is a symbolic link, because files would be written elsewhere."""
    for base, folders, _ in os.walk(root):
        for path in (Path(base) / name for name in folders):
            if path.is_symlink():
                raise linked(path)
