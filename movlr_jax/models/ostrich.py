"""The ostrich of OstrichRL: 120 muscles, 56 joints, from a CT scan of Struthio camelus.

La Barbera et al., OstrichRL: A Musculoskeletal Ostrich Simulation to Study Bio-mechanical Locomotion (2021).
Its files are in the folder OSTRICH_ROOT, or in MENAGERIE_ROOT/ostrich if that exists; otherwise `pooch` downloads
them once (37 MB) at a fixed commit and verifies them against `ostrich_files.txt`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import mujoco

from movlr_jax.errors import MissingModel, UserError
from movlr_jax.models.adapter import ModelAdapter, ModelInfo
from movlr_jax.models.download import downloading
from movlr_jax.models.human import SIDES
from movlr_jax.models.spec import bare_bones, read_spec, strip

if TYPE_CHECKING:
    from pooch import Pooch

COMMIT = "b9ccb7edcfd8e5b117226dfd55fcd9ef2899f74b"
URL = f"https://raw.githubusercontent.com/vittorione94/ostrichrl/{COMMIT}/ostrichrl/assets/models/ostrich/"
ENTRY = "ostrich.xml"
REGISTRY = Path(__file__).with_name("ostrich_files.txt")
# Not verified: the copy from which the other hashes were computed had a different mesh. It affects only the look of
# the head and its contact with the ground after a fall; the mass of the head is in the XML.
UNCHECKED = "meshes/head.stl"

_FIX = (
    f"set OSTRICH_ROOT to the folder that contains {ENTRY}, ostrichrl/assets/models/ostrich in a clone of "
    "github.com/vittorione94/ostrichrl"
)

LEG_JOINTS = tuple(
    f"{side}_{joint}"
    for side in "rl"
    for joint in ("hip_x", "hip_y", "hip_z", "knee_y", "knee_z", "ankle_y", "mtp_y")
)
NECK = tuple(f"v{i}_{axis}" for axis in "yx" for i in range(1, 18))
# Only the root of the neck is planned, where small angles move the head far; its six joints form two synergies. The
# other 30 neck joints are kept: each would add a dimension to the search, which shares its samples with the 14 leg
# joints, and a stable head is part of a good walk.
NECK_ROOT = (("v1_y", "v2_y", "v3_y"), ("v1_x", "v2_x", "v3_x"))
KEPT_NECK = tuple(j for j in (*NECK, "head_y", "head_x") if j not in NECK_ROOT[0] + NECK_ROOT[1])

# The model has no standing posture. This one minimises the squared distances of the four joint angles from the
# middles of their ranges, relative to the ranges (SLSQP), with constraints: the body and the soles are horizontal
# (the four angles add up to 0), the centre of mass is above the middle of the feet, and the hip height is 92 % of
# that with straight legs. Rounded to 1 mrad; root_z puts the soles on the ground.
CROUCH = {"hip_y": -0.385, "knee_y": 0.902, "ankle_y": -0.825, "mtp_y": 0.308}
POSTURE = {"root_z": -0.093} | {f"{side}_{joint}": angle for side in "rl" for joint, angle in CROUCH.items()}

# m, from the joint of a foot, which is one body, to the tip of its third toe; tasks use it as the role of the toes
TOE_TIP = (0.205, 0.0, -0.07)

LEG_GROUPS = {
    "iliotibialis": ("ic", "ila", "ilp"),
    "femorotibialis": ("fmtl", "fmtim", "fmtm"),
    "ambiens": ("amb1", "amb2"),
    "iliofibularis": ("ilfba", "ilfbp"),
    "iliotrochantericus": ("itca", "itcp", "itcr", "itm"),
    "flexor_cruris": ("fclp", "fcm"),
    "gastrocnemius": ("gl", "gim", "gm"),
    "tibialis_cranialis": ("tcf", "tct"),
    "digital_flexors": ("fdl", "fhl", "fp_pd3", "fpd3", "fpd4"),
    "digital_extensors": ("edl",),
    "fibularis_longus": ("fl",),
}
NECK_MUSCLES = {
    "neck_front": tuple(f"frontal{i}" for i in range(1, 12)),
    "neck_back": tuple(f"caudalis{i}" for i in range(1, 12)),
    "neck_right": tuple(f"lateral_right{i}" for i in range(1, 12)),
    "neck_left": tuple(f"lateral_left{i}" for i in range(1, 12)),
}


def files() -> Path | None:
    """Return the folder of ostrich.xml, None if it is not downloaded yet. Raises UserError."""
    root = os.environ.get("OSTRICH_ROOT")
    if root:
        path = Path(root).expanduser()
        if not (path / ENTRY).is_file():
            raise UserError(f"OSTRICH_ROOT={root} contains no {ENTRY}; {_FIX}")
        return path
    menagerie = os.environ.get("MENAGERIE_ROOT")
    if menagerie and (Path(menagerie).expanduser() / "ostrich" / ENTRY).is_file():
        return Path(menagerie).expanduser() / "ostrich"
    cache = _pooch()
    complete = all((cache.abspath / name).is_file() for name in cache.registry)
    return cache.abspath if complete else None


def folder() -> Path:
    """Return the folder of ostrich.xml; download the model if needed. Raises UserError."""
    here = files()
    if here is not None:
        return here
    from rich.console import Console
    from rich.progress import track

    cache = _pooch()
    with downloading("the ostrich model", URL + ENTRY, f"without a network connection {_FIX}"):
        for name in track(cache.registry_files, "ostrich model", console=Console(stderr=True), transient=True):
            cache.fetch(name)
    return cache.abspath


def _pooch() -> Pooch:
    """Return the download cache with the model's files and hashes. Raises UserError if pooch is not installed."""
    try:
        import pooch
    except ImportError:
        raise MissingModel(
            f"the package pooch downloads the ostrich model, but it is not installed; pip install pooch, or {_FIX}"
        ) from None
    pooch.get_logger().setLevel("ERROR")  # otherwise it prints a line for each of 54 files
    cache = pooch.create(
        path=pooch.os_cache("movlr_jax") / f"ostrich-{COMMIT[:8]}",
        base_url=URL,
        registry={UNCHECKED: None},
        retry_if_failed=1,
    )
    cache.load_registry(REGISTRY)
    return cache


def load() -> mujoco.MjSpec:
    """Return the spec without floor, lights and cameras. Raises UserError."""
    spec = read_spec(folder() / ENTRY)
    strip(spec, spec.worldbody.geoms)
    bare_bones(spec)
    # geoms and joints that a task adds must not get the model's default material, springs and limits; the
    # model's own elements already have them
    spec.default.geom.material = ""
    joint = spec.default.joint
    joint.limited, joint.armature = mujoco.mjtLimited.mjLIMITED_AUTO, 0.0
    joint.stiffness = joint.damping = [0.0, 0.0, 0.0]
    for side in "lr":
        spec.body(f"{side}_pes").add_body(name=f"{side}_toes", pos=TOE_TIP)
    return spec


ADAPTERS = (
    ModelAdapter(
        name="ostrich",
        load=load,
        root="ostrich",
        planned_joints=(*LEG_JOINTS, *NECK_ROOT[0], *NECK_ROOT[1]),
        kept_joints=KEPT_NECK,
        synergies=NECK_ROOT,
        roles={
            "pelvis": "ostrich",
            "trunk": "ostrich",
            "head": "head",
            **{
                f"{word}_{part}": f"{side}_{body}"
                for word, side in SIDES.items()
                for part, body in (("thigh", "femur"), ("shank", "tibiotarsus"), ("foot", "pes"), ("toes", "toes"))
            },
        },
        touch={
            "left_foot": ("l_pes",),
            "right_foot": ("r_pes",),
            "left_leg": ("l_femur", "l_tibiotarsus"),
            "right_leg": ("r_femur", "r_tibiotarsus"),
            "trunk": ("ostrich",),
            "wings": ("humerusl", "radiusl", "humerusr", "radiusr"),
            "neck": tuple(f"vertebra{i}" for i in range(1, 18)),
            "head": ("head",),
        },
        muscle_groups={
            **{
                f"{group}_{side}": tuple(f"{side}_{muscle}" for muscle in members)
                for side in "rl"
                for group, members in LEG_GROUPS.items()
            },
            **NECK_MUSCLES,
        },
        posture=POSTURE,
        info=ModelInfo(
            body="ostrich",
            source=f"github.com/vittorione94/ostrichrl at {COMMIT[:8]}",
            licence="MIT, (c) 2021 Vittorio La Barbera and Fabio Pardo",
            files=files,
        ),
    ),
)
