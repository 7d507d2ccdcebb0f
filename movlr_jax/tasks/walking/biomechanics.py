"""Gait, work and effort of one finished episode, as measures and time series, for all tasks.

Gait is computed from the normal forces of the touch parts left_foot and right_foot, from the positions of the bodies
with these roles (the heels), and from the joints that the model's adapter names as clinical angles.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from movlr_jax.biomech.gait import events
from movlr_jax.biomech.gait.analysis import SIDES, GaitRecording, analyse
from movlr_jax.biomech.gait.events import Foot
from movlr_jax.biomech.gait.reference import ANGLES, MUSCLES
from movlr_jax.biomech.opensim import Coordinate
from movlr_jax.biomech.world import EARTH, lowest
from movlr_jax.models import ModelAdapter
from movlr_jax.models.derived import has_moving_base
from movlr_jax.tasks.base import Metrics, Task, exertion, joints_at_limit
from movlr_jax.tasks.needs import Need
from movlr_jax.tasks.readout import Readout
from movlr_jax.types import Trajectory

STRIDE_S = 1.0  # s, about one stride
NEAREST = 0.1  # m; below it, the cost of transport is undefined
FEET = ("left_foot", "right_foot")
TOES = ("left_toes", "right_toes")

# Limits beyond which a motion is criticised. Human walking has symmetry above 0.9, steps 0.05 to 0.13 m wide, and
# about 110 steps per minute; toes clear the ground by 1 to 2 cm and rise to 5 cm and more (Winter, Biomechanics and
# Motor Control of Human Movement). The limits are wide enough for other walkers and non-human gaits.
MOST_EFFORT = 0.1  # muscles at 0.3 of their full activation, root mean square
MOST_COST = 1.0  # about ten times the positive work of human walking
_LIMITS = (  # measure, least and largest value, factor in the message, message, kind of term that would help
    ("symmetry", 0.8, math.inf, 1.0, "the legs do not alternate symmetrically: symmetry {:.2f} of 1", "gait"),
    ("cadence_steps_min", -math.inf, 180.0, 1.0, "the steps are too fast and short: {:.0f} per minute", "gait"),
    ("foot_clearance_m", 0.02, math.inf, 100.0, "the feet are hardly lifted: {:.1f} cm", "gait"),
    ("step_width_m", 0.0, math.inf, 100.0, "the feet cross the midline from step to step", "gait"),
    ("step_width_m", -math.inf, 0.25, 100.0, "the steps are {:.0f} cm wide", "gait"),
    ("joint_limit_fraction", -math.inf, 0.2, 100.0, "joints are at their limits {:.0f} % of the time", "economy"),
)


def recording(episode: Trajectory, task: Task) -> GaitRecording | None:
    """Return what gait analysis needs of an episode [T, ...]; None for bodies that do not walk."""
    if not all(foot in task.layout.touch for foot in FEET):
        return None
    read, adapter, weight = Readout(task.layout, episode.steps).upright, task.adapter, weight_of(task)
    time = read.time.astype(float)
    force = np.stack([read.touch(foot).astype(float) for foot in FEET])
    heels, toes = (
        [read.pos(task.roles[role]) if role in task.roles else None for role in roles] for roles in (FEET, TOES)
    )
    for i, (heel, toe) in enumerate(zip(heels, toes, strict=True)):
        if heel is not None and toe is not None:
            force[i] = events.ground_force(force[i], *(_above_ground(part, read, task) for part in (heel, toe)))
    left, right = (Foot.of(force[i], time, weight, heels[i], toes[i]) for i in (0, 1))
    coordinates = leg_coordinates(adapter, task.layout.joints, task.model)
    return GaitRecording(
        time=time,
        com=read.com.astype(float),
        feet=(left, right),
        force=force,
        weight=weight,
        leg_length=leg_length(task),
        gravity=read.layout.world.gravity or EARTH,
        angles={
            name: np.degrees([c.sign * read.q(c.joint).astype(float) + c.offset for c in pair])
            for name, pair in coordinates.items()
        },
        activity={
            group: np.stack(
                [
                    np.mean([read.activation(m) for m in adapter.muscle_groups[f"{group}_{side}"]], axis=0)
                    for side in "lr"
                ]
            )
            for group in MUSCLES
            if coordinates and {f"{group}_l", f"{group}_r"} <= adapter.muscle_groups.keys()
        },
        facing=_facing(read.rot(task.roles["pelvis"])) if "pelvis" in task.roles else None,
    )


def _above_ground(position: np.ndarray, read: Readout, task: Task) -> np.ndarray:
    """Return the heights [T] m of positions [T, 3] of `read` above the ground of the task."""
    if task.course.ground_height is None:
        return read.layout.world.height(position)
    return position[:, 2] - task.course.ground_height(position[:, :2])


def leg_coordinates(
    adapter: ModelAdapter, joints: Container[str], model: mujoco.MjModel | None = None
) -> dict[str, tuple[Coordinate, Coordinate]]:
    """Return the coordinates (left, right) of each of ANGLES; empty if the model's joints are not a person's legs.

    model: Where the knees of a foreign model have the sign of gait2392, its ranges say so.
    """
    known = {c.name: c for c in adapter.opensim}

    def of(name: str) -> Coordinate:
        backward = model is not None and not adapter.info.source and name in joints and flexes_backward(model, name)
        return known.get(name, Coordinate(name, name, sign=-1.0 if backward else 1.0))

    found = {
        angle: (of(f"{name}_l"), of(f"{name}_r"))
        for angle, name in zip(ANGLES, ("hip_flexion", "knee_angle", "ankle_angle"), strict=True)
    }
    return found if all(c.joint in joints for pair in found.values() for c in pair) else {}


def flexes_backward(model: mujoco.MjModel, joint: str) -> bool:
    """Return whether a joint is a knee whose range has negative flexion."""
    low, high = model.joint(joint).range
    return joint.startswith("knee_angle_") and low < -2 * abs(high)


def metrics(episode: Trajectory, task: Task, sides: Sequence[str] = SIDES) -> Metrics:
    """Return the gait measures of one episode [T, ...]; empty for bodies that do not walk.

    cost_of_transport, symmetry and foot_clearance_m: see the functions of these names. cadence_steps_min,
    step_length_m and step_width_m are of the whole episode if it has no complete stride after the start; else they
    and the others are those of `GaitAnalysis.measures`. A measure is absent if the episode has too few steps for it.
    """
    with np.errstate(all="ignore"):  # diverged episodes have invalid numbers and are marked elsewhere
        made = recording(episode, task)
        if made is None:
            return {}
        read, time, com = Readout(task.layout, episode.steps).upright, made.time, made.com
        work = positive_work(time, read.actuator("force"), read.actuator("velocity"))
        found = {
            # undefined for a standing body, whose sway is not a travelled distance
            "cost_of_transport": cost_of_transport(work, made.weight, travelled(time, com))
            if np.linalg.norm((com[-1] - com[0])[:2]) >= NEAREST
            else None,
            "symmetry": events.symmetry(time, com, *made.feet),
            "cadence_steps_min": events.cadence(time, *made.feet),
            "foot_clearance_m": events.foot_clearance(*made.feet),
        }
        found["step_length_m"], found["step_width_m"] = events.step_size(time, com, *made.feet)
        if "trunk" in task.roles:
            tilt = trunk_tilt(read.rot(task.roles["trunk"]))
            found |= {"trunk_tilt_deg": tilt.mean(), "trunk_tilt_max_deg": tilt.max()}
        if analysis := analyse(made):
            found |= analysis.measures(sides)
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def gait(episode: Trajectory, task: Task) -> dict[str, Any]:
    """Return the record of the gait analysis of an episode; empty without a complete stride after the start."""
    with np.errstate(all="ignore"):
        made = recording(episode, task)
        analysis = analyse(made) if made else None
        return analysis.record() if analysis and np.isfinite(analysis.speed_m_s) else {}


def series(episode: Trajectory, task: Task) -> dict[str, np.ndarray]:
    """Return curves [T] of one episode [T, ...] with units in their names: effort, and how a body travels."""
    read = Readout(task.layout, episode.steps).upright
    curves = {"effort": exertion(task, episode)}
    if task.model.jnt_limited.any():
        curves["joint_limit_fraction"] = joints_at_limit(task.model, np.asarray(episode.steps.qpos))
    walks = all(foot in task.layout.touch for foot in FEET)
    if not (walks or has_moving_base(task.model, task.model.body(task.adapter.root).id)):
        return curves
    curves["speed_m_s"] = np.linalg.norm(read.com_vel[:, :2], axis=-1)
    role = next((role for role in ("pelvis", "trunk") if role in task.roles), "trunk")
    trunk = task.roles.get(role, task.adapter.root)
    tilt = f"{role}_tilt_deg" if walks else f"{role}_tilt_since_start_deg"  # that of a fish, whose start is drawn
    curves |= {f"{role}_height_m": read.height(trunk), tilt: trunk_tilt(read.rot(trunk))}
    if not walks:
        return curves
    for part in FEET:
        curves[f"{part}_force_n"] = read.touch(part)
    for part in FEET:
        if part in task.roles:
            curves[f"{part}_height_m"] = read.height(task.roles[part])
    return curves


def biomechanical_needs(measured: Mapping[str, float]) -> list[Need]:
    """Return the problems of a motion that do not depend on the task; absent measures are skipped."""
    needs = [
        Need(problem.format(factor * measured[name]), kind)
        for name, least, largest, factor, problem, kind in _LIMITS
        if name in measured and not least <= measured[name] <= largest
    ]
    if measured.get("effort", 0.0) > MOST_EFFORT or measured.get("cost_of_transport", 0.0) > MOST_COST:
        needs.append(Need("the muscles work harder than the motion needs", "economy"))
    return needs


def trunk_tilt(rot: np.ndarray) -> np.ndarray:
    """Return the angle [T] deg between the vertical axis of a body, rot [T, 3, 3], and the one at the start."""
    up = (rot @ rot[0].T)[:, 2, 2]
    return np.degrees(np.arccos(np.clip(up, -1.0, 1.0)))


def weight_of(task: Task) -> float:
    """Return the weight in N of the body whose centre of mass is measured."""
    mass = task.model.body_subtreemass[task.model.body(task.adapter.root).id]
    return float(mass * np.linalg.norm(task.model.opt.gravity))


def leg_length(task: Task) -> float | None:
    """Return the height in m of the left hip above the sole, with straight legs; None if the model has no thighs."""
    if "left_thigh" not in task.roles:
        return None
    model, data = task.model, mujoco.MjData(task.model)
    mujoco.mj_kinematics(model, data)
    up = task.layout.world.up
    sole = [
        lowest(model, data, int(geom), up)
        for body in task.adapter.touch["left_foot"]
        for geom in np.flatnonzero((model.geom_bodyid == model.body(body).id) & (model.geom_contype != 0))
    ]
    return float(data.body(task.roles["left_thigh"]).xpos @ up - min(sole)) if sole else None


def positive_work(time: np.ndarray, force: np.ndarray, velocity: np.ndarray) -> float:
    """Return the positive work of the actuators in J: the sum of max(0, F v) dt over actuators [T, nu].

    In MuJoCo's sign convention, pulling forces and shortening velocities are negative. So a muscle that shortens
    under tension does positive work, and a stretched one does none. Each sample represents the time since the
    previous one.
    """
    power = np.maximum(force.astype(float) * velocity, 0.0).sum(axis=-1)
    return float(power[1:] @ np.diff(time))


def travelled(time: np.ndarray, com: np.ndarray) -> float:
    """Return the horizontal path length in m of the centre of mass [T, 3], in chords of STRIDE_S to ignore sway."""
    at = np.append(np.arange(time[0], time[-1], STRIDE_S), time[-1])
    path = np.stack([np.interp(at, time, x) for x in com.T[:2]], axis=-1)
    return float(np.linalg.norm(np.diff(path, axis=0), axis=-1).sum())


def cost_of_transport(work: float, weight: float, distance: float) -> float | None:
    """Return the positive work of the actuators per weight and distance, dimensionless; None below NEAREST.

    The specific mechanical cost of transport of Collins, Ruina, Tedrake and Wisse (Science, 2005), with the work of
    muscles instead of joints. It is not a metabolic cost: isometric force is free.
    """
    return work / (weight * distance) if distance >= NEAREST and weight > 0 else None


def _facing(rot: np.ndarray) -> np.ndarray:
    """Return the horizontal direction [T, 2] in which a body faces that faced +x at the start, from rot [T, 3, 3]."""
    ahead = (rot @ rot[0].T)[:, :2, 0]
    return ahead / np.maximum(np.linalg.norm(ahead, axis=-1, keepdims=True), 1e-9)
