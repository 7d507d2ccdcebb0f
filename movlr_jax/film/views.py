"""The cameras of a task, and what is drawn into the scene: distances on the ground, and places to reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import mujoco
import numpy as np

from movlr_jax.biomech.world import World, show_upright, up_of
from movlr_jax.tasks.base import Camera, Task
from movlr_jax.tasks.words.clauses import travel

SHOWN_GROUPS = 3  # of geoms and tendons
_MAGENTA = np.array([1.0, 0.15, 0.85, 1.0], np.float32)
_INK = np.array([0.16, 0.19, 0.24, 1.0], np.float32)  # of the numbers on the ground
_BEHIND, _AHEAD = 2, 3  # m of the ground that are labelled
_OFF = 1.0  # m beside the axis from which on distances along it say nothing
_TURNED, _ASLANT = np.deg2rad((45.0, 15.0))  # of the body and of its way, from which on they say nothing
_ASIDE = 0.6  # m from the path to the numbers, on the far side
_RING = 32  # points of a ring around a place to reach
_RING_SIZE = 0.03  # radius, as a share of the distance of the camera
_LINE_PX = 3.0


class Views:
    """The task's cameras. One that tracks a body follows it horizontally; `rise` and `vertical` say how it rises."""

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[Camera]) -> None:
        self._specs, self._cameras = cameras, [mujoco.MjvCamera() for _ in cameras]
        self._bodies = [None if c.track is None else model.body(c.track).id for c in cameras]
        self._origins: list[np.ndarray] | None = None
        for view, camera in zip(self._cameras, cameras, strict=True):
            view.type = mujoco.mjtCamera.mjCAMERA_FREE.value
            view.distance, view.azimuth = camera.distance, camera.azimuth
            view.elevation = camera.elevation

    def at(self, data: mujoco.MjData) -> list[mujoco.MjvCamera]:
        """Return the cameras for the state in `data`. Their `lookat` applies to the first state of the film."""
        places = [
            np.zeros(3) if body is None else data.xpos[body] * [1, 1, camera.vertical]
            for body, camera in zip(self._bodies, self._specs, strict=True)
        ]
        if self._origins is None:
            self._origins = places
        for view, camera, here, origin in zip(self._cameras, self._specs, places, self._origins, strict=True):
            view.lookat[:] = np.asarray(camera.lookat) + here - origin
            view.lookat[2] += camera.rise * (here - origin)[0]
        return self._cameras


def ground_of(task: Task) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return the height [...] m of the ground at [..., 2] m, or None if it is not known."""
    if task.course.ground_height is not None:
        return task.course.ground_height
    height = floor_height(task.model)
    return None if height is None else lambda xy: np.full(np.shape(xy)[:-1], height)


def floor_height(model: mujoco.MjModel) -> float | None:
    """Return the height of the floor in m along up, None if there is no level one.

    It is the highest of the planes that are shown, belong to a body that stands still and face up: a walker stands
    on that one, because a plane has no edge and nothing is under it.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    show_upright(model, data)
    still = model.body_weldid[model.geom_bodyid] == 0
    shown = (model.geom_group < SHOWN_GROUPS) & (model.geom_rgba[:, 3] > 0)
    level = data.geom_xmat[:, 8] > 1 - 1e-6
    planes = (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & still & shown & level
    return float(data.geom_xpos[planes, 2].max()) if planes.any() else None


@dataclass(frozen=True)
class Marks:
    """What is drawn into the scene: the distance at every metre of the ground, and rings around places to reach."""

    body: int | None  # that travels
    ground: Callable[[np.ndarray], np.ndarray] | None
    places: Sequence[np.ndarray]  # [3] m
    radius: float  # m, of the rings
    along: bool = True  # whether the words ask for no way but that along x
    begin: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # first place and rotation of the body

    @classmethod
    def of(cls, task: Task) -> Marks:
        """Return the marks of a task. A target that the scene already shows as an outline gets no rings."""
        model, body = task.model, task.view.cameras[0].track
        shown = f"target_{task.roles.get('object', '')}"
        outlined = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, shown) >= 0
        goals = [np.asarray(v, float) for name, v in task.goals.items() if name.endswith("_pos")]
        reachable = [g for g in goals if g.shape == (3,) and np.abs(g).max() < 100.0]
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        frame = World(up_of(model, data)).frame
        radius = _RING_SIZE * min(camera.distance for camera in task.view.cameras)
        return cls(
            None if body is None else model.body(body).id,
            ground_of(task),
            [] if outlined else [frame @ place for place in reachable],
            radius,
            _along_x(task, frame),
        )

    def add_to(self, scene: mujoco.MjvScene, data: mujoco.MjData) -> None:
        """Add the marks for the state in `data` to a scene."""
        for place in self.places:
            self._ring(scene, place)
        if self.body is None or self.ground is None or not self.along or self._strays(data, self.body):
            return
        here = round(float(data.xpos[self.body][0]))
        for metre in range(here - _BEHIND, here + _AHEAD + 1):
            at = np.array([float(metre), float(data.xpos[self.body][1]) + _ASIDE])
            height = float(np.asarray(self.ground(at))) + 0.02
            label = _new(scene, mujoco.mjtGeom.mjGEOM_LABEL, np.array([*at, height]), _INK)
            if label is not None:
                label.label = f"{metre} m"

    def _strays(self, data: mujoco.MjData, body: int) -> bool:
        """Return whether a body is beside the axis through where it began, or has turned from it."""
        place, rotation = data.xpos[body].copy(), data.xmat[body].reshape(3, 3).copy()
        if not self.begin:
            self.begin.append((place, rotation))
        turned = rotation @ self.begin[0][1].T
        yaw = np.arctan2(turned[1, 0] - turned[0, 1], turned[0, 0] + turned[1, 1])  # twist about the vertical
        return bool(abs(place[1] - self.begin[0][0][1]) > _OFF or abs(yaw) > _TURNED)

    def _ring(self, scene: mujoco.MjvScene, place: np.ndarray) -> None:
        turn = np.linspace(0.0, 2 * np.pi, _RING + 1)
        for axis in range(3):
            points = np.zeros((_RING + 1, 3))
            points[:, (axis + 1) % 3], points[:, (axis + 2) % 3] = np.cos(turn), np.sin(turn)
            points = place + self.radius * points
            for start, end in pairwise(points):
                line = _new(scene, mujoco.mjtGeom.mjGEOM_LINE, np.zeros(3), _MAGENTA)
                if line is not None:
                    mujoco.mjv_connector(line, mujoco.mjtGeom.mjGEOM_LINE, _LINE_PX, start, end)


def _along_x(task: Task, frame: np.ndarray) -> bool:
    """Return whether the words ask for no turn and for no way but that along x, in the `frame` [3, 3] with z up."""
    clauses = task.scoring.motion.clauses if task.scoring.motion else []
    ways = [frame @ np.asarray(clause["way"]) for clause in clauses if clause.row is travel]
    aside = any(np.hypot(*way[:2]) * np.cos(_ASLANT) > abs(way[0]) for way in ways)
    return not aside and all(clause.measure.changes != "heading" for clause in clauses)


def _new(scene: mujoco.MjvScene, kind: int, at: np.ndarray, rgba: np.ndarray) -> mujoco.MjvGeom | None:
    """Add a geom to a scene and return it, None if the scene is full."""
    if scene.ngeom >= scene.maxgeom:
        return None
    scene.ngeom += 1
    geom = scene.geoms[scene.ngeom - 1]
    mujoco.mjv_initGeom(geom, kind, np.zeros(3), at, np.eye(3).ravel(), rgba)
    return geom
