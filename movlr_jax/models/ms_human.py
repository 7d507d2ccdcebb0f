"""MS-Human-700 of MuJoCo Menagerie: legs, right arm and hand, and the whole body.

Zuo et al., Self Model for Embodied Intelligence (ICRA 2024). The package `mujoco-menagerie` downloads the files once
and verifies them, unless MENAGERIE_ROOT is set to a folder that contains `ms_human_700/`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import mujoco

from movlr_jax.biomech.opensim import Coordinate
from movlr_jax.errors import MissingModel, UserError
from movlr_jax.models import human
from movlr_jax.models.adapter import ModelAdapter, ModelInfo
from movlr_jax.models.download import downloading
from movlr_jax.models.spec import bare_bones, read_spec, strip

_FIX = (
    "without a network connection set MENAGERIE_ROOT to a folder that contains ms_human_700/, such as a clone of "
    "github.com/google-deepmind/mujoco_menagerie"
)
PELVIS_JOINTS = ("pelvis_tx", "pelvis_ty", "pelvis_tz", "pelvis_tilt", "pelvis_list", "pelvis_rotation")


def files() -> Path | None:
    """Return the folder of the model's files, None if they are not downloaded yet. Raises UserError."""
    root = os.environ.get("MENAGERIE_ROOT")
    if root:
        path = Path(root).expanduser() / "ms_human_700"
        if not path.is_dir():
            raise UserError(
                f"MENAGERIE_ROOT={root} contains no folder ms_human_700; set it to a folder that contains it"
            )
        return path
    try:
        import mujoco_menagerie
        from mujoco_menagerie import Cache
    except ImportError:
        raise MissingModel(
            "MS-Human-700 needs the package mujoco-menagerie, which is not installed; "
            "pip install mujoco-menagerie, or set MENAGERIE_ROOT to a folder that contains ms_human_700/"
        ) from None
    robot, cache = mujoco_menagerie.get("ms_human_700"), Cache()
    return cache.model_path(robot) if cache.is_cached(robot) else None


def folder() -> Path:
    """Return the folder of the model's files; download them if needed. Raises UserError."""
    here = files()
    if here is not None:
        return here
    import mujoco_menagerie

    robot, base = mujoco_menagerie.get("ms_human_700"), mujoco_menagerie.Cache().base_url
    with downloading("MS-Human-700", f"{base}/{robot.asset}", _FIX, mujoco_menagerie.MenagerieError):
        return Path(robot.path())


def load(entry: str, sites: Sequence[str] = ()) -> mujoco.MjSpec:
    """Return the spec of an entry without floor, table, lights and cameras. Raises UserError.

    Only `sites` and those that tendons or sensors need are kept.
    """
    spec = _read(folder() / f"{entry}.xml", sites)
    strip(spec, spec.worldbody.geoms)
    for joint in spec.joints:
        if joint.name in PELVIS_JOINTS:  # their ranges would limit a walk to five metres
            joint.limited = mujoco.mjtLimited.mjLIMITED_FALSE
    bare_bones(spec)
    for geom in spec.geoms:
        if "_skin" in geom.name:
            geom.group = 4  # hidden: films show bones and muscles
    return spec


def _read(path: Path, sites: Sequence[str]) -> mujoco.MjSpec:
    """Return the spec of an entry without tendons that no actuator pulls, and without unused sites, except `sites`.

    The bones carry the path points of all 700 muscles. The legs do not use 2,486 of 2,856, which slow a step down.
    """
    try:
        root = _included(path, path.parent)
    except (OSError, ElementTree.ParseError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    _remove_unused(root, "spatial", ("tendon",))
    _remove_unused(root, "site", ("site", "sidesite", "objname"), sites)
    return read_spec(path, ElementTree.tostring(root, encoding="unicode"))


def _remove_unused(root: ElementTree.Element, tag: str, attributes: Sequence[str], keep: Sequence[str] = ()) -> None:
    """Remove the elements with `tag` and a name that is neither in `keep` nor the value of one of `attributes`."""
    used = {element.get(name) for element in root.iter() for name in attributes} | set(keep)
    for parent in root.iter():
        for element in parent.findall(tag):
            if "name" in element.attrib and element.attrib["name"] not in used:
                parent.remove(element)


def _included(path: Path, folder: Path) -> ElementTree.Element:
    """Return the content of an MJCF file, with the files in `folder` that it includes in their places."""
    root = ElementTree.parse(path).getroot()
    for parent in list(root.iter()):
        for at, child in reversed(list(enumerate(parent))):
            if child.tag == "include":
                parent[at : at + 1] = list(_included(folder / child.get("file", ""), folder))
    return root


_ROLES = {"pelvis": "pelvis", "trunk": "thoracic1", "head": "head_neck", **human.LEG_ROLES}
_ARM_ROLES = human.on_both_sides({"upper_arm": "humerus", "forearm": "radius", "hand": "hand"})
_TOUCH = {**human.FEET, **human.LEGS, "pelvis": ("pelvis", "sacrum"), "head": ("head_neck",)}
_SOURCE = "MuJoCo Menagerie, ms_human_700, entry "

SPINE_JOINTS = tuple(
    f"{level}_{direction}"  # flexion-extension, lateral bending, axial rotation
    for level in ("L5_S1", "T12_L1", "T1_head_neck")
    for direction in ("FE", "LB", "AR")
)

# Arms hang at the sides; at zero, the elbows and the shoulder elevation would be at the end of their ranges.
ARM_POSTURE = {
    f"{joint}_{side}": angle for side in "rl" for joint, angle in (("shoulder_elv", 0.1), ("elbow_flexion", 0.25))
}

_BACK_GROUPS = {
    "external_oblique": tuple(f"EO_R{i}" for i in range(5, 13)),
    "multifidus": (
        *(f"MF_m{i}s" for i in range(1, 6)),
        *(f"MF_m{i}t_{k}" for i in range(1, 6) for k in range(1, 4)),
        *(f"MF_m{i}_laminar" for i in range(1, 6)),
    ),
    "latissimus_dorsi": (
        *(f"LD_L{i}" for i in range(1, 6)),
        *(f"LD_T{i}" for i in range(7, 13)),
        *("LD_R11", "LD_R12", "LD_IL"),
    ),
}

# In the file, the height of the pelvis counts from 0.95 m. Its other joints, and those of the legs, are OpenSim's.
_OPENSIM = (Coordinate("pelvis_ty", "pelvis_ty", offset=0.95),)
_ELBOWS = tuple(Coordinate(f"elbow_flex_{side}", f"elbow_flexion_{side}") for side in "rl")

# The right arm and hand for grasping, 81 muscles.
_ARM_ENTRY = "MS-Human-700-Manipulation"
_ARM_SCENE = ("waterbottle", "target", "table")  # removed: tasks add their own objects
_FINGERS = ("2", "3", "4", "5")  # index to little finger, as in the names of joints and bodies

_HAND_JOINTS = (
    human.arm_joints("elbow_flexion", "r")
    + human.wrist_joints("r")
    + human.THUMB_JOINTS
    + tuple(f"{i}{joint}" for i in _FINGERS for joint in ("mcp_flexion", "mcp_abduction", "pm_flexion", "md_flexion"))
    + ("4cmc_flexion",)
)

_FINGER_FLEXION = tuple(f"{i}{joint}_flexion" for i in _FINGERS for joint in ("mcp", "pm", "md"))

# Finger tips at the ends of the last phalanges, which the model does not have. Role -> body, position m in its frame.
_TIPS = {
    "thumb_site": ("distal_thumb", (0.012, -0.020, -0.008)),
    "index_site": ("2distph", (0.002, -0.016, 0.0)),
    "middle_site": ("3distph", (0.002, -0.018, 0.0)),
    "ring_site": ("4distph", (0.0, -0.020, 0.0)),
    "little_site": ("5distph", (-0.006, -0.018, 0.0)),
}

# Elbow bent, forearm horizontal and pointing forward (+x), palm facing left (+y), thumb and fingers about 3 mm from
# an upright bottle of 3 cm radius; fitted by least squares on the distances of the hand's collision geoms.
_GRASP = dict(
    zip(
        _HAND_JOINTS,
        (0.30, 0.35, 0.00, 1.40)  # shoulder and elbow
        + (-0.27, -0.10, -0.20)  # wrist
        + (-0.18, 0.39, -0.05, 0.35)  # thumb
        + (0.14, 0.24, 0.92, 0.45)
        + (0.38, 0.17, 0.84, 0.58)
        + (0.39, -0.01, 0.90, 0.39)
        + (0.15, -0.16, 0.67, 0.53)
        + (0.05,),
        strict=True,
    )
)
_GRASP_OFFSET = (0.007, -0.008, 0.0)  # m, from the palm site to the axis of that bottle, world frame


def load_arm() -> mujoco.MjSpec:
    """Return the spec without its scene, and with sites on the finger tips. Raises UserError."""
    spec = load(_ARM_ENTRY, sites=["palm_site"])
    spec.nkey = 0
    for name in _ARM_SCENE:
        spec.delete(spec.body(name))
    hand = {body for members in human.HAND_BODIES.values() for body in members}
    for body in spec.bodies:
        for geom in body.geoms:
            if body.name not in hand:  # skull and sacrum, out of reach
                geom.contype = geom.conaffinity = 0
            elif geom.type == mujoco.mjtGeom.mjGEOM_CAPSULE:
                geom.group = 4  # the skin is hidden: films show bones
    for name, (body, at) in _TIPS.items():
        spec.body(body).add_site(name=name, pos=at)
    return spec


ADAPTERS = (
    ModelAdapter(
        name="ms_human_700_legs",
        load=lambda: load("MS-Human-700-Locomotion"),
        root="pelvis",
        planned_joints=human.LEG_JOINTS,
        synergies=human.LEG_PAIRS,
        roles=_ROLES,
        touch=_TOUCH,
        muscle_groups=human.LEG_MUSCLES,
        opensim=_OPENSIM,
        info=ModelInfo(
            body="both legs and a rigid upper body",
            source=_SOURCE + "MS-Human-700-Locomotion",
            licence="Apache-2.0",
            files=files,
        ),
    ),
    ModelAdapter(
        name="ms_human_700",
        load=lambda: load("MS-Human-700"),
        root="pelvis",
        planned_joints=(*human.LEG_JOINTS, *SPINE_JOINTS, *human.arm_joints("elbow_flexion")),
        kept_joints=human.wrist_joints(),
        synergies=human.LEG_PAIRS,
        roles={**_ROLES, **_ARM_ROLES},
        touch=_TOUCH,
        muscle_groups={
            **human.LEG_MUSCLES,
            **human.TRUNK_MUSCLES,
            **human.muscle_groups(_BACK_GROUPS, human.BOTH),
            **human.arm_muscles(human.BOTH),
        },
        posture=ARM_POSTURE,
        opensim=(*_OPENSIM, *_ELBOWS),
        info=ModelInfo(body="whole body", source=_SOURCE + "MS-Human-700", licence="Apache-2.0", files=files),
    ),
    ModelAdapter(
        name="ms_human_700_manipulation",
        load=load_arm,
        root="pelvis",
        planned_joints=_HAND_JOINTS,
        synergies=(_FINGER_FLEXION,),
        roles={
            "trunk": "thoracic1",
            "head": "head_neck",
            "upper_arm": "humerus_r",
            "forearm": "radius_r",
            "hand": "thirdmc",
            "palm_site": "palm_site",
            **{tip: tip for tip in _TIPS},
        },
        touch=human.HAND_BODIES,
        sites=("palm_site", *_TIPS),
        posture=_GRASP,
        grasp_offset=_GRASP_OFFSET,
        info=ModelInfo(body="right arm and hand", source=_SOURCE + _ARM_ENTRY, licence="Apache-2.0", files=files),
    ),
)
