"""Which way is up in a model, how strong its gravity is, and where its ground is.

Up is against gravity. The ground is what stands still, what the body can collide with, and what is large enough to
stand on: planes that face up, height fields, boxes and other shapes. Everything that speaks of heights, falls or the
horizontal gets them from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.types import Array

EARTH = 9.81  # m/s^2
_NONE = 1e-6  # m/s^2, a weaker gravity is none
_FACES_UP = 0.1  # cosine between up and the normal of a plane on which a body can stand
_WIDE = 0.1  # least width of what a body can stand on, as a share of the body's length
_BELOW = 0.01  # m that the bottom of the ground may be above a body that is on it
_MOST_SAMPLED = 20  # geoms of other shapes than boxes and height fields whose upper side is sampled
_MOST_HEIGHTS = 4096  # of a surface in a reward program; the sandbox refuses larger constants
_SAMPLES = 64  # rows and columns of a surface that rays sample
_ROUND = (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_ELLIPSOID, mujoco.mjtGeom.mjGEOM_CAPSULE)
_PLANE, _HFIELD = int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD)
_BOX, _MESH = int(mujoco.mjtGeom.mjGEOM_BOX), int(mujoco.mjtGeom.mjGEOM_MESH)


@dataclass(frozen=True)
class Boxes:
    """n boxes that a body can stand on."""

    centre: np.ndarray  # [n, 3] m
    axes: np.ndarray  # [n, 3, 3], rows are unit vectors
    half: np.ndarray  # [n, 3] m

    def top(self, at: Any, up: np.ndarray, xp: Any) -> Any:
        """Return the height [...] m along `up` of the highest box over or under `at` [..., 3] m, else -inf."""
        local = ((at[..., None, None, :] - self.centre[:, None]) * self.axes).sum(axis=-1)  # [..., n, 3]
        way = self.axes @ up
        flat = np.abs(way) < 1e-9  # faces along which the vertical line goes
        beside, slope = xp.abs(local) > self.half, np.where(flat, 1.0, way)
        reach = np.sign(slope) * self.half
        # m along up, from `at` to where the line enters and leaves the box
        low = xp.where(flat, xp.where(beside, np.inf, -np.inf), (-reach - local) / slope).max(axis=-1)
        high = xp.where(flat, xp.where(beside, -np.inf, np.inf), (reach - local) / slope).min(axis=-1)
        return (at @ up) + xp.where((low <= high) & (low <= _BELOW), high, -np.inf).max(axis=-1)


@dataclass(frozen=True)
class Surface:
    """A height field, or samples of another shape: heights over a grid along two horizontal axes."""

    axes: np.ndarray  # [2, 3] unit vectors
    origin: np.ndarray  # [2] m along the axes, of the first sample
    step: np.ndarray  # [2] m
    heights: np.ndarray  # [nx, ny] m along up, -inf where there is none
    bottom: float = -np.inf  # m along up

    def top(self, at: Any, up: np.ndarray, xp: Any) -> Any:
        """Return the height [...] m along `up` of the surface at `at` [..., 3] m, -inf beside and above it."""
        grid = self if xp is np else self._coarse
        count = np.array(grid.heights.shape)
        where = (at @ grid.axes.T - grid.origin) / grid.step
        inside = ((where >= 0) & (where <= count - 1)).all(axis=-1) & (at @ up >= grid.bottom - _BELOW)
        first = xp.clip(xp.floor(where), 0, count - 2)
        share = where - first
        first = first.astype(xp.int32)
        flat = xp.asarray(grid.heights.ravel(), xp.float32 if xp is not np else float)
        x, y, height = share[..., 0], share[..., 1], 0.0
        # two triangles per cell, as MuJoCo has them
        weights = {(0, 0): 1 - xp.maximum(x, y), (1, 0): xp.maximum(x - y, 0), (0, 1): xp.maximum(y - x, 0),
                   (1, 1): xp.minimum(x, y)}  # fmt: skip
        for (i, j), weight in weights.items():
            index = (first[..., 0] + i) * count[1] + first[..., 1] + j
            sample = flat[index] if xp is np else flat.at[index].get(mode="clip")
            height = height + xp.where(weight > 0, weight, 0.0) * xp.where(weight > 0, sample, 0.0)
        return xp.where(inside, height, -np.inf)

    @cached_property
    def _coarse(self) -> Surface:
        """The surface with at most _MOST_HEIGHTS heights, as many as the sandbox lets a reward program have."""
        counts = self.heights.shape
        if np.prod(counts) <= _MOST_HEIGHTS:
            return self
        few = max(2, int(counts[0] * np.sqrt(_MOST_HEIGHTS / np.prod(counts))))
        fewer = (few, min(counts[1], _MOST_HEIGHTS // few))
        rows, columns = (np.linspace(0, n - 1, m).round().astype(int) for n, m in zip(counts, fewer, strict=True))
        ends = (np.array(counts) - 1) * self.step
        heights = self.heights[np.ix_(rows, columns)]
        return replace(self, heights=heights, step=ends / (np.array(heights.shape) - 1))


@dataclass(frozen=True)
class World:
    """Up, gravity and ground of a model, in its world frame."""

    up: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 1.0]))  # [3] unit vector
    gravity: float = EARTH  # m/s^2
    planes: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))  # [P, 4] unit normal, distance in m
    others: Sequence[Boxes | Surface] = ()
    base: float = 0.0  # m along up, of the ground where there is none

    @cached_property
    def frame(self) -> np.ndarray:
        """[3, 3]: rows are the horizontal axes that take the place of x and y, and up.

        Up is turned to z on the shortest way; if z is up, it is the identity.
        """
        z = np.array([0.0, 0.0, 1.0])
        axis, cosine = np.cross(self.up, z), float(self.up @ z)
        if cosine < -1 + 1e-9:
            return np.diag([1.0, -1.0, -1.0])
        x, y, w = axis
        cross = np.array([[0, -w, y], [w, 0, -x], [-y, x, 0]])
        return np.eye(3) + cross + cross @ cross / (1 + cosine) + 0.0

    @property
    def z_up(self) -> bool:
        return bool(self.up[2] > 1 - 1e-9)

    @property
    def level(self) -> float | None:
        """The height in m along up of ground that is level everywhere; None for other ground."""
        tilted = (self.planes[:, :3] @ self.up < 1 - 1e-9).any()
        if self.others or tilted:
            return None
        return float(self.planes[:, 3].max()) if len(self.planes) else self.base

    def height(self, at: Array) -> Any:
        """Return the height [...] m of positions [..., 3] m, NumPy or JAX, above the ground under them."""
        xp: Any = np if isinstance(at, np.ndarray) else jnp
        along = _dot(at, self.up)
        if self.level is not None:
            return along - self.level if self.level else along
        up, ground = self.up, xp.full(np.shape(at)[:-1], -np.inf)
        for plane in self.planes:
            normal = plane[:3]
            ground = xp.maximum(ground, along + (plane[3] - at @ normal) / (normal @ up))
        for other in self.others:
            ground = xp.maximum(ground, other.top(at, up, xp))
        return along - xp.where(ground > -np.inf, ground, self.base)

    def turned(self, quat: np.ndarray) -> np.ndarray:
        """Return orientations, quaternions [..., 4], in the `frame`."""
        turn = np.zeros(4)
        mujoco.mju_mat2Quat(turn, self.frame.ravel())
        w, v = quat[..., :1], quat[..., 1:]
        scalar = turn[0] * w - v @ turn[1:, None]
        return np.concatenate([scalar, turn[0] * v + w * turn[1:] + np.cross(turn[1:], v)], axis=-1)

    def over_ground(self, at: np.ndarray) -> bool:
        """Return whether the ground is under most of the positions [n, 3] m."""
        up = self.up
        if len(self.planes) or not len(at):
            return bool(len(self.planes))
        tops = [other.top(at, up, np) for other in self.others]
        return bool(tops and (np.max(tops, axis=0) > -np.inf).mean() > 0.5)

    def upright(self) -> World:
        """Return the same world in its own `frame`, where z is up."""
        turn = self.frame.T
        planes = np.concatenate([self.planes[:, :3] @ turn, self.planes[:, 3:]], axis=1)
        others = [
            replace(o, centre=o.centre @ turn, axes=o.axes @ turn)
            if isinstance(o, Boxes)
            else replace(o, axes=o.axes @ turn)
            for o in self.others
        ]
        return World(np.array([0.0, 0.0, 1.0]), self.gravity, planes, others, self.base)


def _dot(at: Any, up: np.ndarray) -> Any:
    """Return the component [...] of `at` [..., 3] along `up`; along an axis, the coordinate itself."""
    axis = int(np.abs(up).argmax())
    if abs(up[axis]) < 1 - 1e-9:
        return at @ up
    return at[..., axis] if up[axis] > 0 else -at[..., axis]


def world_of(model: mujoco.MjModel, root: int | None = None) -> World:
    """Return up, gravity and ground of a model. root: the body that can stand on it; None: any that moves."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    gravity, up = float(np.linalg.norm(model.opt.gravity)), up_of(model, data)
    grounds = [g for g in _static(model) if _collides(model, g, root)]
    world = World(up, gravity if gravity > _NONE else 0.0)
    planes, shapes, wide = [], [], []
    for g in grounds:
        if model.geom_type[g] == _PLANE:
            normal = data.geom_xmat[g].reshape(3, 3)[:, 2]
            if normal @ up > _FACES_UP:
                planes.append([*_snapped(normal), float(normal @ data.geom_xpos[g])])
        elif found := _extent(model, data, g, world, length_of(model, data, root)):
            shapes.append(g)
            wide.append(found)
    # where nothing collides, a floor that is only drawn shows where the ground is
    drawn = [g for g in _static(model) if model.geom_type[g] == _PLANE and data.geom_xmat[g, 2::3] @ up > _FACES_UP]
    base = float(max(wide)[1]) if wide else max((float(data.geom_xpos[g] @ up) for g in drawn), default=0.0)
    others = _shapes(model, data, shapes, world)
    return replace(world, planes=np.array(planes).reshape(-1, 4), others=others, base=base)


def show_upright(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Turn all that is drawn of `data` into the `frame` of its world, in which z is up, after its kinematics."""
    world = World(up_of(model, data))
    if world.z_up:
        return
    turn = world.frame
    places = [f"{kind}_xpos" for kind in ("geom", "site", "cam", "light", "flexvert", "wrap")]
    for name in ("xpos", "xipos", "xanchor", "xaxis", "subtree_com", "light_xdir", *places):
        values = getattr(data, name)
        values[:] = (values.reshape(-1, 3) @ turn.T).reshape(values.shape)
    for name in ("xmat", "ximat", "geom_xmat", "site_xmat", "cam_xmat"):
        values = getattr(data, name)
        values[:] = (turn @ values.reshape(-1, 3, 3)).reshape(values.shape)
    data.xquat[:] = world.turned(data.xquat)


def _static(model: mujoco.MjModel) -> list[int]:
    return [int(g) for g in np.flatnonzero(model.body_weldid[model.geom_bodyid] == 0)]


def _snapped(vector: np.ndarray) -> np.ndarray:
    """Return a unit vector, exactly along an axis if it is as good as along it."""
    near = np.round(vector)
    return near + 0.0 if np.allclose(vector, near, atol=1e-6) else np.asarray(vector, float)


def up_of(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Return the unit vector [3] against gravity; without gravity the normal of the first plane that stands still,
    else z. data: after mj_kinematics.
    """
    gravity = float(np.linalg.norm(model.opt.gravity))
    if gravity > _NONE:
        return _snapped(-model.opt.gravity / gravity)
    planes = [g for g in _static(model) if model.geom_type[g] == _PLANE]
    return _snapped(data.geom_xmat[planes[0]].reshape(3, 3)[:, 2]) if planes else np.array([0.0, 0.0, 1.0])


def _moving(model: mujoco.MjModel, root: int | None) -> np.ndarray:
    """Return [ngeom] which geoms are of the tree of the body `root`, or of any that moves."""
    bodies = model.geom_bodyid
    own = model.body_weldid[bodies] != 0
    return own if root is None else own & (model.body_rootid[bodies] == model.body_rootid[root])


def _collides(model: mujoco.MjModel, geom: int, root: int | None) -> bool:
    """Return whether the geom can collide with one of the tree of the body `root`, or with any that moves."""
    own, body = _moving(model, root), int(model.geom_bodyid[geom])
    excluded = [(s >> 16, s & 0xFFFF) for s in model.exclude_signature.tolist()]
    apart = [one + two - body for one, two in excluded if body in (one, two)]
    types, affinities = model.geom_contype, model.geom_conaffinity
    meets = (types[geom] & affinities | types & affinities[geom]) != 0
    meets &= ~np.isin(model.geom_bodyid, apart)
    for one, two in ((model.pair_geom1, model.pair_geom2), (model.pair_geom2, model.pair_geom1)):
        meets[two[one == geom]] = True
    return bool((meets & own).any())


def length_of(model: mujoco.MjModel, data: mujoco.MjData, root: int | None) -> float:
    """Return the length in m of the diagonal of the tree of the body `root`, or of all that moves, by its geoms."""
    own = _moving(model, root)
    centres, radii = data.geom_xpos[own], model.geom_rbound[own, None]
    if not own.any():
        return 0.0
    return float(np.linalg.norm((centres + radii).max(axis=0) - (centres - radii).min(axis=0)))


def lowest(model: mujoco.MjModel, data: mujoco.MjData, geom: int, normal: np.ndarray) -> float:
    """Return the height in m of the lowest point of a geom above the plane through 0 with unit `normal` [3]."""
    kind, size = model.geom_type[geom], model.geom_size[geom]
    at, axes = float(data.geom_xpos[geom] @ normal), normal @ data.geom_xmat[geom].reshape(3, 3)
    match kind:
        case mujoco.mjtGeom.mjGEOM_SPHERE:
            return at - float(size[0])
        case mujoco.mjtGeom.mjGEOM_CAPSULE:
            return at - float(size[0] + size[1] * abs(axes[2]))
        case mujoco.mjtGeom.mjGEOM_CYLINDER:
            return at - float(size[0] * np.hypot(*axes[:2]) + size[1] * abs(axes[2]))
        case mujoco.mjtGeom.mjGEOM_ELLIPSOID:
            return at - float(np.linalg.norm(size * axes))
        case mujoco.mjtGeom.mjGEOM_MESH:
            mesh = model.geom_dataid[geom]
            first = model.mesh_vertadr[mesh]
            return at + float((model.mesh_vert[first : first + model.mesh_vertnum[mesh]] @ axes).min())
    return at - float(np.abs(size * axes).sum())  # a box, or the bounding box of other geoms


def box_corners(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> np.ndarray:
    """Return the corners [8, 3] m of the box around a geom, in MuJoCo's world axes."""
    centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
    corners = centre + np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T * half
    return data.geom_xpos[geom] + corners @ data.geom_xmat[geom].reshape(3, 3).T


def _extent(
    model: mujoco.MjModel, data: mujoco.MjData, geom: int, world: World, length: float
) -> tuple[float, float] | None:
    """Return the area in m^2 and the top in m along up of a geom; None if no body of `length` m can stand on it."""
    around, kind = box_corners(model, data, geom) @ world.frame.T, int(model.geom_type[geom])
    sides = np.ptp(around[:, :2], axis=0)
    least = 2 * length if kind in _ROUND else _WIDE * length  # one that is round is ground as a planet is
    if kind != _HFIELD and sides.min() < least:
        return None
    return float(sides.prod()), float(around[:, 2].max())


def _shapes(
    model: mujoco.MjModel, data: mujoco.MjData, geoms: Sequence[int], world: World
) -> tuple[Boxes | Surface, ...]:
    """Return geoms as ground. Where many have other shapes than boxes, the boxes around them are the ground."""
    fields = [g for g in geoms if model.geom_type[g] == _HFIELD and data.geom_xmat[g, 2::3] @ world.up > 1 - 1e-6]
    odd = [g for g in geoms if model.geom_type[g] != _BOX and g not in fields]
    odd = odd if len(odd) <= _MOST_SAMPLED else []
    boxes = [g for g in geoms if g not in (*fields, *odd)]
    axes = data.geom_xmat[boxes].reshape(-1, 3, 3).swapaxes(1, 2)
    centre = data.geom_xpos[boxes] + np.einsum("gij,gi->gj", axes, model.geom_aabb[boxes, :3])
    found: list[Boxes | Surface] = [Boxes(centre, axes, model.geom_aabb[boxes, 3:].copy())] if boxes else []
    found += [_field(model, data, g, world.up) for g in fields]
    return (*found, *(_sampled(model, data, g, world) for g in odd))


def _field(model: mujoco.MjModel, data: mujoco.MjData, geom: int, up: np.ndarray) -> Surface:
    at, axes = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3).T
    number = int(model.geom_dataid[geom])
    rows, columns = int(model.hfield_nrow[number]), int(model.hfield_ncol[number])
    x, y, z, _ = model.hfield_size[number]
    first = int(model.hfield_adr[number])
    heights = model.hfield_data[first : first + rows * columns].reshape(rows, columns).T
    step = np.array([2 * x / (columns - 1), 2 * y / (rows - 1)])
    return Surface(axes[:2].copy(), axes[:2] @ at - (x, y), step, float(at @ up) + z * heights.astype(float))


def _sampled(model: mujoco.MjModel, data: mujoco.MjData, geom: int, world: World) -> Surface:
    """Return the upper side of any geom, from rays."""
    around = box_corners(model, data, geom) @ world.frame.T
    low, high = around.min(axis=0), around.max(axis=0)
    grid = [np.linspace(low[i], high[i], _SAMPLES) for i in range(2)]
    heights = np.full((len(grid[0]), len(grid[1])), -np.inf)
    above = high[2] + 1.0
    for i, x in enumerate(grid[0]):
        for j, y in enumerate(grid[1]):
            begin = np.array([x, y, above]) @ world.frame
            far = _ray(model, data, geom, begin, -world.up)
            if far >= 0:
                heights[i, j] = above - far
    step = np.array([g[1] - g[0] for g in grid])
    return Surface(world.frame[:2].copy(), low[:2].copy(), step, heights, float(low[2]))


def _ray(model: mujoco.MjModel, data: mujoco.MjData, geom: int, begin: np.ndarray, way: np.ndarray) -> float:
    """Return the distance in m along `way` at which a ray meets the geom, -1 if it does not."""
    kind = int(model.geom_type[geom])
    if kind in (_MESH, _HFIELD):
        return (mujoco.mj_rayMesh if kind == _MESH else mujoco.mj_rayHfield)(model, data, geom, begin, way)
    return mujoco.mju_rayGeom(data.geom_xpos[geom], data.geom_xmat[geom], model.geom_size[geom], begin, way, kind)
