"""A planar leg with seven muscles, for tests and tutorials."""

from __future__ import annotations

import mujoco

from movlr_jax._util.resources import resource_dir
from movlr_jax.models.adapter import ModelAdapter, ModelInfo

FILE = resource_dir("assets") / "models" / "tiny_muscle.xml"

ADAPTERS = (
    ModelAdapter(
        name="tiny_muscle",
        load=lambda: mujoco.MjSpec.from_file(str(FILE)),
        root="pelvis",
        planned_joints=("hip", "knee"),
        roles={"trunk": "pelvis", "thigh": "thigh", "shank": "shank", "foot": "foot"},
        touch={"foot": ("foot",)},
        sites=("pelvis", "sole"),
        posture={"height": -0.038, "hip": 0.3, "knee": 0.6},
        info=ModelInfo(
            body="one leg",
            source="assets/models/tiny_muscle.xml, made for tests and tutorials",
            licence="Apache-2.0",
            files=lambda: FILE,
        ),
    ),
)
