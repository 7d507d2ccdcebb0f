"""An excerpt of a model as MJCF: the tree of its bodies with joints and contact geometry."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import mujoco
import numpy as np

from movlr_jax.tasks import Task

MAX_CHARACTERS = 12_000  # about 5,000 tokens
_WORLD = 0
_SIZES = {"plane": 3, "sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3}  # numbers in size=


def mjcf_excerpt(task: Task) -> str:
    """Return bodies, joints and contact geoms as indented MJCF, with angles in radians.

    Bodies without a joint, a contact geom or a part in the task are left out, and their children are shown where they
    are in the nearest body that is kept. If the text is longer than MAX_CHARACTERS, geoms are left out, then bodies
    without a joint that the task plans and without a role.
    """
    model = task.model
    moving = {int(body) for body in model.jnt_bodyid}
    solid = {int(model.geom_bodyid[g]) for g in _contacts(model)}
    named = {model.body(name).id for name in task.roles.values() if name in task.layout.bodies}
    planned = {
        int(model.jnt_bodyid[model.joint(name).id])
        for name in task.adapter.planned_joints
        if name in task.layout.joints
    }
    text = ""
    for kept, geoms in ((moving | solid | named, True), (moving | named, False), (planned | named, False)):
        text = _written(model, sorted(kept - {_WORLD}), geoms)
        if len(text) <= MAX_CHARACTERS:
            break
    return text


def _contacts(model: mujoco.MjModel) -> np.ndarray:
    return np.flatnonzero(model.geom_contype | model.geom_conaffinity)


def _written(model: mujoco.MjModel, bodies: Sequence[int], geoms: bool) -> str:
    data = mujoco.MjData(model)  # frames at the model's reference position, as MJCF has them
    mujoco.mj_kinematics(model, data)
    root = ET.Element("worldbody")
    elements = {_WORLD: root}
    for body in bodies:
        parent = int(model.body_parentid[body])
        while parent not in elements:
            parent = int(model.body_parentid[parent])
        element = elements[body] = ET.SubElement(elements[parent], "body", name=model.body(body).name)
        axes = data.xmat[parent].reshape(3, 3)
        element.set("pos", _numbers(axes.T @ (data.xpos[body] - data.xpos[parent])))
        turn, back = np.empty(4), np.empty(4)
        mujoco.mju_negQuat(back, data.xquat[parent])
        mujoco.mju_mulQuat(turn, back, data.xquat[body])
        _set_turn(element, turn)
        for joint in range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body]):
            _add_joint(element, model, joint)
        for geom in _contacts(model) if geoms else ():
            if model.geom_bodyid[geom] == body:
                _add_geom(element, model, geom)
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode")


def _add_joint(body: ET.Element, model: mujoco.MjModel, joint: int) -> None:
    kind = mujoco.mjtJoint(model.jnt_type[joint])
    element = ET.SubElement(body, "joint", name=model.joint(joint).name, type=kind.name[len("mjJNT_") :].lower())
    if kind in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
        element.set("axis", _numbers(model.jnt_axis[joint]))
    if np.any(np.abs(model.jnt_pos[joint]) > 1e-5) and kind != mujoco.mjtJoint.mjJNT_FREE:
        element.set("pos", _numbers(model.jnt_pos[joint]))
    if model.jnt_limited[joint]:
        element.set("range", _numbers(model.jnt_range[joint]))


def _add_geom(body: ET.Element, model: mujoco.MjModel, geom: int) -> None:
    kind = mujoco.mjtGeom(model.geom_type[geom]).name[len("mjGEOM_") :].lower()
    element = ET.SubElement(body, "geom", type=kind)
    if kind in _SIZES:
        element.set("size", _numbers(model.geom_size[geom, : _SIZES[kind]]))
    element.set("pos", _numbers(model.geom_pos[geom]))
    _set_turn(element, model.geom_quat[geom])


def _set_turn(element: ET.Element, quat: np.ndarray) -> None:
    if abs(quat[0]) < 1 - 1e-6:
        element.set("quat", _numbers(quat))


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{value + 0.0:.4g}" for value in np.round(values, 5))
