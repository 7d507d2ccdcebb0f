"""Arrays that the rest of the package exchanges, and the policy protocol. Read this first.

Axes: B simulations = K candidates x N samples (candidate k owns rows k*N:(k+1)*N), T control steps,
H plan steps; nq, nv, nu, na as in MuJoCo; ns is the length of the model's sensor vector.
Units are SI; frames are the world frame unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import jax
import numpy as np

Array = jax.Array | np.ndarray
Progress = Callable[[int, int], None]  # (done, total) of the stage at hand


class Replaceable:
    """Base of frozen dataclasses that JAX maps over as trees of their fields."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy in which the fields `changes` have other values."""
        return replace(self, **changes)  # pyright: ignore[reportArgumentType]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Step(Replaceable):
    """What is known at one instant of one simulation; batched by leading axes.

    Every field belongs to the same instant. `sensors` holds the sensors of `rewards.state.Layout`.
    """

    time: Array  # [...] s
    qpos: Array  # [..., nq] m, rad
    qvel: Array  # [..., nv] m/s, rad/s
    act: Array  # [..., na] muscle activations, 1
    sensors: Array  # [..., ns] as the layout says
    prev_action: Array  # [..., nu] control of the step before


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SimState(Replaceable):
    """Where B simulations stand and what was last measured there.

    `sensors` were measured at the start of the last simulation step, one sim_dt before `time`: MuJoCo
    measures, then integrates. A controller that needs the present extrapolates (`control.mpc2`).
    """

    time: Array  # [B] s
    qpos: Array  # [B, nq]
    qvel: Array  # [B, nv]
    act: Array  # [B, na]
    sensors: Array  # [B, ns]
    prev_action: Array  # [B, nu]
    diverged: Array  # [B] bool, once true never false again

    @property
    def step(self) -> Step:
        """What is known here, as a policy or a reward sees it."""
        return Step(
            time=self.time,
            qpos=self.qpos,
            qvel=self.qvel,
            act=self.act,
            sensors=self.sensors,
            prev_action=self.prev_action,
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trajectory(Replaceable):
    """B finished rollouts of T control steps: the only thing a reward ever sees of physics."""

    steps: Step  # [B, T, ...] the state of the last simulation step of each control step
    actions: Array  # [B, T, nu] control held over each control step
    valid: Array  # [B] int, control steps before the simulation diverged, T if it did not
    final: SimState  # [B, ...]
    extras: Any = None  # [B, T, ...] what the policy returned in addition to its controls

    @property
    def diverged(self) -> Array:
        """[B] bool."""
        return self.valid < self.actions.shape[-2]


class Policy(Protocol):
    """A pure JAX function of one simulation: what to excite, given what is seen.

    Returns controls [nu], or those and a tree of arrays to keep with them (`Trajectory.extras`).
    """

    def __call__(self, params: Any, view: Step, key: jax.Array) -> Any: ...
