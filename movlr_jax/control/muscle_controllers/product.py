"""The muscle controller that MPC2 was published with (Wei et al., 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp

from movlr_jax._util.parts import setting
from movlr_jax.control.muscle_controllers.law import Body, MuscleLaw, Muscles, TargetPostures
from movlr_jax.types import Array


@dataclass(frozen=True, kw_only=True)
class Product(MuscleLaw):
    """F = min(0, k P (L* - L)) with P = sum_j |dL/dq_j| |z_j - q_j|, and moment arms dL/dq of the target posture."""

    product_gain: float = setting(1e4, "N/m per m; their k", least=0)

    def target(self, at: TargetPostures) -> dict[str, Array]:
        return {"moment": at.moment, "length": at.length, "posture": at.posture}

    def force(self, body: Body, params: Any, target: Any, now: Muscles) -> Array:
        return self._product(body, target["moment"], target, now)

    def _product(self, body: Body, moment: Array, target: Any, now: Muscles) -> Array:
        effort = jnp.abs(moment) @ jnp.abs(target["posture"] - now.view.qpos[body.qpos])
        return self.product_gain * effort * (target["length"] - now.length)


@dataclass(frozen=True, kw_only=True)
class ProductCurrent(Product):
    """The same with the moment arms of the posture at the start of the plan."""

    arms: ClassVar[bool] = True

    def target(self, at: TargetPostures) -> dict[str, Array]:
        return {"length": at.length, "posture": at.posture}

    def force(self, body: Body, params: Any, target: Any, now: Muscles) -> Array:
        return self._product(body, params["moment"], target, now)
