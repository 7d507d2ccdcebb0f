"""Muscle controllers: from the target posture of a plan or policy to muscle excitations. One law per file."""

from __future__ import annotations

from movlr_jax._util.parts import Parts
from movlr_jax.control.muscle_controllers.law import Body, MuscleLaw, Muscles, TargetPostures
from movlr_jax.control.muscle_controllers.linear import Linear
from movlr_jax.control.muscle_controllers.product import Product, ProductCurrent
from movlr_jax.control.muscle_controllers.torque import Torque

LAWS: Parts[MuscleLaw] = Parts(
    "law",
    "movlr_jax.muscle_laws",
    {"linear": Linear, "product": Product, "product_current": ProductCurrent, "torque": Torque},
    tag="law",
)

__all__ = ["LAWS", "Body", "Linear", "MuscleLaw", "Muscles", "Product", "ProductCurrent", "TargetPostures", "Torque"]
