"""Changes of a model that MJX needs. Each change is reported.

Only the planner's copy is changed: evaluation episodes run in C MuJoCo on the unchanged model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from mujoco import mjx
from mujoco.mjx._src import collision_driver as collisions  # private, but MJX has no public list of its collisions

from movlr_jax.models.spec import quiet
from movlr_jax.physics.simulator import ComVelocity
from movlr_jax.types import Array

_GEOM, _SENSOR, _INTEGRATOR = mujoco.mjtGeom, mujoco.mjtSensor, mujoco.mjtIntegrator
_ROUND = (int(_GEOM.mjGEOM_ELLIPSOID), int(_GEOM.mjGEOM_CYLINDER))
_SOLID = {int(_GEOM.mjGEOM_MESH), int(_GEOM.mjGEOM_HFIELD)}
_FORCE_SENSORS = (  # those that need the forces between bodies
    _SENSOR.mjSENS_ACCELEROMETER, _SENSOR.mjSENS_FORCE, _SENSOR.mjSENS_TORQUE, _SENSOR.mjSENS_FRAMELINACC,
    _SENSOR.mjSENS_FRAMEANGACC,
)  # fmt: skip
_ITERATIONS, _LINE_SEARCH = 8, 12  # of Newton's method, which converges quadratically
_POINTS = 24  # contacts in the solver at once; a body that lies on the ground has about as many
_LIMP_S = 1.0  # s, duration of a probe without control


@dataclass(frozen=True)
class ContactCounts:
    """The largest counts observed in one simulation."""

    contacts: int = 0
    rows: int = 0  # constraint rows
    pairs: int = 0  # pairs of geoms that pass the broad phase


def fit_for_jax(model: mujoco.MjModel) -> tuple[mujoco.MjModel, tuple[str, ...]]:
    """Return a copy of `model` that suits MJX's JAX implementation, and one sentence per change."""
    model = copy.copy(model)
    steps = (_capsules, _margins, _cone, _solver, _integrator, _iterations)
    changes = [step(model) for step in steps]
    return model, tuple(change for change in changes if change)


def _capsules(model: mujoco.MjModel) -> str:
    """Replace round geoms with collisions that MJX does not support by capsules of the same length."""
    wrong = {
        int(g)
        for a, b, _ in collisions.geom_pairs(model)
        if not collisions.has_collision_fn(*sorted((model.geom_type[a], model.geom_type[b])))
        for g in (a, b)
        if model.geom_type[g] in _ROUND
    }
    for g in wrong:
        radius, half = float(model.geom_size[g, 0]), float(model.geom_size[g, 1])
        if model.geom_type[g] == _ROUND[0]:
            axis = int(np.argmax(model.geom_size[g]))
            half, radius = float(model.geom_size[g, axis]), float(np.delete(model.geom_size[g], axis).mean())
            _turn(model, g, axis)
        model.geom_type[g] = _GEOM.mjGEOM_CAPSULE
        model.geom_size[g] = [radius, max(half - radius, 1e-4), 0.0]
        model.geom_rbound[g] = max(half, radius)
    if not wrong:
        return ""
    return f"{_some(model, wrong)}: replaced by capsules, because MJX does not support their collisions"


def _turn(model: mujoco.MjModel, geom: int, axis: int) -> None:
    """Rotate the frame of `geom` so that its z axis is along its former axis number `axis`."""
    target, turn, quat = np.eye(3)[axis], np.zeros(4), np.zeros(4)
    mujoco.mju_quatZ2Vec(turn, target)
    mujoco.mju_mulQuat(quat, model.geom_quat[geom], turn)
    model.geom_quat[geom] = quat


def _margins(model: mujoco.MjModel) -> str:
    """Set the margins of meshes and height fields, and of geoms that collide with them, to zero."""
    changed: set[int] = set()
    for a, b, pair in collisions.geom_pairs(model):
        if not {int(model.geom_type[a]), int(model.geom_type[b])} & _SOLID:
            continue
        if pair != -1 and (model.pair_margin[pair] or model.pair_gap[pair]):
            model.pair_margin[pair] = model.pair_gap[pair] = 0.0
            changed |= {a, b}
        for g in (a, b):
            if model.geom_margin[g] or model.geom_gap[g]:
                model.geom_margin[g] = model.geom_gap[g] = 0.0
                changed.add(g)
    return f"{_some(model, changed)}: margin 0, because they collide with meshes or height fields" if changed else ""


def _cone(model: mujoco.MjModel) -> str:
    """Use pyramidal cones if some contacts have no friction, for which MJX has no elliptic cone."""
    if model.opt.cone != mujoco.mjtCone.mjCONE_ELLIPTIC:
        return ""
    dims = {int(max(model.geom_condim[a], model.geom_condim[b])) if p == -1 else int(model.pair_dim[p])
            for a, b, p in collisions.geom_pairs(model)}  # fmt: skip
    if 1 not in dims:
        return ""
    model.opt.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    return "friction cones are pyramidal, because some contacts have no friction"


def _solver(model: mujoco.MjModel) -> str:
    """Replace the solver PGS, and leave the energy out, which changes no motion: MJX has neither."""
    model.opt.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    if model.opt.solver != mujoco.mjtSolver.mjSOL_PGS:
        return ""
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return "the solver is Newton, because MJX has no PGS"


def _integrator(model: mujoco.MjModel) -> str:
    """Replace the integrator implicit, and implicitfast in a fluid."""
    before, fluid = (model.opt.integrator, model.opt.density > 0 or model.opt.viscosity > 0 or model.opt.wind.any())
    if before not in (_INTEGRATOR.mjINT_IMPLICIT, _INTEGRATOR.mjINT_IMPLICITFAST):
        return ""
    after = _INTEGRATOR.mjINT_EULER if fluid else _INTEGRATOR.mjINT_IMPLICITFAST
    if after == before:
        return ""
    model.opt.integrator = after
    why = "implicitfast has no drag of fluids there" if fluid else "MJX has no implicit"
    return f"the integrator is {after.name.removeprefix('mjINT_').lower()}, because {why}"


def _iterations(model: mujoco.MjModel) -> str:
    """Limit the solver's iterations: MJX runs as many as the slowest row of a batch needs."""
    before = (int(model.opt.iterations), int(model.opt.ls_iterations))
    after = (min(before[0], _ITERATIONS), min(before[1], _LINE_SEARCH))
    if before == after or model.opt.solver != mujoco.mjtSolver.mjSOL_NEWTON:
        return ""
    model.opt.iterations, model.opt.ls_iterations = after
    change = f"was {before[0]} with {before[1]}"
    return f"the solver stops after {after[0]} iterations with {after[1]} line search steps each ({change})"


def flatten_tree(model: mujoco.MjModel) -> None:
    """Attach bodies without joints directly to the moving body that carries them, or to the world.

    The motion stays the same, but the tree gets less deep, and MJX and Warp pass through it level by level: legs with
    80 bodies have 31 levels, and 7 of moving bodies. Bodies keep their numbers.
    """
    subtrees = (_SENSOR.mjSENS_SUBTREECOM, _SENSOR.mjSENS_SUBTREELINVEL, _SENSOR.mjSENS_SUBTREEANGMOM)
    stays = (model.body_jntnum > 0) | (model.body_mocapid >= 0)
    stays[model.sensor_objid[np.isin(model.sensor_type, subtrees)]] = True  # their subtrees are measured
    stays[0] = True
    for body in range(1, model.nbody):  # parents come first
        parent = int(model.body_parentid[body])
        if not stays[parent]:
            pos, quat = np.zeros(3), np.zeros(4)
            mujoco.mju_rotVecQuat(pos, model.body_pos[body], model.body_quat[parent])
            mujoco.mju_mulQuat(quat, model.body_quat[parent], model.body_quat[body])
            model.body_pos[body], model.body_quat[body] = model.body_pos[parent] + pos, quat
            parent = int(model.body_parentid[parent])
        model.body_parentid[body] = parent
        model.body_rootid[body] = model.body_rootid[parent] if parent else body
    model.body_subtreemass[:] = model.body_mass
    for body in range(model.nbody - 1, 0, -1):
        model.body_subtreemass[model.body_parentid[body]] += model.body_subtreemass[body]


def without_com_velocity(model: mujoco.MjModel, address: int | None) -> ComVelocity | None:
    """Replace the sensor of a centre of mass's velocity at `address` of the sensor vector by a cheap one in `model`.

    Return what computes its values instead, or None if there is no such sensor. The sensor vector keeps its layout.
    """
    found = [s for s in range(model.nsensor) if model.sensor_adr[s] == address]
    if not found or model.sensor_type[found[0]] != _SENSOR.mjSENS_SUBTREELINVEL:
        return None
    (sensor,), root = found, int(model.sensor_objid[found[0]])
    model.sensor_type[sensor] = _SENSOR.mjSENS_SUBTREECOM
    model.sensor_needstage[sensor] = mujoco.mjtStage.mjSTAGE_POS
    inside = np.zeros(model.nbody, bool)
    for body in range(model.nbody):  # parents come first
        inside[body] = body == root or (body > 0 and inside[model.body_parentid[body]])
    bodies = np.flatnonzero(inside)
    mass = model.body_mass[bodies]
    return ComVelocity(int(address or 0), bodies, model.body_rootid[bodies], mass / mass.sum())


def limit_contacts(put: mjx.Model) -> tuple[mjx.Model, str]:
    """Return `put` with only the nearest contacts in the solver, and a sentence about this change.

    MJX has solver rows for every possible contact, but most of them are not active. It reads its limits at the n-th
    of all custom numbers of the model, instead of the first number of the n-th name, so only these are kept.
    """
    put = put.replace(numeric_data=put.numeric_data[put.numeric_adr])
    count = len(collisions.make_condim(put, impl=mjx.Impl.JAX))
    if count == 0:  # MJX cannot evaluate sensors of touch where nothing can: theirs stay 0
        touch = np.isin(put.sensor_type, (int(_SENSOR.mjSENS_TOUCH), int(_SENSOR.mjSENS_CONTACT)))
        return put.replace(sensor_type=np.where(touch, int(_SENSOR.mjSENS_USER), put.sensor_type)), ""
    if count <= _POINTS:
        return put, ""
    name = b"max_contact_points\x00"
    limited = put.replace(
        nnumeric=put.nnumeric + 1,
        names=put.names + name,
        name_numericadr=np.append(put.name_numericadr, len(put.names)),
        numeric_data=np.append(put.numeric_data, float(_POINTS)),
    )
    return limited, f"of {count} possible contacts, only the {_POINTS} nearest of each kind are in the solver"


def reads_wrap_points(model: mujoco.MjModel) -> bool:
    """Return whether Warp's physics reads how many points the path of a tendon has; if not, only drawing does.

    Tendons with mass, bodies that sleep, and sensors of force and acceleration read it.
    """
    sleep = model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP
    return bool(model.tendon_armature.any() or np.isin(model.sensor_type, _FORCE_SENSORS).any() or sleep)


def without_wrap_points(model: mujoco.MjModel, put: mjx.Model) -> mjx.Model:
    """Return `put`, Warp's form of `model`, without the points of tendons, unless its physics reads them.

    Warp lists them tendon after tendon in one thread per simulation, which takes a quarter of a step of 1,024 legs
    with 100 muscles on an H200.
    """
    return put if reads_wrap_points(model) else put.replace(tendon_num=np.zeros_like(put.tendon_num))


def without_solver_messages(put: mjx.Model) -> mjx.Model:
    """Return `put`, Warp's form of a model, that prints nothing where a solver stops at its limit of iterations.

    MuJoCo does not either. Messages about contacts and constraint rows without memory stay.
    """
    from mujoco.mjx.third_party import mujoco_warp

    kinds = mujoco_warp.OverflowType
    said = put.opt._impl.warn_overflow & ~int(kinds.ITERATIONS | kinds.LS_ITERATIONS)
    quieter: Any = put.tree_replace({"opt._impl.warn_overflow": said})
    return quieter


def probe_contacts(model: mujoco.MjModel, start: Sequence[Array] | None) -> ContactCounts:
    """Return the largest numbers of contacts, constraint rows and near pairs in C MuJoCo.

    The probe runs without control from the start states.
    """
    data, most = mujoco.MjData(model), ContactCounts()
    pairs = np.array([pair[:2] for pair in collisions.geom_pairs(model)], int).reshape(-1, 2)
    for q in np.asarray(start[0])[:4] if start is not None else model.qpos0[None]:
        mujoco.mj_resetData(model, data)
        data.qpos[:] = q
        with quiet():
            for _ in range(round(_LIMP_S / model.opt.timestep)):
                mujoco.mj_step(model, data)
                most = ContactCounts(
                    max(most.contacts, data.ncon),
                    max(most.rows, data.nefc),
                    max(most.pairs, near_pairs(model, data, pairs)),
                )
    return most


def near_pairs(model: mujoco.MjModel, data: mujoco.MjData, pairs: np.ndarray) -> int:
    """Return how many of `pairs` [P, 2] of geoms have overlapping bounding spheres (or a sphere on a plane)."""
    a, b = np.where(model.geom_type[pairs[:, :1]] == _GEOM.mjGEOM_PLANE, pairs, pairs[:, ::-1]).T  # planes first
    offset = data.geom_xpos[b] - data.geom_xpos[a]
    plane = model.geom_type[a] == _GEOM.mjGEOM_PLANE
    gap = np.where(plane, np.sum(offset * data.geom_xmat[a][:, 2::3], axis=1), np.linalg.norm(offset, axis=1))
    reach = model.geom_rbound[a] + model.geom_rbound[b] + model.geom_margin[a] + model.geom_margin[b]
    return int(np.sum(gap <= reach))


def warp_sizes(probe: ContactCounts, rows: int) -> dict[str, Any]:
    """Return Warp's limits for a batch of `rows`: twice the observed counts plus a margin.

    Near pairs also use places of contacts.
    """
    return {"naconmax": rows * (2 * max(probe.contacts, probe.pairs) + 8), "njmax": 2 * probe.rows + 32}


def _some(model: mujoco.MjModel, geoms: Iterable[int]) -> str:
    """Return the number of geoms and the first names."""
    geoms = sorted(geoms)
    names = ", ".join(model.geom(g).name or f"#{g}" for g in geoms[:4])
    return f"{len(geoms)} geoms ({names}{', ...' if len(geoms) > 4 else ''})"
