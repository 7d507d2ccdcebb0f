"""Any MJCF file by its path: what tasks need to know of it, read off the model and its names."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path

import mujoco
import numpy as np

from movlr_jax.errors import UserError, near_matches
from movlr_jax.models.adapter import ModelAdapter
from movlr_jax.models.derived import MAX_PARTS, derive_adapter, name_all
from movlr_jax.models.spec import compile_spec, read_spec, strip

MAX_SITES = 50
_GROUND = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
_FREE = mujoco.mjtJoint.mjJNT_FREE
_SCALAR = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_SIDES = {"l": "left", "left": "left", "r": "right", "right": "right"}

# role -> words that bodies of that kind have in their names, the best first; OpenSim's and those of robots
_WORDS: Mapping[str, Sequence[str]] = {
    "pelvis": ("pelvis", "pelvic", "hips", "waist"),
    "trunk": ("torso", "trunk", "thorax", "chest", "thoracic", "spine"),
    "head": ("head", "skull"),
}
_SIDED_WORDS: Mapping[str, Sequence[str]] = {
    "thigh": ("thigh", "femur", "upperleg"),
    "shank": ("shank", "tibia", "shin", "calf", "lowerleg", "knee"),
    "foot": ("foot", "calcn", "calcaneus", "heel", "pes", "ankle"),
    "toes": ("toes", "toe"),
    "upper_arm": ("humerus", "upperarm"),
    "forearm": ("forearm", "radius", "lowerarm"),
    "hand": ("hand", "palm", "wrist"),
}


def is_path(name: str) -> bool:
    """Whether `name` is the path of a file rather than the name of a model."""
    return "/" in name or "\\" in name or name.lower().endswith((".xml", ".mjb"))


def adapter_of(path: str) -> ModelAdapter:
    """The adapter of the MJCF file at `path`. Raises UserError.

    Planned joints are the limited ones that an actuator moves and no equality drives; parts are found by their names.
    A model that stands on two feet walks: nothing else of it may touch the ground, and the joints that carry it
    through the world lose their limits.
    """
    file = Path(path).expanduser().absolute()
    _check(path, file)
    try:
        model = compile_spec(_read(file))
        qpos = model.key_qpos[0] if model.nkey else model.qpos0
        roles = roles_of(model)
        walks = {"left_foot", "right_foot"} <= roles.keys()
        placed = {model.joint(j).name: qpos[model.jnt_qposadr[j] :][:7] for j in _joints(model, _FREE)}
        loose = [model.joint(j).name for j in _base(model)] if walks else []
        load = functools.partial(_edited, file, placed, loose)
        derived = derive_adapter(path, load, source=str(file), licence="see the file's authors")
    except ValueError as error:
        raise UserError(f"{path} does not compile: {' '.join(str(error).split())}") from None
    if model.nu == 0:
        raise UserError(
            f"{path} has no actuators, so nothing could be learned with it; add muscles or motors"
        )
    if walks:  # what tasks ask of a walker
        roles = {"pelvis": derived.root, "trunk": roles.get("pelvis", derived.root)} | roles
        roles = {"head": roles["trunk"]} | roles  # a robot may have none
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
        forward=forward_of(model, qpos, roles),
        files=lambda: file,
    )


def _check(path: str, file: Path) -> None:
    """Raises UserError where there is no file that could be read."""
    if not file.is_file():
        beside = [str(p) for p in file.parent.glob("*.xml")] if file.parent.is_dir() else []
        near = near_matches(str(file), beside, limit=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else f" (looked in {Path.cwd()})"
        raise UserError(f"there is no model file {path}{hint}")
    if file.suffix.lower() == ".mjb":
        raise UserError(
            f"{path} is compiled, and tasks must add to a model: give its XML (MuJoCo writes one with "
            "mj_saveLastXML)"
        )


def _read(file: Path) -> mujoco.MjSpec:
    """The spec with everything named. Raises UserError."""
    spec = read_spec(file)
    name_all(spec)
    return spec


def _edited(file: Path, placed: Mapping[str, np.ndarray], loose: Iterable[str]) -> mujoco.MjSpec:
    """The spec without its ground, lights and cameras, its free bodies `placed` [7], `loose` joints unlimited."""
    spec = _read(file)
    ground = [geom for geom in spec.worldbody.geoms if geom.type in _GROUND]
    names = {geom.name for geom in ground if geom.name}
    for pair in list(spec.pairs):
        if names & {pair.geomname1, pair.geomname2}:
            # what met the ground as a pair alone will meet that of the task, and still not its own kind
            other = spec.geom(pair.geomname2 if pair.geomname1 in names else pair.geomname1)
            if other is not None and not other.contype:
                other.conaffinity |= 1
            spec.delete(pair)
    camera, geom = mujoco.mjtObj.mjOBJ_CAMERA, mujoco.mjtObj.mjOBJ_GEOM
    for sensor in list(spec.sensors):  # none may be left that measures what goes
        ends = ((sensor.objtype, sensor.objname), (sensor.reftype, sensor.refname))
        if any(kind == camera or (kind == geom and name in names) for kind, name in ends):
            spec.delete(sensor)
    strip(spec, ground)
    for joint, pose in placed.items():
        body = spec.joint(joint).parent
        body.pos, body.quat = pose[:3], pose[3:]
        body.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT  # an euler or axisangle would win
    for joint in loose:
        spec.joint(joint).limited = mujoco.mjtLimited.mjLIMITED_FALSE
    return spec


def roles_of(model: mujoco.MjModel) -> dict[str, str]:
    """Role -> the body whose name says so: the plainest name first, then the heaviest body."""
    bodies = {
        model.body(b).name: (_tokens(model.body(b).name), model.body_mass[b]) for b in range(1, model.nbody)
    }
    roles = {}
    for side in ("", "left", "right"):
        for part, words in (_SIDED_WORDS if side else {**_WORDS, **_SIDED_WORDS}).items():
            found = [
                (rank, len(tokens), -mass, name)
                for name, (tokens, mass) in bodies.items()
                for rank, word in enumerate(words)
                if word in tokens and _side(tokens) == side
            ]
            if found:
                roles[f"{side}_{part}" if side else part] = min(found)[-1]
    return roles


def _tokens(name: str) -> list[str]:
    """`LeftUpperArm_2` -> left, upper, arm, upperarm, 2."""
    words = [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    return words + [a + b for a, b in pairwise(words) if a in ("upper", "lower")]


def _side(tokens: Sequence[str]) -> str:
    return next((_SIDES[token] for token in tokens if token in _SIDES), "")


def _joints(model: mujoco.MjModel, *kinds: int) -> list[int]:
    # an enum does not equal a NumPy integer
    return [j for j in range(model.njnt) if int(model.jnt_type[j]) in kinds]


def _base(model: mujoco.MjModel) -> list[int]:
    """The joints of bodies on the world that slide: what carries a body through the world."""
    slides = {int(model.jnt_bodyid[j]) for j in _joints(model, mujoco.mjtJoint.mjJNT_SLIDE)}
    carried = {b for b in slides if model.body_weldid[model.body_parentid[b]] == 0}
    return [j for j in _joints(model, *_SCALAR) if model.jnt_bodyid[j] in carried]


def _touch(model: mujoco.MjModel, roles: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The parts of a walker: each foot with all that hangs on it, every other body that can touch, one by one.

    Where those are very many, the ones without a role are one part.
    """
    named = {model.body(b).name: b for b in range(1, model.nbody)}
    can = {int(b) for b in model.geom_bodyid[(model.geom_contype | model.geom_conaffinity) != 0]}
    paired = {int(model.geom_bodyid[g]) for g in (*model.pair_geom1, *model.pair_geom2)}
    solid = [name for name, b in named.items() if b in can | paired and model.body_weldid[b]]
    feet = {
        f"{side}_foot": tuple(n for n in solid if named[roles[f"{side}_foot"]] in _above(model, named[n]))
        for side in ("left", "right")
    }
    others = [name for name in solid if name not in chain.from_iterable(feet.values())]
    if len(others) <= MAX_PARTS:
        return feet | {name: (name,) for name in others}
    rest = tuple(name for name in others if name not in roles.values())
    return feet | {name: (name,) for name in others if name not in rest} | {"rest": rest}


def _above(model: mujoco.MjModel, body: int) -> list[int]:
    """`body` and all that carry it."""
    above = []
    while body:
        above.append(body)
        body = int(model.body_parentid[body])
    return above


def forward_of(
    model: mujoco.MjModel, qpos: np.ndarray, roles: Mapping[str, str]
) -> tuple[float, float, float]:
    """The horizontal axis nearest to where the feet point at `qpos` [nq]; +x where the model does not say."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    way = np.zeros(3)
    for side in ("left", "right"):
        if f"{side}_foot" in roles:
            foot = data.body(roles[f"{side}_foot"])
            toes = roles.get(f"{side}_toes", foot.name)
            # a foot of one body has most of its mass ahead of its joint
            way += (foot.xipos if toes == foot.name else data.body(toes).xpos) - foot.xpos
    x, y = way[:2]
    if max(abs(x), abs(y)) < 0.01:
        return (1.0, 0.0, 0.0)
    return (float(np.sign(x)), 0.0, 0.0) if abs(x) >= abs(y) else (0.0, float(np.sign(y)), 0.0)


def _posture(model: mujoco.MjModel, qpos: np.ndarray) -> dict[str, float]:
    """Joint -> where `qpos` [nq] has it, of those that stand elsewhere than at qpos0."""
    moved = [(j, model.jnt_qposadr[j]) for j in _joints(model, *_SCALAR)]
    return {model.joint(j).name: float(qpos[q]) for j, q in moved if abs(qpos[q] - model.qpos0[q]) > 1e-9}
