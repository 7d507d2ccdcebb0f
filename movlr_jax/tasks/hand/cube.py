"""cube_rotate: grasp the cube and bring it, in front of the chest, to the orientation of its outline."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter
from movlr_jax.tasks.base import Task, positive
from movlr_jax.tasks.hand import grasp
from movlr_jax.tasks.hand.handhold import around_block

STAND_HEIGHT, STAND_HALF = 0.09, 0.011  # m; a column, which leaves room for fingers below the cube
CORE = (0.13, 0.13, 0.15)
COLOURED, OUTLINED = (0.88, 0.72)  # share of the width of a face: its coloured square, and the hole in its outline
FACES = {  # direction in the cube's frame -> rgb: six colours make every orientation distinguishable
    (1, 0, 0): (0.80, 0.15, 0.15),
    (-1, 0, 0): (0.95, 0.55, 0.10),
    (0, 1, 0): (0.12, 0.35, 0.75),
    (0, -1, 0): (0.15, 0.60, 0.30),
    (0, 0, 1): (0.95, 0.95, 0.92),
    (0, 0, -1): (0.95, 0.85, 0.20),
}


@dataclass(frozen=True)
class CubeGrip(grasp.Grip):
    """Settings of a grasping task with smaller tolerances."""

    success_position_m: float = setting(0.03, "largest position error of a success, m", above=0)
    success_orientation_rad: float = setting(0.262, "largest orientation error of a success, rad", above=0)


def cube_rotate(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    lift_m: tuple[float, float, float] = (0.0, 0.08, 0.08),
    turn_deg: float = 60.0,
    turn_axis: tuple[float, float, float] = (-1.0, 0.0, 0.0),
    cube_m: float = 0.05,
    cube_kg: float = 0.1,
    grip: CubeGrip,
) -> Task:
    """Build the task. The hand starts open around a cube with edge cube_m that stands on a column.

    The target is `lift_m` (forward, left, up) from the start and rotated by turn_deg about turn_axis (forward, left,
    up); the default is the motion of a right forearm in pronation.
    """
    if not np.linalg.norm(turn_axis) > 0:
        raise UserError(f"task.settings.turn_axis={list(turn_axis)} must not be zero; give forward, left, up")
    frame, half = grasp.body_frame(adapter), positive("cube_m", cube_m) / 2
    posture, at, heading = around_block(adapter, half)
    upright = grasp.about(np.array([0, 0, 1]), np.rad2deg(heading))
    turned = grasp.product(grasp.about(frame @ turn_axis, turn_deg), upright)
    goal = grasp.GraspGoal(at + frame @ lift_m, turned, grip)
    spec = adapter.load()
    grasp.add_ground(spec)
    table = grasp.add_table(spec, adapter, at + frame @ (0.15, -0.05, -half - STAND_HEIGHT))
    _add_stand(table, at - (0, 0, half))
    _add_cube(spec, at, upright, half, positive("cube_kg", cube_kg))
    _add_target(spec, goal, half)
    return grasp.grasp_task(
        adapter,
        spec,
        name="cube_rotate",
        description="grasp the cube and bring it, in front of the chest, to the pose of the outlined cube",
        focus="how the colours of the cube's faces line up with those inside the magenta outline, the distance "
        "between the cube and the outline, and whether the fingers hold the cube firmly",
        thing="cube",
        goal=goal,
        episode_s=episode_s,
        cameras=(
            grasp.camera(adapter, at, offset=(-0.10, 0.03, 0.03), distance=0.55, azimuth=135.0, elevation=-15.0),
        ),
        near=grasp.close_up(adapter, at, "cube", distance=0.28),
        posture=posture,
    )


def _add_stand(table: mujoco.MjsBody, top: np.ndarray) -> None:
    """Add a column with its top at `top` [3] m, as part of the table's body."""
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(table.quat, float))
    at = matrix.reshape(3, 3).T @ (top - np.array([0, 0, STAND_HEIGHT / 2]) - table.pos)
    table.add_geom(
        name="stand",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[STAND_HALF, STAND_HALF, STAND_HEIGHT / 2],
        pos=at,
        rgba=[0.62, 0.47, 0.34, 1],
        **grasp.SOLID,
    )


def _add_cube(spec: mujoco.MjSpec, at: np.ndarray, quat: np.ndarray, half: float, mass: float) -> None:
    """Add the cube, black with a coloured square on each face."""
    box = mujoco.mjtGeom.mjGEOM_BOX
    body = spec.worldbody.add_body(name="cube", pos=at, quat=quat)
    body.add_freejoint(name="cube_free")
    body.add_geom(
        name="cube_grip",
        type=box,
        size=[half] * 3,
        mass=mass,
        friction=[1.0, 0.02, 0.001],
        condim=4,
        rgba=[*CORE, 1],
        **grasp.SOLID,
    )
    for i, (direction, colour) in enumerate(FACES.items()):
        body.add_geom(
            name=f"cube_face{i}",
            type=box,
            size=np.where(np.abs(direction), 0.0004, COLOURED * half),
            pos=half * np.array(direction),
            rgba=[*colour, 1],
            **grasp.LOOK,
        )


def _add_target(spec: mujoco.MjSpec, goal: grasp.GraspGoal, half: float) -> None:
    """Add the outline of the cube at the goal: on each face a frame in its colour inside a magenta one.

    Meshes are drawn from outside only, so the frames at the back of the cube do not show through.
    """
    half *= 1.03  # so that it stays visible around the cube when they coincide
    body = spec.worldbody.add_body(name="target_cube", pos=goal.pos, quat=goal.quat)
    _add_frame(spec, "target_edge", COLOURED * half, half)
    _add_frame(spec, "target_face", OUTLINED * half, COLOURED * half)
    for i, (direction, colour) in enumerate(FACES.items()):
        quat = np.empty(4)
        mujoco.mju_quatZ2Vec(quat, np.asarray(direction, float))
        for name, look in (("edge", grasp.OUTLINE), ("face", grasp.LOOK | {"rgba": [*colour, 1]})):
            body.add_geom(
                name=f"target_cube_{name}{i}",
                type=mujoco.mjtGeom.mjGEOM_MESH,
                meshname=f"target_{name}",
                pos=half * np.array(direction),
                quat=quat,
                **look,
            )


def _add_frame(spec: mujoco.MjSpec, name: str, inner: float, outer: float) -> None:
    """Add the mesh `name`: a flat square frame with these half edges in m, drawn from +z only."""
    corners = np.array([(1, 1, 0), (-1, 1, 0), (-1, -1, 0), (1, -1, 0)], float)
    here = np.arange(4)
    after = (here + 1) % 4
    faces = np.concatenate([np.stack([here, here + 4, after + 4], -1), np.stack([here, after + 4, after], -1)])
    spec.add_mesh(
        name=name,
        uservert=np.concatenate([inner * corners, outer * corners]).ravel(),
        userface=faces.ravel(),
        inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
    )
