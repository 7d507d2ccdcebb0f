"""Files that travel with the package: conf/, prompts/ and assets/.

They stand at the top of the repository and are packaged inside `movlr_jax` in a wheel.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_dir(kind: str) -> Path:
    """Folder of `kind` (conf, prompts or assets), in a wheel or in a checkout."""
    packaged = _PACKAGE / kind
    return packaged if packaged.is_dir() else _PACKAGE.parent / kind


def resource_text(kind: str, *parts: str) -> str:
    return resource_dir(kind).joinpath(*parts).read_text(encoding="utf-8")
