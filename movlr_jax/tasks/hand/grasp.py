"""What tasks share in which a hand grasps an object and brings it to a place and an orientation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from movlr_jax.biomech.static_optimisation import StaticOptimiser
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter, follow_couplings, nominal_qpos
from movlr_jax.models.spec import compile_spec
from movlr_jax.resources import resource_text
from movlr_jax.rewards.state import instrument, layout_of, rotation
from movlr_jax.tasks.base import Camera, Metrics, Need, StartFn, Task, fill_reward
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.stage import FLOOR, add_stage
from movlr_jax.types import Trajectory

OVERLAP = 1e-3  # m that the hand may be inside the object at the start
FALLEN = 0.03  # m below the start: off the table, or on its side
LIFTED = 0.03  # m above the start
SOLID = {"contype": 1, "conaffinity": 1}  # said aloud: a model's defaults may switch contacts off
LOOK = {"contype": 0, "conaffinity": 0, "mass": 0}  # touches nothing and weighs nothing


@dataclass(frozen=True)
class GraspGoal:
    """Where an object is to be, [3] m and a unit quaternion [4], and how near for how long is success."""

    pos: np.ndarray
    quat: np.ndarray
    hold_s: float
    position_m: float
    orientation_rad: float


def check_settings(start_noise: float, **positive: float) -> None:
    """Raises UserError when a value in `positive` is not more than 0, or start_noise is less than 0."""
    for name, value in positive.items():
        if value <= 0:
            raise UserError(f"task.settings.{name}={value:g}: it must be more than 0")
    if start_noise < 0:
        raise UserError(f"task.settings.start_noise={start_noise:g}: it must be 0 or more")


def body_frame(adapter: ModelAdapter) -> np.ndarray:
    """[3, 3] whose columns are forward, left and up of the model, in the world."""
    forward, up = np.asarray(adapter.forward, float), np.array([0.0, 0.0, 1.0])
    return np.stack([forward, np.cross(up, forward), up], axis=1)


def about(axis: np.ndarray, degrees: float) -> np.ndarray:
    """The unit quaternion [4] of a turn about `axis` [3]."""
    quat = np.empty(4)
    mujoco.mju_axisAngle2Quat(quat, np.asarray(axis, float) / np.linalg.norm(axis), np.deg2rad(degrees))
    return quat


def product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The quaternion [4] that turns as `second` does, then as `first` does."""
    quat = np.empty(4)
    mujoco.mju_mulQuat(quat, first, second)
    return quat


def grasp_point(adapter: ModelAdapter) -> np.ndarray:
    """Where the middle of the grasp is [3] m when the arm is in its start posture."""
    model = compile_spec(adapter.load())
    data = mujoco.MjData(model)
    data.qpos[:] = nominal_qpos(model, adapter)
    mujoco.mj_kinematics(model, data)
    return data.site(adapter.role("palm_site")).xpos + adapter.grasp_offset


def camera(
    adapter: ModelAdapter,
    near: np.ndarray,
    *,
    offset: Sequence[float],
    distance: float,
    azimuth: float,
    elevation: float,
) -> Camera:
    """A camera that looks at `near` [3] m plus `offset` [3] m (forward, left, up); azimuth from forward, deg."""
    heading = np.rad2deg(np.arctan2(adapter.forward[1], adapter.forward[0]))
    x, y, z = (float(v) for v in near + body_frame(adapter) @ offset)
    return Camera((x, y, z), distance, float(heading + azimuth), elevation)


def add_ground(spec: mujoco.MjSpec) -> None:
    """Adds sky, light and floor, and makes contacts grip."""
    # Soft contacts creep: with pyramidal cones an object slides out of any grasp within two seconds. Friction that
    # is stiffer than the normal force holds it (measured: 6 of 6 grasps kept, 3 of 6 without).
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10
    add_stage(spec)
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(
        name="floor", type=plane, size=[0, 0, 0.1], material=FLOOR, rgba=[1, 1, 1, 1], **SOLID
    )


def add_table(
    spec: mujoco.MjSpec, adapter: ModelAdapter, at: np.ndarray, half_sizes: Sequence[float] = (0.22, 0.30)
) -> mujoco.MjsBody:
    """Adds the body `table`, the middle of its top at `at` [3] m; half_sizes m are along forward and left."""
    heading = np.arctan2(adapter.forward[1], adapter.forward[0])
    table = spec.worldbody.add_body(
        name="table",
        pos=at - np.array([0, 0, 0.015]),
        quat=[np.cos(heading / 2), 0, 0, np.sin(heading / 2)],
    )
    table.add_geom(
        name="table_top",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[*half_sizes, 0.015],
        rgba=[0.80, 0.63, 0.47, 1],
        **SOLID,
    )
    return table


def grasp_task(
    adapter: ModelAdapter,
    spec: mujoco.MjSpec,
    *,
    name: str,
    description: str,
    focus: str,
    thing: str,
    goal: GraspGoal,
    episode_s: float,
    start_noise: float,
    cameras: Sequence[Camera],
    posture: Mapping[str, float] | None = None,
) -> Task:
    """The task to bring the free body `thing` of `spec` (the model with its scene) to `goal`.

    The arm starts in `posture` (joint -> rad; the adapter's, if None), give or take start_noise rad (standard
    deviation of its joint angles).
    """
    if posture is not None:
        adapter = replace(adapter, posture=posture)
    goals = {
        "object_pos": goal.pos.astype(np.float32),
        "object_quat": goal.quat.astype(np.float32),
        "object_rot": np.asarray(rotation(goal.quat.astype(np.float32))),
    }
    instrument(spec, root=adapter.root, touch={**adapter.touch, thing: (thing,)}, sites=adapter.sites)
    model, roles = compile_spec(spec), {**adapter.roles, "object": thing}
    rewards = [
        fill_reward(resource_text("assets", "rewards", f"{name}_{kind}.py"), roles)
        for kind in ("initial", "human")
    ]
    return Task(
        name=name,
        description=description,
        focus=focus,
        adapter=adapter,
        model=model,
        layout=layout_of(model, goals),
        goals=goals,
        episode_s=episode_s,
        start=starts(model, adapter, thing, start_noise),
        measure=lambda episode, task: measure(episode, task, thing, goal),
        score=score,
        cameras=cameras,
        initial_reward=rewards[0],
        human_reward=rewards[1],
        diagnose=lambda metrics: diagnose(metrics, thing),
        series=lambda episode, task: errors(episode, task, thing, goal),
        roles=roles,
        notes=(f"{adapter.name}: {adapter.source}; {adapter.licence}",),
    )


def starts(model: mujoco.MjModel, adapter: ModelAdapter, thing: str, noise: float) -> StartFn:
    """Draws starts at rest, held by the muscles, with no hand inside the body `thing`."""
    joints = [model.joint(name) for name in adapter.planned_joints]
    arm, (low, high) = np.array([j.qposadr[0] for j in joints]), np.array([j.range for j in joints]).T
    static = StaticOptimiser(model, np.array([j.dofadr[0] for j in joints]))
    nominal = nominal_qpos(model, adapter)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        qpos = np.repeat(nominal[None], n, axis=0)
        qpos[:, arm] = np.clip(qpos[:, arm] + noise * rng.standard_normal((n, len(arm))), low, high)
        return follow_couplings(model, qpos)

    def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        qpos = draw(rng, n)
        for _ in range(100):
            deep = np.array([overlap(model, q, thing) > OVERLAP for q in qpos])
            if not deep.any():
                break
            qpos[deep] = draw(rng, int(deep.sum()))
        else:
            raise UserError(f"task.settings.start_noise={noise:g} puts the hand into the {thing}; lower it")
        return qpos, np.zeros((n, model.nv)), np.array([static(q) for q in qpos])

    return start


def overlap(model: mujoco.MjModel, qpos: np.ndarray, thing: str) -> float:
    """How deep anything but the table is inside the body `thing` at `qpos` [nq], m."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_fwdPosition(model, data)
    pairs = model.geom_bodyid[data.contact.geom]
    hand = (pairs == model.body(thing).id).any(axis=1) & ~(pairs == model.body("table").id).any(axis=1)
    return -float(np.min(data.contact.dist[hand], initial=0.0))


def errors(episode: Trajectory, task: Task, thing: str, goal: GraspGoal) -> dict[str, np.ndarray]:
    """How far [T] m and how far turned [T] rad `thing` is from the goal."""
    seen = Readout(task.layout, episode.steps)
    # the geodesic angle between unit quaternions: 2 arccos |<p, q>|
    angle = 2 * np.arccos(np.clip(np.abs(seen.quat(thing) @ goal.quat), 0.0, 1.0))
    distance = np.linalg.norm(seen.pos(thing) - goal.pos, axis=1)
    return {"object_position_error_m": distance, "object_orientation_error_rad": angle}


def measure(episode: Trajectory, task: Task, thing: str, goal: GraspGoal) -> Metrics:
    """The worst errors of `thing` within the last goal.hold_s, and whether both were small enough."""
    time = np.asarray(episode.steps.time)
    held = time > time[-1] - goal.hold_s
    distance, angle = (error[held].max() for error in errors(episode, task, thing, goal).values())
    return {
        "success": float(distance <= goal.position_m and angle <= goal.orientation_rad),
        "dropped": float(dropped(Readout(task.layout, episode.steps).pos(thing)[:, 2], goal.pos[2])),
        "object_position_error_m": float(distance),
        "object_orientation_error_rad": float(angle),
    }


def dropped(height: np.ndarray, wanted: float) -> bool:
    """Whether a thing with its centre at `height` [T] m fell: off the table, on its side, or back down before it was
    at the `wanted` height, where that is above the start."""
    begin, end, peak = height[0], height[-1], height.max()
    fell = end < begin - FALLEN
    let_go = wanted - begin > LIFTED and peak - begin > LIFTED and end - begin < 0.25 * (peak - begin)
    return bool(fell or let_go)


def score(metrics: Metrics) -> float:
    """Orders candidates: 1 cm counts as much as 6 degrees, and success before everything."""
    error = (
        metrics["object_position_error_m"] / 0.01 + np.rad2deg(metrics["object_orientation_error_rad"]) / 6
    )
    return 100.0 * metrics["success"] - min(error, 100.0)


def diagnose(metrics: Metrics, thing: str) -> list[Need]:
    """What is wrong with an episode, from its errors at the end."""
    distance, angle = metrics["object_position_error_m"], metrics["object_orientation_error_rad"]
    needs = []
    if distance > 0.10:
        needs.append(
            Need(f"the {thing} is {distance:.2f} m from its target: it was not grasped, or dropped", "hold")
        )
    if distance > 0.03:
        needs.append(Need(f"the {thing} ends {100 * distance:.0f} cm from its target", "place"))
    if angle > np.deg2rad(15):
        degrees = np.rad2deg(angle)
        needs.append(Need(f"the {thing} is {degrees:.0f} degrees off the target's orientation", "turn"))
    if not metrics["success"]:
        needs.append(Need(f"the {thing} is not held still at the end", "steady"))
    if metrics.get("effort", 0.0) > 0.1:
        needs.append(Need("the muscles work harder than the motion needs", "economy"))
    return needs
