"""Settings that are an option of a folder of conf/, or a YAML file of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from movlr_jax._util.resources import resource_dir
from movlr_jax._util.settings import CONFIG_BYTES, read_yaml
from movlr_jax.errors import UserError, unknown_name


def read_option_file(kind: str, name: str) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the content of conf/KIND/NAME.yaml, or of the file NAME. Raises UserError."""
    folder = resource_dir("conf") / kind
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if path.parent == folder and path.stem not in known:
        raise UserError(f"{unknown_name(kind, name, known)}; or give a file, {kind}=FILE.yaml")
    try:
        with path.open("rb") as file:
            text = file.read(CONFIG_BYTES + 1)
        if len(text) > CONFIG_BYTES:
            raise ValueError("it is larger than 1 MB")
        values = read_yaml(text.decode())
    except (OSError, ValueError) as error:
        raise UserError(f"{kind}={name} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(values, Mapping):
        raise UserError(f"{kind}={name} must contain lines of the form NAME: ..., not {values!r:.60}")
    return path.stem, {str(key): value for key, value in values.items()}
