"""Reading of untrusted npz files: every defect gives a one-sentence ValueError."""

from __future__ import annotations

import io
import zipfile
import zlib

import numpy as np

ARRAYS_BYTES = 2**28  # uncompressed: more than any policy or an hour of motion of a whole body


def read_arrays(data: bytes, most: int = ARRAYS_BYTES) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file, of at most `most` bytes in total. Raises ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            size = sum(member.file_size for member in members.infolist())
        if size > most:
            raise ValueError(f"its arrays have {size:,} bytes, expected at most {most:,}")
        with np.load(io.BytesIO(data)) as file:
            return dict(file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"it is not a valid npz file: {error}") from None
    except (OSError, LookupError, TypeError, SyntaxError, RuntimeError, MemoryError, OverflowError) as error:
        raise ValueError(f"its arrays cannot be read: {error or type(error).__name__}") from None
