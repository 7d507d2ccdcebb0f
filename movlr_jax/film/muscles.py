"""Colours of muscles: by activation, from blue-grey at rest to red; weakened ones yellow; or by group."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Mapping

import mujoco
import numpy as np
from PIL import Image

from movlr_jax.film.encoding import as_file
from movlr_jax.film.renderer import Canvas, place
from movlr_jax.film.views import Views
from movlr_jax.tasks.base import Camera, Task

REST, ACTIVE = np.array([0.42, 0.53, 0.72, 1.0]), np.array([0.92, 0.04, 0.04, 1.0])  # rgba
WEAKENED = np.array([1.0, 0.82, 0.0, 1.0])  # rgba of a muscle that the task weakens, at any activation
GROUPS = "groups.png"  # the picture of the groups, in a run directory
_SIZE = (420, 560)  # px, of one of its views
_GOLDEN = 0.618034  # step in hue between consecutive groups, so that their colours are easy to distinguish
_WIDER = 1.5  # of a weakened muscle


def muscle_tendons(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the actuators [n] that are muscles along a tendon, and their tendons [n]."""
    along = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON) & (model.actuator_actadr >= 0)
    found = np.flatnonzero(along)
    return found, model.actuator_trnid[found, 0]


def scale(activation: np.ndarray) -> np.ndarray:
    """Return the colours [..., 4] of activations [...] from 0 to 1."""
    amount = np.clip(activation, 0.0, 1.0)[..., None]
    return (1 - amount) * REST + amount * ACTIVE


class MuscleColours:
    """Colours the muscles of `model`, which belongs to a renderer. `thin` is their smallest radius, m."""

    def __init__(self, model: mujoco.MjModel, weakened: Iterable[str] = (), thin: float = 0.0) -> None:
        muscles, tendons = muscle_tendons(model)
        names = {model.actuator(name).id for name in weakened}
        is_weak = np.array([muscle in names for muscle in muscles], bool)
        self._model, self._tendons = model, tendons[~is_weak]
        self._activation = model.actuator_actadr[muscles[~is_weak]]
        model.tendon_width[tendons] = np.maximum(model.tendon_width[tendons], thin)
        model.tendon_rgba[tendons[is_weak]] = WEAKENED
        model.tendon_width[tendons[is_weak]] *= _WIDER

    def show(self, act: np.ndarray) -> None:
        """Colour the muscles by their activations `act` [na]."""
        self._model.tendon_rgba[self._tendons] = scale(act[self._activation])


def group_picture(task: Task, groups: Mapping[str, int]) -> bytes:
    """Return a PNG of the task's model in a start state from the front, the side and the back.

    groups: muscle -> number of its group. Raises UserError if rendering is not possible here.
    """
    qpos = task.start(np.random.default_rng(0), 1)[0][0]
    with Canvas(task.model, _SIZE, views=3, samples=4) as canvas:
        model, data = canvas.model, mujoco.MjData(canvas.model)
        for name, group in groups.items():
            actuator = model.actuator(name)
            if actuator.trntype[0] == mujoco.mjtTrn.mjTRN_TENDON:
                colour = colorsys.hsv_to_rgb(group * _GOLDEN % 1.0, 0.75, (0.95, 0.65)[group % 2])
                model.tendon_rgba[actuator.trnid[0]] = (*colour, 1.0)
        place(model, data, qpos)
        bodies, front = data.xpos[1:], task.view.cameras[0].azimuth
        x, y, z = ((bodies.min(axis=0) + bodies.max(axis=0)) / 2).tolist()
        distance = 1.5 * float(np.ptp(bodies, axis=0).max()) + 0.3  # all bodies fill the view
        cameras = [Camera((x, y, z), distance, front + turn, elevation=-5.0) for turn in (30.0, -60.0, -150.0)]
        return as_file(Image.fromarray(canvas.draw(data, Views(model, cameras).at(data))), "PNG")
