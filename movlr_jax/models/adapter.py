"""The adapter of a model: how to load it, and what its names mean to tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

from movlr_jax.biomech.coordinates import Coordinates
from movlr_jax.biomech.opensim import Coordinate
from movlr_jax.biomech.static_optimisation import couplings
from movlr_jax.errors import UserError
from movlr_jax.types import Array

Posture = Mapping[str, float | tuple[float, ...]]  # joint -> rad or m, of a ball joint its quaternion


@dataclass(frozen=True)
class ModelInfo:
    """What a model is, and where it comes from."""

    body: str = ""  # what it is, in words for people and language models
    source: str = ""
    licence: str = ""
    # returns the location of the files, None if `load` would download them; raises UserError like `load`
    files: Callable[[], Path | None] | None = None


@dataclass(frozen=True)
class ModelAdapter:
    """A musculoskeletal or robot model and the names in it that tasks use.

    `load` returns an editable spec without floor, room, lights, cameras or keyframes, z up; tasks add the ground and
    the lights. `load` raises UserError if the model is not available.

    Conventions that tasks rely on: walkers have touch parts left_foot and right_foot; no other touch part of
    a walker may touch the ground; roles pelvis, trunk, head, left_foot, right_foot (heels), left_toes,
    right_toes name bodies, roles that end in _site name sites.
    """

    name: str
    load: Callable[[], mujoco.MjSpec]
    root: str  # body whose subtree defines the centre of mass
    # joints of MPC2's target postures; joints driven by equalities follow and are not listed
    planned_joints: Sequence[str]
    roles: Mapping[str, str]  # role in tasks (pelvis, hand, palm_site ...) -> name in the model
    touch: Mapping[str, Sequence[str]]  # part -> bodies whose contacts count
    sites: Sequence[str] = ()  # sites whose positions a reward may read
    kept_joints: Sequence[str] = ()  # joints that muscles hold at the start posture; plans do not move them
    synergies: Sequence[Sequence[str]] = ()  # groups of planned joints that move together in natural motion
    muscle_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name -> actuators
    posture: Posture = field(default_factory=dict)  # at the start
    forward: tuple[float, float, float] = (1.0, 0.0, 0.0)  # facing direction in that posture, world frame
    # m, from palm_site to the object that the posture grasps
    grasp_offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    # coordinates of OpenSim whose name, sign or zero differ from those of their joints
    opensim: Sequence[Coordinate] = ()
    info: ModelInfo = field(default_factory=ModelInfo)

    @property
    def here(self) -> bool:
        """Whether its files are on this machine."""
        try:
            return self.info.files is None or self.info.files() is not None
        except UserError:
            return False

    def role(self, name: str) -> str:
        """Return the name in this model for the role `name`. Raises UserError if it has none."""
        if name not in self.roles:
            raise UserError(
                f"model {self.name!r} has no part for the role {name!r}, which this task needs; "
                f"it has the roles: {', '.join(self.roles) or 'none'}. Choose another model=..."
            )
        return self.roles[name]


def coordinates_of(model: mujoco.MjModel, adapter: ModelAdapter | None) -> Coordinates:
    """Return the coordinates of OpenSim that the joints of `model` are. Without an adapter they keep their names."""
    if adapter is None:
        return Coordinates(model)
    free = [
        model.joint(j).name
        for j in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
        if model.body(model.jnt_bodyid[j]).name == adapter.root and "pelvis" in adapter.roles
    ]
    return Coordinates(model, adapter.opensim, pelvis=free[0] if free else None)


def follow_couplings(model: mujoco.MjModel, qpos: Array) -> Any:
    """Return `qpos` [..., nq] with every joint that a joint equality drives set to the value of the equality.

    q1 = q1_0 + poly(q2 - q2_0), as MuJoCo defines mjEQ_JOINT. Returns a NumPy or JAX array, like its input.
    """
    qpos = qpos if isinstance(qpos, jax.Array) else np.array(qpos)
    for e in couplings(model):
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
    """Return `x` [..., n] with `values` in `columns`; NumPy arrays are changed in place."""
    if isinstance(x, jax.Array):
        return x.at[..., columns].set(values)
    x[..., columns] = values
    return x


def nominal_qpos(model: mujoco.MjModel, adapter: ModelAdapter) -> np.ndarray:
    """Return qpos0 [nq] with the adapter's posture and its joint couplings. Raises UserError for unknown joints."""
    qpos = model.qpos0.copy()
    for joint, value in adapter.posture.items():
        if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, joint) < 0:
            raise UserError(f"the posture of model {adapter.name!r} names a joint that does not exist: {joint!r}")
        at = model.joint(joint).qposadr[0]
        qpos[at : at + np.size(value)] = value
    return follow_couplings(model, qpos)
