"""Springs that hold a body upright, and carry it along, while it learns to walk."""

from __future__ import annotations

import copy
from typing import Any

import mujoco
import numpy as np

from movlr_jax.biomech.world import world_of
from movlr_jax.errors import UserError

_STILL = np.zeros(3)
_SAG, _STRAY = 0.03, 0.1  # m, up and down, and to the side
_DISTANT = 1e3  # m
_DAMPED = 0.2  # s, ratio of damping to stiffness of the springs


def assisted(
    model: mujoco.MjModel, qpos: np.ndarray, share: float, velocity: np.ndarray = _STILL, carry: float = 0.0
) -> mujoco.MjModel:
    """Return a copy of the model with springs that hold the floating base upright and in heading, as at `qpos` [nq].

    Assistance as in the curriculum of Yu et al. (2018). share: stiffness of each hinge in units of M g h, which
    balances gravity. carry: share of the weight that a spring carries at the height of the start; others keep the
    line and the `velocity` [3] m/s, in units of M g per _STRAY and 1 m/s. Raises UserError for a base without hinges.
    """
    model, data = copy.copy(model), mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    base, world = model.body_parentid[model.jnt_bodyid] == 0, world_of(model)
    hinges = np.flatnonzero(base & (model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE))
    if not len(hinges):
        raise UserError(
            f"optimizer.ppo.assist={share:g} needs a floating base with hinges, but this one has none; set it to 0"
        )

    def spring(j: Any, stiffness: float, damping: float, at: Any) -> None:
        model.jnt_stiffness[j] += stiffness
        model.dof_damping[model.jnt_dofadr[j]] += damping
        model.qpos_spring[model.jnt_qposadr[j]] = at

    for j in hinges:
        root = model.body_rootid[model.jnt_bodyid[j]]
        weight = model.body_subtreemass[root] * np.linalg.norm(model.opt.gravity)
        stiffness = share * weight * world.height(data.subtree_com[root])
        spring(j, stiffness, _DAMPED * stiffness, qpos[model.jnt_qposadr[j]])
    for j in np.flatnonzero(base & (model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE)) if carry else ():
        mass = model.body_subtreemass[model.body_rootid[model.jnt_bodyid[j]]]
        force, at = carry * mass * np.linalg.norm(model.opt.gravity), qpos[model.jnt_qposadr[j]]
        up, speed = abs(data.xaxis[j] @ world.up) > 0.5, float(data.xaxis[j] @ velocity)
        if speed:  # a spring to a distant place pulls with the same force everywhere
            spring(j, force * speed / _DISTANT, force, _DISTANT)
        else:
            stiffness = force / (_SAG if up else _STRAY)
            # at the height of the start, the spring carries this share of the weight
            spring(j, stiffness, float(np.sqrt(stiffness * mass)), at + up * np.sign(data.xaxis[j] @ world.up) * _SAG)
    return model
