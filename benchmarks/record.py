"""The JSON files of the benchmarks: what was measured, and when, on which hardware and with which versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import jax

from movlr_jax.machine import hardware, versions

RESULTS = Path(__file__).parent / "results"


def circumstances() -> dict[str, Any]:
    """Return the date, the hardware, the devices of JAX and the versions, as every file says them."""
    return {
        "date": date.today().isoformat(),
        "hardware": hardware(),
        "devices": [device.device_kind for device in jax.local_devices()],
        "versions": versions(),
    }


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write the file, and its folder if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, default=float) + "\n", encoding="utf-8")
