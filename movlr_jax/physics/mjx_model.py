"""What MJX needs from a model: each change in a copy of it is told.

The planner's copy alone is changed: an episode runs in C MuJoCo, on the model as it is.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.mjx._src import collision_driver

_GEOM = mujoco.mjtGeom
_ROUND = {_GEOM.mjGEOM_ELLIPSOID: "an ellipsoid", _GEOM.mjGEOM_CYLINDER: "a cylinder"}


@dataclass(frozen=True)
class Probe:
    """Contacts and constraint rows that one simulation was seen to have at most."""

    contacts: int = 0
    rows: int = 0


def fit_for_jax(model: mujoco.MjModel) -> tuple[mujoco.MjModel, tuple[str, ...]]:
    """A copy of `model` that MJX's JAX implementation runs, and one sentence per change."""
    model = copy.copy(model)
    changes = [
        *_capsules(model),
        *_margins(model),
    ]
    return model, tuple(changes)


def _capsules(model: mujoco.MjModel) -> list[str]:
    """Round shapes that MJX cannot collide with what they meet become capsules of the same length."""
    wrong = {
        int(g)
        for a, b, _ in collision_driver.geom_pairs(model)
        if not collision_driver.has_collision_fn(*sorted((model.geom_type[a], model.geom_type[b])))
        for g in (a, b)
        if model.geom_type[g] in _ROUND
    }
    for g in wrong:
        size = model.geom_size[g].copy()
        if model.geom_type[g] == _GEOM.mjGEOM_ELLIPSOID:
            axis = int(np.argmax(size))
            radius = float(np.mean(np.delete(size, axis)))
            turn = {0: [0.0, 1.0, 0.0], 1: [-1.0, 0.0, 0.0], 2: [0.0, 0.0, 0.0]}[axis]
            spin, quat = np.zeros(4), np.zeros(4)
            mujoco.mju_axisAngle2Quat(spin, np.array(turn), np.pi / 2 if axis < 2 else 0.0)
            mujoco.mju_mulQuat(quat, model.geom_quat[g], spin)
            model.geom_quat[g] = quat
            half = float(size[axis])
        else:
            radius, half = float(size[0]), float(size[1])
        model.geom_type[g] = _GEOM.mjGEOM_CAPSULE
        model.geom_size[g] = [radius, max(half - radius, 1e-4), 0.0]
        model.geom_rbound[g] = max(half, radius)
    if not wrong:
        return []
    names = ", ".join(model.geom(g).name or f"#{g}" for g in sorted(wrong)[:4])
    more = ", ..." if len(wrong) > 4 else ""
    return [
        f"{len(wrong)} round shapes that MJX cannot collide with what they meet are capsules: {names}{more}"
    ]


def _margins(model: mujoco.MjModel) -> list[str]:
    """Meshes and height fields, and what meets them, collide without margin."""
    solid = (int(_GEOM.mjGEOM_MESH), int(_GEOM.mjGEOM_HFIELD))
    changed = set()
    for a, b, pair in collision_driver.geom_pairs(model):
        if not {int(model.geom_type[a]), int(model.geom_type[b])} & set(solid):
            continue
        if pair != -1 and model.pair_margin[pair]:
            model.pair_margin[pair] = model.pair_gap[pair] = 0.0
            changed |= {a, b}
        for g in (a, b):
            if model.geom_margin[g] or model.geom_gap[g]:
                model.geom_margin[g] = model.geom_gap[g] = 0.0
                changed.add(g)
    return [f"{len(changed)} shapes that meet meshes or height fields have no margin"] if changed else []


def probe_contacts(model: mujoco.MjModel, start: object) -> Probe:
    """The most contacts and constraint rows that C MuJoCo sees while the body goes limp from its start."""
    data, most = mujoco.MjData(model), Probe()
    qpos = np.asarray(start[0]) if start is not None else model.qpos0[None]
    for q in qpos[:4]:
        mujoco.mj_resetData(model, data)
        data.qpos[:] = q
        for _ in range(round(1.0 / model.opt.timestep)):
            mujoco.mj_step(model, data)
            most = Probe(max(most.contacts, data.ncon), max(most.rows, data.nefc))
    return most


def warp_sizes(probe: Probe, rows: int) -> dict[str, int]:
    """Warp's limits for a batch of `rows`: twice what was seen, and some."""
    return {"naconmax": rows * (2 * probe.contacts + 8), "njmax": 2 * probe.rows + 32}
