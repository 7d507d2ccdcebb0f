"""What MJX needs from a model: each change in a copy of it is told.

The planner's copy alone is changed: an episode runs in C MuJoCo, on the model as it is.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from mujoco import mjx
from mujoco.mjx._src import collision_driver

from movlr_jax.models.spec import quiet
from movlr_jax.types import Array

_GEOM, _SENSOR = mujoco.mjtGeom, mujoco.mjtSensor
_ROUND = (int(_GEOM.mjGEOM_ELLIPSOID), int(_GEOM.mjGEOM_CYLINDER))
_SOLID = {int(_GEOM.mjGEOM_MESH), int(_GEOM.mjGEOM_HFIELD)}
_ITERATIONS, _LINE_SEARCH = 8, 12  # of Newton's method, which nears its answer quadratically
_POINTS = 24  # contacts that are solved for at once; a body that lies on the ground has about as many
_LIMP_S = 1.0  # s that a probe lets a body go limp for
_BITS = 31  # of a collision mask


@dataclass(frozen=True)
class ContactCounts:
    """What one simulation was seen to have at most."""

    contacts: int = 0
    rows: int = 0  # of constraints
    pairs: int = 0  # of shapes near enough for a broad phase to pass on


def fit_for_jax(model: mujoco.MjModel) -> tuple[mujoco.MjModel, tuple[str, ...]]:
    """A copy of `model` that MJX's JAX implementation runs well, and one sentence per change."""
    model = copy.copy(model)
    changes = [_capsules(model), _needed_pairs(model), _margins(model), _cone(model), _iterations(model)]
    return model, tuple(change for change in changes if change)


def _capsules(model: mujoco.MjModel) -> str:
    """Round shapes that MJX cannot collide with what they meet become capsules of the same length."""
    wrong = {
        int(g)
        for a, b, _ in collision_driver.geom_pairs(model)
        if not collision_driver.has_collision_fn(*sorted((model.geom_type[a], model.geom_type[b])))
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
    return f"{_some(model, wrong)}: capsules in place of round shapes that MJX cannot collide with what they meet"


def _turn(model: mujoco.MjModel, geom: int, axis: int) -> None:
    """Turns the frame of `geom` so that its z lies along what was its `axis`."""
    target, turn, quat = np.eye(3)[axis], np.zeros(4), np.zeros(4)
    mujoco.mju_quatZ2Vec(turn, target)
    mujoco.mju_mulQuat(quat, model.geom_quat[geom], turn)
    model.geom_quat[geom] = quat


def _needed_pairs(model: mujoco.MjModel) -> str:
    """Drops pairs of shapes that no function of MJX can collide; every other pair stays.

    What is left is written as masks: each hub (the ground, a table) has a bit, which its partners answer.
    """
    pairs = [(a, b) for a, b, pair in collision_driver.geom_pairs(model) if pair == -1]
    kept = [p for p in pairs if collision_driver.has_collision_fn(*sorted(model.geom_type[list(p)]))]
    dropped = sorted(set(pairs) - set(kept))
    if not dropped:
        return ""
    if not _masks(model, kept):
        return ""
    kinds = sorted({" with ".join(_kind(model, g) for g in pair) for pair in dropped})
    return f"{len(dropped)} pairs of shapes do not collide, for MJX cannot ({', '.join(kinds)})"


def _masks(model: mujoco.MjModel, pairs: Iterable[tuple[int, int]]) -> bool:
    """Writes masks under which exactly `pairs` collide; False where a mask has too few bits."""
    partners: dict[int, set[int]] = defaultdict(set)
    for a, b in pairs:
        partners[a].add(b)
        partners[b].add(a)
    hubs: list[tuple[int, set[int]]] = []
    while any(partners.values()):
        hub = max(partners, key=lambda g: len(partners[g]))
        hubs.append((hub, partners.pop(hub)))
        for others in partners.values():
            others.discard(hub)
    if len(hubs) > _BITS:
        return False
    model.geom_contype[:] = model.geom_conaffinity[:] = 0
    for bit, (hub, others) in enumerate(hubs):
        model.geom_contype[hub] |= 1 << bit
        model.geom_conaffinity[sorted(others)] |= 1 << bit
    return True


def _margins(model: mujoco.MjModel) -> str:
    """Meshes and height fields, and what meets them, collide without margin."""
    changed: set[int] = set()
    for a, b, pair in collision_driver.geom_pairs(model):
        if not {int(model.geom_type[a]), int(model.geom_type[b])} & _SOLID:
            continue
        if pair != -1 and (model.pair_margin[pair] or model.pair_gap[pair]):
            model.pair_margin[pair] = model.pair_gap[pair] = 0.0
            changed |= {a, b}
        for g in (a, b):
            if model.geom_margin[g] or model.geom_gap[g]:
                model.geom_margin[g] = model.geom_gap[g] = 0.0
                changed.add(g)
    return f"{_some(model, changed)}: no margin, for they meet meshes or height fields" if changed else ""


def _cone(model: mujoco.MjModel) -> str:
    """Contacts without friction have no elliptic cone in MJX."""
    if model.opt.cone != mujoco.mjtCone.mjCONE_ELLIPTIC:
        return ""
    dims = {int(max(model.geom_condim[a], model.geom_condim[b])) if p == -1 else int(model.pair_dim[p])
            for a, b, p in collision_driver.geom_pairs(model)}  # fmt: skip
    if 1 not in dims:
        return ""
    model.opt.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    return "friction cones are pyramids, for some contacts have no friction"


def _iterations(model: mujoco.MjModel) -> str:
    """MJX runs as many iterations as the slowest row of a batch asks for."""
    before = (int(model.opt.iterations), int(model.opt.ls_iterations))
    after = (min(before[0], _ITERATIONS), min(before[1], _LINE_SEARCH))
    if before == after or model.opt.solver != mujoco.mjtSolver.mjSOL_NEWTON:
        return ""
    model.opt.iterations, model.opt.ls_iterations = after
    words = f"was {before[0]} of {before[1]}"
    return f"the solver stops after {after[0]} iterations of {after[1]} line search steps ({words})"


def limit_contacts(model: mujoco.MjModel, put: mjx.Model) -> tuple[mjx.Model, str]:
    """`put` with only the nearest contacts solved for, and what to say of it.

    MJX gives every contact that could be its rows in the solver; most are apart.
    """
    count = len(collision_driver.make_condim(model, impl=mjx.Impl.JAX))
    if count <= _POINTS:
        return put, ""
    name = b"max_contact_points\x00"
    limited = put.replace(
        nnumeric=put.nnumeric + 1,
        names=put.names + name,
        name_numericadr=np.append(put.name_numericadr, len(put.names)),
        numeric_data=np.append(put.numeric_data, float(_POINTS)),
    )
    return limited, f"of {count} contacts that could be, the {_POINTS} nearest of each kind are solved for"


def probe_contacts(model: mujoco.MjModel, start: Sequence[Array] | None) -> ContactCounts:
    """The most contacts, constraint rows and near pairs in C MuJoCo while the body goes limp from its start."""
    data, most = mujoco.MjData(model), ContactCounts()
    pairs = np.array([pair[:2] for pair in collision_driver.geom_pairs(model)], int).reshape(-1, 2)
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
    """How many of `pairs` [P, 2] of shapes have bounding spheres, or a plane and a sphere, that meet."""
    a, b = np.where(
        model.geom_type[pairs[:, :1]] == _GEOM.mjGEOM_PLANE, pairs, pairs[:, ::-1]
    ).T  # planes first
    way = data.geom_xpos[b] - data.geom_xpos[a]
    plane = model.geom_type[a] == _GEOM.mjGEOM_PLANE
    gap = np.where(plane, np.sum(way * data.geom_xmat[a][:, 2::3], axis=1), np.linalg.norm(way, axis=1))
    reach = model.geom_rbound[a] + model.geom_rbound[b] + model.geom_margin[a] + model.geom_margin[b]
    return int(np.sum(gap <= reach))


def warp_sizes(probe: ContactCounts, rows: int) -> dict[str, Any]:
    """Warp's limits for a batch of `rows`: twice what was seen, and some. Near pairs take the places of contacts."""
    return {"naconmax": rows * (2 * max(probe.contacts, probe.pairs) + 8), "njmax": 2 * probe.rows + 32}


def _kind(model: mujoco.MjModel, geom: int) -> str:
    return _GEOM(int(model.geom_type[geom])).name.removeprefix("mjGEOM_").lower()


def _some(model: mujoco.MjModel, geoms: Iterable[int]) -> str:
    """How many, and the first names."""
    geoms = sorted(geoms)
    names = ", ".join(model.geom(g).name or f"#{g}" for g in geoms[:4])
    return f"{len(geoms)} shapes ({names}{', ...' if len(geoms) > 4 else ''})"
