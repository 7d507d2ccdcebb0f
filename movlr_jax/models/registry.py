"""The models this package knows by name."""

from __future__ import annotations

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.models import ms_human, myosim, tiny
from movlr_jax.models.adapter import ModelAdapter

MODELS: dict[str, ModelAdapter] = {
    adapter.name: adapter for adapter in (*myosim.ADAPTERS, *ms_human.ADAPTERS, *tiny.ADAPTERS)
}


def model_adapter(name: str) -> ModelAdapter:
    """The adapter of a model by name. Raises UserError with near matches."""
    if name not in MODELS:
        raise UserError(unknown_name("model", name, MODELS))
    return MODELS[name]
