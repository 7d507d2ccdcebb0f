"""Access to the steps of an episode by name, for the measures of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.rewards.state import Fields, Layout
from movlr_jax.types import Array, Step


class Readout(Fields[np.ndarray]):
    """Steps with any leading axes [...], usually [T] of one episode or [B, T], as NumPy arrays."""

    __slots__ = ()
    _what, _error = "episode", UserError

    def __init__(self, layout: Layout, steps: Step, goals: Mapping[str, Array] | None = None):
        super().__init__(layout, steps, goals or {})

    def _given(self, value: Array) -> np.ndarray:
        return np.asarray(value)

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def sensors(self) -> np.ndarray:
        return np.asarray(self._step.sensors)

    @property
    def initial(self) -> Readout:
        """The same methods at the first step, without the first axis."""
        return Readout(self._layout, jax.tree.map(lambda x: np.asarray(x)[0], self._step), self._goals)

    @property
    def upright(self) -> Readout:
        """The same episode in the frame of its world, in which z is up; for measures that speak of x, y and z."""
        world, layout = self._layout.world, self._layout
        if world.z_up:
            return self
        sensors, turn = np.array(self._step.sensors), world.frame
        count = len(layout.bodies)
        vectors = [layout.blocks[name] + 3 * i for name in ("pos", "vel", "angvel") for i in range(count)]
        for at in (*vectors, layout.blocks["com"], layout.blocks["com_vel"], *layout.sites.values()):
            sensors[..., at : at + 3] = sensors[..., at : at + 3] @ turn.T
        for at in (layout.blocks["quat"] + 4 * i for i in range(count)):
            sensors[..., at : at + 4] = world.turned(sensors[..., at : at + 4])
        steps = replace(self._step, sensors=sensors)
        return Readout(replace(layout, world=world.upright()), steps, self._goals)

    def quat(self, body: str) -> np.ndarray:
        """Return the orientation [..., 4] of a body as a quaternion w x y z, world frame."""
        return self._body("quat", body, 4)

    def actuator(self, block: str) -> np.ndarray:
        """Return `force` N (N m), `length` m (rad) or `velocity` [..., nu] of all actuators, with MuJoCo's signs."""
        return np.asarray(self._layout.block(self.sensors, block, len(self._layout.muscles)))
