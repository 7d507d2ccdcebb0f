"""Models of the `myo-sim` package: right arm and hand with 63 muscles, legs with 80."""

from __future__ import annotations

import mujoco

from movlr_jax.errors import UserError
from movlr_jax.models import human
from movlr_jax.models.adapter import ModelAdapter
from movlr_jax.models.spec import quiet

ARM_JOINTS = (
    (
        "elv_angle_r",
        "shoulder_elv_r",
        "shoulder_rot_r",
        "elbow_flexion_r",
        "pro_sup_r",
        "deviation_r",
        "flexion_r",
    )
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
    "palm_site": "S_grasp_r",
    "thumb_site": "THtip_r",
    "index_site": "IFtip_r",
    "middle_site": "MFtip_r",
    "ring_site": "RFtip_r",
    "little_site": "LFtip_r",
}

HAND_PARTS = {
    "thumb": ("firstmc_r", "proximal_thumb_r", "distal_thumb_r"),
    "index": ("2proxph_r", "midph2_r", "distph2_r"),
    "middle": ("3proxph_r", "midph3_r", "distph3_r"),
    "ring": ("4proxph_r", "midph4_r", "distph4_r"),
    "little": ("5proxph_r", "midph5_r", "distph5_r"),
    "palm": ("secondmc_r", "thirdmc_r", "fourthmc_r", "fifthmc_r"),
}

HAND_SITES = ("S_grasp_r", "THtip_r", "IFtip_r", "MFtip_r", "RFtip_r", "LFtip_r")

# Elbow bent, forearm level and pointing forward (-y), palm facing left (+x), thumb and fingers about 3 mm off a
# standing bottle of 3 cm radius: fitted by least squares on the distances of the hand's collision geoms.
ARM_POSTURE = {
    "elv_angle_r": 1.4,
    "shoulder_elv_r": 0.5,
    "shoulder_rot_r": 0.0,
    "elbow_flexion_r": 1.2,
    "pro_sup_r": 0.41,
    "deviation_r": 0.43,
    "flexion_r": -0.37,
    "cmc_flexion": 0.38,
    "cmc_abduction": 0.21,
    "mp_flexion_r": -0.14,
    "ip_flexion_r": -0.30,
    "mcp2_flexion_r": 0.09,
    "mcp2_abduction_r": 0.18,
    "pm2_flexion_r": 0.75,
    "md2_flexion_r": 0.75,
    "mcp3_flexion_r": 0.33,
    "mcp3_abduction_r": 0.26,
    "pm3_flexion_r": 0.81,
    "md3_flexion": 0.62,
    "mcp4_flexion_r": 0.50,
    "mcp4_abduction_r": 0.26,
    "pm4_flexion": 0.59,
    "md4_flexion_r": 0.51,
    "mcp5_flexion_r": 0.37,
    "mcp5_abduction_r": 0.26,
    "pm5_flexion_r": 0.75,
    "md5_flexion_r": 0.36,
}
BONE = (0.93, 0.90, 0.84, 1.0)
LEGS_POSTURE: dict[str, float] = {}
GRASP_OFFSET = (0.002, 0.009, 0.0)  # m, from the palm site to the axis of that bottle, world frame


def load(entry: str) -> mujoco.MjSpec:
    """The editable spec of a MyoSim model without its room. Raises UserError when the package is missing."""
    try:
        with quiet():
            import myo_sim

            spec = myo_sim.load_spec(entry)
    except ImportError:
        raise UserError(
            f"model {entry!r} comes with the package myo-sim, which is not installed here; pip install myo-sim"
        ) from None
    for geom in list(spec.worldbody.geoms):  # a room, a poster and a pedestal: not part of any task
        spec.delete(geom)
    for light in list(spec.lights):
        spec.delete(light)
    for geom in spec.geoms:
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:  # bones, in films: ivory, without shine
            geom.rgba, geom.material = BONE, ""
    return spec


def load_legs() -> mujoco.MjSpec:
    """The legs under a rigid trunk, turned to face +x."""
    spec = load("myolegs")
    spec.body("Full Body").quat = [0.5**0.5, 0.0, 0.0, 0.5**0.5]  # it is built facing -y
    return spec


ADAPTERS = (
    ModelAdapter(
        name="myoarm_r",
        load=lambda: load("myoarm_r"),
        root="Full Body",
        planned_joints=ARM_JOINTS,
        synergies=(FINGER_FLEXION,),
        roles=ARM_ROLES,
        touch=HAND_PARTS,
        sites=HAND_SITES,
        posture=ARM_POSTURE,
        forward=(0.0, -1.0, 0.0),
        grasp_offset=GRASP_OFFSET,
        source="myo-sim (PyPI), entry myoarm_r",
        licence="Apache-2.0; the arm derives from MoBL-ARMS, whose authors ask for non-commercial use",
    ),
    ModelAdapter(
        name="myolegs",
        load=load_legs,
        root="Full Body",
        planned_joints=human.LEG_JOINTS,
        roles={"pelvis": "pelvis", "trunk": "torso", "head": "head", **human.LEG_ROLES},
        touch={**human.FEET, "pelvis": ("pelvis",), "trunk": ("torso",), "head": ("neck", "head")},
        muscle_groups=human.LEG_MUSCLES,
        posture=LEGS_POSTURE,
        source="myo-sim (PyPI), entry myolegs",
        licence="Apache-2.0",
    ),
)
