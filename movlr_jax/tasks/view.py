"""Default cameras for models, from their size and plane of motion."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from movlr_jax.biomech.world import World, show_upright, up_of
from movlr_jax.models.derived import base_joints, travels
from movlr_jax.tasks.base import Camera

_ROOM = 0.95  # share of the distance at which the diagonal of the scene fits into the view
_BESIDE = 1.15  # share of the way to a place that is shown, so that it is not at the edge
_FARTHEST = 8.0  # times the size of the moving parts, to which a place to go to is shown from the start


def camera_for(
    model: mujoco.MjModel,
    qpos: np.ndarray,
    root: str,
    points: Sequence[np.ndarray] = (),
    *,
    places: Sequence[np.ndarray] = (),
    rise: float = 0.0,
    flies: bool = False,
) -> Camera:
    """Return a camera that shows all moving parts and `points` [3] m, perpendicular to the plane of motion.

    The camera is in the frame in which z is up. It follows `root` if it can travel, also up and down if it flies or
    rises by more than its height; for a chain with a fixed base, the view covers its reach.

    Args:
        model: The model.
        qpos: [nq] Posture used to measure the size.
        root: The body that is followed.
        points: [3] m, what is in the picture.
        places: [3] m, where the body should go; one that is far away comes into the picture on the way.
        rise: How far the body should rise, m.
        flies: Whether its motors carry it through the air.
    """
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    frame = World(up_of(model, data)).frame
    show_upright(model, data)
    moving = (model.body_treeid[model.geom_bodyid] >= 0) & (model.geom_rbound > 0)
    centres, radii = data.geom_xpos[moving], model.geom_rbound[moving, None]
    body = np.concatenate([centres - radii, centres + radii])
    corners = np.concatenate([body, *[np.atleast_2d(frame @ p) for p in points]])
    if not len(corners):
        return Camera((0.0, 0.0, 0.0), 2.0, 120.0, -15.0)
    size = np.ptp(body, axis=0) if len(body) else np.zeros(3)
    moves = any(travels(model, root, axis.tolist()) for axis in frame[:2])
    vertical = moves and bool(flies or rise > size[2])
    begin, most = data.xpos[model.body(root).id], _FARTHEST * float(np.linalg.norm(size))
    ways = [frame @ place - begin for place in places] + [np.array([0.0, 0.0, rise])] * vertical
    near = [_BESIDE * way * min(1.0, most / max(float(np.linalg.norm(way)), 1e-9)) for way in ways]
    corners = np.concatenate([corners, *[np.atleast_2d(begin + way) for way in near]])
    slides = all(model.jnt_type[j] == mujoco.mjtJoint.mjJNT_SLIDE for j in base_joints(model, model.body(root).id))
    low, high = _box(corners, begin, moves, slides)
    high[2] += 0.0 if vertical else rise
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
        vertical=vertical,
    )


def _box(corners: np.ndarray, begin: np.ndarray, moves: bool, slides: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest corner [3] m of what should be in the picture of a body that is at `begin`."""
    low, high, reach = corners.min(axis=0), corners.max(axis=0), np.abs(corners - begin).max()
    if not moves:  # cover all directions in which it may swing
        return np.minimum(low, begin - 0.6 * reach), np.maximum(high, begin + 0.6 * reach)
    if slides:  # what hangs on a body on rails may swing up
        low[2], high[2] = min(low[2], begin[2] - reach), max(high[2], begin[2] + reach)
    return low, high


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
