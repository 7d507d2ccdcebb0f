"""The start of an episode in words: where bodies are, how large and heavy objects are, which forces act."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import mujoco
import numpy as np

from movlr_jax.biomech.contacts import contact_bodies
from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.biomech.world import EARTH, box_corners
from movlr_jax.models.actuators import has_muscles, servos
from movlr_jax.models.derived import base_joints, colliding
from movlr_jax.models.names import words_of
from movlr_jax.rewards.term import axis_text
from movlr_jax.tasks import Task

_CLOSE = 0.02  # m from a thing, within which what stands still is told
_TOUCH_N = 0.5  # smaller contact forces are not listed
_FEW = 24  # bodies of a model of one's own, whose positions are all listed
_LIKE_EARTH = 0.05  # m/s^2, a smaller difference of gravity is not mentioned
_SINGLE = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)  # joints with one coordinate
_STARTS = 16  # that are compared
_VARIED = 0.3  # rad or m between starts, which is more than noise
_MOVED_M = 0.001  # m per rad or m; a joint that moves every body less is not described
_DIRECTIONS = [axis_text(way) for way in np.concatenate([np.eye(3), -np.eye(3)])]


def start_of(task: Task) -> mujoco.MjData:
    """Return one start state, with everything that C MuJoCo derives from it."""
    data = mujoco.MjData(task.model)
    qpos, qvel, act = task.start(np.random.default_rng(0), 1)
    data.qpos[:], data.qvel[:], data.act[:] = qpos[0], qvel[0], act[0]
    mujoco.mj_forward(task.model, data)
    return data


def joint_facts(task: Task, data: mujoco.MjData) -> dict[str, str]:
    """Return, for each planned joint and the base's, its range and position, and where a body goes if it rises.

    Where none is planned, as where joints have no limits, those of all hinges and slides. The body is the one that
    moves most among the task's roles, else among all that a reward may read; the direction is the closest axis of the
    world.
    """
    model, facts = task.model, {}
    every = [name for name in task.layout.joints if name and int(model.joint(name).type[0]) in _SINGLE]
    base = base_joints(model, model.body(task.adapter.root).id)
    planned = task.adapter.planned_joints
    for name in (*(name for name in every if model.joint(name).id in base or not planned), *planned):
        if name not in task.layout.joints:
            continue
        joint = model.joint(name)
        low, high = joint.range
        parts = [f"{low:.2f} to {high:.2f}" if model.jnt_limited[joint.id] else "no limit"]
        if int(joint.type[0]) in _SINGLE:
            parts.append(f"starts at {round(data.qpos[joint.qposadr[0]], 2) + 0.0:.2f}")
            moved = _moved(task, data, int(joint.dofadr[0]))
            parts += [f"a rise moves `{moved[0]}` to {moved[1]}"] if moved else []
        facts[name] = ", ".join(parts)
    return facts


def varied_starts(task: Task) -> str:
    """Return which joints begin elsewhere in other episodes, by more than noise; empty if none does."""
    model, qpos, found = task.model, task.start(np.random.default_rng(0), _STARTS)[0], list[str]()
    for name, (at, _) in task.layout.joints.items():
        values = qpos[:, at]
        kind = int(model.joint(name).type[0]) if name else -1
        if kind in _SINGLE:
            if np.ptp(values) > _VARIED:
                found.append(f"`{name}` at {values.min():.2f} to {values.max():.2f}")
            continue
        if kind == mujoco.mjtJoint.mjJNT_FREE and np.ptp(values[:, :3], axis=0).max() > _VARIED:
            low, high = values[:, :3].min(axis=0), values[:, :3].max(axis=0)
            found.append(f"`{name}` at {_vector(low, 2)} to {_vector(high, 2)} m")
        if kind in (mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_BALL):
            quats = values[:, -4:] / np.linalg.norm(values[:, -4:], axis=1, keepdims=True)  # resets add noise to them
            turns = 2 * np.arccos(np.clip(np.abs(quats @ quats[0]), 0, 1))  # from the first start
            if turns.max() > _VARIED:
                found.append(f"`{name}` turned by up to {np.degrees(turns.max()):.0f} degrees")
    return ", ".join(found)


def _moved(task: Task, data: mujoco.MjData, dof: int) -> tuple[str, str] | None:
    """Return the body whose centre of mass a degree of freedom moves most, and the closest axis of the world."""
    roles = [name for name in dict.fromkeys(task.roles.values()) if name in task.layout.bodies]
    jacobian = np.empty((3, task.model.nv))
    for names in (roles, task.layout.bodies):
        ways = {}
        for name in names:
            mujoco.mj_jacBodyCom(task.model, data, jacobian, None, task.model.body(name).id)
            ways[name] = jacobian[:, dof].copy()
        name = max(ways, key=lambda n: np.linalg.norm(ways[n]), default=None)
        if name is not None and np.linalg.norm(ways[name]) > _MOVED_M:
            way = ways[name]
            return name, _DIRECTIONS[int(np.argmax(np.concatenate([way, -way])))]
    return None


def actuator_facts(task: Task, data: mujoco.MjData) -> list[str]:
    """Return, for each actuator of a model without muscles, in the order of `action`: kind, target and range.

    For position servos also the command that holds the start.
    """
    model = task.model
    if has_muscles(model):
        return []
    rest, served, acts = task.resting(data.qpos), servos(model), enabled_actuators(model)
    facts = []
    for i in range(model.nu):
        low, high = model.actuator_ctrlrange[i]
        gain, bias = model.actuator_gainprm[i, 0], model.actuator_biasprm[i]
        kind = "position servo" if served[i] else "velocity servo" if bias[2] < 0 and gain > 0 else "motor"
        parts = [f"{low:g} to {high:g}" if model.actuator_ctrllimited[i] else "no limit"]
        parts += _strength(model, i) if kind == "motor" else []
        parts += [] if acts[i] else ["disabled: it gives no force"]
        parts += [f"{rest[i] + 0.0:.2f} holds the start"] if served[i] or rest[i] else []
        facts.append(f"{model.actuator(i).name} ({kind}{_driven(model, i)}, {', '.join(parts)})")
    return facts


def _strength(model: mujoco.MjModel, actuator: int) -> list[str]:
    """Return the largest force or torque of a motor of a hinge or slide, in words."""
    joint = int(model.actuator_trnid[actuator, 0])
    of_joint = model.actuator_trntype[actuator] == mujoco.mjtTrn.mjTRN_JOINT and int(model.jnt_type[joint]) in _SINGLE
    if not (of_joint and model.actuator_ctrllimited[actuator]):
        return []
    force = abs(model.actuator_gainprm[actuator, 0]) * np.abs(model.actuator_ctrlrange[actuator]).max()
    if model.actuator_forcelimited[actuator]:
        force = min(force, np.abs(model.actuator_forcerange[actuator]).max())
    unit = "N m" if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE else "N"
    return [f"at most {abs(model.actuator_gear[actuator, 0]) * force:.3g} {unit}"]


def _driven(model: mujoco.MjModel, actuator: int) -> str:
    """Return what an actuator acts on, as " of `knee`"."""
    kinds = {mujoco.mjtTrn.mjTRN_JOINT: model.joint, mujoco.mjtTrn.mjTRN_TENDON: model.tendon,
             mujoco.mjtTrn.mjTRN_SITE: model.site, mujoco.mjtTrn.mjTRN_BODY: model.body}  # fmt: skip
    named = kinds.get(mujoco.mjtTrn(model.actuator_trntype[actuator]))
    target = named(model.actuator_trnid[actuator, 0]).name if named else ""
    return f" of `{target}`" if target and target != model.actuator(actuator).name else ""


def scene_facts(task: Task, data: mujoco.MjData) -> list[str]:
    """Return sentences about the start state `data`. Positions and axes are in the world frame."""
    model = task.model
    gravity = float(np.linalg.norm(model.opt.gravity))
    known = (*task.roles.values(), *names_in(task.description, task.layout.bodies))
    names = [name for name in dict.fromkeys(known) if name in task.layout.bodies]
    few = not task.adapter.info.body and len(task.layout.bodies) <= _FEW
    root = model.body(task.adapter.root).rootid[0]
    free = model.jnt_bodyid[model.jnt_type == mujoco.mjtJoint.mjJNT_FREE]
    things = [int(body) for body in free if model.body_rootid[body] != root]
    placed = {"Positions": [(name, data.body(name).xpos) for name in (task.layout.bodies if few else names)]}
    placed["Sites"] = [(name, data.site(name).xpos) for name in task.layout.sites]
    facts = [
        f"{kind}: {', '.join(f'`{name}` {_vector(at)}' for name, at in found)}."
        for kind, found in placed.items()
        if found
    ]
    turned = [(name, model.body(name).id) for name in names if model.body(name).id not in things]
    if turned:
        facts.append(f"Axes: {'; '.join(f'`{name}` {_axes(data, body)}' for name, body in turned)}.")
    facts += [f"{_quoted(group)} are one rigid body." for group in _rigid(model, names)]
    covered = {p: bodies for p, bodies in task.adapter.touch.items() if p in task.layout.touch and [p] != [*bodies]}
    if covered:
        facts.append(f"Contact sensors: {'; '.join(f'`{p}` covers {_quoted(b)}' for p, b in covered.items())}.")
    feet = {part for role, part in task.roles.items() if "foot" in words_of(role)}
    soles = [_foot(task, data, part) for part in task.adapter.touch if part in feet or "foot" in words_of(part)]
    facts += [fact for fact in soles if fact]
    facts += _world(task, data)
    facts.append(f"The whole body weighs {gravity * model.body_subtreemass[root]:.3g} N.")
    facts += [_thing(model, data, body, gravity) for body in things]
    forces = {part: float(sum(data.sensordata[i] for i in sensors)) for part, sensors in task.layout.touch.items()}
    pressed = [f"`{part}` {force:.0f} N" for part, force in forces.items() if force > _TOUCH_N]
    facts.append(f"Contact forces at that instant: {', '.join(pressed) or 'none'}.")
    low, high = model.actuator_ctrlrange.T
    kind = "excitations of muscles" if has_muscles(model) else "commands of motors"
    span = (
        f"from {low[0]:g} to {high[0]:g}"
        if np.ptp(low) < 1e-9 and np.ptp(high) < 1e-9
        else f"between {low.min():.3g} and {high.max():.3g}, with a range of its own for each actuator"
    )
    return [*facts, f"`action` holds {kind}, {span}."]


def _world(task: Task, data: mujoco.MjData) -> list[str]:
    """Return what is unusual about the ground and gravity of a task."""
    world, facts = task.layout.world, list[str]()
    axis = axis_text(world.up.tolist()).removeprefix("+")
    where = f"at {axis} = {{:.3g}} m" if axis in ("x", "y", "z") else f"{{:.3g}} m from the origin along {axis}"
    if world.level:
        facts.append(f"The ground is {where.format(world.level)}.")
    elif world.level is None and base_joints(task.model, task.model.body(task.adapter.root).id):
        at = data.body(task.adapter.root).xpos
        under = float(at @ world.up - world.height(at))
        facts.append(
            f"The ground under `{task.adapter.root}` is {where.format(under)} and elsewhere may be higher or lower: "
            "use `state.height(body)`."
        )
    if abs(world.gravity - EARTH) > _LIKE_EARTH:
        facts.append(f"Gravity is {world.gravity:.3g} m/s^2." if world.gravity else "There is no gravity.")
    return facts


def names_in(description: str, names: Iterable[str]) -> list[str]:
    """Return the names all of whose words are in a description, in the order of the description."""
    words = words_in(description)
    found = [name for name in dict.fromkeys(names) if words_in(name) and {*words_in(name)} <= {*words}]
    return sorted(found, key=lambda name: min(map(words.index, words_in(name))))


def words_in(text: str) -> list[str]:
    """Return the words and numbers of a text in lower case."""
    return re.findall(r"[a-z0-9]+", text.lower())


def _thing(model: mujoco.MjModel, data: mujoco.MjData, body: int, gravity: float) -> str:
    """Return size, weight, position and axes of a free body."""
    frame = data.xmat[body].reshape(3, 3)
    corners = (_corners(model, data, [body]) - data.xpos[body]) @ frame
    name = model.body(body).name
    text = f"`{name}` weighs {gravity * model.body_mass[body]:.1f} N and is at {_vector(data.xpos[body])}"
    if len(corners):
        low, high = corners.min(axis=0), corners.max(axis=0)
        sizes = " x ".join(f"{100 * size:.1f}" for size in high - low)
        text += (
            f"; along its x, y and z axes it measures {sizes} cm, with its centre at {_vector((low + high) / 2)} m "
            "from its origin"
        )
    others = dict.fromkeys(int(b) for pair in contact_bodies(model, data) if body in pair for b in pair if b != body)
    near = {model.body(b).name: gap for b, gap in _close(model, data, body).items() if b not in others}
    touched = [f"It touches {_quoted(model.body(b).name for b in others) or 'nothing'}"]
    touched += [f"`{name or 'the ground'}` is {100 * gap:.1f} cm away" for name, gap in near.items()]
    return f"{text}. {'; '.join(touched)}. Its axes point to: {_axes(data, body)}."


def _close(model: mujoco.MjModel, data: mujoco.MjData, body: int) -> dict[int, float]:
    """Return what stands still within 2 cm of a body, with the distance in m."""
    solid = [int(g) for g in np.flatnonzero(colliding(model))]
    own = [g for g in solid if model.geom_bodyid[g] == body]
    found = dict[int, float]()
    for other in (g for g in solid if model.body_weldid[model.geom_bodyid[g]] == 0):
        gap = min(mujoco.mj_geomDistance(model, data, g, other, _CLOSE, None) for g in own) if own else _CLOSE
        if gap < found.get(b := int(model.geom_bodyid[other]), _CLOSE):
            found[b] = gap
    return found


def _corners(model: mujoco.MjModel, data: mujoco.MjData, bodies: Sequence[int]) -> np.ndarray:
    """Return the corners [n, 3] m of boxes around the colliding geoms of bodies, in the world frame."""
    colliding = (model.geom_contype | model.geom_conaffinity) != 0
    geoms = np.flatnonzero(np.isin(model.geom_bodyid, bodies) & colliding)
    return np.concatenate([np.empty((0, 3)), *(box_corners(model, data, int(geom)) for geom in geoms)])


def _foot(task: Task, data: mujoco.MjData, part: str) -> str:
    """Return how far the sole of a foot reaches from the origin of its first body, along the world's axes."""
    first, *_ = bodies = task.adapter.touch[part]
    corners = _corners(task.model, data, [task.model.body(name).id for name in bodies]) - data.body(first).xpos
    if not len(corners):
        return ""
    low, high = corners.min(axis=0), corners.max(axis=0)
    height = data.body(first).xpos[2] + low[2]
    at = f"; it begins {100 * height:z.0f} cm above z = 0" if task.layout.world.z_up else ""
    return (
        f"From the origin of `{first}`, `{part}` reaches from {low[0]:.2f} to {high[0]:.2f} m along x, from "
        f"{low[1]:.2f} to {high[1]:.2f} m along y, from {low[2]:.2f} to {high[2]:.2f} m along z{at}."
    )


def _axes(data: mujoco.MjData, body: int) -> str:
    axes = data.xmat[body].reshape(3, 3)
    return ", ".join(f"{axis} {_vector(axes[:, i], 2)}" for i, axis in enumerate("xyz"))


def _rigid(model: mujoco.MjModel, names: Sequence[str]) -> list[list[str]]:
    """Return the groups of bodies that no joint separates."""
    groups: dict[int, list[str]] = {}
    for name in names:
        groups.setdefault(int(model.body(name).weldid[0]), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _vector(values: np.ndarray, digits: int = 3) -> str:
    return f"[{', '.join(f'{v + 0.0:.{digits}f}' for v in np.round(values, digits))}]"
