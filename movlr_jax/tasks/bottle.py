"""bottle_pour: grasp the dark bottle and bring it to the place and tilt of the light one."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.control.static import StaticOptimiser
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter, follow_couplings, nominal_qpos
from movlr_jax.models.spec import compile_spec
from movlr_jax.resources import resource_text
from movlr_jax.rewards.state import instrument, layout_of, rotation
from movlr_jax.tasks.base import Camera, Metrics, Need, Task
from movlr_jax.tasks.stage import add_lathed_mesh, add_stage
from movlr_jax.types import Trajectory

RADIUS, HALF_HEIGHT = 0.03, 0.10  # m, of the bottle's body
OVERLAP = 1e-3  # m that the hand may be inside the bottle at the start
DARK, LIGHT = (0.06, 0.16, 0.45, 1.0), (0.45, 0.72, 1.0, 0.35)
PROFILE = (  # of the bottle's look: radius and height in m, bottom up
    (0.0, -0.1), (0.026, -0.1), (0.03, -0.095), (0.03, 0.03), (0.028, 0.042), (0.022, 0.054),
    (0.015, 0.064), (0.012, 0.072), (0.012, 0.088), (0.0145, 0.088), (0.0145, 0.1), (0.0, 0.1),
)  # fmt: skip


def bottle_pour(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    lift_m: tuple[float, float, float] = (0.06, 0.0, 0.10),
    tilt_deg: float = 50.0,
    bottle_kg: float = 0.3,
    start_noise: float = 0.01,
    hold_s: float = 0.5,
    success_position_m: float = 0.05,
    success_orientation_rad: float = 0.524,
) -> Task:
    """The hand starts open around a standing bottle.

    The target is `lift_m` (world frame) from the start and tilted by `tilt_deg` the way a pronating forearm
    pours. start_noise is the standard deviation of the arm's joint angles at the start (rad).
    """
    for name, value in (
        ("bottle_kg", bottle_kg),
        ("hold_s", hold_s),
        ("success_position_m", success_position_m),
        ("success_orientation_rad", success_orientation_rad),
    ):
        if value <= 0:
            raise UserError(f"task.settings.{name}={value:g}: it must be more than 0")
    if start_noise < 0:
        raise UserError(f"task.settings.start_noise={start_noise:g}: it must be 0 or more")
    spec = adapter.load()
    palm, tilt = _grasp_at_start(adapter), np.deg2rad(tilt_deg)
    target_pos = palm + np.asarray(lift_m)
    target_quat = np.array([np.cos(tilt / 2), 0.0, np.sin(tilt / 2), 0.0])  # about world y
    _add_scene(spec, palm, bottle_kg, target_pos, target_quat)
    goals = {
        "object_pos": target_pos.astype(np.float32),
        "object_quat": target_quat.astype(np.float32),
        "object_rot": np.asarray(rotation(target_quat.astype(np.float32))),
    }
    touch = {**adapter.touch, "bottle": ("bottle",)}
    instrument(spec, root=adapter.root, touch=touch, sites=adapter.sites)
    model = compile_spec(spec)
    static = StaticOptimiser(model, np.array([model.joint(j).dofadr[0] for j in adapter.planned_joints]))

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        qpos = np.repeat(nominal_qpos(model, adapter)[None], n, axis=0)
        arm = [model.joint(j).qposadr[0] for j in adapter.planned_joints]
        qpos[:, arm] += start_noise * rng.standard_normal((n, len(arm)))
        low, high = model.jnt_range[[model.joint(j).id for j in adapter.planned_joints]].T
        qpos[:, arm] = np.clip(qpos[:, arm], low, high)
        return follow_couplings(model, qpos)

    def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        qpos = draw(rng, n)
        for _ in range(100):  # until no hand is inside its bottle
            deep = np.array([_overlap(model, q) > OVERLAP for q in qpos])
            if not deep.any():
                break
            qpos[deep] = draw(rng, int(deep.sum()))
        else:
            raise UserError(
                f"task.settings.start_noise={start_noise:g} puts the hand into the bottle; lower it"
            )
        return qpos, np.zeros((n, model.nv)), np.array([static(q) for q in qpos])

    def measure(episode: Trajectory, task: Task) -> Metrics:
        layout, sensors = task.layout, np.asarray(episode.steps.sensors)
        row = layout.bodies["bottle"]
        pos = sensors[:, layout.blocks["pos"] + 3 * row :][:, :3]
        quat = sensors[:, layout.blocks["quat"] + 4 * row :][:, :4]
        time = np.asarray(episode.steps.time)
        held = time > time[-1] - hold_s
        distance = np.linalg.norm(pos - target_pos, axis=1)[held].max()
        # the geodesic angle between unit quaternions: 2 arccos |<p, q>|
        angle = (2 * np.arccos(np.clip(np.abs(quat @ target_quat), 0.0, 1.0)))[held].max()
        return {
            "success": float(distance <= success_position_m and angle <= success_orientation_rad),
            "object_position_error_m": float(distance),
            "object_orientation_error_rad": float(angle),
        }

    return Task(
        name="bottle_pour",
        description="grasp the dark bottle and bring it to the position and orientation of the light bottle",
        focus="the distance between the two bottles, their tilt, and whether the fingers hold the bottle firmly",
        adapter=adapter,
        model=model,
        layout=layout_of(model, goals),
        goals=goals,
        episode_s=episode_s,
        start=start,
        measure=measure,
        score=score,
        cameras=(Camera(tuple(palm + np.array([0.02, 0.15, 0.03])), 0.68, 45.0, -12.0),),
        initial_reward=resource_text("assets", "rewards", "bottle_pour_initial.py"),
        human_reward=resource_text("assets", "rewards", "bottle_pour_human.py"),
        diagnose=diagnose,
        roles={**adapter.roles, "object": "bottle"},
        notes=(f"{adapter.name}: {adapter.source}; {adapter.licence}",),
    )


def score(metrics: Metrics) -> float:
    """Orders candidates: 1 cm counts as much as 6 degrees, and success before everything."""
    error = (
        metrics["object_position_error_m"] / 0.01 + np.rad2deg(metrics["object_orientation_error_rad"]) / 6
    )
    return 100.0 * metrics["success"] - min(error, 100.0)


def diagnose(metrics: Metrics) -> list[Need]:
    """What is wrong with an episode, from its errors at the end."""
    distance, angle = metrics["object_position_error_m"], metrics["object_orientation_error_rad"]
    needs = []
    if distance > 0.10:
        needs.append(
            Need(f"the bottle is {distance:.2f} m from its target: it was not grasped, or dropped", "hold")
        )
    if distance > 0.03:
        needs.append(Need(f"the bottle ends {100 * distance:.0f} cm from its target", "place"))
    if angle > np.deg2rad(15):
        needs.append(Need(f"the bottle is {np.rad2deg(angle):.0f} degrees off the target's tilt", "turn"))
    if not metrics["success"]:
        needs.append(Need("the bottle is not held still at the end", "steady"))
    if metrics.get("effort", 0.0) > 0.1:
        needs.append(Need("the muscles work harder than the motion needs", "economy"))
    return needs


def _overlap(model: mujoco.MjModel, qpos: np.ndarray) -> float:
    """How deep anything but the table is inside the bottle, m."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_fwdPosition(model, data)
    bottle, table = model.body("bottle").id, model.body("table").id
    pairs = model.geom_bodyid[data.contact.geom]
    hand = (pairs == bottle).any(axis=1) & ~(pairs == table).any(axis=1)
    return -float(np.min(data.contact.dist[hand], initial=0.0))


def _grasp_at_start(adapter: ModelAdapter) -> np.ndarray:
    """Where the middle of the grasp is [3] m when the arm is in its start posture."""
    model = compile_spec(adapter.load())
    data = mujoco.MjData(model)
    data.qpos[:] = nominal_qpos(model, adapter)
    mujoco.mj_kinematics(model, data)
    return data.site(adapter.role("palm_site")).xpos + adapter.grasp_offset


def _add_scene(
    spec: mujoco.MjSpec, palm: np.ndarray, mass: float, target_pos: np.ndarray, target_quat: np.ndarray
) -> None:
    world, geom = spec.worldbody, mujoco.mjtGeom
    # Soft contacts creep: with pyramidal cones the bottle slides out of any grasp within two seconds. Friction that
    # is stiffer than the normal force holds it (measured: 6 of 6 grasps kept, 3 of 6 without).
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10
    solid = {"contype": 1, "conaffinity": 1}  # said aloud: a model's defaults may switch contacts off
    top = palm[2] - HALF_HEIGHT
    add_stage(spec)
    world.add_geom(
        name="floor", type=geom.mjGEOM_PLANE, size=[0, 0, 0.1], material="floor", rgba=[1, 1, 1, 1], **solid
    )
    table = world.add_body(name="table", pos=[palm[0] - 0.05, palm[1] - 0.15, top - 0.015])
    table.add_geom(
        name="table_top", type=geom.mjGEOM_BOX, size=[0.30, 0.22, 0.015], rgba=[0.80, 0.63, 0.47, 1], **solid
    )
    bottle = world.add_body(name="bottle", pos=palm)
    bottle.add_freejoint(name="bottle_free")
    # The hand grasps a capsule and four small feet stand on the table: contacts that every backend has.
    bottle.add_geom(
        name="bottle_grip",
        type=geom.mjGEOM_CAPSULE,
        size=[RADIUS, HALF_HEIGHT - RADIUS - 0.004, 0],
        mass=mass,
        friction=[1.0, 0.02, 0.001],
        condim=4,
        group=3,
        **solid,
    )
    for i, angle in enumerate(np.deg2rad([45, 135, 225, 315])):
        at = [0.8 * RADIUS * np.cos(angle), 0.8 * RADIUS * np.sin(angle), -HALF_HEIGHT + 0.005]
        bottle.add_geom(
            name=f"bottle_foot{i}",
            type=geom.mjGEOM_SPHERE,
            size=[0.005, 0, 0],
            pos=at,
            mass=0.001,
            group=3,
            **solid,
        )
    target = world.add_body(name="target_bottle", pos=target_pos, quat=target_quat)
    # a hair larger, so that the light bottle stays visible around the dark one when they meet
    for body, name, scale, rgba in ((bottle, "bottle", 1.0, DARK), (target, "target", 1.03, LIGHT)):
        add_lathed_mesh(spec, name, tuple((scale * r, scale * z) for r, z in PROFILE))
        spec.add_material(name=name, rgba=rgba, specular=0.6, shininess=0.7)
        body.add_geom(
            name=f"{name}_look",  # touches nothing and weighs nothing
            type=geom.mjGEOM_MESH,
            meshname=name,
            material=name,
            contype=0,
            conaffinity=0,
            mass=0,
        )
