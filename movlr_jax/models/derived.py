"""Adapters derived from a model itself, for models without a hand-written adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mujoco
import numpy as np

from movlr_jax.biomech.muscles import moment_arms
from movlr_jax.biomech.static_optimisation import joint_equalities
from movlr_jax.biomech.world import length_of, lowest, up_of, world_of
from movlr_jax.models.adapter import ModelAdapter, ModelInfo
from movlr_jax.models.spec import compile_spec

MAX_PARTS = 30  # bodies whose contacts may be read; in larger models only the last bodies of chains
_DRIVES = 1e-9  # a smaller moment arm is none
_LYING = 0.3  # height of a body's frame, as a share of its length, below which it lies
_AT_GROUND = 0.05  # m above the lowest point of a body
_FAR = 2.0  # lengths of a body; a limited slide that is shorter does not let it travel
_STARTS = ("home", "stand")  # words in the names of keyframes
_SCALAR = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)


def name_all(spec: mujoco.MjSpec) -> None:
    """Give every body, joint and actuator of `spec` a name, which rewards and sensors need."""
    for kind, elements in (("body", spec.bodies), ("joint", spec.joints), ("actuator", spec.actuators)):
        taken = {element.name for element in elements}
        for i, element in enumerate(elements):
            if element.name:
                continue
            name = (getattr(element, "target", "") or f"{kind}{i}") if kind == "actuator" else f"{kind}{i}"
            while name in taken:
                name += "_"
            element.name = name
            taken.add(name)


def start_keyframe(model: mujoco.MjModel) -> int | None:
    """Return the keyframe with which an episode starts: `home` or `stand`, else the first; None without keyframes."""
    names = [model.key(k).name.lower() for k in range(model.nkey)]
    named = next((k for word in _STARTS for k, name in enumerate(names) if word in name), None)
    return named if named is not None or not names else 0


def derive_adapter(name: str, load: Callable[[], mujoco.MjSpec], info: ModelInfo | None = None) -> ModelAdapter:
    """Return an adapter derived from the model that `load` returns. All its elements must have names.

    root is the body that most actuators move, see `root_of`; planned joints are actuated joints with a range;
    contacts are available for every moving body that can collide; sites on tendon paths are left out.
    """
    model = compile_spec(load())
    moving = np.flatnonzero(model.body_treeid >= 0)
    touching = {int(b) for b in model.geom_bodyid[colliding(model)]}
    parts = [int(b) for b in moving if int(b) in touching]
    if len(parts) > MAX_PARTS:
        parents = set(model.body_parentid.tolist())
        parts = [b for b in parts if b not in parents][:MAX_PARTS]
    return ModelAdapter(
        name=name,
        load=load,
        root=model.body(root_of(model)).name,
        planned_joints=tuple(model.joint(j).name for j in driven_joints(model)),
        roles={},
        touch={model.body(b).name: (model.body(b).name,) for b in parts},
        sites=free_sites(model),
        info=info or ModelInfo(),
    )


def free_sites(model: mujoco.MjModel) -> tuple[str, ...]:
    """Return the names of the sites that are not on the paths of tendons."""
    through = set(model.wrap_objid[model.wrap_type == mujoco.mjtWrap.mjWRAP_SITE].tolist())
    around = (model.wrap_type == mujoco.mjtWrap.mjWRAP_SPHERE) | (model.wrap_type == mujoco.mjtWrap.mjWRAP_CYLINDER)
    through |= set(model.wrap_prm[around].astype(int).tolist())  # side sites of wrapping geoms
    return tuple(model.site(s).name for s in range(model.nsite) if s not in through and model.site(s).name)


def root_of(model: mujoco.MjModel) -> int:
    """Return the body that the base of the controlled body carries: that of the tree that most actuators move.

    Of trees with as many, the heaviest. A loose object may be heavier than the body that is controlled.
    """
    driven, tree = _driven(model), model.body_treeid
    trees = [b for b in range(1, model.nbody) if tree[b] >= 0 and tree[model.body_parentid[b]] < 0]

    def rank(body: int) -> tuple[int, float]:
        """Return how many actuators move the tree of a body, and its mass."""
        return int(driven[:, model.dof_treeid == tree[body]].any(axis=1).sum()), float(model.body_subtreemass[body])

    return carried(model, max(trees, key=rank, default=min(1, model.nbody - 1)))


def driven_trees(model: mujoco.MjModel) -> set[int]:
    """Return the kinematic trees that actuators move, as each arm of a robot that is fixed to the world."""
    return {int(tree) for tree in model.dof_treeid[_driven(model).any(axis=0)]}


def _driven(model: mujoco.MjModel) -> np.ndarray:
    """Return [nu, nv] which actuators move which degrees of freedom."""
    (moment,) = moment_arms(model, mujoco.MjData(model), model.qpos0[None])
    return np.abs(moment) > _DRIVES


def carried(model: mujoco.MjModel, body: int) -> int:
    """Return the body that the base `body` carries through the world: itself, or the last of a chain of carriages.

    A planar base is often one body for each slide and hinge. Such a carriage has no shape, and one child that moves.
    """
    first, slides = body, False
    while len(below := np.flatnonzero(model.body_parentid == body)) == 1 and not model.body_geomnum[body]:
        kinds = model.jnt_type[model.jnt_bodyid == body]
        slides |= bool((kinds == mujoco.mjtJoint.mjJNT_SLIDE).any())
        if not model.body_jntnum[below[0]] or (kinds == mujoco.mjtJoint.mjJNT_FREE).any():
            break
        body = int(below[0])
    return body if slides else first


def on_base(model: mujoco.MjModel, body: int) -> bool:
    """Return whether nothing but carriages is between a body and the world."""
    above = int(model.body_parentid[body])
    return not above or (not model.body_geomnum[above] and on_base(model, above))


def above(model: mujoco.MjModel, body: int) -> list[int]:
    """Return `body` and its ancestors."""
    found = []
    while body:
        found.append(body)
        body = int(model.body_parentid[body])
    return found


def base_joints(model: mujoco.MjModel, body: int) -> list[int]:
    """Return the joints that move a body through the world: its own, and those of the carriages below it."""
    joints = list(np.flatnonzero(model.jnt_bodyid == body))
    while (body := int(model.body_parentid[body])) and not model.body_geomnum[body]:
        joints += list(np.flatnonzero(model.jnt_bodyid == body))
    return [int(j) for j in joints]


def has_moving_base(model: mujoco.MjModel, body: int) -> bool:
    """Return whether joints of its base move a body through the world: a free joint or slides."""
    kinds = {int(model.jnt_type[j]) for j in base_joints(model, body)}
    return bool(kinds & {int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE)})


def driven_joints(model: mujoco.MjModel) -> list[int]:
    """Return actuated hinges and slides with a range that no equality drives."""
    driven = np.asarray(_driven(model).any(axis=0))
    coupled = set(model.eq_obj1id[joint_equalities(model)].tolist())
    return [
        j
        for j in range(model.njnt)
        if int(model.jnt_type[j]) in _SCALAR  # an enum does not equal a numpy integer
        and model.jnt_limited[j]
        and j not in coupled
        and driven[model.jnt_dofadr[j]]
    ]


def colliding(model: mujoco.MjModel) -> np.ndarray:
    """Return [ngeom] which geoms can collide: by their own bits, or as one of a pair."""
    found = (model.geom_contype | model.geom_conaffinity) != 0
    found[np.concatenate([model.pair_geom1, model.pair_geom2])] = True
    return found


def solid_of(model: mujoco.MjModel, body: int) -> np.ndarray:
    """Return the geoms that can collide of the whole tree of a body."""
    return np.flatnonzero(colliding(model) & (model.body_rootid[model.geom_bodyid] == model.body_rootid[body]))


def lowest_of(model: mujoco.MjModel, data: mujoco.MjData, root: int) -> set[int]:
    """Return the parts of a body on which it stands: the last of those that nearly reach its lowest point."""
    solid, up = solid_of(model, root), up_of(model, data)
    low = np.array([lowest(model, data, int(g), up) for g in solid])
    found = {int(b) for b in model.geom_bodyid[solid[low < low.min(initial=np.inf) + _AT_GROUND]]}
    return found - {body for foot in found for body in above(model, foot)[1:]}


def travels(model: mujoco.MjModel, body: str, way: Sequence[float], turning: bool = False) -> bool:
    """Return whether the joints of the base of `body` move it along the axis `way` [3], by twice its size or more.

    turning: also return True if they rotate it about that axis, by half a turn or more.
    """
    free, slide, hinge, ball = (getattr(mujoco.mjtJoint, f"mjJNT_{n}") for n in ("FREE", "SLIDE", "HINGE", "BALL"))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    number = model.body(body).id
    far = np.pi if turning else _FAR * length_of(model, data, number)
    for j in base_joints(model, number):
        kind, limited = model.jnt_type[j], model.jnt_limited[j]
        along = abs(float(data.xaxis[j] @ np.asarray(way))) > 0.7
        along &= not limited or np.ptp(model.jnt_range[j]) >= far
        if kind == free or (turning and kind == ball) or (along and kind == (hinge if turning else slide)):
            return True
    return False


def lies(model: mujoco.MjModel, data: mujoco.MjData, root: int) -> bool:
    """Return whether the frame of the body `root` is so low above the ground that it lies, with what it carries."""
    return float(world_of(model, root).height(data.xpos[root])) < _LYING * span_of(model, data, root)


def span_of(model: mujoco.MjModel, data: mujoco.MjData, root: int) -> float:
    """Return the length in m of a body with all that it carries, between the frames of its parts."""
    own = np.zeros(model.nbody, bool)
    own[root] = True
    for body in range(root + 1, model.nbody):
        own[body] = own[model.body_parentid[body]]
    return float(np.linalg.norm(np.ptp(data.xpos[own], axis=0)))
