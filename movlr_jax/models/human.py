"""Names that the human models MyoSim, MS-Human-700 and MuscleMimic share; they come from OpenSim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SIDES = {"left": "l", "right": "r"}

LEG_JOINTS = tuple(
    f"{joint}_{side}"
    for side in "rl"
    for joint in (
        "hip_flexion",
        "hip_adduction",
        "hip_rotation",
        "knee_angle",
        "ankle_angle",
        "subtalar_angle",
        "mtp_angle",
    )
)

LEG_PAIRS = tuple((joint, f"{joint[:-2]}_l") for joint in LEG_JOINTS if joint.endswith("_r"))


def on_both_sides(parts: Mapping[str, str]) -> dict[str, str]:
    """Return role -> body of both sides for the bodies of `parts`, whose names end in _l and _r in the model."""
    return {f"{word}_{part}": f"{body}_{side}" for word, side in SIDES.items() for part, body in parts.items()}


LEG_ROLES = on_both_sides({"thigh": "femur", "shank": "tibia", "foot": "calcn", "toes": "toes"})

FEET = {f"{word}_foot": (f"calcn_{side}", f"toes_{side}") for word, side in SIDES.items()}

# for contacts of the knees with the ground
LEGS = {f"{word}_leg": (f"femur_{side}", f"tibia_{side}") for word, side in SIDES.items()}

_LEG_GROUPS = {
    "biceps_femoris": ("bflh", "bfsh"),
    "gastrocnemius": ("gaslat", "gasmed"),
    "semimembranosus": ("semimem",),
    "semitendinosus": ("semiten",),
    "soleus": ("soleus",),
    "tibialis_anterior": ("tibant",),
    "vasti": ("vasint", "vaslat", "vasmed"),
    "rectus_femoris": ("recfem",),
    "gluteus_maximus": ("glmax1", "glmax2", "glmax3"),
    "gluteus_medius": ("glmed1", "glmed2", "glmed3"),
    "adductors": ("addbrev", "addlong", "addmagDist", "addmagIsch", "addmagMid", "addmagProx"),
    "iliacus": ("iliacus",),
}

_TRUNK_GROUPS = {
    "erector_spinae": (
        *(f"IL_L{i}" for i in range(1, 5)),
        *(f"IL_R{i}" for i in range(5, 13)),
        *(f"LTpT_T{i}" for i in range(1, 13)),
        *(f"LTpT_R{i}" for i in range(4, 13)),
        *(f"LTpL_L{i}" for i in range(1, 6)),
    ),
    "rectus_abdominis": ("rect_abd",),
    "internal_oblique": tuple(f"IO{i}" for i in range(1, 7)),
    "psoas": tuple(
        f"Ps_{part}"
        for part in ("L1_VB", "L1_TP", "L2_TP", "L3_TP", "L4_TP", "L5_TP", "L5_VB")
        + ("L1_L2_IVD", "L2_L3_IVD", "L3_L4_IVD", "L4_L5_IVD")
    ),
}

_UPPER_ARM_GROUPS = {
    "deltoid": ("DELT1", "DELT2", "DELT3"),
    "rotator_cuff": ("SUPSP", "INFSP", "SUBSC", "TMIN"),
    "pectoralis_major": ("PECM1", "PECM2", "PECM3"),
    "biceps": ("BIClong", "BICshort"),
    "brachialis": ("BRA",),
    "triceps": ("TRIlong", "TRIlat", "TRImed"),
}

FOREARM_GROUPS = {"wrist_extensors": ("ECRL", "ECRB", "ECU"), "wrist_flexors": ("FCR", "FCU", "PL")}


def muscle_groups(groups: Mapping[str, Sequence[str]], suffixes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return `groups` for each side; suffixes maps a side (r, l) to the suffix of its muscles' names."""
    return {
        f"{group}_{side}": tuple(muscle + suffix for muscle in members)
        for side, suffix in suffixes.items()
        for group, members in groups.items()
    }


BOTH = {"r": "_r", "l": "_l"}
LEG_MUSCLES = muscle_groups(_LEG_GROUPS, BOTH)
TRUNK_MUSCLES = muscle_groups(_TRUNK_GROUPS, BOTH)


# back muscles of MyoSim and MuscleMimic; MS-Human-700 has other names for them
DOTTED_BACK_GROUPS = {
    "external_oblique": tuple(f"EO{i}" for i in range(1, 7)),
    "multifidus": (
        *(f"MF_m{i}s" for i in range(1, 6)),
        *(f"MF_m{i}t.{k}" for i in range(1, 6) for k in range(1, 4)),
        *(f"MF_m{i}.laminar" for i in range(1, 6)),
    ),
}
# of the same two models; the vertebrae are coupled to these joints
LUMBAR_JOINTS = ("flex_extension", "lat_bending", "axial_rotation")


def arm_muscles(suffixes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the muscle groups of the shoulder, elbow and wrist for each side in `suffixes`."""
    return muscle_groups({**_UPPER_ARM_GROUPS, **FOREARM_GROUPS}, suffixes)


def arm_joints(elbow: str, sides: str = "rl") -> tuple[str, ...]:
    """Return the shoulder and elbow joints of each of `sides`; the name of the elbow joint depends on the model."""
    return tuple(
        f"{joint}_{side}" for side in sides for joint in ("elv_angle", "shoulder_elv", "shoulder_rot", elbow)
    )


def wrist_joints(sides: str = "rl") -> tuple[str, ...]:
    """Return the forearm and wrist joints of each of `sides`."""
    return tuple(f"{joint}_{side}" for side in sides for joint in ("pro_sup", "deviation", "flexion"))


THUMB_JOINTS = ("cmc_flexion", "cmc_abduction", "mp_flexion", "ip_flexion")

# the bones of a hand by part; MyoSim has other names for the middle phalanges
HAND_BODIES = {
    "thumb": ("firstmc", "proximal_thumb", "distal_thumb"),
    "index": ("2proxph", "2midph", "2distph"),
    "middle": ("3proxph", "3midph", "3distph"),
    "ring": ("4proxph", "4midph", "4distph"),
    "little": ("5proxph", "5midph", "5distph"),
    "palm": ("secondmc", "thirdmc", "fourthmc", "fifthmc"),
}
# part of a hand -> its site in MyoSim and MuscleMimic
HAND_SITES = {
    "palm": "S_grasp",
    "thumb": "THtip",
    "index": "IFtip",
    "middle": "MFtip",
    "ring": "RFtip",
    "little": "LFtip",
}
