"""Reads what `EpisodeRecord.export` wrote, with the readers of others where there are some."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas

from movlr_jax.biomech.opensim import Table, read_storage


def read_table(path: Path) -> Table:
    """Return the table of a .mot, .sto, .csv or .parquet file."""
    if path.suffix in (".mot", ".sto"):
        return read_storage(path)
    frame = pandas.read_csv(path) if path.suffix == ".csv" else _parquet(path)
    columns = {name: frame[name].to_numpy(np.float64) for name in frame}
    return Table(columns.pop("time"), columns)


def _parquet(path: Path) -> pandas.DataFrame:
    with path.open("rb") as file:  # not the path: columns whose names have a slash are not those of partitions
        return pandas.read_parquet(file)
