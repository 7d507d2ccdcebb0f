"""Adapters of MJCF files given by path, derived from the model and its names."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import mujoco
import numpy as np

from movlr_jax.biomech.muscles import enabled_actuators, pose
from movlr_jax.biomech.world import box_corners, world_of
from movlr_jax.errors import UserError, similar_files
from movlr_jax.models.adapter import ModelAdapter, ModelInfo, Posture
from movlr_jax.models.derived import (
    MAX_PARTS,
    above,
    base_joints,
    colliding,
    derive_adapter,
    lies,
    lowest_of,
    name_all,
    root_of,
    start_keyframe,
)
from movlr_jax.models.names import PLACES, SIDES, place_of, side_of, with_pairs, words_of_all
from movlr_jax.models.spec import compile_spec, place, read_spec, strip

MAX_SITES = 50
_ASIDE = 0.01  # m from the middle of a body, where a foot is on a side
_ARM = 4  # hinges of an arm
_LONG = 0.25  # of the height of a body, from where on its lowest segment is a shank
_GROUND = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
_FREE, _BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)
_SCALAR = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)

# role -> words in the names of such bodies, best first, from OpenSim models and robots
_WORDS: Mapping[str, Sequence[str]] = {
    "pelvis": ("pelvis", "pelvic", "hips", "waist"),
    "trunk": ("torso", "trunk", "thorax", "chest", "thoracic", "spine"),
    "head": ("head", "skull"),
}
_SIDED_WORDS: Mapping[str, Sequence[str]] = {
    "thigh": ("thigh", "femur", "upperleg"),
    "shank": ("shank", "tibia", "shin", "calf", "lowerleg", "knee"),
    "foot": ("foot", "calcn", "calcaneus", "heel", "pes", "ankle", "ank"),
    "toes": ("toes", "toe"),
    "upper_arm": ("humerus", "upperarm"),
    "forearm": ("forearm", "radius", "lowerarm", "elbow", "el"),
    "hand": ("hand", "palm", "wrist"),
}


def is_path(name: str) -> bool:
    """Return whether `name` is a path of a file and not the name of a model."""
    return "/" in name or "\\" in name or name.lower().endswith((".xml", ".mjb"))


def files_of(path: Path) -> list[Path]:
    """Return the MJCF file `path` with its includes, meshes and textures; none if there is no such file."""
    if not path.is_file():
        return []
    try:
        return sorted(map(Path, mujoco.mju_getXMLDependencies(str(path))))
    except mujoco.FatalError:  # the model cannot be read either, which its adapter tells
        return [path]


def adapter_of(path: str) -> ModelAdapter:
    """Return the adapter of the MJCF file at `path`. Raises UserError.

    Planned joints are the actuated, limited joints that no equality drives; roles are found by the names of bodies.
    A model with a left and a right foot is a walker: no other part of it may touch the ground, and the limits of
    the joints that move it through the world are removed.
    """
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise UserError(f"there is no model file {path}{similar_files(file) or f' (relative to {Path.cwd()})'}")
    if file.suffix.lower() == ".mjb":
        raise UserError(
            f"{path} is a compiled model, which tasks cannot extend; give its XML file (mj_saveLastXML of MuJoCo "
            "writes one)"
        )
    try:
        model = compile_spec(_read(file))
        acts = enabled_actuators(model).any()
        if not acts or not (model.body_treeid >= 0).any():
            what = "body that can move" if acts else f"{'enabled ' if model.nu else ''}actuators"
            raise UserError(f"{path} has no {what}, so it cannot be controlled; add muscles or motors")
        key = start_keyframe(model)
        qpos = model.qpos0 if key is None else model.key_qpos[key]
        roles = roles_of(model)
        walks = {"left_foot", "right_foot"} <= roles.keys()
        placed = {
            model.body(model.jnt_bodyid[j]).name: qpos[model.jnt_qposadr[j] :][:7] for j in _joints(model, _FREE)
        }
        # slides that move a walker through the world, and hinges with them
        base = [j for j in base_joints(model, root_of(model)) if int(model.jnt_type[j]) in _SCALAR]
        travels = (model.jnt_type[base] == int(mujoco.mjtJoint.mjJNT_SLIDE)).any()
        loose = [model.joint(j).name for j in base] if walks and travels else []
        load = functools.partial(_edited, file, placed, loose)
        info = ModelInfo(source=str(file), licence="see the file's authors", files=lambda: file)
        derived = derive_adapter(path, load, info)
    except ValueError as error:
        raise UserError(f"{path} does not compile: {' '.join(str(error).split())}") from None
    if walks:  # the roles that tasks need of a walker
        roles = {"pelvis": derived.root, "trunk": roles.get("pelvis", derived.root)} | roles
        roles = {"head": roles["trunk"]} | roles  # robots may have no head
        for side in ("left", "right"):
            shank = roles.get(f"{side}_shank")
            hip = {f"{side}_thigh": model.body(model.body(shank).parentid[0]).name} if shank else {}
            roles = {f"{side}_toes": roles[f"{side}_foot"]} | hip | roles
    return dataclasses.replace(
        derived,
        roles=roles,
        touch=_touch(model, roles) if walks else derived.touch,
        sites=derived.sites[:MAX_SITES],
        posture=_posture(model, qpos),
        forward=_rounded(world_of(model).frame @ forward_of(model, qpos, roles)),
    )


def _read(file: Path) -> mujoco.MjSpec:
    """Return the spec with a name for every element. Raises UserError."""
    spec = read_spec(file)
    name_all(spec)
    return spec


def _edited(file: Path, placed: Mapping[str, np.ndarray], loose: Iterable[str]) -> mujoco.MjSpec:
    """Return the spec without ground, lights and cameras, free bodies at `placed` [7], `loose` joints unlimited.

    It has z up.
    """
    spec = _read(file)
    ground = [geom for geom in spec.worldbody.geoms if geom.type in _GROUND]
    names = {geom.name for geom in ground if geom.name}
    for pair in list(spec.pairs):
        if names & {pair.geomname1, pair.geomname2}:
            # a geom that collided with the ground only through a pair must collide with the task's ground,
            # but not with other geoms of the model
            other = spec.geom(pair.geomname2 if pair.geomname1 in names else pair.geomname1)
            if other is not None and not other.contype:
                other.conaffinity |= 1
            spec.delete(pair)
    camera, geom = mujoco.mjtObj.mjOBJ_CAMERA, mujoco.mjtObj.mjOBJ_GEOM
    for sensor in list(spec.sensors):  # remove sensors of removed elements
        ends = ((sensor.objtype, sensor.objname), (sensor.reftype, sensor.refname))
        if any(kind == camera or (kind == geom and name in names) for kind, name in ends):
            spec.delete(sensor)
    strip(spec, ground)
    place(spec, placed)
    for joint in loose:
        spec.joint(joint).limited = mujoco.mjtLimited.mjLIMITED_FALSE
    _turn_upright(spec)
    return spec


def _turn_upright(spec: mujoco.MjSpec) -> None:
    """Turn all that is in the world until z is up."""
    world = world_of(compile_spec(spec))
    if world.z_up:
        return
    world_body, turn, quat = spec.worldbody, world.frame, np.zeros(4)
    mujoco.mju_mat2Quat(quat, turn.ravel())
    inside = [*world_body.frames, *world_body.bodies, *world_body.geoms, *world_body.sites]
    frame = world_body.add_frame(quat=quat)
    for element in inside:
        if element.frame is None:
            element.set_frame(frame)
    option = spec.option
    option.gravity = [0.0, 0.0, -world.gravity]
    option.wind, option.magnetic = turn @ option.wind, turn @ option.magnetic


def roles_of(model: mujoco.MjModel) -> dict[str, str]:
    """Return a dict: role -> body, found by name; the shortest name is preferred, then the heaviest body.

    Limbs of a body with front and rear ones have roles such as front_left_foot, and none is its left_foot.
    """
    names = words_of_all(model.body(b).name for b in range(1, model.nbody))
    bodies = {name: (with_pairs(words), model.body(name).mass[0]) for name, words in names.items()}
    roles = {}
    for side in ("", *SIDES):
        for part, words in (_SIDED_WORDS if side else {**_WORDS, **_SIDED_WORDS}).items():
            found = [
                (rank, len(tokens), -mass, name)
                for name, (tokens, mass) in bodies.items()
                for rank, word in enumerate(words)
                if word in tokens and side_of(tokens) == side
            ]
            places = [at for at in PLACES if any(at == place_of(names[f[-1]]) for f in found)]
            for at in places if len(places) > 1 else ("",):
                if here := [f for f in found if at in ("", place_of(names[f[-1]]))]:
                    roles["_".join(filter(None, (at, side, part)))] = min(here)[-1]
    return roles


def with_feet(model: mujoco.MjModel, qpos: np.ndarray, roles: Mapping[str, str]) -> dict[str, str]:
    """Return `roles` with the feet on which a body stands at `qpos` [nq], if names do not tell two or more.

    They are known by where they are: two, left and right, or four, front and rear. One that is long is a shank.
    """
    root, told = root_of(model), [r for r in roles if side_of(r.split("_")) and r.endswith(("_foot", "_shank"))]
    data, world = pose(model, mujoco.MjData(model), qpos), world_of(model)
    free = _FREE in (int(model.jnt_type[j]) for j in base_joints(model, root))
    feet = sorted(lowest_of(model, data, root)) if free and len(told) < 2 and not lies(model, data, root) else []
    ends = np.array([_sole(model, data, foot) - data.xpos[root] for foot in feet]).reshape(-1, 3) @ world.frame.T
    ahead, left = ends[:, 0] > 0, ends[:, 1] > 0
    if len(feet) not in (2, 4) or np.abs(ends[:, 1]).min() < _ASIDE or 2 * left.sum() != len(feet):
        return dict(roles)
    if len(feet) == 4 and not all((ahead & (left == side)).sum() == 1 for side in (True, False)):
        return dict(roles)
    found = {role: name for role, name in roles.items() if not role.endswith("shank")}
    for foot, end, is_ahead, is_left in zip(feet, ends, ahead, left, strict=True):
        apart = float((data.xpos[foot] - data.xpos[root]) @ world.up) - float(end[2])
        part = "shank" if apart > _LONG * -float(end[2]) else "foot"
        place = [] if len(feet) == 2 else ["front" if is_ahead else "rear"]
        found["_".join([*place, "left" if is_left else "right", part])] = model.body(foot).name
    return found


def with_hand(model: mujoco.MjModel, roles: Mapping[str, str]) -> dict[str, str]:
    """Return `roles` with the end of an arm that is fixed to the world as its hand, if no name tells one.

    An arm is the only chain of hinges, one after the other, that is so long. One with a gripper has that for a hand.
    """
    if any(role.endswith("hand") for role in roles):
        return dict(roles)
    hands = list[int]()
    for tree in range(model.ntree):
        chain = [int(np.flatnonzero(model.body_treeid == tree)[0])]
        while len(below := np.flatnonzero(model.body_parentid == chain[-1])) == 1:
            chain.append(int(below[0]))
        kinds = model.jnt_type[np.isin(model.jnt_bodyid, chain)]
        arm = not len(below) and len(kinds) >= _ARM and (kinds == mujoco.mjtJoint.mjJNT_HINGE).all()
        hands += [chain[-1]] if arm else []
    return {**roles, "hand": model.body(hands[0]).name} if len(hands) == 1 else dict(roles)


def _joints(model: mujoco.MjModel, *kinds: int) -> list[int]:
    # an enum does not equal a NumPy integer
    return [j for j in range(model.njnt) if int(model.jnt_type[j]) in kinds]


def _touch(model: mujoco.MjModel, roles: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the touch parts of a walker: each foot with its descendants, and every other body that can collide.

    If there are too many, all bodies without a role form one part.
    """
    named = {model.body(b).name: b for b in range(1, model.nbody)}
    can = {int(b) for b in model.geom_bodyid[colliding(model)]}
    solid = [name for name, b in named.items() if b in can and model.body_weldid[b]]
    feet = {
        f"{side}_foot": tuple(n for n in solid if named[roles[f"{side}_foot"]] in above(model, named[n]))
        for side in ("left", "right")
    }
    others = [name for name in solid if name not in chain.from_iterable(feet.values())]
    if len(others) <= MAX_PARTS:
        return feet | {name: (name,) for name in others}
    rest = tuple(name for name in others if name not in roles.values())
    return feet | {name: (name,) for name in others if name not in rest} | {"rest": rest}


def forward_of(model: mujoco.MjModel, qpos: np.ndarray, roles: Mapping[str, str]) -> tuple[float, float, float]:
    """Return the horizontal axis closest to the direction of the feet at `qpos` [nq], the first if it is not known.

    It is x, if z is up.
    """
    data, frame = pose(model, mujoco.MjData(model), qpos), world_of(model).frame
    way = np.zeros(3)
    for side in ("left", "right"):
        if f"{side}_foot" in roles:
            foot = data.body(roles[f"{side}_foot"])
            toes = roles.get(f"{side}_toes", foot.name)
            joint = model.body(foot.id).jntadr[0]
            ankle = foot.xpos if joint < 0 else data.xanchor[joint]
            way += (_sole(model, data, foot.id) if toes == foot.name else data.body(toes).xpos) - ankle
    along = frame[:2] @ way
    axis = int(np.abs(along).argmax()) if np.abs(along).max() >= 0.01 else 0
    return _rounded(frame[axis] * (-1 if along[axis] < -0.01 else 1))


def _sole(model: mujoco.MjModel, data: mujoco.MjData, foot: int) -> np.ndarray:
    """Return the middle [3] of what collides of a foot without toes, most of which is in front of its joint.

    If nothing does, it is its centre of mass.
    """
    solid = [g for g in np.flatnonzero(colliding(model)) if foot in above(model, int(model.geom_bodyid[g]))]
    corners = [box_corners(model, data, int(g)) for g in solid]
    return 0.5 * (np.min(corners, (0, 1)) + np.max(corners, (0, 1))) if corners else data.xipos[foot]


def _rounded(way: np.ndarray) -> tuple[float, float, float]:
    x, y, z = (float(v) + 0.0 for v in np.round(way, 9))
    return x, y, z


def _posture(model: mujoco.MjModel, qpos: np.ndarray) -> Posture:
    """Return a dict: joint -> its value in `qpos` [nq], for hinges, slides and balls that differ from qpos0."""
    posture: dict[str, float | tuple[float, ...]] = {}
    for j in _joints(model, *_SCALAR, _BALL):
        first, size = int(model.jnt_qposadr[j]), 4 if model.jnt_type[j] == _BALL else 1
        value, default = qpos[first : first + size], model.qpos0[first : first + size]
        if np.abs(value - default).max() > 1e-9:
            posture[model.joint(j).name] = float(value[0]) if size == 1 else tuple(map(float, value))
    return posture
