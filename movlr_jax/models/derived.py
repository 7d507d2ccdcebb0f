"""Adapters derived from a model itself, for models without a hand-written adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mujoco
import numpy as np

from movlr_jax.biomech.muscles import moment_arms
from movlr_jax.biomech.static_optimisation import joint_equalities
from movlr_jax.models.adapter import ModelAdapter
from movlr_jax.models.spec import compile_spec

MAX_PARTS = 30  # bodies whose contacts may be read; in larger models only the last bodies of chains
_SCALAR = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)


def name_all(spec: mujoco.MjSpec) -> None:
    """Give every body, joint and actuator of `spec` a name, which rewards and sensors need."""
    for kind, elements in (
        ("body", spec.bodies),
        ("joint", spec.joints),
        ("actuator", spec.actuators),
    ):
        taken = {element.name for element in elements}
        for i, element in enumerate(elements):
            if element.name:
                continue
            name = (getattr(element, "target", "") or f"{kind}{i}") if kind == "actuator" else f"{kind}{i}"
            while name in taken:
                name += "_"
            element.name = name
            taken.add(name)


def derive_adapter(
    name: str, load: Callable[[], mujoco.MjSpec], *, source: str = "", licence: str = ""
) -> ModelAdapter:
    """Return an adapter derived from the model that `load` returns. All its elements must have names.

    root is the heaviest moving child of the world; planned joints are actuated joints with a range; contacts are
    available for every moving body that can collide; sites on tendon paths are left out.
    """
    model = compile_spec(load())
    moving = np.flatnonzero(model.body_treeid >= 0)
    trees = [b for b in moving if model.body_treeid[model.body_parentid[b]] < 0]
    root = max(trees, key=lambda b: model.body_subtreemass[b], default=1)
    colliding = (model.geom_contype | model.geom_conaffinity) != 0
    colliding[np.concatenate([model.pair_geom1, model.pair_geom2])] = True
    touching = {int(b) for b in model.geom_bodyid[colliding]}
    parts = [int(b) for b in moving if int(b) in touching]
    if len(parts) > MAX_PARTS:
        parents = set(model.body_parentid.tolist())
        parts = [b for b in parts if b not in parents][:MAX_PARTS]
    through = set(model.wrap_objid[model.wrap_type == mujoco.mjtWrap.mjWRAP_SITE].tolist())
    around = (model.wrap_type == mujoco.mjtWrap.mjWRAP_SPHERE) | (
        model.wrap_type == mujoco.mjtWrap.mjWRAP_CYLINDER
    )
    through |= set(model.wrap_prm[around].astype(int).tolist())  # side sites of wrapping geoms
    return ModelAdapter(
        name=name,
        load=load,
        root=model.body(int(root)).name,
        planned_joints=tuple(model.joint(j).name for j in driven_joints(model)),
        roles={},
        touch={model.body(b).name: (model.body(b).name,) for b in parts},
        sites=tuple(
            model.site(s).name for s in range(model.nsite) if s not in through and model.site(s).name
        ),
        source=source,
        licence=licence,
    )


def driven_joints(model: mujoco.MjModel) -> list[int]:
    """Return actuated hinges and slides with a range that no equality drives."""
    (moment,) = moment_arms(model, mujoco.MjData(model), model.qpos0[None])
    coupled = set(model.eq_obj1id[joint_equalities(model)].tolist())
    return [
        j
        for j in range(model.njnt)
        if int(model.jnt_type[j]) in _SCALAR  # an enum does not equal a numpy integer
        and model.jnt_limited[j]
        and j not in coupled
        and np.abs(moment[:, model.jnt_dofadr[j]]).max(initial=0.0) > 1e-9
    ]


def travels(model: mujoco.MjModel, body: str, way: Sequence[float], turning: bool = False) -> bool:
    """Return whether the joints of `body` move it along the axis `way` [3] without limit.

    turning: also return True if they rotate it about that axis.
    """
    free, slide, hinge, ball = (
        getattr(mujoco.mjtJoint, f"mjJNT_{n}") for n in ("FREE", "SLIDE", "HINGE", "BALL")
    )
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    for j in np.flatnonzero(model.jnt_bodyid == model.body(body).id):
        kind = model.jnt_type[j]
        along = abs(float(data.xaxis[j] @ np.asarray(way))) > 0.7 and not model.jnt_limited[j]
        if kind == free or (turning and kind == ball) or (along and kind == (hinge if turning else slide)):
            return True
    return False
