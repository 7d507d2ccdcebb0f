"""A muscle law on one model: excitations that move its planned joints to a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.muscles import bias, excitation_for, gain, muscle_params
from movlr_jax.control.muscle_controllers.law import MuscleLaw, Muscles
from movlr_jax.rewards.state import Layout
from movlr_jax.types import Step


@dataclass(frozen=True)
class Keeping:
    """Joints outside the plan that muscles keep at fixed angles, and their moment arms."""

    qpos: np.ndarray  # [nk] addresses
    dofs: np.ndarray  # [nk]
    at: np.ndarray  # [nk] rad
    moment: np.ndarray  # [nu, nk] m, moment arms at these angles

    @property
    def muscles(self) -> np.ndarray:
        """Indices of the muscles that cross the joints."""
        return np.flatnonzero(np.abs(self.moment).max(axis=1) > 1e-9)


class Actuation:
    """The muscle controller of one model, for the MPC2 planner and for trained policies."""

    def __init__(self, law: MuscleLaw, model: mujoco.MjModel, layout: Layout, planned: Sequence[str]):
        joints = [model.joint(name) for name in planned]
        self.law = law
        self.muscles = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), muscle_params(model))
        self.qpos = np.array([j.qposadr[0] for j in joints])
        self.dofs = np.array([j.dofadr[0] for j in joints])
        self.lower, self.upper = (np.array([j.range[i] for j in joints], np.float32) for i in (0, 1))
        self._layout = layout

    def __call__(self, params: Any, target: Any, view: Step, sim_dt: float, ctrl_dt: float) -> jax.Array:
        """Return excitations [nu] in [0, 1] for `target`, as the law made it. `params`: data of the current posture.

        The excitation inverts one step of the activation dynamics. Lengths were measured one sim_dt ago and are
        extrapolated with their velocity. The first control of a plan extrapolates by plan_dt what the episode
        measured, so it differs from the one that is applied; correcting that did not improve the tracking of an arm
        and a leg.
        """
        p, velocity = self.muscles, self._layout.velocities(view.sensors)
        length = self._layout.lengths(view.sensors) + sim_dt * velocity
        pull = jnp.minimum(gain(p, length, velocity), -1.0)
        now = Muscles(length, velocity, bias(p, length), pull, view)
        activation = self.law.activation(self, params, target, now)
        return excitation_for(p, view.act[jnp.asarray(self._layout.activations)], activation, ctrl_dt)
