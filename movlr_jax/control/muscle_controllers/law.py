"""What all muscle laws share: what a law reads, and how muscle forces become activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.biomech.muscles import MuscleParams, gain
from movlr_jax.types import Array, Step


class TargetPostures(Protocol):
    """S target postures. Each property is computed when a law reads it."""

    @property
    def posture(self) -> Array:
        """Angles [S, nz] rad of the planned joints."""
        ...

    @property
    def length(self) -> Array:
        """Muscle lengths [S, nu] m."""
        ...

    @property
    def moment(self) -> Array:
        """Moment arms [S, nu, nz] m about the planned joints."""
        ...


class Body(Protocol):
    """The muscles and the planned joints of a model."""

    muscles: MuscleParams  # each [nu]
    qpos: np.ndarray  # [nz] addresses
    dofs: np.ndarray  # [nz] addresses


class Muscles(NamedTuple):
    """Muscles of one simulation at present."""

    length: Array  # [nu] m
    velocity: Array  # [nu] m/s
    passive: Array  # [nu] N
    pull: Array  # [nu] N per activation, at most -1
    view: Step


@dataclass(frozen=True, kw_only=True)
class MuscleLaw:
    """Converts a target posture to muscle activations. A law of its own overrides `force`, or `activation`."""

    hold: bool = setting(
        True,
        "static feed-forward: add the smallest activations that hold the posture against gravity; without it, "
        "an arm sags until the length errors balance its weight",
    )
    arms: ClassVar[bool] = False  # whether it reads params["moment"] [nu, nz] m, at the start of the plan

    def target(self, at: TargetPostures) -> dict[str, Array]:
        """Return what the law reads of its target, each [S, ...], by default lengths. Computed once per plan."""
        return {"length": at.length}

    def force(self, body: Body, params: Any, target: Any, now: Muscles) -> Array:
        """Return muscle forces F [nu] N of one simulation; negative forces pull.

        body: the muscles and joints of the model. params: "moment" if `arms`, and what `activation` reads. target:
        what `target` returned, of one posture.
        """
        raise NotImplementedError

    def activation(self, body: Body, params: Any, target: Any, now: Muscles) -> jax.Array:
        """Return activations [nu] in [0, 1], a = (F - passive) / pull, with those that hold the posture added.

        params["hold"] [nu] are the activations of the static feed-forward.
        """
        still = gain(body.muscles, now.length, jnp.zeros_like(now.length))
        force = self.force(body, params, target, now)
        total = jnp.minimum(0.0, still * params["hold"] + now.passive + force)
        return jnp.clip((total - now.passive) / now.pull, 0.0, 1.0)

    def stiffness(self, commanded: Array) -> Array | None:
        """Return params["stiffness"] [nz] of joints that a policy commands or holds; None: a law without it."""
        return None
