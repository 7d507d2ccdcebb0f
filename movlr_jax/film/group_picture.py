"""The model with its muscles in the colours of their groups."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Mapping

import mujoco
import numpy as np
from PIL import Image

from movlr_jax.film.renderer import Canvas, place
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import Camera

GROUPS = "groups.png"  # in a run directory
SIZE = (420, 560)  # px of a view
_GOLDEN = 0.618034  # of the circle of hues between one group and the next: neighbours never look alike


def colour_of(group: int) -> tuple[float, float, float, float]:
    """RGBA of a group."""
    return (*colorsys.hsv_to_rgb(group * _GOLDEN % 1.0, 0.75, (0.95, 0.65)[group % 2]), 1.0)


def picture(task: Task, groups: Mapping[str, int]) -> bytes:
    """PNG of the task's model at its start from the front, the side and the back; groups: muscle -> number.

    Raises UserError where nothing draws.
    """
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    with Canvas(task.model, SIZE, views=3, samples=4) as canvas:
        model, data = canvas.model, mujoco.MjData(canvas.model)
        for name, group in groups.items():
            actuator = model.actuator(name)
            if actuator.trntype[0] == mujoco.mjtTrn.mjTRN_TENDON:
                model.tendon_rgba[actuator.trnid[0]] = colour_of(group)
        place(model, data, qpos)
        return _png(
            canvas.draw(data, [_view(model, data, task.cameras[0], turn) for turn in (30.0, -60.0, -150.0)])
        )


def _view(model: mujoco.MjModel, data: mujoco.MjData, camera: Camera, turn: float) -> mujoco.MjvCamera:
    """Around what moves, near enough to fill a view."""
    ours = data.xpos[1:]
    middle, spread = (ours.min(axis=0) + ours.max(axis=0)) / 2, np.ptp(ours, axis=0).max()
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FREE.value
    view.lookat[:], view.distance = middle, 1.5 * spread + 0.3
    view.azimuth, view.elevation = camera.azimuth + turn, -5.0
    return view


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
