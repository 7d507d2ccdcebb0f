"""Muscles as damped springs to the lengths of the target posture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from movlr_jax._util.parts import setting
from movlr_jax.control.muscle_controllers.law import Body, MuscleLaw, Muscles
from movlr_jax.types import Array


@dataclass(frozen=True, kw_only=True)
class Linear(MuscleLaw):
    """F = min(0, F0 (kp (L* - L) - kd V) / L0): scales with the strength of each muscle, and is damped."""

    kp: float = setting(5.0, "stiffness, in peak forces per optimal length", least=0)
    kd: float = setting(0.2, "s; damping", least=0)

    def force(self, body: Body, params: Any, target: Any, now: Muscles) -> Array:
        p, stretch = body.muscles, target["length"] - now.length
        return jnp.asarray(p.peak_force * (self.kp * stretch - self.kd * now.velocity) / p.optimal_length)
