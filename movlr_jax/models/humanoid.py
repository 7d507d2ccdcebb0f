"""A humanoid robot of this package: 12 leg joints with PD servos, force sensors in the feet, an IMU; no muscles."""

from __future__ import annotations

import mujoco

from movlr_jax._util.resources import resource_dir
from movlr_jax.biomech.opensim import Coordinate
from movlr_jax.models.adapter import ModelAdapter, ModelInfo
from movlr_jax.models.spec import read_spec, strip

FILE = resource_dir("assets") / "models" / "humanoid.xml"
_LEG = ("hip_yaw", "hip_roll", "hip_pitch", "knee", "ankle_pitch", "ankle_roll")
_STAND = {"hip_pitch": 0.23, "knee": 0.5, "ankle_pitch": 0.27}  # rad, targets of the servos at rest
_SIDES = ("left", "right")
# The hips turn in the order rotation, adduction, flexion; in OpenSim the order is flexion, adduction, rotation. So
# these angles are OpenSim's while two of the three are small.
_OPENSIM = tuple(
    Coordinate(f"{coordinate}_{side[0]}", f"{side}_{joint}", sign=sign if side == "left" else 1.0)
    for side in _SIDES
    for joint, coordinate, sign in (
        ("hip_pitch", "hip_flexion", 1.0),
        ("hip_roll", "hip_adduction", -1.0),
        ("hip_yaw", "hip_rotation", -1.0),
        ("knee", "knee_angle", 1.0),
        ("ankle_pitch", "ankle_angle", 1.0),
        ("ankle_roll", "subtalar_angle", -1.0),
    )
)


def _load() -> mujoco.MjSpec:
    spec = read_spec(FILE)
    strip(spec, ())
    return spec


ADAPTERS = (
    ModelAdapter(
        name="humanoid",
        load=_load,
        root="pelvis",
        planned_joints=tuple(f"{side}_{joint}" for side in _SIDES for joint in _LEG),
        roles={
            "pelvis": "pelvis",
            "trunk": "torso",
            "head": "head",
            **{f"{s}_{part}": f"{s}_{part}" for s in _SIDES for part in ("thigh", "shank", "foot", "toes")},
        },
        touch={
            **{f"{s}_foot": (f"{s}_foot",) for s in _SIDES},
            **{f"{s}_leg": (f"{s}_thigh", f"{s}_shank") for s in _SIDES},
            **{body: (body,) for body in ("pelvis", "torso", "head")},
        },
        sites=("imu", "head", *(f"{s}_{end}" for s in _SIDES for end in ("heel", "toe"))),
        posture={f"{s}_{joint}": angle for s in _SIDES for joint, angle in _STAND.items()},
        opensim=_OPENSIM,
        info=ModelInfo(
            body="humanoid robot",
            source="assets/models/humanoid.xml, a robot of 1.6 m and 55 kg made for this package",
            licence="Apache-2.0",
            files=lambda: FILE,
        ),
    ),
)
