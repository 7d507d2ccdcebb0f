"""The right arm and hand of MS-Human-700 for grasping: its entry for manipulation, 81 muscles."""

from __future__ import annotations

import mujoco

from movlr_jax.models import human, ms_human
from movlr_jax.models.adapter import ModelAdapter, ModelInfo

ENTRY = "MS-Human-700-Manipulation"
SCENE = ("waterbottle", "target", "table")  # removed: tasks add their own objects
FINGERS = ("2", "3", "4", "5")  # index to little finger, as in the names of joints and bodies

JOINTS = (
    human.arm_joints("elbow_flexion", "r")
    + human.wrist_joints("r")
    + human.THUMB_JOINTS
    + tuple(f"{i}{joint}" for i in FINGERS for joint in ("mcp_flexion", "mcp_abduction", "pm_flexion", "md_flexion"))
    + ("4cmc_flexion",)
)

FINGER_FLEXION = tuple(f"{i}{joint}_flexion" for i in FINGERS for joint in ("mcp", "pm", "md"))

# Finger tips at the ends of the last phalanges, which the model does not have. Role -> body, position m in its frame.
TIPS = {
    "thumb_site": ("distal_thumb", (0.012, -0.020, -0.008)),
    "index_site": ("2distph", (0.002, -0.016, 0.0)),
    "middle_site": ("3distph", (0.002, -0.018, 0.0)),
    "ring_site": ("4distph", (0.0, -0.020, 0.0)),
    "little_site": ("5distph", (-0.006, -0.018, 0.0)),
}

# Elbow bent, forearm horizontal and pointing forward (+x), palm facing left (+y), thumb and fingers about 3 mm from
# an upright bottle of 3 cm radius; fitted by least squares on the distances of the hand's collision geoms.
POSTURE = {
    "elv_angle_r": 0.30,
    "shoulder_elv_r": 0.35,
    "shoulder_rot_r": 0.00,
    "elbow_flexion_r": 1.40,
    "pro_sup_r": -0.27,
    "deviation_r": -0.10,
    "flexion_r": -0.20,
    "cmc_flexion": -0.18,
    "cmc_abduction": 0.39,
    "mp_flexion": -0.05,
    "ip_flexion": 0.35,
    "2mcp_flexion": 0.14,
    "2pm_flexion": 0.92,
    "2md_flexion": 0.45,
    "2mcp_abduction": 0.24,
    "3mcp_flexion": 0.38,
    "3pm_flexion": 0.84,
    "3md_flexion": 0.58,
    "3mcp_abduction": 0.17,
    "4mcp_flexion": 0.39,
    "4pm_flexion": 0.90,
    "4md_flexion": 0.39,
    "4mcp_abduction": -0.01,
    "5mcp_flexion": 0.15,
    "5pm_flexion": 0.67,
    "5md_flexion": 0.53,
    "5mcp_abduction": -0.16,
    "4cmc_flexion": 0.05,
}
GRASP_OFFSET = (0.007, -0.008, 0.0)  # m, from the palm site to the axis of that bottle, world frame


def load() -> mujoco.MjSpec:
    """Return the spec without its scene, and with sites on the finger tips. Raises UserError."""
    spec = ms_human.load(ENTRY, sites=["palm_site"])
    spec.nkey = 0
    for name in SCENE:
        spec.delete(spec.body(name))
    hand = {body for members in human.HAND_BODIES.values() for body in members}
    for body in spec.bodies:
        for geom in body.geoms:
            if body.name not in hand:  # skull and sacrum, out of reach
                geom.contype = geom.conaffinity = 0
            elif geom.type == mujoco.mjtGeom.mjGEOM_CAPSULE:
                geom.group = 4  # the skin is hidden: films show bones
    for name, (body, at) in TIPS.items():
        spec.body(body).add_site(name=name, pos=at)
    return spec


ADAPTERS = (
    ModelAdapter(
        name="ms_human_700_manipulation",
        load=load,
        root="pelvis",
        planned_joints=JOINTS,
        synergies=(FINGER_FLEXION,),
        roles={
            "trunk": "thoracic1",
            "head": "head_neck",
            "upper_arm": "humerus_r",
            "forearm": "radius_r",
            "hand": "thirdmc",
            "palm_site": "palm_site",
            **{tip: tip for tip in TIPS},
        },
        touch=human.HAND_BODIES,
        sites=("palm_site", *TIPS),
        posture=POSTURE,
        grasp_offset=GRASP_OFFSET,
        info=ModelInfo(
            body="right arm and hand",
            source=f"MuJoCo Menagerie, ms_human_700, entry {ENTRY}",
            licence="Apache-2.0",
            files=ms_human.files,
        ),
    ),
)
