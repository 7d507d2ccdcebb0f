"""Tasks of a humanoid robot: walk, walk with straight knees, climb stairs, turn through a doorway.

After MotionVL (Luo et al.). They extend `locomotion` with additional measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.biomech.gait.criteria import GaitCriteria
from movlr_jax.biomech.gait.events import in_contact
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter
from movlr_jax.physics.domain import Ranges
from movlr_jax.tasks.base import Metrics, Task, positive
from movlr_jax.tasks.needs import Need
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.walking.biomechanics import weight_of
from movlr_jax.tasks.walking.locomotion import SPEED_TOLERANCE, WalkGoal, locomotion
from movlr_jax.tasks.walking.terrain import Ground, doorway, flat, landings, stairs
from movlr_jax.types import Array, Trajectory

SETTLE_S = 1.0  # s at the start that are excluded from the velocity error
FAR = 1e3  # m, position of a turn that is never reached
STANCE_KNEE = 0.4  # rad, knee angle in stance of a normal walk
PAST_M = 0.3  # m beyond the near face of the wall that count as through the doorway
_FOCUS = "whether the robot stays up and goes where it should, then trunk, knees, ankles, hips and feet"


@dataclass(frozen=True)
class HumanoidGoal:
    """A walking goal with the additional measures of a robot task."""

    goal: WalkGoal
    # metrics: those so far
    measure: Callable[[Readout, Task, Metrics], Metrics] = lambda read, task, metrics: {}
    succeeded: Callable[[Metrics], bool] = lambda metrics: True  # additional condition of success
    needs: Callable[[Metrics], list[Need]] = lambda metrics: []
    bonus: Callable[[Metrics], float] = lambda metrics: 0.0  # added to the score


@dataclass(frozen=True)
class World:
    """Settings of all robot tasks.

    randomise: use domain randomisation (see `physics.domain`) and pushes in random directions. start_noise: see
    `locomotion`. walk: what counts as walking; a robot need not move its joints as people do.
    """

    stride_frequency_hz: float = setting(1.25, "strides per second, for the hand-written reward", above=0)
    start_noise: float = 0.02  # rad
    randomise: bool = False
    push_m_s: float = setting(0.5, "speed of a push, m/s", least=0)
    push_every_s: float = setting(8.0, "time between pushes, s", above=0)
    walk: GaitCriteria = field(default_factory=lambda: GaitCriteria(gait_r=None, knee_swing_deg=None))

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `locomotion`."""
        settings: dict[str, Any] = {"start_noise": self.start_noise}
        if self.randomise:
            settings |= {"ranges": Ranges(), "push_m_s": self.push_m_s, "push_every_s": self.push_every_s}
        return settings


def humanoid_walk(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    speed_m_s: float = 1.0,
    speed_tolerance: float = SPEED_TOLERANCE,
    lift_m: float = 0.08,
    world: World,
) -> Task:
    """Walk forward on level ground."""
    goal = _goal(
        "humanoid_walk",
        f"the robot walks forward in a straight line at about {positive('speed_m_s', speed_m_s):g} m/s",
        speed_m_s,
        _gait(world, lift_m) | _destination(adapter, (speed_m_s * episode_s, 0.0, 0.0)),
        speed_tolerance=speed_tolerance,
    )
    return _task(adapter, HumanoidGoal(goal), flat(), episode_s, world)


def humanoid_straight_leg(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    speed_m_s: float = 0.6,
    speed_tolerance: float = SPEED_TOLERANCE,
    knee_deg: float = 15.0,
    lift_m: float = 0.05,
    world: World,
) -> Task:
    """Walk forward with knees bent by less than knee_deg in stance."""
    if not 0 < knee_deg <= 90:
        raise UserError(f"task.settings.knee_deg={knee_deg:g}: it must be more than 0 and at most 90 degrees")
    goal = _goal(
        "humanoid_straight_leg",
        f"the robot walks forward at about {positive('speed_m_s', speed_m_s):g} m/s, with straight knees in stance",
        speed_m_s,
        _gait(world, lift_m, stance_knee=0.1) | _destination(adapter, (speed_m_s * episode_s, 0.0, 0.0)),
        speed_tolerance=speed_tolerance,
    )
    most = np.deg2rad(knee_deg)

    def needs(metrics: Metrics) -> list[Need]:
        bent = metrics.get("stance_knee_rad", 0.0)
        told = f"knees are bent by {np.rad2deg(bent):.0f} degrees in stance"
        return [Need(told, "gait")] if bent > most else []

    aim = HumanoidGoal(
        goal,
        succeeded=lambda m: m.get("stance_knee_rad", np.inf) <= most,
        needs=needs,
        bonus=lambda m: -5.0 * m.get("stance_knee_rad", 1.0),
    )
    return _task(adapter, aim, flat(), episode_s, world)


def humanoid_stairs(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    speed_m_s: float = 0.6,
    rise_m: float = 0.02,
    levels: int = 6,
    level: int = 2,
    lift_m: float = 0.14,
    world: World,
) -> Task:
    """Climb flights of three steps. Steps of the first flight are rise_m high, those of the second twice that, etc.

    levels: number of flights. level: number of flights required for success. The metric `terrain_level` counts the
    landings reached.
    """
    if rise_m <= 0 or levels < 1 or not 1 <= level <= levels:
        raise UserError(
            f"task.settings: rise_m={rise_m:g}, levels={levels}, level={level}: rise_m must be more than 0 and level "
            "from 1 to levels"
        )
    ground, tops = stairs(rise_m, levels), landings(levels)
    goal = _goal(
        "humanoid_stairs",
        f"the robot climbs stairs straight ahead at about {positive('speed_m_s', speed_m_s):g} m/s",
        speed_m_s,
        _gait(world, lift_m)
        | _destination(adapter, (tops[-1], 0.0, float(ground.height(np.array([tops[-1], 0.0]))))),
        speed_tolerance=None,
    )

    def measure(read: Readout, task: Task, metrics: Metrics) -> Metrics:
        start_x = float(read.pos(task.adapter.role("pelvis"))[0, 0])
        return {"terrain_level": float(np.sum(start_x + metrics["distance_m"] >= tops))}

    def needs(metrics: Metrics) -> list[Need]:
        reached = int(metrics["terrain_level"])
        told = f"it climbs {reached} flights of stairs, the target is {level}"
        return [Need(told, kind) for kind in ("gait", "forward")] if reached < level else []

    aim = HumanoidGoal(
        goal, measure, lambda m: m["terrain_level"] >= level, needs, lambda m: 5.0 * m["terrain_level"]
    )
    task = _task(adapter, aim, ground, episode_s, world)
    side, front = task.view.cameras
    side = replace(side, azimuth=105.0, elevation=-12.0, vertical=True)
    # the stairs would hide the body from a camera in front of it
    behind = replace(front, azimuth=0.0, elevation=-12.0, vertical=True, shows="the back of the body")
    return task.replace(cameras=(side, behind))


def humanoid_turn(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    speed_m_s: float = 0.6,
    door_x_m: float = 2.0,
    door_y_m: float = 1.2,
    width_m: float = 1.1,
    lift_m: float = 0.08,
    world: World,
) -> Task:
    """Walk forward, then left through a doorway centred at door_x_m, door_y_m. Touching its frame is a fall."""
    if width_m < 0.7 or door_x_m < 1.0 or door_y_m < 0.5:
        raise UserError(
            f"task.settings: width_m={width_m:g}, door_x_m={door_x_m:g}, door_y_m={door_y_m:g}: width_m must be at "
            "least 0.7, door_x_m at least 1 and door_y_m at least 0.5"
        )
    goal = _goal(
        "humanoid_turn",
        f"the robot walks forward, turns left and walks through the doorway at about "
        f"{positive('speed_m_s', speed_m_s):g} m/s",
        speed_m_s,
        _gait(world, lift_m)
        | {"turn_pos": np.array([door_x_m, door_y_m, 0.0], np.float32)}
        | _destination(adapter, (door_x_m, door_y_m + 1.0, 0.0)),
        heading=float(np.pi / 2),
        speed_tolerance=None,
        max_drift_m=float("inf"),
    )

    def measure(read: Readout, task: Task, metrics: Metrics) -> Metrics:
        left = float(read.pos(task.adapter.role("pelvis"))[0, 1]) + metrics["distance_m"]
        return {"past_door_m": left - door_y_m}

    def needs(metrics: Metrics) -> list[Need]:
        missing = -metrics["past_door_m"]
        told = f"it does not get through the doorway: {missing:.1f} m are missing"
        return [Need(told, "forward")] if missing >= -PAST_M else []

    aim = HumanoidGoal(
        goal, measure, lambda m: m["past_door_m"] >= PAST_M, needs, lambda m: 2.0 * min(m["past_door_m"], 1.0)
    )
    return _task(adapter, aim, doorway((door_x_m, door_y_m), width_m), episode_s, world)


def _goal(name: str, description: str, speed: float, goals: Mapping[str, Array], **more: Any) -> WalkGoal:
    return WalkGoal(
        name=name, description=description, focus=_FOCUS, speed=speed, goals=goals, reward="humanoid", **more
    )


def _gait(world: World, lift_m: float, stance_knee: float = STANCE_KNEE) -> dict[str, Any]:
    """Return the gait goals of the hand-written reward: strides per second, foot lift, knee angle in stance."""
    return {
        "stride_frequency": np.float32(world.stride_frequency_hz),
        "lift": np.float32(positive("lift_m", lift_m)),
        "stance_knee": np.float32(stance_knee),
        "turn_pos": np.array([FAR, 0.0, 0.0], np.float32),
    }


def _destination(adapter: ModelAdapter, place: tuple[float, float, float]) -> dict[str, Array]:
    """Return the goal position of the pelvis, m. Because of its name, trained policies observe the vector to it."""
    return {f"{adapter.role('pelvis')}_pos": np.array(place, np.float32)}


def _task(adapter: ModelAdapter, aim: HumanoidGoal, ground: Ground, episode_s: float, world: World) -> Task:
    """Build the locomotion task with the additional measures, score and needs of `aim`."""
    for role in ("left_thigh", "right_thigh", "left_shank", "right_shank"):
        adapter.role(role)  # raises UserError if the model does not name its legs
    goal = replace(aim.goal, walk=world.walk)
    task = locomotion(adapter, goal, episode_s=episode_s, ground=ground, **world.settings)
    walker_measure, walker_score, walker_needs = task.scoring.measure, task.scoring.score, task.scoring.diagnose

    def measure(episode: Trajectory, task: Task) -> Metrics:
        metrics = walker_measure(episode, task)
        read = Readout(task.layout, episode.steps)
        metrics |= velocity_error(read, aim.goal) | stance_knee(read, task)
        metrics |= aim.measure(read, task, metrics)
        metrics["success"] = float(bool(metrics["success"]) and aim.succeeded(metrics))
        return metrics

    return task.replace(
        measure=measure,
        score=lambda metrics: walker_score(metrics) + aim.bonus(metrics),
        diagnose=lambda metrics: [*walker_needs(metrics), *aim.needs(metrics)],
    )


def velocity_error(read: Readout, goal: WalkGoal) -> Metrics:
    """Return the root mean square difference between the horizontal speed of the centre of mass and the goal speed.

    It compares speeds, not velocities, since the direction is measured by the heading. Empty for episodes shorter
    than SETTLE_S.
    """
    settled = read.time >= read.time[0] + SETTLE_S
    if not settled.any():
        return {}
    speed = np.linalg.norm(read.com_vel[settled, :2], axis=-1)
    return {"velocity_error_m_s": float(np.sqrt(np.mean(np.square(speed - goal.speed))))}


def stance_knee(read: Readout, task: Task) -> Metrics:
    """Return the mean knee angle in stance, rad, 0 if straight; empty if no foot is in contact."""
    weight, angles = weight_of(task), []
    for side in ("left", "right"):
        hip, knee, ankle = (read.pos(task.roles[f"{side}_{part}"]) for part in ("thigh", "shank", "foot"))
        contact = in_contact(read.touch(f"{side}_foot"), read.time.astype(float), weight)
        angles.append(knee_angle(hip, knee, ankle)[contact])
    angles = np.concatenate(angles)
    return {"stance_knee_rad": float(angles.mean())} if len(angles) else {}


def knee_angle(hip: np.ndarray, knee: np.ndarray, ankle: np.ndarray) -> np.ndarray:
    """Return the angle [T] rad between thigh and shank, from joint positions [T, 3]; 0 if the leg is straight."""
    thigh, shank = knee - hip, ankle - knee
    along = np.sum(thigh * shank, axis=-1)
    across = np.linalg.norm(np.cross(thigh, shank), axis=-1)
    return np.arctan2(across, along)
