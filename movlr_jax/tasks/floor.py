"""A floor for a model that has none under its body, and a start on it.

A body that begins inside the floor is lifted, one that hovers is let down, and one on three or more legs, whose file
has it sprawled, entangled or out of its range, is stood up.
"""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.biomech.contacts import contact_bodies
from movlr_jax.biomech.world import World, box_corners, lowest, world_of
from movlr_jax.models.actuators import servo_controls, servos
from movlr_jax.models.derived import above, base_joints, solid_of
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
_LEGS = 3  # at least; a body on two would have to balance
_ALIKE = 0.15  # by how much legs of one body differ in length at most
_TALL, _LOW = 0.75, 0.4  # of the length of its legs: height of hips of a body that stands, and of one that lies
_TANGLED = 0.01  # m that parts of a body may overlap at the start of a keyframe
_HELD_S = 1.0  # s
_HIP, _SOFT = 0.25, 0.01  # share of a leg that a long segment has; weight of angles (1/rad) where a leg is bent
_STARTS = 8  # postures from which that of a leg is sought
_STEADY = 0.9  # cosine of the turn of a body that stands


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
    below = _lowest(compile_spec(spec), at.qpos, body)
    height = below if below < -_PRESSED else 0.0
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
    data, up = _held(model, posture, _SETTLE_S), world_of(model, body).up
    sunk = float((at.xpos[body] - data.xpos[body]) @ up)
    calm = np.abs(data.qvel[model.jnt_dofadr[free[0]] :][:6]).max() < _CALM
    touching = contact_bodies(data.model, data)
    if _turn(at, data, body) < _UPRIGHT or not calm or not len(touching) or body in touching:
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


def _held(model: mujoco.MjModel, posture: np.ndarray, seconds: float) -> mujoco.MjData:
    """Return the data after the motors and servos of a model have held a `posture` [nq] for some time."""
    which = targetable(model, posture)
    held = with_targets(model, which, gains(TargetSettings(), model, which, posture), posture)
    data = mujoco.MjData(held)
    data.qpos[:], data.ctrl[:] = posture, np.where(which, 0.0, servo_controls(held, posture))
    with quiet():
        mujoco.mj_step(held, data, nstep=round(seconds / model.opt.timestep))
    return data


def _turn(before: mujoco.MjData, after: mujoco.MjData, body: int) -> float:
    """Return the cosine of the angle by which a body has turned."""
    return 0.5 * float(np.trace(after.xmat[body].reshape(3, 3).T @ before.xmat[body].reshape(3, 3))) - 0.5


def stood(at: mujoco.MjData, root: str, keyframe: bool) -> str:
    """Stand the floating body `root` up on its legs, if it does not stand as it is and then would.

    Changes qpos of `at`. A start of a `keyframe` stays, unless parts of the body are inside each other. Returns a
    sentence, "" if nothing changed.
    """
    model, body = at.model, at.model.body(root).id
    free = [j for j in base_joints(model, body) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE]
    driven = {*model.actuator_trnid[of_joints(model), 0]}  # muscles hold no posture by themselves
    legs = [leg for leg in (_legs(model, body) if free else []) if driven & {*leg[1]}]
    tangled = keyframe and _overlap(at, body) > _TANGLED
    if len(legs) < _LEGS or (keyframe and not tangled) or (not tangled and _stands(at, body, legs)):
        return ""
    new, up = mujoco.MjData(model), world_of(model, body).up
    new.qpos[:] = at.qpos
    mujoco.mj_kinematics(model, new)
    for _, leg in legs:
        _bend(new, leg, up)
    mujoco.mj_kinematics(model, new)
    under = float(new.xpos[body] @ up) - min(lowest(model, new, int(g), up) for g in solid_of(model, body))
    first = model.jnt_qposadr[free[0]]
    new.qpos[first : first + 3] += (under - float(world_of(model, body).height(new.xpos[body]))) * up
    if not _stands(new, body, legs):
        return ""
    at.qpos[:], at.ctrl[:] = new.qpos, 0.0
    mujoco.mj_kinematics(model, at)
    why = "in which parts of it are inside each other" if tangled else "in which it does not stand"
    return f"at the start, {root} stands on its {len(legs)} legs, not in the posture of the file, {why}"


def _legs(model: mujoco.MjModel, body: int) -> list[tuple[float, list[int]]]:
    """Return length in m and hinges of the legs of a body: of its limbs, the most that are about equally long."""
    limbs = list[tuple[float, list[int]]]()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    solid = {int(model.geom_bodyid[g]) for g in solid_of(model, body)}
    for leaf in solid - {int(model.body_parentid[b]) for b in solid}:
        chain, b = list[int](), leaf
        while b and b != body:
            first = int(model.body_jntadr[b])
            chain = [*range(first, first + int(model.body_jntnum[b])), *chain]
            b = int(model.body_parentid[b])
        if b == body and len(chain) > 1 and (model.jnt_type[chain] == mujoco.mjtJoint.mjJNT_HINGE).all():
            points = [*(data.xanchor[j] for j in chain), _foot(data, chain[-1])]
            limbs.append((float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum()), chain))
    groups = [[limb for limb in limbs if abs(limb[0] - of) < _ALIKE * of] for of, _ in limbs]
    return max(groups, key=len, default=[])


def _foot(data: mujoco.MjData, joint: int) -> np.ndarray:
    """Return the end [3] of a leg: the corner of its last shapes farthest from its last joint."""
    model, last = data.model, int(data.model.jnt_bodyid[joint])
    geoms = [g for g in solid_of(model, last) if last in above(model, int(model.geom_bodyid[g]))]
    points = np.concatenate([box_corners(model, data, int(g)) for g in geoms])
    far = np.linalg.norm(points - data.xanchor[joint], axis=1)
    return points[far > 0.95 * far.max()].mean(axis=0)


def _bend(data: mujoco.MjData, leg: list[int], up: np.ndarray) -> None:
    """Bend a leg so that its foot is under its hip, at _TALL of its length. Changes qpos of `data`."""
    from scipy.optimize import least_squares  # slow to import

    model, at = data.model, data.model.jnt_qposadr[leg]
    limited = model.jnt_limited[leg, None] != 0
    low, high = np.where(limited, model.jnt_range[leg], (-np.pi, np.pi)).T
    near = np.clip(data.qpos[at], low, high)
    sizes = np.linalg.norm(np.diff([*(data.xanchor[j] for j in leg), _foot(data, leg[-1])], axis=0), axis=1)
    hip = int(np.argmax(sizes > _HIP * sizes.sum()))  # where the first long segment begins
    long = float(sizes[hip:].sum())

    def miss(angles: np.ndarray) -> np.ndarray:
        data.qpos[at] = angles
        mujoco.mj_kinematics(model, data)
        apart = _foot(data, leg[-1]) - data.xanchor[leg[hip]]
        return np.concatenate([apart / long + _TALL * up, _SOFT * (angles - near)])

    rng = np.random.default_rng(0)
    begins = [near, *rng.uniform(low, high, (_STARTS, len(leg)))]
    found = [least_squares(miss, np.clip(one, low + 1e-6, high - 1e-6), bounds=(low, high)) for one in begins]
    data.qpos[at] = min(found, key=lambda of: of.cost).x
    mujoco.mj_kinematics(model, data)


def _overlap(at: mujoco.MjData, body: int) -> float:
    """Return how deep in m parts of a body are inside each other."""
    model, data = at.model, mujoco.MjData(at.model)
    data.qpos[:] = at.qpos
    mujoco.mj_forward(model, data)
    own = (model.body_rootid[contact_bodies(model, data)] == model.body_rootid[body]).all(axis=1)
    return -float(data.contact.dist[own].min(initial=0.0))


def _stands(at: mujoco.MjData, body: int, legs: list[tuple[float, list[int]]]) -> bool:
    """Return whether a body is on its legs after its motors and servos have held the posture of `at` for a while."""
    model, posture = at.model, at.qpos.copy()
    for j in np.flatnonzero(model.jnt_limited & (model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE)):
        adr = model.jnt_qposadr[j]
        posture[adr] = np.clip(posture[adr], *model.jnt_range[j])
    data = _held(model, posture, _HELD_S)
    tall = float(world_of(model, body).height(data.xpos[body])) > _LOW * min(long for long, _ in legs)
    return tall and _turn(at, data, body) > _STEADY and body not in contact_bodies(data.model, data)
