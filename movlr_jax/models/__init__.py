"""Where a model comes from, and how its names map to the roles that tasks use."""

from movlr_jax.models.registry import MODELS, ModelAdapter, model_adapter

__all__ = ["MODELS", "ModelAdapter", "model_adapter"]
