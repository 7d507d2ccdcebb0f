"""What this user began on this machine: recorded in the user's state folder, never in a run directory alone.

A folder whose settings reach beyond it has a file `.begun` with a random id. The file of that id in the state folder
has the identity of `.begun` and what the settings asked for. So a copy, a run of another person at the same path and
a run whose settings were edited are not taken for what the user began.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.errors import UserError
from movlr_jax.storage.inside import read_inside
from movlr_jax.storage.writing import write_atomically

MARK = ".begun"  # in the folder: its id
OPENED = "opened.jsonl"  # in the state folder: what was obeyed, a line each time
_BYTES = 2**20  # of a file in the state folder


def state_folder() -> Path | None:
    """Return the folder of movlr-jax in the user's state; None for a user without one that only they may write."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        root = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
        folder = root / "movlr-jax"
        if not folder.is_absolute():
            return None
        root.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.stat()
    except (OSError, RuntimeError):  # a user without a home
        return None
    return folder if about.st_uid == os.geteuid() and not about.st_mode & 0o022 else None


def begin(folder: Path, asked: Mapping[str, Any]) -> bool:
    """Record that the user begins `folder` here, with what its settings ask for. Return whether that is recorded."""
    state = state_folder()
    if not asked or state is None:
        return not asked
    try:
        name, known = _record(folder)
        if name is None:
            name = secrets.token_hex(16)
            write_atomically(folder / MARK, name.encode())
        if (now := _plain(asked)) not in known:
            kept = {"folder": str(folder.absolute()), "mark": _identity(folder), "asked": [*known, now]}
            write_atomically(state / f"{name}.json", json.dumps(kept, indent=1).encode())
    except (UserError, OSError):
        return False
    return True


def asked_here(folder: Path) -> Sequence[Mapping[str, Any]]:
    """Return what each of the settings of `folder` asked for that this user began here; empty for other folders."""
    return _record(folder)[1]


def covers(known: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> bool:
    """Return whether one of `known` has all that is asked for, with the same values."""
    return any(_plain(asked).items() <= one.items() for one in known) or not asked


def log(entry: Mapping[str, Any]) -> None:
    """Add a line to the record of what was obeyed, if this user has a state folder."""
    if (state := state_folder()) is None:
        return
    with contextlib.suppress(OSError):
        path = state / OPENED
        if path.exists() and path.stat().st_size > _BYTES:
            path.replace(path.with_suffix(".old"))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **entry}) + "\n")


def _record(folder: Path) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the id of a folder that this user began here and what it asked for; (None, []) for other folders."""
    state = state_folder()
    try:
        name = (read_inside(folder, MARK, 100) or b"").decode("ascii", "replace")
        if state is None or not re.fullmatch(r"[0-9a-f]{32}", name):
            return None, []
        kept = json.loads(read_inside(state, f"{name}.json", _BYTES) or b"{}")
        return (name, kept["asked"]) if kept.get("mark") == _identity(folder) else (None, [])
    except (UserError, OSError, ValueError):
        return None, []


def _identity(folder: Path) -> list[int]:
    """Return what tells the mark of a folder from a copy of it, also from one that is written over it."""
    about = (folder / MARK).lstat()
    return [about.st_ino, about.st_ctime_ns]


def _plain(asked: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value, default=str) for name, value in asked.items()}
