"""Models of the `myo-sim` package: right arm and hand, legs, torso."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco

from movlr_jax.biomech.opensim import Coordinate
from movlr_jax.models import human
from movlr_jax.models.adapter import ModelAdapter, ModelInfo
from movlr_jax.models.spec import bare_bones, face_forward, missing_package, package_folder, quiet, strip

ARM_JOINTS = (
    human.arm_joints("elbow_flexion", "r")
    + human.wrist_joints("r")
    + ("cmc_flexion", "cmc_abduction", "mp_flexion_r", "ip_flexion_r")
    + ("mcp2_flexion_r", "mcp2_abduction_r", "pm2_flexion_r", "md2_flexion_r")
    + ("mcp3_flexion_r", "mcp3_abduction_r", "pm3_flexion_r", "md3_flexion")
    + ("mcp4_flexion_r", "mcp4_abduction_r", "pm4_flexion", "md4_flexion_r")
    + ("mcp5_flexion_r", "mcp5_abduction_r", "pm5_flexion_r", "md5_flexion_r")
)

FINGER_FLEXION = tuple(j for j in ARM_JOINTS if j.startswith(("mcp", "pm", "md")) and "flexion" in j)

ARM_ROLES = {
    "trunk": "torso",
    "head": "head",
    "upper_arm": "humerus_r",
    "forearm": "radius_r",
    "hand": "thirdmc_r",
    **{f"{part}_site": f"{site}_r" for part, site in human.HAND_SITES.items()},
}

HAND_PARTS = {
    "thumb": ("firstmc_r", "proximal_thumb_r", "distal_thumb_r"),
    "index": ("2proxph_r", "midph2_r", "distph2_r"),
    "middle": ("3proxph_r", "midph3_r", "distph3_r"),
    "ring": ("4proxph_r", "midph4_r", "distph4_r"),
    "little": ("5proxph_r", "midph5_r", "distph5_r"),
    "palm": ("secondmc_r", "thirdmc_r", "fourthmc_r", "fifthmc_r"),
}

HAND_SITES = tuple(f"{site}_r" for site in human.HAND_SITES.values())

# Elbow bent, forearm horizontal and pointing forward (-y), palm facing left (+x), thumb and fingers about 3 mm from
# an upright bottle of 3 cm radius; fitted by least squares on the distances of the hand's collision geoms.
ARM_POSTURE = dict(
    zip(
        ARM_JOINTS,
        (1.4, 0.5, 0.0, 1.2)  # shoulder and elbow
        + (0.41, 0.43, -0.37)  # wrist
        + (0.38, 0.21, -0.14, -0.30)  # thumb
        + (0.09, 0.18, 0.75, 0.75)
        + (0.33, 0.26, 0.81, 0.62)
        + (0.50, 0.26, 0.59, 0.51)
        + (0.37, 0.26, 0.75, 0.36),
        strict=True,
    )
)
GRASP_OFFSET = (0.002, 0.009, 0.0)  # m, from the palm site to the axis of that bottle, world frame


def load(entry: str) -> mujoco.MjSpec:
    """Return the editable spec of a MyoSim model without its room. Raises UserError if myo-sim is not installed."""
    try:
        with quiet():
            import myo_sim

            spec = myo_sim.load_spec(entry)
    except ImportError:
        raise missing_package("myo-sim") from None
    strip(spec, spec.worldbody.geoms)  # a room, a poster and a pedestal, which no task uses
    bare_bones(spec)
    return spec


def files() -> Path:
    """Return the package's folder without importing it. Raises UserError if it is not installed."""
    return package_folder("myo_sim", "myo-sim")


def load_legs(entry: str) -> mujoco.MjSpec:
    """Return the spec of the legs with a rigid trunk, rotated to face +x."""
    spec = load(entry)
    face_forward(spec.body("Full Body"))
    return spec


LEGS_ROLES = {"pelvis": "pelvis", "trunk": "torso", "head": "head", **human.LEG_ROLES}
LEGS_TOUCH = {**human.FEET, **human.LEGS, "pelvis": ("pelvis",), "trunk": ("torso",), "head": ("neck", "head")}
LEGS26_JOINTS = tuple(j for j in human.LEG_JOINTS if not j.startswith("subtalar"))  # it has no subtalar joints
# Knees flex and toes extend in the other direction than in Rajagopal's model, as in gait2392. The axes of the left
# hip are those of the right one, not their mirror image.
LEGS26_OPENSIM = tuple(
    Coordinate(joint, joint, sign=-1.0)
    for joint in (
        *(f"{joint}_{side}" for side in "rl" for joint in ("knee_angle", "mtp_angle")),
        "hip_adduction_l",
        "hip_rotation_l",
    )
)
LEGS26_MUSCLES = human.muscle_groups(
    {
        "biceps_femoris": ("bifemsh",),  # the long head is part of the hamstrings
        "hamstrings": ("hamstrings",),
        "gastrocnemius": ("gastroc",),
        "soleus": ("soleus",),
        "tibialis_anterior": ("tibant",),
        "vasti": ("vasti",),
        "rectus_femoris": ("rectfem",),
        "gluteus_maximus": ("glutmax",),
        "adductors": ("add",),
        "abductors": ("abd",),
        "iliopsoas": ("iliopsoas",),
    },
    human.BOTH,
)

HAND_JOINTS = tuple(  # the arm's joints from the forearm on; in this model all their names end in the side
    joint if joint.endswith("_r") else f"{joint}_r" for joint in ARM_JOINTS[4:]
)
HAND_FLEXION = tuple(j for j in HAND_JOINTS if j.startswith(("mcp", "pm", "md")) and "flexion" in j)

TORSO_MUSCLES = {**human.TRUNK_MUSCLES, **human.muscle_groups(human.DOTTED_BACK_GROUPS, human.BOTH)}

_ARM_LICENCE = "Apache-2.0; the arm derives from MoBL-ARMS, whose authors ask for non-commercial use"


def _adapter(
    entry: str, body: str, load: Callable[[str], mujoco.MjSpec] = load, licence: str = "Apache-2.0", **names: Any
) -> ModelAdapter:
    return ModelAdapter(
        name=entry,
        load=lambda: load(entry),
        root="Full Body",
        info=ModelInfo(body, f"myo-sim (PyPI), entry {entry}", licence, files),
        **names,
    )


ADAPTERS = (
    _adapter(
        "myoarm_r",
        "right arm and hand",
        planned_joints=ARM_JOINTS,
        synergies=(FINGER_FLEXION,),
        roles=ARM_ROLES,
        touch=HAND_PARTS,
        sites=HAND_SITES,
        muscle_groups=human.arm_muscles({"r": ""}),
        posture=ARM_POSTURE,
        forward=(0.0, -1.0, 0.0),
        grasp_offset=GRASP_OFFSET,
        licence=_ARM_LICENCE,
    ),
    _adapter(
        "myohand_r",
        "right forearm and hand",
        planned_joints=HAND_JOINTS,
        synergies=(HAND_FLEXION,),
        roles=ARM_ROLES,
        touch=HAND_PARTS,
        sites=HAND_SITES,
        muscle_groups=human.muscle_groups(human.FOREARM_GROUPS, {"r": "_r"}),
        posture=dict.fromkeys(HAND_FLEXION, 0.3),  # fingers are slightly bent at rest
        forward=(0.0, -1.0, 0.0),
        licence=_ARM_LICENCE,
    ),
    _adapter(
        "myolegs",
        "both legs",
        load_legs,
        planned_joints=human.LEG_JOINTS,
        synergies=human.LEG_PAIRS,
        roles=LEGS_ROLES,
        touch=LEGS_TOUCH,
        muscle_groups=human.LEG_MUSCLES,
    ),
    _adapter(
        "myolegs26",
        "both legs",
        load_legs,
        planned_joints=LEGS26_JOINTS,
        roles=LEGS_ROLES,
        touch=LEGS_TOUCH,
        muscle_groups=LEGS26_MUSCLES,
        opensim=LEGS26_OPENSIM,
    ),
    _adapter(
        "myotorso",
        "trunk",
        planned_joints=human.LUMBAR_JOINTS,
        roles={"trunk": "torso", "head": "head"},
        touch={"trunk": ("torso",), "head": ("neck", "head")},
        muscle_groups=TORSO_MUSCLES,
        forward=(0.0, -1.0, 0.0),
    ),
)
