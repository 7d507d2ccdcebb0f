"""Finished steps read by name: what measures of tasks are made of, the numpy twin of `rewards.state.State`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.rewards.state import Layout, rotation
from movlr_jax.types import Step


def _find(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    if name not in options:
        raise UserError(f"a measure reads what this model lacks: {unknown_name(kind, name, options)}")
    return options[name]


@dataclass(frozen=True)
class Readout:
    """Steps with any leading axes [...], usually [T] of one episode or [B, T]."""

    layout: Layout
    steps: Step

    @property
    def sensors(self) -> np.ndarray:
        return np.asarray(self.steps.sensors)

    @property
    def time(self) -> np.ndarray:
        """[...] s"""
        return np.asarray(self.steps.time)

    def _body(self, block: str, body: str, width: int) -> np.ndarray:
        start = self.layout.blocks[block] + width * _find("body", body, self.layout.bodies)
        return self.sensors[..., start : start + width]

    def pos(self, body: str) -> np.ndarray:
        """[..., 3] m, world frame"""
        return self._body("pos", body, 3)

    def vel(self, body: str) -> np.ndarray:
        """[..., 3] m/s, world frame"""
        return self._body("vel", body, 3)

    def quat(self, body: str) -> np.ndarray:
        """[..., 4] w x y z, world frame"""
        return self._body("quat", body, 4)

    def rot(self, body: str) -> np.ndarray:
        """[..., 3, 3], columns are body axes in the world"""
        return np.asarray(rotation(self.quat(body)))

    def touch(self, part: str) -> np.ndarray:
        """[...] N, normal contact force"""
        return self.sensors[..., list(_find("touch part", part, self.layout.touch))].sum(axis=-1)

    def site(self, name: str) -> np.ndarray:
        """[..., 3] m, world frame"""
        address = _find("site", name, self.layout.sites)
        return self.sensors[..., address : address + 3]

    @property
    def com(self) -> np.ndarray:
        """[..., 3] m, world frame"""
        return np.asarray(self.layout.block(self.sensors, "com", 3))

    @property
    def com_vel(self) -> np.ndarray:
        """[..., 3] m/s, world frame"""
        return np.asarray(self.layout.block(self.sensors, "com_vel", 3))

    def actuator(self, block: str) -> np.ndarray:
        """[..., nu] `force` N (N m), `length` m (rad) or `velocity` of all actuators, with MuJoCo's signs."""
        return np.asarray(self.layout.block(self.sensors, block, len(self.layout.muscles)))
