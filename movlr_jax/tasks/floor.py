"""A floor for a model that has none, as the MJCF file of a robot without its scene."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.models.spec import compile_spec
from movlr_jax.tasks.walking.terrain import add_plane

_NAME = "added/floor"
_FALL_S = 0.2  # s
_FREE = 0.9  # share of the way of a free fall from which on nothing holds a body
_FAR = 10.0  # m, largest distance that is measured
_PRESSED = 0.01  # m that the feet of a body may be below a floor on which it stands


def add_floor(spec: mujoco.MjSpec, at: mujoco.MjData, root: str) -> str:
    """Add a floor to a model without one, if the body `root` falls freely from the start `at`.

    The floor is at z = 0, or at the lowest point of the start if that is clearly lower. Returns a sentence about it,
    "" if the model needs none.
    """
    model = at.model
    moves = model.body_weldid[model.geom_bodyid] != 0
    collides = (model.geom_contype | model.geom_conaffinity) != 0
    collides[np.concatenate([model.pair_geom1, model.pair_geom2])] = True
    if (collides & ~moves).any() or not _falls(at, root):
        return ""
    types, affinities = model.geom_contype[moves], model.geom_conaffinity[moves]
    if not (types | affinities).any():
        return f"nothing is under {root}, which falls: the model has no floor, and no geom that collides with one"
    floor = add_plane(spec, _NAME)
    floor.contype, floor.conaffinity = np.bitwise_or.reduce(affinities), np.bitwise_or.reduce(types)
    lowest = _lowest(compile_spec(spec), at.qpos)
    height = lowest if lowest < -_PRESSED else 0.0
    floor.pos = [0.0, 0.0, height]
    return f"the model has no floor, so {root} would fall: a floor was added at z = {height:.3g} m"


def _falls(at: mujoco.MjData, root: str) -> bool:
    """Return whether nothing holds the body `root` with all that it carries, under the controls of the start."""
    model, data = at.model, mujoco.MjData(at.model)
    data.qpos[:], data.ctrl[:] = at.qpos, at.ctrl
    mujoco.mj_forward(model, data)
    body = model.body(root).id
    begin = data.subtree_com[body, 2]
    while data.time < _FALL_S:
        mujoco.mj_step(model, data)
    free = 0.5 * model.opt.gravity[2] * data.time**2
    return free < 0 and data.subtree_com[body, 2] - begin < _FREE * free


def _lowest(model: mujoco.MjModel, qpos: np.ndarray) -> float:
    """Return the height [m] of the lowest point at `qpos` [nq] that could collide with a floor at z = 0."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    floor = model.geom(_NAME).id
    others = [
        geom
        for geom in range(model.ngeom)
        if (model.geom_contype[geom] | model.geom_conaffinity[geom])
        and model.body_weldid[model.geom_bodyid[geom]]
    ]
    return min(mujoco.mj_geomDistance(model, data, floor, geom, _FAR, None) for geom in others)
