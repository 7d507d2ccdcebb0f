"""Colours of muscles: from blue-grey at rest to red at full activation; weakened muscles are yellow."""

from __future__ import annotations

from collections.abc import Iterable

import mujoco
import numpy as np

REST, ACTIVE = np.array([0.42, 0.53, 0.72, 1.0]), np.array([0.92, 0.04, 0.04, 1.0])  # rgba
WEAKENED = np.array([1.0, 0.82, 0.0, 1.0])  # rgba of a muscle that the task weakens, at any activation
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
