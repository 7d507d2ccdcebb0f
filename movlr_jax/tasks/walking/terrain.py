"""Grounds for walkers: a plane, a slope, rough ground, stairs, a floor with a wall. x is forward, z is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from movlr_jax.tasks.stage import FLOOR, add_stage

GROUND = "ground"  # name of the main geom; other geoms of the ground are named ground/...
_CELL = 0.1  # m, cell size of rough ground
_ROUGH_X, _ROUGH_Y = (-3.0, 17.0), (-5.0, 5.0)  # m, extent of the rough field
_SMOOTH = 1.5  # cells, standard deviation of the smoothing of bumps
_STAIRS_X = 0.8  # m, position of the first step
# steps per flight, tread depth in m, length in m of the landing after a flight
_STEPS, _TREAD, _LANDING = (3, 0.3, 0.6)
_FLAT = 0.6  # m, radius of the flat area at the start; bumps reach full height at twice this radius


@dataclass(frozen=True)
class Ground:
    """A ground: `add` adds the geom `ground` to a spec, `height` gives its height."""

    add: Callable[[mujoco.MjSpec], mujoco.MjsGeom]
    height: Callable[[np.ndarray], np.ndarray]  # xy [..., 2] m -> z [...] m
    slope: float = 0.0  # tangent of the forward inclination


def add_plane(spec: mujoco.MjSpec, name: str = GROUND, **where: list[float]) -> mujoco.MjsGeom:
    """Add a plane through the origin, with a grid of 1 m, and the sky and light of a stage."""
    add_stage(spec)
    return spec.worldbody.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.1], material=FLOOR, rgba=[1, 1, 1, 1], **where
    )


def flat() -> Ground:
    """Return the plane z = 0."""
    return Ground(add=add_plane, height=lambda xy: np.zeros(np.shape(xy)[:-1]))


def slope(degrees: float) -> Ground:
    """Return a plane through the origin that rises forward by `degrees`."""
    half = np.deg2rad(degrees) / 2
    rise = float(np.tan(2 * half))
    return Ground(
        add=lambda spec: add_plane(spec, quat=[float(np.cos(half)), 0.0, -float(np.sin(half)), 0.0]),
        height=lambda xy: rise * np.asarray(xy)[..., 0],
        slope=rise,
    )


def _box(
    spec: mujoco.MjSpec,
    name: str,
    low: Sequence[float],
    high: Sequence[float],
    shade: float = 1.0,
    opacity: float = 1.0,
) -> None:
    """Add a box between two corners [3] m to the ground."""
    spec.worldbody.add_geom(
        name=f"{GROUND}/{name}",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[(a + b) / 2 for a, b in zip(low, high, strict=True)],
        size=[(b - a) / 2 for a, b in zip(low, high, strict=True)],
        rgba=[0.62 * shade, 0.65 * shade, 0.70 * shade, opacity],
    )


def landings(flights: int) -> np.ndarray:
    """Return the x [flights] m at which the landing of each flight of `stairs` begins."""
    run = (_STEPS - 1) * _TREAD + _LANDING
    return _STAIRS_X + run * np.arange(flights) + (_STEPS - 1) * _TREAD


def stairs(rise_m: float, flights: int) -> Ground:
    """Return flights of three steps and a landing; steps of flight i = 1, 2, ... are i * rise_m high."""
    edges, tops, x, z = [], [], _STAIRS_X, 0.0
    for flight in range(1, flights + 1):
        for step in range(_STEPS):
            z += flight * rise_m
            edges.append(x)
            tops.append(z)
            x += _LANDING if step == _STEPS - 1 else _TREAD
    ends, heights = [*edges[1:], x + 5.0], np.array([0.0, *tops])

    def add(spec: mujoco.MjSpec) -> mujoco.MjsGeom:
        floor = add_plane(spec)
        for i, (begin, end, top) in enumerate(zip(edges, ends, tops, strict=True)):
            _box(spec, f"step{i}", (begin, -3.0, 0.0), (end, 3.0, top), 1.0 - 0.18 * (i % 2))
        return floor

    def height(xy: np.ndarray) -> np.ndarray:
        x, y = np.asarray(xy)[..., 0], np.asarray(xy)[..., 1]
        top = heights[np.searchsorted(edges, x, side="right")]
        return np.where((np.abs(y) < 3.0) & (x < ends[-1]), top, 0.0)

    return Ground(add=add, height=height)


def doorway(at: tuple[float, float], width_m: float) -> Ground:
    """Return the plane z = 0 with a wall along x and a doorway with its middle at `at` [2] m."""
    (x, y), half, thick, door, wall = at, width_m / 2, 0.1, 1.9, 2.2

    def add(spec: mujoco.MjSpec) -> mujoco.MjsGeom:
        floor = add_plane(spec)
        _box(spec, "wall_near", (x - 6.0, y, 0.0), (x - half, y + thick, wall), opacity=0.4)
        _box(spec, "wall_far", (x + half, y, 0.0), (x + 6.0, y + thick, wall), opacity=0.4)
        _box(spec, "lintel", (x - half, y, door), (x + half, y + thick, wall), opacity=0.4)
        return floor

    return Ground(add=add, height=lambda xy: np.zeros(np.shape(xy)[:-1]))


def rough(bump_m: float, seed: int) -> Ground:
    """Return ground with smooth random bumps of height 0 to `bump_m`, drawn with `seed`; it is level at the start."""
    from scipy.interpolate import RegularGridInterpolator  # slow to import
    from scipy.ndimage import gaussian_filter

    x, y = (np.arange(low, high + _CELL / 2, _CELL) for low, high in (_ROUGH_X, _ROUGH_Y))
    noise = gaussian_filter(np.random.default_rng(seed).standard_normal((len(y), len(x))), _SMOOTH)
    bumps = (noise - noise.min()) / np.ptp(noise)
    away = np.hypot(*np.meshgrid(x, y))
    bumps *= np.clip(away / _FLAT - 1, 0.0, 1.0)
    bumps /= bumps.max()
    surface = RegularGridInterpolator((x, y), bump_m * bumps.T, bounds_error=False, fill_value=0.0)

    def add(spec: mujoco.MjSpec) -> mujoco.MjsGeom:
        add_stage(spec)
        spec.add_hfield(
            name=GROUND,
            nrow=len(y),
            ncol=len(x),
            size=[(x[-1] - x[0]) / 2, (y[-1] - y[0]) / 2, max(bump_m, 1e-3), 0.2],
            # the compiler rescales the heights to [0, 1]; the level start area is the lowest part
            userdata=bumps.ravel(),
        )
        return spec.worldbody.add_geom(
            name=GROUND,
            type=mujoco.mjtGeom.mjGEOM_HFIELD,
            hfieldname=GROUND,
            pos=[(x[0] + x[-1]) / 2, (y[0] + y[-1]) / 2, 0.0],
            material=FLOOR,
            rgba=[1, 1, 1, 1],
        )

    return Ground(add=add, height=lambda xy: surface(np.asarray(xy)).reshape(np.shape(xy)[:-1]))
