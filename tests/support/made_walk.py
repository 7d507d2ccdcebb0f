"""A walk made of numbers: joint angles that follow people's curves, and foot forces whose times are known."""

from __future__ import annotations

import numpy as np

from movlr_jax.biomech.gait.analysis import GaitRecording
from movlr_jax.biomech.gait.events import Foot
from movlr_jax.biomech.gait.reference import ANGLES, PERCENT, human_gait

WEIGHT = 700.0  # N
LEG_M = 0.9


def made_walk(
    *,
    speed_class: str = "free",
    speed: float = 1.2,
    stride_s: float = 1.1,
    seconds: float = 8.0,
    stance: float = 0.62,
) -> GaitRecording:
    """Return a walk at `speed` m/s whose angles are people's."""
    human, time = human_gait(speed_class), 0.01 * np.arange(round(100 * seconds))
    phases = np.stack([(time / stride_s + part) % 1.0 for part in (0.0, 0.5)])
    angles = {a: np.interp(100 * phases % 100, PERCENT, human.mean(a)) for a in ANGLES}
    force = WEIGHT * np.where(phases < stance, np.interp(100 * phases, PERCENT, np.maximum(human.force, 0.2)), 0.0)
    com = np.stack([speed * time, 0.0 * time, 0.9 + 0.0 * time], axis=-1)
    heels = []
    for side, phase in enumerate(phases):
        landed = speed * (time - stride_s * phase) + 0.2
        swing = np.clip((phase - stance) / (1 - stance), 0.0, 1.0)
        x = landed + swing * speed * stride_s
        y = np.full_like(x, 0.08 if side == 0 else -0.08)
        heels.append(np.stack([x, y, 0.1 * np.sin(np.pi * swing)], axis=-1))
    toes = [heel + np.array([0.18, 0.0, 0.0]) for heel in heels]
    left, right = (Foot.of(force[i], time, WEIGHT, heels[i], toes[i]) for i in (0, 1))
    return GaitRecording(
        time=time,
        com=com,
        feet=(left, right),
        force=force,
        weight=WEIGHT,
        leg_length=LEG_M,
        angles=angles,
        activity={
            m: np.stack([np.interp(100 * p, PERCENT, on.astype(float)) for p in phases])
            for m, on in human.active.items()
        },
        facing=np.tile([1.0, 0.0], (len(time), 1)),
    )
