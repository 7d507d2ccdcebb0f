"""Where a camera sees points, worked out without a renderer."""

from __future__ import annotations

import numpy as np

from movlr_jax.tasks.base import Camera


def seen(camera: Camera, points: np.ndarray, *, fovy: float = 45.0) -> np.ndarray:
    """Positions [n, 2] (right, up) of `points` [n, 3] m in a square view whose edges are at -1 and 1."""
    azimuth, elevation = np.deg2rad([camera.azimuth, camera.elevation])
    ahead = np.array([*(np.cos(elevation) * np.array([np.cos(azimuth), np.sin(azimuth)])), np.sin(elevation)])
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
    offset = np.asarray(points) - (np.array(camera.lookat) - camera.distance * ahead)
    across = np.stack([offset @ right, offset @ np.cross(right, ahead)], axis=-1)
    return across / (offset @ ahead)[:, None] / np.tan(np.deg2rad(fovy) / 2)
