"""Models: their files, and the mapping of their names to the roles that tasks use."""

from movlr_jax.models.adapter import ModelAdapter, ModelInfo, coordinates_of, follow_couplings, nominal_qpos
from movlr_jax.models.registry import MODELS, model_adapter

__all__ = [
    "MODELS",
    "ModelAdapter",
    "ModelInfo",
    "coordinates_of",
    "follow_couplings",
    "model_adapter",
    "nominal_qpos",
]
