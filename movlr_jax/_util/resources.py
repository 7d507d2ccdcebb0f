"""Data files of the package: conf/, prompts/ and assets/.

They are at the top of the repository; a wheel contains them inside `movlr_jax`.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def resource_dir(kind: str) -> Path:
    """Return the folder of `kind` (conf, prompts or assets), in a wheel or in a checkout."""
    packaged = _PACKAGE / kind
    return packaged if packaged.is_dir() else _PACKAGE.parent / kind


def resource_text(kind: str, *parts: str) -> str:
    return resource_dir(kind).joinpath(*parts).read_text(encoding="utf-8")
