"""MS-Human-700 of MuJoCo Menagerie: legs, right arm and hand, and the whole body.

Zuo et al., Self Model for Embodied Intelligence (ICRA 2024). The package `mujoco-menagerie` downloads the
files once and checks them; a folder named by MENAGERIE_ROOT that holds `ms_human_700/` is used instead.
"""

from __future__ import annotations

import os
from pathlib import Path

import mujoco

from movlr_jax.errors import UserError
from movlr_jax.models import human
from movlr_jax.models.adapter import ModelAdapter
from movlr_jax.models.spec import quiet

PELVIS_JOINTS = ("pelvis_tx", "pelvis_ty", "pelvis_tz", "pelvis_tilt", "pelvis_list", "pelvis_rotation")
BONE = (0.93, 0.90, 0.84, 1.0)


def folder() -> Path:
    """Where the model's files are; downloads them when they are not here. Raises UserError."""
    root = os.environ.get("MENAGERIE_ROOT")
    if root:
        path = Path(root).expanduser() / "ms_human_700"
        if not path.is_dir():
            raise UserError(f"MENAGERIE_ROOT={root} holds no folder ms_human_700; point it at one that does")
        return path
    try:
        import mujoco_menagerie
    except ImportError:
        raise UserError(
            "MS-Human-700 comes through the package mujoco-menagerie, which is not installed here; "
            "pip install mujoco-menagerie, or set MENAGERIE_ROOT to a folder that holds ms_human_700/"
        ) from None
    try:
        return Path(mujoco_menagerie.get("ms_human_700").path())
    except (mujoco_menagerie.MenagerieError, OSError) as error:
        raise UserError(
            f"MS-Human-700 cannot be downloaded: {' '.join(str(error).split())}; without a network set "
            "MENAGERIE_ROOT to a folder that holds ms_human_700/"
        ) from None


def load(entry: str) -> mujoco.MjSpec:
    """The spec of one of its entries without floor, table, lights and cameras. Raises UserError."""
    with quiet():
        spec = mujoco.MjSpec.from_file(str(folder() / f"{entry}.xml"))
    for element in (*spec.worldbody.geoms, *spec.lights, *spec.cameras, *spec.keys):
        spec.delete(element)
    for joint in spec.joints:
        if joint.name in PELVIS_JOINTS:  # their ranges end the walk after five metres
            joint.limited = mujoco.mjtLimited.mjLIMITED_FALSE
    for geom in spec.geoms:
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:  # bones, in films
            geom.rgba, geom.material = BONE, ""
    return spec


_ROLES = {"pelvis": "pelvis", "trunk": "thoracic1", "head": "head_neck", **human.LEG_ROLES}
_SOURCE = "MuJoCo Menagerie, ms_human_700, entry "

ADAPTERS = (
    ModelAdapter(
        name="ms_human_700_legs",
        load=lambda: load("MS-Human-700-Locomotion"),
        root="pelvis",
        planned_joints=human.LEG_JOINTS,
        roles=_ROLES,
        touch={**human.FEET, "pelvis": ("pelvis", "sacrum"), "head": ("head_neck",)},
        muscle_groups=human.LEG_MUSCLES,
        source=_SOURCE + "MS-Human-700-Locomotion",
        licence="Apache-2.0",
    ),
)
