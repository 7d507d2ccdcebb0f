"""cube_rotate: grasp the cube and bring it, in front of the chest, to the orientation of the translucent one."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.hand import grasp
from movlr_jax.tasks.hand.handhold import around_block

STAND_HEIGHT, STAND_HALF = 0.09, 0.011  # m; a column, which leaves room for fingers below the cube
CORE = (0.13, 0.13, 0.15)
FACES = {  # direction in the cube's frame -> rgb: six colours make every orientation distinguishable
    (1, 0, 0): (0.80, 0.15, 0.15),
    (-1, 0, 0): (0.95, 0.55, 0.10),
    (0, 1, 0): (0.12, 0.35, 0.75),
    (0, -1, 0): (0.15, 0.60, 0.30),
    (0, 0, 1): (0.95, 0.95, 0.92),
    (0, 0, -1): (0.95, 0.85, 0.20),
}


def cube_rotate(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    lift_m: tuple[float, float, float] = (0.0, 0.08, 0.08),
    turn_deg: float = 60.0,
    turn_axis: tuple[float, float, float] = (-1.0, 0.0, 0.0),
    cube_m: float = 0.05,
    cube_kg: float = 0.1,
    start_noise: float = 0.01,
    hold_s: float = 0.5,
    success_position_m: float = 0.03,
    success_orientation_rad: float = 0.262,
) -> Task:
    """Build the task. The hand starts open around a cube with edge cube_m that stands on a column.

    The target is `lift_m` (forward, left, up) from the start and rotated by turn_deg about turn_axis (forward, left,
    up); the default is the motion of a right forearm in pronation. start_noise: standard deviation of the arm's joint
    angles at the start, rad.
    """
    grasp.check_settings(
        start_noise,
        cube_m=cube_m,
        cube_kg=cube_kg,
        hold_s=hold_s,
        success_position_m=success_position_m,
        success_orientation_rad=success_orientation_rad,
    )
    if not np.linalg.norm(turn_axis) > 0:
        raise UserError(f"task.settings.turn_axis={list(turn_axis)} must not be zero; give forward, left, up")
    frame, half = grasp.body_frame(adapter), cube_m / 2
    posture, at, heading = around_block(adapter, half)
    upright = grasp.about(np.array([0, 0, 1]), np.rad2deg(heading))
    goal = grasp.GraspGoal(
        pos=at + frame @ lift_m,
        quat=grasp.product(grasp.about(frame @ turn_axis, turn_deg), upright),
        hold_s=hold_s,
        position_m=success_position_m,
        orientation_rad=success_orientation_rad,
    )
    spec = adapter.load()
    grasp.add_ground(spec)
    table = grasp.add_table(spec, adapter, at + frame @ (0.15, -0.05, -half - STAND_HEIGHT))
    _add_stand(spec, table, at - (0, 0, half))
    _add_cube(spec, "cube", at, upright, half, cube_kg)
    _add_cube(spec, "target_cube", goal.pos, goal.quat, half, None)
    return grasp.grasp_task(
        adapter,
        spec,
        name="cube_rotate",
        description="grasp the cube and turn it to the target orientation in front of the chest",
        focus="how the colours of the cube's faces line up with the translucent cube's, the distance between the two "
        "cubes, and whether the fingers hold the cube firmly",
        thing="cube",
        goal=goal,
        episode_s=episode_s,
        start_noise=start_noise,
        cameras=(
            grasp.camera(
                adapter, at, offset=(-0.10, 0.03, 0.03), distance=0.55, azimuth=135.0, elevation=-15.0
            ),
        ),
        posture=posture,
    )


def _add_stand(spec: mujoco.MjSpec, table: mujoco.MjsBody, top: np.ndarray) -> None:
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


def _add_cube(
    spec: mujoco.MjSpec, name: str, at: np.ndarray, quat: np.ndarray, half: float, mass: float | None
) -> None:
    """Add a cube with six colours; without a mass it is only visual and fixed."""
    box = mujoco.mjtGeom.mjGEOM_BOX
    body = spec.worldbody.add_body(name=name, pos=at, quat=quat)
    ghost = mass is None
    if not ghost:
        body.add_freejoint(name=f"{name}_free")
        body.add_geom(
            name=f"{name}_grip",
            type=box,
            size=[half] * 3,
            mass=mass,
            friction=[1.0, 0.02, 0.001],
            condim=4,
            rgba=[*CORE, 1],
            **grasp.SOLID,
        )
    else:
        half *= 1.03  # so that it stays visible around the cube when they coincide
    for i, (direction, colour) in enumerate(FACES.items()):
        normal = np.abs(direction)
        body.add_geom(
            name=f"{name}_face{i}",
            type=box,
            size=np.where(normal, 0.0004, (0.98 if ghost else 0.88) * half),
            pos=half * np.array(direction),
            rgba=[*colour, 0.35 if ghost else 1.0],
            **grasp.LOOK,
        )
