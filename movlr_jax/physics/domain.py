"""Domain randomisation: parameters that a policy should not depend on differ between rows, without recompilation.

Each of the N rows of a candidate has its own friction, servo gains, joint friction and command latency; row n of
every candidate has the same values. The ranges are those of MotionVL. Its pushes are part of the task, see
`tasks.robot.humanoid`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models.actuators import servos


@dataclass(frozen=True)
class Ranges:
    """Bounds (low, high) of uniform distributions."""

    friction: tuple[float, float] = (0.2, 1.3)  # sliding friction of every contact
    gains: tuple[float, float] = (0.8, 1.2)  # relative to the model, for stiffness and for damping of servos
    joint_friction: tuple[float, float] = (0.1, 3.0)  # N m, dry friction of every actuated joint
    latency_s: tuple[float, float] = (0.002, 0.02)  # of a command: 1 to 10 steps of 2 ms


@dataclass(frozen=True)
class Domain:
    """Parameters of N worlds."""

    friction: np.ndarray  # [N]
    stiffness: np.ndarray  # [N] relative to the model
    damping: np.ndarray  # [N] relative to the model
    joint_friction: np.ndarray  # [N] N m
    latency_s: np.ndarray  # [N]


def draw(ranges: Ranges, n: int, seed: int) -> Domain:
    """Draw N worlds from `ranges`; the same seed gives the same worlds. Raises UserError."""
    rng = np.random.default_rng(seed)
    for name, (low, high) in vars(ranges).items():
        if not 0 <= low <= high:
            raise UserError(
                f"the range of {name} of a randomised domain is {low:g} to {high:g}, expected 0 <= low <= high"
            )
    return Domain(
        friction=rng.uniform(*ranges.friction, n),
        stiffness=rng.uniform(*ranges.gains, n),
        damping=rng.uniform(*ranges.gains, n),
        joint_friction=rng.uniform(*ranges.joint_friction, n),
        latency_s=rng.uniform(*ranges.latency_s, n),
    )


def fields(model: mujoco.MjModel, domain: Domain) -> dict[str, np.ndarray]:
    """Return a dict: field of a model -> its values in each world [N, ...]; other fields keep the model's values."""
    n, servo = len(domain.friction), servos(model)
    friction = np.repeat(model.geom_friction[None], n, axis=0)
    friction[:, :, 0] = domain.friction[:, None]
    gain, bias = (np.repeat(x[None], n, axis=0) for x in (model.actuator_gainprm, model.actuator_biasprm))
    gain[:, servo, 0] *= domain.stiffness[:, None]
    bias[:, servo, :2] *= domain.stiffness[:, None, None]
    bias[:, servo, 2] *= domain.damping[:, None]
    loss = np.repeat(model.dof_frictionloss[None], n, axis=0)
    on_joint = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT
    loss[:, model.jnt_dofadr[model.actuator_trnid[on_joint, 0]]] = domain.joint_friction[:, None]
    pairs = np.repeat(model.pair_friction[None], n, axis=0)
    pairs[:, :, :2] = domain.friction[:, None, None]
    return {
        "geom_friction": friction,
        **({"pair_friction": pairs} if model.npair else {}),
        "actuator_gainprm": gain,
        "actuator_biasprm": bias,
        "dof_frictionloss": loss,
    }


def variants(model: mujoco.MjModel, domain: Domain) -> list[mujoco.MjModel]:
    """Return the N models for C MuJoCo."""
    values, models = fields(model, domain), []
    for i in range(len(domain.friction)):
        world = copy.copy(model)
        for name, value in values.items():
            getattr(world, name)[:] = value[i]
        models.append(world)
    return models


def late_steps(domain: Domain, sim_dt: float, substeps: int) -> np.ndarray:
    """Return for each world [N] how many simulation steps of a control step still use the previous command."""
    return np.clip(np.round(domain.latency_s / sim_dt).astype(int), 0, substeps)
