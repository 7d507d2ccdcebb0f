"""What the physics of every backend shares."""

from __future__ import annotations

import copy
from typing import Protocol

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.rewards.state import Layout


class Scene(Protocol):
    """What physics needs to know of a task."""

    @property
    def model(self) -> mujoco.MjModel: ...

    @property
    def layout(self) -> Layout: ...

    def start(self, rng: np.random.Generator, n: int, /) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """qpos [n, nq], qvel [n, nv], act [n, na] of n episodes."""
        ...


def whole_substeps(sim_dt: float, ctrl_dt: float) -> int:
    """Simulation steps in a control step. Raises UserError where that is no whole number."""
    substeps = round(ctrl_dt / sim_dt)
    if substeps < 1 or abs(substeps * sim_dt - ctrl_dt) > 1e-9:
        raise UserError(
            f"ctrl_dt is {ctrl_dt:g} s, which is no whole multiple of the simulation step {sim_dt:g} s; "
            "set one so that it divides the other"
        )
    return substeps


def planning_model(model: mujoco.MjModel, sim_dt: float, coarse: bool) -> mujoco.MjModel:
    """A copy of `model` stepped every `sim_dt`; with implicitfast, stable at coarser steps, where `coarse` is set."""
    model = copy.copy(model)
    model.opt.timestep = sim_dt
    if coarse:
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    return model
