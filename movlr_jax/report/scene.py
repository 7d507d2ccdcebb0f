"""The 3-D scene of a report: the model and recorded episodes, small enough for a page.

`export_scene` returns gzip-compressed bytes: the length of the head (uint32, little-endian), the head as JSON, and
the arrays that it names. An array [channels, frames] is stored as uint16 steps from the lowest value of each channel,
as the differences between frames (modulo 2^16), which compress well; the arrays `NAME_low` and `NAME_step` have the
lowest values and the steps. `assets/report/scene.js` draws it with three.js.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from movlr_jax.biomech.contacts import contact_bodies
from movlr_jax.biomech.world import World, up_of
from movlr_jax.film.views import SHOWN_GROUPS, floor_height
from movlr_jax.report.charts import short
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task

FACES = 26_000  # of all meshes together: what software OpenGL draws 30 times per second
FPS = 30.0
MOST_FRAMES = 600  # of an episode; a longer one has fewer per second
CONTACTS = 16  # pairs of bodies with the largest contact forces
_LEVELS = 2**16 - 1
# steps that suffice
_FINEST_M, _FINEST_DEG, _FINEST_QUAT, _FINEST_ACT, _FINEST_N = (1e-4, 0.01, 1e-4, 1e-3, 0.1)
_LOST = 1e8  # larger numbers count as divergence
_MESH, _HFIELD = int(mujoco.mjtGeom.mjGEOM_MESH), int(mujoco.mjtGeom.mjGEOM_HFIELD)
_SITE, _PULLEY, _JOINT = (int(getattr(mujoco.mjtWrap, f"mjWRAP_{k}")) for k in ("SITE", "PULLEY", "JOINT"))
_HINGE, _SLIDE = int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)
_SHAPES = {
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")): kind
    for kind in ("sphere", "capsule", "ellipsoid", "cylinder", "box")
}
_UNITS = {_HINGE: "°", _SLIDE: "m"}  # of a joint


@dataclass(frozen=True)
class Episode:
    """An episode to show: its name in the run, a label, and what was recorded."""

    name: str
    label: str
    record: EpisodeRecord


class _Blob:
    """Arrays behind each other, and where each one is."""

    def __init__(self) -> None:
        self.data, self.places = bytearray(), dict[str, dict[str, Any]]()

    def add(self, name: str, values: np.ndarray, **about: Any) -> None:
        values = np.ascontiguousarray(values)
        self.data += bytes(-len(self.data) % 4)
        place = {"at": len(self.data), "type": values.dtype.name, "shape": list(values.shape)}
        self.places[name] = place | about
        self.data += values.astype(values.dtype.newbyteorder("<")).tobytes()

    def add_channels(self, name: str, values: np.ndarray, finest: float | np.ndarray) -> None:
        """Add values [channels, frames] as differences between frames.

        All channels have the same step, because it compresses well. Where the range of all values would make it
        larger than `finest` (of each channel), only the range of the channel counts.
        """
        values = np.nan_to_num(np.asarray(values, float))
        common = np.ptp(values) / _LEVELS if values.size else 0.0
        low, ranges = values.min(axis=1), np.ptp(values, axis=1)
        step = np.maximum(np.maximum(ranges / _LEVELS, np.minimum(common, finest)), 1e-9)
        low, step = low.astype(np.float32), step.astype(np.float32)
        levels = np.rint((values - low[:, None]) / step[:, None]).clip(0, _LEVELS).astype(np.uint16)
        self.add(name, np.diff(levels, axis=1, prepend=np.uint16(0)).astype(np.uint16))
        self.add(f"{name}_low", low)
        self.add(f"{name}_step", step)


def export_scene(task: Task, episodes: Sequence[Episode]) -> bytes:
    """Return the scene of a task's model with its episodes, compressed."""
    model, blob = task.model, _Blob()
    camera = task.view.cameras[0]
    spatial = model.wrap_type[model.tendon_adr] != _JOINT
    tendons = np.flatnonzero(spatial & (model.tendon_group < SHOWN_GROUPS)).tolist()
    joints = np.flatnonzero(np.isin(model.jnt_type, list(_UNITS))).tolist()
    head = {
        "bodies": [model.body(b).name for b in range(model.nbody)],
        "parents": model.body_parentid.tolist(),
        "meshes": list(_meshes(model, blob)),
        "shapes": list(_shapes(model)),
        "ground": floor_height(model),
        "tendons": [_tendon(model, t, task.view.weakened) for t in tendons],
        "joints": [
            {
                "name": model.joint(j).name or str(j),
                "body": int(model.jnt_bodyid[j]),
                "unit": _UNITS[int(model.jnt_type[j])],
            }
            for j in joints
        ],
        "camera": {
            "lookat": list(map(float, camera.lookat)),
            "distance": float(camera.distance),
            "azimuth": float(camera.azimuth),
            "elevation": float(camera.elevation),
            "fovy": float(model.vis.global_.fovy),
            "track": model.body(camera.track).id if camera.track else None,
        },
        "episodes": [_episode(model, e, i, tendons, joints, blob) for i, e in enumerate(episodes)],
        "arrays": blob.places,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % 4)  # arrays begin at a multiple of 4
    return gzip.compress(struct.pack("<I", len(text)) + text + bytes(blob.data), 9, mtime=0)


def _shown(model: mujoco.MjModel) -> Iterator[tuple[int, list[float]]]:
    """Yield each geom that films show, with its colour."""
    for g in range(model.ngeom):
        rgba = _rgba(model, g)
        if model.geom_group[g] < SHOWN_GROUPS and rgba[3] > 0:
            yield g, rgba


def _rgba(model: mujoco.MjModel, g: int) -> list[float]:
    """Return the colour of a geom: its own, else that of its material, times the mean of its texture."""
    own, material = np.array(model.geom_rgba[g], float), int(model.geom_matid[g])
    if material < 0:
        return [round(float(v), 3) for v in own]
    colour = np.array(model.mat_rgba[material], float) if np.allclose(own, [0.5, 0.5, 0.5, 1]) else own
    texture = int(np.max(model.mat_texid[material]))
    if texture >= 0:
        size = int(model.tex_height[texture] * model.tex_width[texture]), int(model.tex_nchannel[texture])
        start = int(model.tex_adr[texture])
        pixels = model.tex_data[start : start + size[0] * size[1]].reshape(size)
        colour[:3] *= (pixels[:, :3] if size[1] >= 3 else np.repeat(pixels[:, :1], 3, axis=1)).mean(axis=0) / 255
    return [round(float(v), 3) for v in colour]


def _meshes(model: mujoco.MjModel, blob: _Blob) -> Iterator[dict[str, Any]]:
    """Add the meshes of each body in the frame of the body, simplified; yield body, colour and arrays of each."""
    surfaces = []
    for g, rgba in _shown(model):
        i = int(model.geom_dataid[g])
        if model.geom_type[g] == _MESH:
            vertices = model.mesh_vert[model.mesh_vertadr[i] :][: model.mesh_vertnum[i]]
            faces = model.mesh_face[model.mesh_faceadr[i] :][: model.mesh_facenum[i]]
            surfaces.append((g, rgba, vertices, faces))
        elif model.geom_type[g] == _HFIELD:
            surfaces.append((g, rgba, *_hills(model, i)))
    share = min(1.0, FACES / max(sum(len(faces) for *_, faces in surfaces), 1))
    merged: dict[tuple[int, tuple[float, ...]], list[tuple[np.ndarray, np.ndarray]]] = {}
    for g, rgba, vertices, faces in surfaces:
        vertices, faces = _simplified(vertices, faces, share)
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, model.geom_quat[g])
        placed = vertices @ rotation.reshape(3, 3).T + model.geom_pos[g]
        merged.setdefault((int(model.geom_bodyid[g]), tuple(rgba)), []).append((placed, faces))
    for i, ((body, rgba), parts) in enumerate(merged.items()):
        starts = np.cumsum([0, *(len(v) for v, _ in parts)])
        vertices = np.concatenate([v for v, _ in parts])
        faces = np.concatenate([f + start for (_, f), start in zip(parts, starts, strict=False)])
        low = vertices.min(axis=0)
        step = np.maximum((vertices.max(axis=0) - low) / _LEVELS, 1e-12)
        levels = np.rint((vertices - low) / step).astype(np.uint16)
        blob.add(f"v{i}", levels, low=low.tolist(), step=step.tolist())
        blob.add(f"f{i}", faces.astype(np.uint16 if len(vertices) <= _LEVELS else np.uint32))
        yield {"body": body, "rgba": list(rgba), "vertices": f"v{i}", "faces": f"f{i}"}


def _hills(model: mujoco.MjModel, i: int, most: int = 96) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices and faces of the surface of a height field, on a grid of at most `most` points a side."""
    rows, columns, at = int(model.hfield_nrow[i]), int(model.hfield_ncol[i]), int(model.hfield_adr[i])
    x_half, y_half, height, _ = model.hfield_size[i]
    data = model.hfield_data[at : at + rows * columns].reshape(rows, columns)
    r, c = (np.unique(np.linspace(0, n - 1, min(n, most)).astype(int)) for n in (rows, columns))
    x, y = np.meshgrid(x_half * (2 * c / (columns - 1) - 1), y_half * (2 * r / (rows - 1) - 1))
    vertices = np.stack([x, y, height * data[np.ix_(r, c)]], axis=-1).reshape(-1, 3)
    index = np.arange(len(r) * len(c)).reshape(len(r), len(c))
    a, b, d, e = index[:-1, :-1], index[:-1, 1:], index[1:, :-1], index[1:, 1:]
    return vertices, np.concatenate([np.stack(t, -1).reshape(-1, 3) for t in ((a, b, e), (a, e, d))])


def _simplified(vertices: np.ndarray, faces: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a mesh with about `share` of the faces, at least 200 of them."""
    from fast_simplification import simplify

    wanted = max(200, math.ceil(share * len(faces)))
    if wanted < len(faces):
        points: Any = np.array(vertices, np.float32)
        vertices, faces, *_ = simplify(points, np.array(faces, np.int32), target_count=wanted, agg=5)
    used, faces = np.unique(faces, return_inverse=True)
    return _ordered(np.asarray(vertices)[used], faces.reshape(-1, 3))


def _ordered(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a mesh with neighbours near each other: a renderer computes fewer vertices twice, and it is smaller."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    n = len(vertices)
    order = reverse_cuthill_mckee(csr_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(n, n)))
    place = np.empty(n, faces.dtype)
    place[order] = np.arange(n)
    faces = place[faces]
    return vertices[order], faces[np.lexsort(np.sort(faces, axis=1).T[::-1])]


def _shapes(model: mujoco.MjModel) -> Iterator[dict[str, Any]]:
    """Yield the geoms that are no meshes, with their sizes as in MJCF."""
    for g, rgba in _shown(model):
        if (kind := _SHAPES.get(int(model.geom_type[g]))) is not None:
            yield {
                "body": int(model.geom_bodyid[g]),
                "kind": kind,
                "size": short(model.geom_size[g]),
                "pos": short(model.geom_pos[g]),
                "quat": short(model.geom_quat[g], 6),
                "rgba": rgba,
            }


def _actuator(model: mujoco.MjModel, t: int) -> int | None:
    """Return the first actuator that pulls a tendon."""
    driven = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON) & (model.actuator_trnid[:, 0] == t)
    return int(driven.argmax()) if driven.any() else None


def _path(model: mujoco.MjModel, t: int) -> list[tuple[int, int]]:
    """Return (kind, object) of each element of the path of a tendon."""
    path = slice(model.tendon_adr[t], model.tendon_adr[t] + model.tendon_num[t])
    return list(zip(model.wrap_type[path].tolist(), model.wrap_objid[path].tolist(), strict=True))


def _tendon(model: mujoco.MjModel, t: int, weakened: Collection[str]) -> dict[str, Any]:
    """Return what a tendon is; `starts` says of each point of its path whether a branch begins there."""
    muscle = _actuator(model, t)
    name = model.tendon(t).name if muscle is None else model.actuator(muscle).name
    starts, begins = list[bool](), True
    for kind, _ in _path(model, t):
        if kind != _PULLEY:
            starts += [begins] if kind == _SITE else [False, False]
        begins = kind == _PULLEY
    return {
        "name": name,
        "muscle": muscle is not None,
        "weakened": name in weakened,
        "radius": float(f"{max(model.tendon_width[t], 0.001):.4g}"),
        "rgba": [round(float(v), 3) for v in model.tendon_rgba[t]],
        "starts": starts,
    }


def _episode(
    model: mujoco.MjModel, e: Episode, i: int, tendons: Sequence[int], joints: Sequence[int], blob: _Blob
) -> dict[str, Any]:
    """Add the states of an episode to the arrays, and return what is said of it."""
    record = e.record
    rows = _rows(record)
    data = mujoco.MjData(model)
    points = [sum(2 - (kind == _SITE) for kind, _ in _path(model, t) if kind != _PULLEY) for t in tendons]
    pos = np.zeros((len(rows), model.nbody, 3))
    quat = np.zeros((len(rows), model.nbody, 4))
    paths = np.zeros((len(rows), sum(points), 3))
    contacts = []
    for f, row in enumerate(rows):
        record.put(row, data)
        mujoco.mj_forward(model, data)
        pos[f], quat[f] = data.xpos, data.xquat
        place = 0
        for t, n in zip(tendons, points, strict=True):
            paths[f, place : place + n] = _points(model, data, t, n)
            place += n
        contacts.append(_forces(model, data))
    world = World(up_of(model, data))  # the scene has z up
    turn = world.frame
    pos, quat, paths = pos @ turn.T, world.turned(quat), paths @ turn.T
    flips = np.where((quat[1:] * quat[:-1]).sum(axis=-1) < 0, -1.0, 1.0)
    # q and -q are one rotation: take the path without a jump
    quat[1:] *= np.cumprod(flips, axis=0)[:, :, None]
    blob.add_channels(f"pos{i}", _channels(pos), _FINEST_M)
    blob.add_channels(f"quat{i}", _channels(quat), _FINEST_QUAT)
    blob.add_channels(f"paths{i}", _channels(paths), _FINEST_M)
    shown = np.asarray(joints, int)
    hinge, values = model.jnt_type[shown] == _HINGE, record.qpos[rows][:, model.jnt_qposadr[shown]]
    values = np.where(hinge, np.rad2deg(values), values)
    blob.add_channels(f"joints{i}", values.T, np.where(hinge, _FINEST_DEG, _FINEST_M))
    blob.add_channels(f"act{i}", _activations(model, record, rows, tendons).T, _FINEST_ACT)
    pairs, slots = _slots(contacts)
    where, force = slots @ turn.T
    blob.add_channels(f"where{i}", _channels(where), _FINEST_M)
    blob.add_channels(f"force{i}", _channels(force), _FINEST_N)
    return {
        "name": e.name,
        "label": e.label,
        "times": [round(float(t), 4) for t in record.time[rows]],
        "contacts": [[model.body(b).name or "world" for b in pair] for pair in pairs],
    }


def _rows(record: EpisodeRecord) -> np.ndarray:
    """Return the control steps to show: about FPS per second, at most MOST_FRAMES; those before a divergence."""
    time = record.time
    state = np.concatenate([time[:, None], record.qpos, record.qvel, record.act, record.ctrl], axis=1)
    finite = (np.abs(state) < _LOST).all(axis=1)  # this form counts NaN as divergence
    n = len(time) if finite.all() else max(1, int(finite.argmin()))
    span = float(time[n - 1] - time[0]) if n else 0.0
    frames = int(min(n, MOST_FRAMES, math.floor(span * FPS) + 1))
    return np.unique(np.linspace(0, n - 1, max(frames, 1)).round().astype(int))


def _channels(values: np.ndarray) -> np.ndarray:
    """Return [frames, ...] as [channels, frames]."""
    return values.reshape(len(values), -1).T


def _points(model: mujoco.MjModel, data: mujoco.MjData, t: int, n: int) -> np.ndarray:
    """Return the path of a tendon as n points [n, 3] m.

    A site has one point, and a geom that the path may wrap around has two. Where it does not touch that geom, they
    are on the straight line, so that points correspond between frames.
    """
    first = int(data.ten_wrapadr[t])
    objects = data.wrap_obj.reshape(-1)[first : first + int(data.ten_wrapnum[t])]
    found = data.wrap_xpos.reshape(-1, 3)[first : first + int(data.ten_wrapnum[t])]
    points, at, place, open_slots = np.zeros((n, 3)), 0, 0, 0
    for kind, obj in _path(model, t):
        if kind == _PULLEY:
            at += 1
        elif kind == _SITE:
            points[place] = found[min(at, len(found) - 1)]
            if open_slots:  # the geom before it is not touched
                a, b = points[place - 3], points[place]
                points[place - 2], points[place - 1] = a + (b - a) / 3, a + 2 * (b - a) / 3
            at, place, open_slots = at + 1, place + 1, 0
        else:
            touched = at + 1 < len(objects) and objects[at] == obj
            if touched:
                points[place : place + 2] = found[at : at + 2]
                at += 2
            place, open_slots = place + 2, 0 if touched else 2
    return points


def _activations(
    model: mujoco.MjModel, record: EpisodeRecord, rows: np.ndarray, tendons: Sequence[int]
) -> np.ndarray:
    """Return [frames, tendons] activations from 0 to 1; of an actuator without activation the size of its control."""
    values = np.zeros((len(rows), len(tendons)))
    for column, t in enumerate(tendons):
        if (i := _actuator(model, t)) is not None:
            state = record.act[rows, model.actuator_actadr[i]] if model.actuator_actnum[i] else record.ctrl[rows, i]
            values[:, column] = np.clip(np.abs(state), 0.0, 1.0)
    return values


def _forces(model: mujoco.MjModel, data: mujoco.MjData) -> dict[tuple[int, int], np.ndarray]:
    """Return for each pair of bodies in contact [2, 3]: where the force acts, m, and the force on the second one, N.

    The first body is the world if that is one of them. The place is the mean of the contacts, weighted by force.
    """
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    local = np.zeros(6)
    for i, pair in enumerate(contact_bodies(model, data)):
        contact = data.contact[i]
        mujoco.mj_contactForce(model, data, i, local)
        force = contact.frame.reshape(3, 3).T @ local[:3]
        if np.isfinite(force).all() and np.linalg.norm(force) >= 1e-3:
            a, b = map(int, pair)
            found.setdefault((min(a, b), max(a, b)), []).append(np.array([contact.pos, force if a <= b else -force]))
    sums = {}
    for pair, parts in found.items():
        where, forces = np.array(parts).swapaxes(0, 1)
        weights = np.linalg.norm(forces, axis=1)
        sums[pair] = np.array([np.average(where, axis=0, weights=weights), forces.sum(axis=0)])
    return sums


def _slots(contacts: Sequence[Mapping[tuple[int, int], np.ndarray]]) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return the pairs with the largest forces, and [2, frames, pairs, 3]: places, and forces (0 without contact)."""
    largest: dict[tuple[int, int], float] = {}
    for frame in contacts:
        for pair, (_, force) in frame.items():
            largest[pair] = max(largest.get(pair, 0.0), float(np.linalg.norm(force)))
    pairs = sorted(largest, key=lambda pair: -largest[pair])[:CONTACTS]
    found = np.zeros((2, len(contacts), len(pairs), 3))
    for f, frame in enumerate(contacts):
        for p, pair in enumerate(pairs):
            if pair in frame:
                found[:, f, p] = frame[pair]
            elif f:
                found[0, f, p] = found[0, f - 1, p]
    return pairs, found
