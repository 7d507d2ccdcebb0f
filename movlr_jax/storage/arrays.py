"""Reading of untrusted npz files: every defect gives a one-sentence ValueError."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path

import numpy as np

from movlr_jax.storage.inside import read_bounded

ARRAYS_BYTES = 2**28  # uncompressed: more than any policy or an hour of motion of a whole body


def read_array_file(path: Path, most: int = ARRAYS_BYTES) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file that somebody names. Raises ValueError, UserError and OSError."""
    return read_arrays(read_bounded(path, most + 2**20), most)


def read_arrays(data: bytes, most: int = ARRAYS_BYTES) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file, of at most `most` bytes in total. Raises ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            size = sum(_size(members, member) for member in members.infolist())
        if size > most:
            raise ValueError(f"its arrays have {size:,} bytes, expected at most {most:,}")
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
