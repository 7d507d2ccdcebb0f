"""A start that stands, for a body on three or more legs whose file has it sprawled, entangled or out of its range."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.biomech.contacts import contact_bodies
from movlr_jax.biomech.world import box_corners, lowest, world_of
from movlr_jax.models.actuators import servo_controls
from movlr_jax.models.derived import above, base_joints, solid_of
from movlr_jax.models.motors import TargetSettings, gains, of_joints, targetable, with_targets
from movlr_jax.models.spec import quiet

_LEGS = 3  # at least; a body on two would have to balance
_ALIKE = 0.15  # by how much legs of one body differ in length at most
_TALL, _LOW = 0.75, 0.4  # of the length of its legs: height of hips of a body that stands, and of one that lies
_TANGLED = 0.01  # m that parts of a body may overlap at the start of a keyframe
_HELD_S = 1.0  # s
_HIP, _SOFT = 0.25, 0.01  # share of a leg that a long segment has; weight of angles (1/rad) where a leg is bent
_STARTS = 8  # postures from which that of a leg is sought
_UPRIGHT = 0.9  # cosine


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
    which = targetable(model, posture)
    held = with_targets(model, which, gains(TargetSettings(), model, which, posture), posture)
    data = mujoco.MjData(held)
    data.qpos[:], data.ctrl[:] = posture, np.where(which, 0.0, servo_controls(held, posture))
    with quiet():
        mujoco.mj_step(held, data, nstep=round(_HELD_S / model.opt.timestep))
    upright = np.trace(data.xmat[body].reshape(3, 3).T @ at.xmat[body].reshape(3, 3)) > 1 + 2 * _UPRIGHT
    tall = float(world_of(held, body).height(data.xpos[body])) > _LOW * min(long for long, _ in legs)
    return bool(upright and tall and body not in contact_bodies(held, data))
