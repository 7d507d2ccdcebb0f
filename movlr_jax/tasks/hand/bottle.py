"""bottle_pour: grasp the dark bottle and bring it to the position and tilt of its outline."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.models import ModelAdapter
from movlr_jax.tasks.base import Task, positive
from movlr_jax.tasks.hand import grasp
from movlr_jax.tasks.stage import add_lathed_mesh, add_tube_mesh

RADIUS, HALF_HEIGHT = 0.03, 0.10  # m, of the bottle's body
DARK = (0.06, 0.16, 0.45, 1.0)
PROFILE = (  # visual shape of the bottle: radius and height in m, from bottom to top
    (0.0, -0.1), (0.026, -0.1), (0.03, -0.095), (0.03, 0.03), (0.028, 0.042), (0.022, 0.054),
    (0.015, 0.064), (0.012, 0.072), (0.012, 0.088), (0.0145, 0.088), (0.0145, 0.1), (0.0, 0.1),
)  # fmt: skip
WIRE = 0.0018  # m, radius of the lines of the outline
RINGS, SIDES = (2, 3, 8, 10), 4  # points of PROFILE where it has a ring; number of its lengthwise lines


def bottle_pour(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    lift_m: tuple[float, float, float] = (0.0, 0.06, 0.10),
    tilt_deg: float = 50.0,
    bottle_kg: float = 0.3,
    grip: grasp.Grip,
) -> Task:
    """Build the task. The hand starts open around a standing bottle.

    The target is `lift_m` (forward, left, up) from the start and tilted by `tilt_deg` to the left, as when a right
    forearm pours by pronation.
    """
    frame, palm = grasp.body_frame(adapter), grasp.grasp_point(adapter)
    goal = grasp.GraspGoal(palm + frame @ lift_m, grasp.about(-frame[:, 0], tilt_deg), grip)
    spec = adapter.load()
    grasp.add_ground(spec)
    grasp.add_table(spec, adapter, palm + frame @ (0.15, -0.05, 0.0) - (0, 0, HALF_HEIGHT))
    _add_bottles(spec, palm, positive("bottle_kg", bottle_kg), goal)
    return grasp.grasp_task(
        adapter,
        spec,
        name="bottle_pour",
        description="grasp the dark bottle and bring it to the position and orientation of the outlined bottle",
        focus="the distance between the bottle and the magenta outline, their tilt, and whether the fingers hold the "
        "bottle firmly",
        thing="bottle",
        goal=goal,
        episode_s=episode_s,
        cameras=(
            grasp.camera(adapter, palm, offset=(-0.15, 0.02, 0.03), distance=0.68, azimuth=135.0, elevation=-12.0),
        ),
        near=grasp.close_up(adapter, palm, "bottle", distance=0.36),
    )


def _add_bottles(spec: mujoco.MjSpec, at: np.ndarray, mass: float, goal: grasp.GraspGoal) -> None:
    """Add the bottle at `at` [3] m, and its outline at the goal."""
    geom = mujoco.mjtGeom
    bottle = spec.worldbody.add_body(name="bottle", pos=at)
    bottle.add_freejoint(name="bottle_free")
    # the hand grasps a capsule and four small spheres stand on the table: every physics backend has these contacts
    bottle.add_geom(
        name="bottle_grip",
        type=geom.mjGEOM_CAPSULE,
        size=[RADIUS, HALF_HEIGHT - RADIUS - 0.004, 0],
        mass=mass,
        friction=[1.0, 0.02, 0.001],
        condim=4,
        group=3,
        **grasp.SOLID,
    )
    for i, angle in enumerate(np.deg2rad([45, 135, 225, 315])):
        bottle.add_geom(
            name=f"bottle_foot{i}",
            type=geom.mjGEOM_SPHERE,
            size=[0.005, 0, 0],
            pos=[0.8 * RADIUS * np.cos(angle), 0.8 * RADIUS * np.sin(angle), -HALF_HEIGHT + 0.005],
            mass=0.001,
            group=3,
            **grasp.SOLID,
        )
    target = spec.worldbody.add_body(name="target_bottle", pos=goal.pos, quat=goal.quat)
    add_lathed_mesh(spec, "bottle", PROFILE)
    spec.add_material(name="bottle", rgba=DARK, specular=0.6, shininess=0.7)
    bottle.add_geom(
        name="bottle_look", type=geom.mjGEOM_MESH, meshname="bottle", material="bottle", rgba=DARK, **grasp.LOOK
    )
    add_tube_mesh(spec, "target", _outline(), WIRE)
    target.add_geom(name="target_look", type=geom.mjGEOM_MESH, meshname="target", **grasp.OUTLINE)


def _outline() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return lines around and along the bottle, just outside its surface, as for `add_tube_mesh`."""
    turn, up = np.linspace(0, 2 * np.pi, 33), np.array([0.0, 0.0, 1.0])
    circle = np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], axis=-1)
    profile = np.array(PROFILE) + (WIRE, 0)
    lines = [(profile[i, 0] * circle + profile[i, 1] * up, up) for i in RINGS]
    for angle in np.arange(SIDES) * 2 * np.pi / SIDES:
        way = np.array([np.cos(angle), np.sin(angle), 0.0])
        lines.append((profile[1:-1] @ np.stack([way, up]), np.cross(up, way)))
    return lines
