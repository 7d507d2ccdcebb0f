"""Tables as files: .mot and .sto of OpenSim, CSV and Parquet."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from movlr_jax.biomech.opensim import Table, storage_text
from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.storage.writing import write_atomically

FORMATS = ("mot", "sto", "csv", "parquet")


def write_table(path: Path, table: Table) -> Path:
    """Write a table in the format that the ending of `path` names. Returns `path`. Raises UserError."""
    kind = ending(path)
    if kind == "csv":
        data = _csv(table)
    elif kind == "parquet":
        data = _parquet(table)
    else:
        data = storage_text(table).encode()
    return write_atomically(path, data)


def ending(path: Path) -> str:
    """Return the format that the ending of `path` names. Raises UserError."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UserError(unknown_name("format", kind, FORMATS))
    return kind


def _csv(table: Table) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *table.columns])
    rows = np.column_stack([table.time, *table.columns.values()])
    writer.writerows([f"{value:.12g}" for value in row] for row in rows.tolist())
    return text.getvalue().encode()


def _parquet(table: Table) -> bytes:
    with needed("format=parquet", "parquet"):
        import pyarrow
        import pyarrow.parquet
    values = {"time": table.time, **table.columns}
    buffer = io.BytesIO()
    arrays = {name: pyarrow.array(np.asarray(column, float)) for name, column in values.items()}
    pyarrow.parquet.write_table(pyarrow.table(arrays), buffer)
    return buffer.getvalue()
