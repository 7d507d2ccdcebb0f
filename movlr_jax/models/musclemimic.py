"""Models of the `musclemimic-models` package: the whole body with 416 muscles, both arms with 126.

The MuscleMimic team derived them from MyoSuite's models. Nothing is downloaded.
"""

from __future__ import annotations

from pathlib import Path

import mujoco

from movlr_jax.models import human
from movlr_jax.models.adapter import ModelAdapter, ModelInfo
from movlr_jax.models.spec import bare_bones, face_forward, package_folder, read_spec, strip

_ENTRIES = {"fullbody": "body/myofullbody.xml", "bimanual": "arm/myoarm_bimanual.xml"}

FINGER_FLEXION = tuple(f"{joint}{i}_flexion" for i in range(2, 6) for joint in ("mcp", "pm", "md"))
FINGER_SPREAD = tuple(f"mcp{i}_abduction" for i in range(2, 6))
HAND_JOINTS = tuple(
    joint
    for side in "rl"
    for joint in (
        *human.wrist_joints(side),
        *(f"{joint}_{side}" for joint in (*human.THUMB_JOINTS, *FINGER_FLEXION, *FINGER_SPREAD)),
    )
)
ARM_JOINTS = human.arm_joints("elbow_flex")
ARM_MUSCLES = human.arm_muscles({"r": "", "l": "_left"})

HAND_PARTS = {
    f"{word}_{part}": tuple(f"{body}_{side}" for body in bodies)
    for word, side in human.SIDES.items()
    for part, bodies in human.HAND_BODIES.items()
}
HANDS = {
    f"{word}_hand": tuple(f"{body}_{side}" for bodies in human.HAND_BODIES.values() for body in bodies)
    for word, side in human.SIDES.items()
}
HAND_SITES = tuple(site + end for end in ("", "_left") for site in human.HAND_SITES.values())

ARM_ROLES = human.on_both_sides({"upper_arm": "humerus", "forearm": "radius", "hand": "thirdmc"})
# Tasks for one hand use the right hand.
RIGHT_ROLES = {part: ARM_ROLES[f"right_{part}"] for part in ("upper_arm", "forearm", "hand")} | {
    f"{part}_site": site for part, site in human.HAND_SITES.items()
}

# In the keyframe every joint is zero: the upper arms are 2 cm inside the chest, elbows and fingers at the end of
# their ranges. In this posture the arms hang close to the body, elbows and fingers slightly bent as at rest.
ARM_POSTURE = {
    f"{joint}_{side}": angle
    for side in "rl"
    for joint, angle in (("shoulder_elv", 0.15), ("elbow_flex", 0.25), *((joint, 0.3) for joint in FINGER_FLEXION))
}


def files() -> Path:
    """Return the folder of the models. Raises UserError if the package is not installed."""
    return package_folder("musclemimic_models", "musclemimic-models") / "model"


def load(entry: str) -> mujoco.MjSpec:
    """Return the editable spec of an entry without floor, lights and keyframe. Raises UserError."""
    spec = read_spec(files() / _ENTRIES[entry])
    strip(spec, spec.worldbody.geoms)
    bare_bones(spec)
    return spec


def load_fullbody() -> mujoco.MjSpec:
    """Return the spec of the whole body, rotated to face +x."""
    spec = load("fullbody")
    face_forward(spec.body("Full Body"))
    return spec


_SOURCE = "musclemimic-models (PyPI), entry "
_LICENCE = "Apache-2.0 with NOTICE; the arms derive from MoBL-ARMS, whose authors ask for non-commercial use"

ADAPTERS = (
    ModelAdapter(
        name="musclemimic_fullbody",
        load=load_fullbody,
        root="Full Body",
        planned_joints=(*human.LEG_JOINTS, *human.LUMBAR_JOINTS, *ARM_JOINTS),
        kept_joints=HAND_JOINTS,
        synergies=human.LEG_PAIRS,
        roles={"pelvis": "pelvis", "trunk": "torso", "head": "head", **human.LEG_ROLES, **ARM_ROLES},
        touch={
            **human.FEET,
            **human.LEGS,
            **HANDS,
            "pelvis": ("pelvis",),
            "trunk": ("torso", "thorax"),
            "head": ("neck", "head"),
        },
        sites=HAND_SITES,
        muscle_groups={
            **human.LEG_MUSCLES,
            **human.TRUNK_MUSCLES,
            **human.muscle_groups(human.DOTTED_BACK_GROUPS, human.BOTH),
            **ARM_MUSCLES,
        },
        posture={**ARM_POSTURE, "flex_extension": 0.12},  # with an upright trunk the back muscles saturate
        info=ModelInfo(body="whole body", source=_SOURCE + "myofullbody", licence=_LICENCE, files=files),
    ),
    ModelAdapter(
        name="musclemimic_bimanual",
        load=lambda: load("bimanual"),
        root="Bimanual",
        planned_joints=(*ARM_JOINTS, *HAND_JOINTS),
        synergies=tuple(tuple(f"{joint}_{side}" for joint in FINGER_FLEXION) for side in "rl"),
        roles={"trunk": "thorax", **ARM_ROLES, **RIGHT_ROLES},
        touch=HAND_PARTS,
        sites=HAND_SITES,
        muscle_groups=ARM_MUSCLES,
        posture=ARM_POSTURE,
        forward=(0.0, -1.0, 0.0),
        info=ModelInfo(body="both arms with hands", source=_SOURCE + "bimanual", licence=_LICENCE, files=files),
    ),
)
