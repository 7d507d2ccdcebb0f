"""Registry of models: by name, or by the path of an MJCF file."""

from __future__ import annotations

from difflib import get_close_matches

from movlr_jax._util.registry import Registry
from movlr_jax.errors import UserError, near_matches
from movlr_jax.models import from_path, humanoid, ms_human, musclemimic, myosim, ostrich, tiny
from movlr_jax.models.adapter import ModelAdapter

MODELS: Registry[ModelAdapter] = Registry(
    "model",
    "movlr_jax.models",
    {
        adapter.name: adapter
        for module in (myosim, ms_human, musclemimic, ostrich, humanoid, tiny)
        for adapter in module.ADAPTERS
    },
)


def model_adapter(name: str) -> ModelAdapter:
    """Return the adapter of a model by name, or of an MJCF file by its path. Raises UserError with near matches."""
    if name in MODELS:
        return MODELS[name]
    if from_path.is_path(name):
        return from_path.adapter_of(name)
    # many names are similar: prefer probable typing errors to names that are only similar
    near = get_close_matches(name.lower(), list(MODELS), n=3, cutoff=0.7) or near_matches(name, MODELS)
    hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else "."
    raise UserError(f"there is no model {name!r}{hint} There are {', '.join(MODELS)}, and any MJCF file by its path")
