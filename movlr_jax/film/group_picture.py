"""A picture of the model with its muscles coloured by group."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping

import mujoco
import numpy as np
from PIL import Image

from movlr_jax.film.encoding import as_file
from movlr_jax.film.renderer import Canvas, place
from movlr_jax.film.views import Views
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import Camera

GROUPS = "groups.png"  # in a run directory
SIZE = (420, 560)  # px, of one view
_GOLDEN = 0.618034  # step in hue between consecutive groups, so that their colours are easy to distinguish


def colour_of(group: int) -> tuple[float, float, float, float]:
    """Return the RGBA colour of a group."""
    return (*colorsys.hsv_to_rgb(group * _GOLDEN % 1.0, 0.75, (0.95, 0.65)[group % 2]), 1.0)


def picture(task: Task, groups: Mapping[str, int]) -> bytes:
    """Return a PNG of the task's model in a start state from the front, the side and the back.

    groups: muscle -> number of its group. Raises UserError if rendering is not possible here.
    """
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    with Canvas(task.model, SIZE, views=3, samples=4) as canvas:
        model, data = canvas.model, mujoco.MjData(canvas.model)
        for name, group in groups.items():
            actuator = model.actuator(name)
            if actuator.trntype[0] == mujoco.mjtTrn.mjTRN_TENDON:
                model.tendon_rgba[actuator.trnid[0]] = colour_of(group)
        place(model, data, qpos)
        bodies, front = data.xpos[1:], task.view.cameras[0].azimuth
        x, y, z = ((bodies.min(axis=0) + bodies.max(axis=0)) / 2).tolist()
        distance = 1.5 * float(np.ptp(bodies, axis=0).max()) + 0.3  # all bodies fill the view
        cameras = [Camera((x, y, z), distance, front + turn, elevation=-5.0) for turn in (30.0, -60.0, -150.0)]
        return as_file(Image.fromarray(canvas.draw(data, Views(model, cameras).at(data))), "PNG")
