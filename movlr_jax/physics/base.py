"""The protocol that every physics backend implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np

from movlr_jax.rewards.state import Layout
from movlr_jax.types import Array, Policy, SimState, Trajectory


class Physics(Protocol):
    """B simulations, stepped in closed loop. Knows nothing of rewards."""

    name: str
    layout: Layout
    sim_dt: float  # s, one simulation step
    ctrl_dt: float  # s, one control step
    xp: Any  # numpy or jax.numpy: what carries its states, and plans for it

    @property
    def steps_done(self) -> int:
        """Simulation steps, over all rows, since it was built."""
        ...

    @property
    def traces(self) -> Mapping[str, int]:
        """How often each of its functions was traced by JAX."""
        ...

    def start(self, qpos: Array, qvel: Array, act: Array) -> SimState:
        """States at rest in time: qpos [B, nq], qvel [B, nv], act [B, na], sensors measured there."""
        ...

    def rollout(
        self,
        start: SimState,
        policy: Policy,
        params: Any,
        *,
        steps: int,
        key: jax.Array,
        candidates: int = 1,
        read: np.ndarray | None = None,
    ) -> Trajectory:
        """T = `steps` control steps of every row of `start` [B] under `policy` with `params` [B or K, ...].

        See `physics.policy` for params and keys. A row that diverges is marked; what follows means nothing.
        read [ns] bool: the sensor values of the result that the caller reads, None for all. The others, unless the
        policy reads them, need not be measured; they are then NaN. The values that are read do not depend on it.
        """
        ...

    def parts(self, rows: int, steps: int) -> int:
        """Into how many parts a rollout of `rows` x `steps` must be split so that each fits into memory; 1: none."""
        ...

    def collect(self, x: Any) -> Any:
        """`x` in one place, where rollouts are spread over several devices."""
        ...

    def close(self) -> None: ...

    def lengths(self, qpos: Array) -> Array:
        """Actuator lengths [B, nu] m at postures `qpos` [B, nq]."""
        ...

    def kinematics(self, qpos: Array) -> tuple[Array, Array]:
        """Actuator lengths [B, nu] m and moment arms [B, nu, nv] m at postures `qpos` [B, nq].

        Moment arms of 700 muscles at 1,024 postures need 0.24 GB: where only lengths are used, call `lengths`.
        """
        ...
