"""Models of the `myo-sim` package: the right arm and hand with 63 muscles."""

from __future__ import annotations

import warnings

import mujoco

from movlr_jax.errors import UserError

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

# Elbow bent, forearm level and pointing forward (-y), palm facing left (+x), fingers half open.
ARM_POSTURE = {
    "elv_angle_r": 1.4,
    "shoulder_elv_r": 0.5,
    "shoulder_rot_r": 0.0,
    "elbow_flexion_r": 1.2,
    "pro_sup_r": 0.0,
    "flexion_r": -0.3,
    "cmc_flexion": 0.0,
    "cmc_abduction": 0.2,
    "mp_flexion_r": -0.1,
    "ip_flexion_r": -0.2,
    **dict.fromkeys(("mcp2_flexion_r", "mcp3_flexion_r", "mcp4_flexion_r", "mcp5_flexion_r"), 0.45),
    **dict.fromkeys(("pm2_flexion_r", "pm3_flexion_r", "pm4_flexion", "pm5_flexion_r"), 0.65),
    **dict.fromkeys(("md2_flexion_r", "md3_flexion", "md4_flexion_r", "md5_flexion_r"), 0.35),
}


def load(entry: str) -> mujoco.MjSpec:
    """The editable spec of a MyoSim model without its room. Raises UserError when the package is missing."""
    # MuJoCo writes warnings to MUJOCO_LOG.TXT in the working directory; the one about the package's own
    # way of composing models is of no use to anyone who runs a search.
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import myo_sim

            spec = myo_sim.load_spec(entry)
    except ImportError:
        raise UserError(
            f"model {entry!r} comes with the package myo-sim, which is not installed here; pip install myo-sim"
        ) from None
    finally:
        mujoco.set_mju_user_warning(handler)
    for geom in list(spec.worldbody.geoms):  # a room, a poster and a pedestal: not part of any task
        spec.delete(geom)
    for light in list(spec.lights):
        spec.delete(light)
    return spec
