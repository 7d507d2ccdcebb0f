"""Shared parts of the tasks in which a hand grasps an object and brings it to a target pose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax._util.resources import resource_text
from movlr_jax.biomech.contacts import contact_bodies
from movlr_jax.biomech.static_optimisation import StaticOptimiser
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter, follow_couplings, nominal_qpos
from movlr_jax.models.adapter import Posture
from movlr_jax.models.spec import compile_spec
from movlr_jax.rewards.state import instrument, layout_of, rotation
from movlr_jax.tasks.base import TIE, Camera, Metrics, Origin, Rewards, Scoring, StartFn, Task, View, fill_reward
from movlr_jax.tasks.needs import Need
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.stage import FLOOR, add_stage
from movlr_jax.types import Trajectory

OVERLAP = 1e-3  # m, largest penetration of hand and object at the start
FALLEN = 0.03  # m below the start height: the object is off the table, or on its side
LIFTED = 0.03  # m above the start height
_PRESSED_N = 0.5  # a smaller contact force is none
SOLID = {"contype": 1, "conaffinity": 1}  # explicit, since the defaults of a model may disable contacts
LOOK = {"contype": 0, "conaffinity": 0, "mass": 0}  # visual only
MAGENTA = (1.0, 0.15, 0.85, 1.0)  # rgba of the outline that shows the target; nothing else has this colour
# the colour is in the geom too, since the defaults of a model may give its geoms a colour, which overrides a material
OUTLINE = {**LOOK, "material": "target/outline", "rgba": MAGENTA}


@dataclass(frozen=True)
class Grip:
    """Settings of all grasping tasks."""

    start_noise: float = setting(0.01, "standard deviation of the arm's joints at the start, rad", least=0)
    hold_s: float = setting(0.5, "time at the end in which a success must last, s", above=0)
    success_position_m: float = setting(0.05, "largest position error of a success, m", above=0)
    success_orientation_rad: float = setting(0.524, "largest orientation error of a success, rad", above=0)


@dataclass(frozen=True)
class GraspGoal:
    """Target position [3] m and orientation (unit quaternion [4]) of an object, and the tolerances of success."""

    pos: np.ndarray
    quat: np.ndarray
    grip: Grip

    def text(self, thing: str) -> str:
        """Return the tolerances in words."""
        position, degrees = self.grip.success_position_m, np.degrees(self.grip.success_orientation_rad)
        return (
            f"throughout the last {self.grip.hold_s:g} s the {thing} is within {100 * position:g} cm and "
            f"{degrees:.0f} degrees of its goal (turns about every axis count)"
        )


def body_frame(adapter: ModelAdapter) -> np.ndarray:
    """Return the matrix [3, 3] whose columns are forward, left and up of the model in the world frame."""
    forward, up = np.asarray(adapter.forward, float), np.array([0.0, 0.0, 1.0])
    return np.stack([forward, np.cross(up, forward), up], axis=1)


def about(axis: np.ndarray, degrees: float) -> np.ndarray:
    """Return the unit quaternion [4] of a rotation about `axis` [3]."""
    quat = np.empty(4)
    mujoco.mju_axisAngle2Quat(quat, np.asarray(axis, float) / np.linalg.norm(axis), np.deg2rad(degrees))
    return quat


def product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the quaternion product [4]: the rotation `second`, followed by `first`."""
    quat = np.empty(4)
    mujoco.mju_mulQuat(quat, first, second)
    return quat


def grasp_point(adapter: ModelAdapter) -> np.ndarray:
    """Return the centre of the grasp [3] m in the start posture of the arm."""
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
    """Return a camera that looks at `near` + `offset` [3] m (forward, left, up); azimuth in degrees from forward."""
    heading = np.rad2deg(np.arctan2(adapter.forward[1], adapter.forward[0]))
    x, y, z = (float(v) for v in near + body_frame(adapter) @ offset)
    return Camera((x, y, z), distance, float(heading + azimuth), elevation)


def close_up(adapter: ModelAdapter, near: np.ndarray, thing: str, distance: float) -> Camera:
    """Return a camera at the front left that follows the hand, which holds `thing` near the point `near` [3] m.

    It sees the tips of the fingers, the thumb, and the side of the object that the hand leaves free.
    """
    fixed = camera(adapter, near, offset=(-0.03, -0.01, 0.0), distance=distance, azimuth=232.0, elevation=-20.0)
    shows = f"a close-up of the hand and the {thing} from the palm's side, with a camera that follows the hand"
    return replace(fixed, track=adapter.role("hand"), vertical=True, shows=shows)


def add_ground(spec: mujoco.MjSpec) -> None:
    """Add sky, light, floor and the material of OUTLINE, and set contact options that hold grasped objects."""
    # Soft contacts creep: with pyramidal cones, an object slides out of any grasp within two seconds. Friction that
    # is stiffer than the normal force holds it (measured: 6 of 6 grasps hold, 3 of 6 without).
    spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10
    add_stage(spec)
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=[0, 0, 0.1], material=FLOOR, rgba=[1, 1, 1, 1], **SOLID)
    spec.add_material(name=OUTLINE["material"], rgba=MAGENTA, emission=0.5, specular=0)


def add_table(spec: mujoco.MjSpec, adapter: ModelAdapter, at: np.ndarray) -> mujoco.MjsBody:
    """Add the body `table` with the centre of its top at `at` [3] m."""
    heading = np.arctan2(adapter.forward[1], adapter.forward[0])
    table = spec.worldbody.add_body(
        name="table", pos=at - np.array([0, 0, 0.015]), quat=[np.cos(heading / 2), 0, 0, np.sin(heading / 2)]
    )
    table.add_geom(
        name="table_top",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[0.22, 0.30, 0.015],
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
    cameras: Sequence[Camera],
    near: Camera,
    posture: Posture | None = None,
) -> Task:
    """Build the task to bring the free body `thing` of `spec` (the model with its scene) to `goal`.

    The arm starts in `posture` (joint -> rad; None: the adapter's).
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
        fill_reward(resource_text("assets", "rewards", f"{name}_{kind}.py"), roles) for kind in ("initial", "human")
    ]
    return Task(
        name=name,
        description=description,
        adapter=adapter,
        model=model,
        layout=layout_of(model, goals),
        goals=goals,
        episode_s=episode_s,
        start=starts(model, adapter, thing, goal.grip.start_noise),
        scoring=Scoring(
            measure=lambda episode, task: measure(episode, task, thing, goal),
            score=score,
            diagnose=lambda metrics: diagnose(metrics, thing),
            focus=focus,
            series=lambda episode, task: courses(episode, task, thing, goal),
            success=goal.text(thing),
            hold_s=goal.grip.hold_s,
            tie=TIE,
        ),
        rewards=Rewards(*rewards),
        view=View(cameras, more_cameras=(near,)),
        roles=roles,
        origin=Origin(notes=(f"{adapter.name}: {adapter.info.source}; {adapter.info.licence}",)),
    )


def starts(model: mujoco.MjModel, adapter: ModelAdapter, thing: str, noise: float) -> StartFn:
    """Return a function that draws start states at rest, held by the muscles, without penetration of `thing`."""
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
            raise UserError(f"task.settings.start_noise={noise:g} moves the hand into the {thing}; lower it")
        return qpos, np.zeros((n, model.nv)), np.array([static(q) for q in qpos])

    return start


def overlap(model: mujoco.MjModel, qpos: np.ndarray, thing: str) -> float:
    """Return the largest penetration in m of the body `thing`, except by the table, at `qpos` [nq]."""
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_fwdPosition(model, data)
    pairs = contact_bodies(model, data)
    hand = (pairs == model.body(thing).id).any(axis=1) & ~(pairs == model.body("table").id).any(axis=1)
    return -float(np.min(data.contact.dist[hand], initial=0.0))


def errors(episode: Trajectory, task: Task, thing: str, goal: GraspGoal) -> dict[str, np.ndarray]:
    """Return the position error [T] m and orientation error [T] rad of `thing`."""
    seen = Readout(task.layout, episode.steps)
    # geodesic angle between unit quaternions: 2 arccos |<p, q>|
    angle = 2 * np.arccos(np.clip(np.abs(seen.quat(thing) @ goal.quat), 0.0, 1.0))
    distance = np.linalg.norm(seen.pos(thing) - goal.pos, axis=1)
    return {"object_position_error_m": distance, "object_orientation_error_rad": angle}


def courses(episode: Trajectory, task: Task, thing: str, goal: GraspGoal) -> dict[str, np.ndarray]:
    """Return the errors [T] of `thing`, how far it rose and slipped in the hand, m, and how many parts press."""
    seen, hand = Readout(task.layout, episode.steps), task.roles["hand"]
    place = np.einsum("tji,tj->ti", seen.rot(hand), seen.pos(thing) - seen.pos(hand))
    pressed = [np.asarray(seen.touch(part)) > _PRESSED_N for part in task.adapter.touch]
    return errors(episode, task, thing, goal) | {
        "object_raised_m": seen.pos(thing)[:, 2] - seen.pos(thing)[0, 2],
        "object_slip_m": np.linalg.norm(place - place[0], axis=1),
        "parts_in_contact": np.sum(pressed, axis=0).astype(float),
    }


def measure(episode: Trajectory, task: Task, thing: str, goal: GraspGoal) -> Metrics:
    """Return the largest errors of `thing` in the last hold_s seconds, success, and whether it was dropped."""
    time = np.asarray(episode.steps.time)
    held = time > time[-1] - goal.grip.hold_s
    distance, angle = (error[held].max() for error in errors(episode, task, thing, goal).values())
    return {
        "success": float(distance <= goal.grip.success_position_m and angle <= goal.grip.success_orientation_rad),
        "dropped": float(dropped(Readout(task.layout, episode.steps).pos(thing)[:, 2], goal.pos[2])),
        "object_position_error_m": float(distance),
        "object_orientation_error_rad": float(angle),
    }


def dropped(height: np.ndarray, target: float) -> bool:
    """Return whether an object with its centre at `height` [T] m fell.

    It fell off the table or on its side, or, for a `target` height in m above the start, was lifted and sank back.
    """
    begin, end, peak = height[0], height[-1], height.max()
    fell = end < begin - FALLEN
    let_go = target - begin > LIFTED and peak - begin > LIFTED and end - begin < 0.25 * (peak - begin)
    return bool(fell or let_go)


def score(metrics: Metrics) -> float:
    """Return a score: success first; then 1 cm of error counts as much as 6 degrees."""
    error = metrics["object_position_error_m"] / 0.01 + np.rad2deg(metrics["object_orientation_error_rad"]) / 6
    return 100.0 * metrics["success"] - error


def diagnose(metrics: Metrics, thing: str) -> list[Need]:
    """Return the problems of an episode, from its errors at the end."""
    distance, angle = metrics["object_position_error_m"], metrics["object_orientation_error_rad"]
    needs = []
    if distance > 0.10:
        needs.append(Need(f"the {thing} is {distance:.2f} m from its target: it was not grasped, or dropped", "hold"))
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
