"""A floor for a model that has none under its body, as the MJCF file of a robot without its scene."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.biomech.contacts import contact_bodies
from movlr_jax.biomech.world import World, world_of
from movlr_jax.models.actuators import servo_controls, servos
from movlr_jax.models.derived import base_joints, solid_of
from movlr_jax.models.motors import TargetSettings, gains, of_joints, targetable, with_targets
from movlr_jax.models.spec import compile_spec, quiet
from movlr_jax.rewards.term import axis_text
from movlr_jax.tasks.walking.terrain import add_plane

_NAME = "added/floor"
_FALL_S = 0.2  # s
_FREE = 0.9  # share of the way of a free fall from which on nothing holds a body
_FAR = 10.0  # m, largest distance that is measured
INSIDE = 0.002  # m that bodies may overlap at the start
_LEVEL = 0.7  # cosine between a direction and up from which on it counts as upward
_SETTLE_S = 1.5  # s
_HOVERS = 0.03  # m that a body comes down; less is how far its joints give way
_CRUMPLES = 0.5  # share of its height after which a body that came down has not come down on its feet
_CALM = 0.1  # m/s and rad/s of a body at rest
_UPRIGHT = 0.97  # cosine of a turn by 14 degrees
_PRESSED = 0.01  # m that the feet of a body may be below a floor on which it stands


def add_floor(spec: mujoco.MjSpec, at: mujoco.MjData, root: str) -> str:
    """Add a floor to a model without one, if the body `root` falls freely from the start `at`.

    The floor is level, through the origin of the world, or at the lowest point of the start if that is clearly lower.
    A body of which nothing collides, as in the file of a robot whose scene lists its contacts, collides with it.
    Returns a sentence about it, "" if the model needs none.
    """
    model = at.model
    body = model.body(root).id
    world = world_of(model, body)
    solid = solid_of(model, body)
    if world.over_ground(at.geom_xpos[solid]) or not _falls(at, body, world):
        return ""
    types, affinities = model.geom_contype[solid], model.geom_conaffinity[solid]
    alone = ""
    if not (types | affinities).any():
        alone, affinities = f"; {_made_solid(spec, model, body)} collide with it alone", np.ones(1, int)
    floor = add_plane(spec, _NAME)
    floor.contype, floor.conaffinity = np.bitwise_or.reduce(affinities), np.bitwise_or.reduce(types)
    mujoco.mju_mat2Quat(floor.quat, world.frame.T.ravel())  # from z to up
    lowest = _lowest(compile_spec(spec), at.qpos, body)
    height = lowest if lowest < -_PRESSED else 0.0
    floor.pos = height * world.up
    axis = axis_text(world.up.tolist()).removeprefix("+")
    where = f"{axis} = {height:.3g} m" if axis in ("x", "y", "z") else f"{height:.3g} m along {axis}"
    none = "has no floor" if not len(world.planes) + len(world.others) else f"has no floor under {root}"
    return f"the model {none}, so {root} would fall: a floor was added at {where}{alone}"


def lifted(at: mujoco.MjData, root: str) -> str:
    """Lift the body `root` by its base until it is not inside what stands still below it.

    Changes qpos of `at`. Returns a sentence about it, "" if nothing had to be lifted or could be.
    """
    model, data = at.model, mujoco.MjData(at.model)
    body = model.body(root).id
    up, tree, depth = world_of(model, body).up, model.body_rootid[body], 0.0
    data.qpos[:] = at.qpos
    mujoco.mj_forward(model, data)
    for one, two, distance, frame in zip(
        *contact_bodies(model, data).T, data.contact.dist, data.contact.frame, strict=True
    ):
        still, moving = (one, two) if model.body_weldid[one] == 0 else (two, one)
        steep = abs(frame[:3] @ up) < _LEVEL or model.body_weldid[still] != 0
        if model.body_rootid[moving] == tree and not steep:
            depth = max(depth, -float(distance))
    if depth <= INSIDE:
        return ""
    for j in base_joints(model, body):
        first, free = model.jnt_qposadr[j], model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE
        if free:
            at.qpos[first : first + 3] += depth * up
        elif model.jnt_type[j] == mujoco.mjtJoint.mjJNT_SLIDE and abs(data.xaxis[j] @ up) > _LEVEL:
            at.qpos[first] += depth * np.sign(data.xaxis[j] @ up)
        else:
            continue
        mujoco.mj_kinematics(model, at)
        return f"at the start, {root} was lifted by {1000 * depth:.0f} mm, because it began inside the floor"
    return ""


def settled(at: mujoco.MjData, root: str) -> str:
    """Let the body `root`, if it hovers, come to rest on its feet; its motors and servos hold the joints.

    Changes qpos of `at`, unless the body falls, lies or does not float. Returns a sentence, "" if nothing changed.
    """
    model, posture = at.model, at.qpos.copy()
    body, which = model.body(root).id, targetable(model, posture)
    free = [j for j in base_joints(model, body) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE]
    if not free or not (which | (servos(model) & of_joints(model))).any():
        return ""
    held = with_targets(model, which, gains(TargetSettings(), model, which, posture), posture)
    data, up = mujoco.MjData(held), world_of(model, body).up
    data.qpos[:], data.ctrl[:] = posture, np.where(which, 0.0, servo_controls(held, posture))
    with quiet():
        mujoco.mj_step(held, data, nstep=round(_SETTLE_S / model.opt.timestep))
    sunk = float((at.xpos[body] - data.xpos[body]) @ up)
    tilted = np.trace(data.xmat[body].reshape(3, 3).T @ at.xmat[body].reshape(3, 3)) < 1 + 2 * _UPRIGHT
    calm = np.abs(data.qvel[model.jnt_dofadr[free[0]] :][:6]).max() < _CALM
    touching = contact_bodies(held, data)
    if tilted or not calm or not len(touching) or body in touching:
        return ""
    height = float(((data.xpos[body] - data.contact.pos) @ up).max())
    if not _HOVERS < sunk < _CRUMPLES * height:
        return ""
    at.qpos[:] = data.qpos
    mujoco.mj_kinematics(model, at)
    return f"at the start, {root} was let down by {1000 * sunk:.0f} mm, to where it comes to rest on its feet"


def _made_solid(spec: mujoco.MjSpec, model: mujoco.MjModel, body: int) -> str:
    """Let the shapes of the tree of a body collide with a floor, meshes only if it has no others. Return which."""
    tree = {model.body(b).name for b in np.flatnonzero(model.body_rootid == model.body_rootid[body])}
    shapes = [geom for geom in spec.geoms if geom.parent.name in tree]
    simple = [geom for geom in shapes if geom.type != mujoco.mjtGeom.mjGEOM_MESH]
    for geom in simple or shapes:
        geom.conaffinity = 1
    return f"its {len(simple)} simple shapes" if simple else f"its {len(shapes)} meshes"


def _falls(at: mujoco.MjData, body: int, world: World) -> bool:
    """Return whether nothing holds the body with all that it carries, under the controls of the start."""
    model, data = at.model, mujoco.MjData(at.model)
    data.qpos[:], data.ctrl[:] = at.qpos, at.ctrl
    mujoco.mj_forward(model, data)
    begin = data.subtree_com[body] @ world.up
    while data.time < _FALL_S:
        mujoco.mj_step(model, data)
    free = -0.5 * world.gravity * data.time**2
    return free < 0 and bool(data.subtree_com[body] @ world.up - begin < _FREE * free)


def _lowest(model: mujoco.MjModel, qpos: np.ndarray, body: int) -> float:
    """Return the height [m] of the lowest point at `qpos` [nq] that could collide with the added floor."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    floor = model.geom(_NAME).id
    return min(mujoco.mj_geomDistance(model, data, floor, int(geom), _FAR, None) for geom in solid_of(model, body))
