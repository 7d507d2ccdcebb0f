"""The JSON files of the benchmarks: what was measured, and when, on which hardware and with which versions."""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import jax

from movlr_jax._util.machine import hardware, versions

RESULTS = Path(__file__).parent / "results"


def circumstances() -> dict[str, Any]:
    """Return the date, the hardware, the devices of JAX and the versions, as every file says them."""
    return {
        "date": date.today().isoformat(),
        "hardware": hardware(),
        "devices": [device.device_kind for device in jax.local_devices()],
        "versions": versions(),
    }


def commit() -> str:
    """Return the short hash of the commit that is measured."""
    head = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(head, capture_output=True, text=True, check=True).stdout.strip()


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write the file, and its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, default=float) + "\n", encoding="utf-8")


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Let one process at a time read and write a file of results. name: of its lock."""
    with (Path(tempfile.gettempdir()) / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def longest(events: Iterable[tuple[str, float]], runs: int, shown: int) -> list[list[Any]]:
    """Return `shown` kernels at most, those that take longest first: name, ms and times in each of `runs` runs.

    events: the name of a kernel and ms, for each time that it ran in all runs.
    """
    taken = defaultdict[str, list[float]](list)
    for name, ms in events:
        taken[name].append(ms)
    rows = [[name, round(sum(each) / runs, 4), len(each) / runs] for name, each in taken.items()]
    return sorted(rows, key=lambda row: -row[1])[:shown]
