"""What a task needs to know of a model: where it comes from and what its names mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.types import Array


@dataclass(frozen=True)
class ModelAdapter:
    """A musculoskeletal or robot model and the names in it that matter.

    `load` gives an editable spec without floor, room, lights, cameras or keyframes, z up: what a body stands on
    and how it is lit is the task's. `load` raises UserError when the model cannot be had here.

    Conventions that tasks rely on: walkers have touch parts left_foot and right_foot; every other touch part of
    a walker must never touch the ground; roles pelvis, trunk, head, left_foot, right_foot (heels), left_toes,
    right_toes name bodies, roles that end in _site name sites.
    """

    name: str
    load: Callable[[], mujoco.MjSpec]
    root: str  # body whose subtree has the centre of mass
    # what MPC2 plans target postures over; joints that equalities drive follow and are never listed
    planned_joints: Sequence[str]
    roles: Mapping[str, str]  # what tasks speak of (pelvis, hand, palm_site ...) -> its name here
    touch: Mapping[str, Sequence[str]]  # part -> bodies whose contacts count
    sites: Sequence[str] = ()  # whose positions a reward may read
    kept_joints: Sequence[str] = ()  # muscles hold them where the posture has them; no plan moves them
    synergies: Sequence[Sequence[str]] = ()  # planned joints that natural motion moves together
    muscle_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name -> actuators
    posture: Mapping[str, float] = field(default_factory=dict)  # joint -> rad or m, a natural start
    forward: tuple[float, float, float] = (1.0, 0.0, 0.0)  # where it faces in that posture, world frame
    grasp_offset: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m, palm_site to what the posture grasps
    source: str = ""
    licence: str = ""
    # where its files are here, None when loading it would download them; raises UserError as `load` does
    files: Callable[[], Path | None] | None = None

    def role(self, name: str) -> str:
        """The name in this model of what a task calls `name`. Raises UserError when it has none."""
        if name not in self.roles:
            raise UserError(
                f"model {self.name!r} has no part for the role {name!r}, which this task needs; "
                f"it has: {', '.join(self.roles) or 'none'}. Choose another model=..."
            )
        return self.roles[name]


def follow_couplings(model: mujoco.MjModel, qpos: Array) -> Any:
    """`qpos` [..., nq] with every joint that a joint equality drives set to what the equality asks.

    q1 = q1_0 + poly(q2 - q2_0), as MuJoCo defines mjEQ_JOINT. NumPy in, NumPy out; JAX in, JAX out.
    """
    qpos = qpos if isinstance(qpos, jax.Array) else np.array(qpos)
    for e in np.flatnonzero((model.eq_type == mujoco.mjtEq.mjEQ_JOINT) & (model.eq_active0 != 0)):
        driven = model.jnt_qposadr[model.eq_obj1id[e]]
        coefficients = model.eq_data[e, :5]
        x = 0.0
        if model.eq_obj2id[e] >= 0:
            driver = model.jnt_qposadr[model.eq_obj2id[e]]
            x = qpos[..., driver] - model.qpos0[driver]
        value = coefficients[4] + 0.0 * x
        for c in coefficients[3::-1]:
            value = c + value * x
        qpos = with_columns(qpos, driven, model.qpos0[driven] + value)
    return qpos


def with_columns(x: Any, columns: Any, values: Any) -> Any:
    """`x` [..., n] with `values` in `columns`; NumPy arrays are written in place."""
    if isinstance(x, jax.Array):
        return x.at[..., columns].set(values)
    x[..., columns] = values
    return x


def nominal_qpos(model: mujoco.MjModel, adapter: ModelAdapter) -> np.ndarray:
    """[nq] the adapter's posture on top of qpos0, couplings followed. Raises UserError for unknown joints."""
    qpos = model.qpos0.copy()
    for joint, value in adapter.posture.items():
        if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, joint) < 0:
            raise UserError(f"the posture of model {adapter.name!r} names a joint that it lacks: {joint!r}")
        qpos[model.joint(joint).qposadr[0]] = value
    return follow_couplings(model, qpos)
