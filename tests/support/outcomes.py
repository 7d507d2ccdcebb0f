"""What a search came to, to be compared with another one."""

from __future__ import annotations

from pathlib import Path

from movlr_jax.storage.archive import Archive


def outcome(run: Path) -> tuple[str, list, list]:
    """The best program, the rankings, and every candidate but times and films."""
    with Archive.open(run, write=False) as archive:
        ranked = [e.data for e in archive.events("ranked")]
        evaluated = [
            {k: v for k, v in e.data.items() if k not in ("timing", "film")} for e in archive.events("evaluated")
        ]
    return (run / "best.py").read_text(), ranked, evaluated
