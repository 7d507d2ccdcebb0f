"""Names that the human models share: OpenSim's, in MyoSim, MS-Human-700 and MuscleMimic alike."""

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

LEG_ROLES = {
    f"{word}_{part}": f"{body}_{side}"
    for word, side in SIDES.items()
    for part, body in (("thigh", "femur"), ("shank", "tibia"), ("foot", "calcn"), ("toes", "toes"))
}

FEET = {f"{word}_foot": (f"calcn_{side}", f"toes_{side}") for word, side in SIDES.items()}

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

LEG_MUSCLES: Mapping[str, Sequence[str]] = {
    f"{group}_{side}": tuple(f"{muscle}_{side}" for muscle in members)
    for side in "rl"
    for group, members in _LEG_GROUPS.items()
}
