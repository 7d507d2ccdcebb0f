"""Arrays from an npz file of whoever: whatever is wrong with it is one sentence."""

from __future__ import annotations

import io
import zipfile
import zlib

import numpy as np

ARRAYS_BYTES = 2**28  # unpacked: more than any policy, and than an hour of a whole body's motion


def read_arrays(data: bytes, most: int = ARRAYS_BYTES) -> dict[str, np.ndarray]:
    """The arrays of an npz, which hold at most `most` bytes in all. Raises ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            held = sum(member.file_size for member in members.infolist())
        if held > most:
            raise ValueError(f"its arrays have {held:,} bytes, expected at most {most:,}")
        with np.load(io.BytesIO(data)) as file:
            return dict(file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"it is no sound npz file: {error}") from None
    except (OSError, LookupError, TypeError, SyntaxError, RuntimeError, MemoryError, OverflowError) as error:
        raise ValueError(f"its arrays cannot be read: {error or type(error).__name__}") from None
