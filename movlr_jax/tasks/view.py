"""Default cameras for models, from their size and plane of motion."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from movlr_jax.biomech.world import World, show_upright, up_of
from movlr_jax.models.derived import travels
from movlr_jax.tasks.base import Camera

_ROOM = 0.95  # share of the distance at which the diagonal of the scene fits into the view


def camera_for(model: mujoco.MjModel, qpos: np.ndarray, root: str, points: Sequence[np.ndarray] = ()) -> Camera:
    """Return a camera that shows all moving parts and `points` [3] m, perpendicular to the plane of motion.

    The camera is in the frame in which z is up.

    qpos [nq]: posture used to measure the size. The camera follows `root` if it can travel; for a chain with a fixed
    base, the view covers its reach.
    """
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    frame = World(up_of(model, data)).frame
    show_upright(model, data)
    moving = (model.body_treeid[model.geom_bodyid] >= 0) & (model.geom_rbound > 0)
    centres, radii = data.geom_xpos[moving], model.geom_rbound[moving, None]
    corners = np.concatenate([centres - radii, centres + radii, *[np.atleast_2d(frame @ p) for p in points]])
    if not len(corners):
        return Camera((0.0, 0.0, 0.0), 2.0, 120.0, -15.0)
    low, high = corners.min(axis=0), corners.max(axis=0)
    moves = any(travels(model, root, axis.tolist()) for axis in frame[:2])
    if not moves:  # cover all directions in which it may swing
        foot = data.xpos[model.body(root).id]
        reach = np.abs(corners - foot).max()
        low, high = np.minimum(low, foot - 0.6 * reach), np.maximum(high, foot + 0.6 * reach)
    half_view = np.deg2rad(model.vis.global_.fovy) / 2
    distance = float(_ROOM * 0.5 * np.linalg.norm(high - low) / np.sin(half_view))
    azimuth, elevation = _direction(model, data)
    middle = 0.5 * (low + high)
    return Camera(
        (float(middle[0]), float(middle[1]), float(middle[2])),
        distance,
        azimuth,
        elevation,
        track=root if moves else None,
    )


def _direction(model: mujoco.MjModel, data: mujoco.MjData) -> tuple[float, float]:
    """Return azimuth and elevation in degrees along the common axis of all hinges, or default ones."""
    hinges = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
    only_scalar = (hinges | (model.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE)).all()
    if hinges.any() and only_scalar:
        along = np.abs(data.xaxis[hinges]).min(axis=0)
        if along[1] > 0.95:
            return 90.0, -8.0
        if along[0] > 0.95:
            return 0.0, -8.0
        if along[2] > 0.95:
            return 90.0, -75.0
    return 120.0, -15.0
