"""Functions and protocols shared by all physics backends."""

from __future__ import annotations

import copy
from typing import Protocol

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.rewards.state import Layout

_IMPRATIO = 3.0  # ratio of the stiffnesses of friction and normal force in the rollouts of plans, at most


class Scene(Protocol):
    """The part of a task that physics uses."""

    @property
    def model(self) -> mujoco.MjModel: ...

    @property
    def layout(self) -> Layout: ...

    def start(self, rng: np.random.Generator, n: int, /) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return start states of n episodes: qpos [n, nq], qvel [n, nv], act [n, na]."""
        ...


def whole_substeps(sim_dt: float, ctrl_dt: float) -> int:
    """Return the number of simulation steps in a control step. Raises UserError if it is not an integer."""
    substeps = round(ctrl_dt / sim_dt)
    if substeps < 1 or abs(substeps * sim_dt - ctrl_dt) > 1e-9:
        raise UserError(
            f"ctrl_dt is {ctrl_dt:g} s, which is not an integer multiple of the simulation step {sim_dt:g} s; "
            "change one of them"
        )
    return substeps


def clock_sensors(model: mujoco.MjModel) -> np.ndarray:
    """Return the places of sensors in `sensordata` that measure the time."""
    return model.sensor_adr[model.sensor_type == mujoco.mjtSensor.mjSENS_CLOCK]


def model_bytes(model: mujoco.MjModel) -> bytes:
    """Return `model` as the bytes of a file, to compare models."""
    data = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, data)
    return data.tobytes()


def planning_model(model: mujoco.MjModel, sim_dt: float, coarse: bool) -> mujoco.MjModel:
    """Return a copy of `model` with time step `sim_dt`; if `coarse`, with cheaper settings for large steps.

    These are the integrator implicitfast, which is stable at larger time steps, and a friction that is at most
    `_IMPRATIO` times as stiff as the normal force: stiffer friction takes the solver more iterations, and at a large
    step brings plans no closer to the simulation (docs/control.md has figures).
    """
    model = copy.copy(model)
    model.opt.timestep = sim_dt
    if coarse:
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        model.opt.impratio = min(model.opt.impratio, _IMPRATIO)
    return model
