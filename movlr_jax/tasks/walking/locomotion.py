"""Standing and walking: scene, measures and goals for all walkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import mujoco
import numpy as np

from movlr_jax._util.resources import resource_text
from movlr_jax.biomech.gait import degenerate
from movlr_jax.biomech.gait.analysis import SIDES
from movlr_jax.biomech.gait.criteria import GaitCriteria
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter
from movlr_jax.models.spec import compile_spec
from movlr_jax.physics.domain import Ranges
from movlr_jax.rewards.state import Layout, instrument, layout_of
from movlr_jax.tasks.base import TIE, Course, Metrics, Origin, Rewards, Scoring, StartFn, Task, View, fill_reward
from movlr_jax.tasks.needs import Need
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.walking import biomechanics
from movlr_jax.tasks.walking.biomechanics import recording
from movlr_jax.tasks.walking.terrain import Ground, flat
from movlr_jax.tasks.walking.walker import FEET, Walker, only_ground_contacts, random_direction
from movlr_jax.tasks.words.sentence import FALLEN
from movlr_jax.types import Array, SimState, Step, Trajectory

LEGS = ("left_leg", "right_leg")  # touch parts that also feel contacts between the legs
KNEE_M = 0.12  # m above the ground; a lower knee counts as kneeling
TOPPLING_DEG = 20.0  # of the trunk against its start, at the end of a walk
# share of the start height; with a lower pelvis, the body topples and its progress no longer counts
UPRIGHT = 0.8
SPEED_TOLERANCE = 0.1  # largest relative error of the mean speed in a success
_SLOWEST = 0.5  # share of the goal speed; a slower body also needs gait terms
TOUCH_N = 5.0  # N; a larger force on anything but the feet is a fall


@dataclass(frozen=True)
class WalkGoal:
    """The goal of a locomotion task, in addition to staying upright."""

    name: str
    description: str
    focus: str
    speed: float = 0.0  # m/s
    heading: float = 0.0  # rad, direction of walking; left is positive
    turn_s: float = 0.0  # s, time from which the heading applies
    goals: Mapping[str, Array] = field(default_factory=dict)  # additional goals
    reward: str = "walk"  # name of the hand-written reward
    first: str = ""  # name of the initial reward; empty: the one that belongs to `reward`
    # largest relative error of the mean speed over the episode, from rest, in a success; None: any speed
    speed_tolerance: float | None = SPEED_TOLERANCE
    min_distance_m: float = 0.0
    max_drift_m: float = 0.3
    max_heading_error: float = 0.5  # rad
    max_tilt_deg: float = np.inf  # of the trunk, at any time
    walk: GaitCriteria | None = None  # what counts as walking; None: no limits, for standing

    def success(self) -> str:
        """Return what counts as a success in words."""
        parts = ["no fall"]
        if self.speed and self.speed_tolerance is not None:
            parts.append(f"a mean speed of {self.speed:g} m/s, from rest, within {self.speed_tolerance:.0%}")
        if self.min_distance_m:
            parts.append(f"at least {self.min_distance_m:g} m along the final heading")
        if self.heading:
            off = np.degrees(self.max_heading_error)
            parts.append(f"a turn of {np.degrees(self.heading):.0f} degrees within {off:.0f}")
        if np.isfinite(self.max_drift_m):
            parts.append(f"at most {self.max_drift_m:g} m off {'the line' if self.speed else 'the start'}")
        if np.isfinite(self.max_tilt_deg):
            parts.append(f"a trunk that never tilts by more than {self.max_tilt_deg:g} degrees")
        return ", ".join([*parts, *(self.walk.texts() if self.walk else [])])


def locomotion(
    adapter: ModelAdapter,
    goal: WalkGoal,
    *,
    episode_s: float,
    ground: Ground | None = None,
    start_noise: float = 0.01,
    push_m_s: float = 0.0,
    push_s: float = 2.0,
    push_every_s: float = 0.0,
    weaken: Mapping[str, float] | None = None,
    ranges: Ranges | None = None,
) -> Task:
    """Build a task for a walker on a ground. Raises UserError.

    start_noise: standard deviation of the planned joints at the start, rad. push_m_s: speed added to the whole body
    at time `push_s`, forward (backward if negative). push_every_s > 0: push at each multiple of it instead, in
    random directions. weaken: muscle -> remaining share of its force. ranges: domain randomisation in training.
    """
    if start_noise < 0:
        raise UserError(f"task.settings.start_noise={start_noise:g}: it must be 0 or more")
    _check_direction(adapter, goal)
    ground = ground or flat()
    model, goals = _compiled(adapter, ground, weaken or {}), _goals(goal, ground)
    layout = layout_of(model, goals)
    if goal.walk and not biomechanics.leg_coordinates(adapter, layout.joints):
        goal = replace(goal, walk=goal.walk.without_angles())
    body = Walker(model, adapter)
    return Task(
        name=goal.name,
        description=goal.description,
        adapter=adapter,
        model=model,
        layout=layout,
        goals=goals,
        episode_s=episode_s,
        start=_starts(body, ground, start_noise),
        scoring=Scoring(
            measure=partial(measured, goal=goal, ground=ground),
            score=partial(score, goal=goal, episode_s=episode_s),
            diagnose=partial(diagnose, goal=goal),
            focus=goal.focus,
            faults=partial(_faults, goal=goal, ground=ground),
            success=goal.success(),
            tie=TIE,
        ),
        rewards=Rewards(
            initial=_reward(adapter, f"{goal.first or goal.reward}_initial"),
            human=_reward(adapter, f"{goal.reward}_human"),
        ),
        view=View(body.cameras(ground.slope), weakened=weaken or {}),
        course=Course(
            over=partial(fallen, layout=layout, adapter=adapter, ground=ground),
            perturb=_pushes(body, adapter, push_m_s, push_s, push_every_s) if push_m_s else None,
            ranges=ranges,
            ground_height=ground.height,
        ),
        roles=adapter.roles,
        origin=Origin(notes=(f"{adapter.name}: {adapter.info.source}; {adapter.info.licence}",)),
    )


def _check_direction(adapter: ModelAdapter, goal: WalkGoal) -> None:
    """Raise UserError for a walk of a body that does not face along +x."""
    if goal.speed and tuple(adapter.forward) != (1.0, 0.0, 0.0):
        x, y, _ = adapter.forward
        raise UserError(
            f"{adapter.name} faces ({x:g}, {y:g}, 0), and walks lead along +x; turn its root body "
            f"{adapter.root!r} by {-np.degrees(np.arctan2(y, x)):g} degrees about the vertical"
        )


def _compiled(adapter: ModelAdapter, ground: Ground, weaken: Mapping[str, float]) -> mujoco.MjModel:
    """Return the model of a walker on a ground, with its sensors."""
    spec = adapter.load()
    floor = ground.add(spec)
    only_ground_contacts(spec, adapter, floor)
    for muscle, share in weaken.items():
        own = spec.actuator(muscle).gainprm
        own[2 if own[2] >= 0 else 3] *= share  # without a peak force, MuJoCo takes it from the scale
    instrument(spec, root=adapter.root, touch=adapter.touch, sites=adapter.sites)
    return compile_spec(spec)


def _goals(goal: WalkGoal, ground: Ground) -> dict[str, np.ndarray]:
    """Return what the rewards of a walk may aim at."""
    goals = {
        "velocity": goal.speed * np.array([np.cos(goal.heading), np.sin(goal.heading), 0.0], np.float32),
        "heading": np.float32(goal.heading),
        "turn_time": np.float32(goal.turn_s),
        "slope": np.float32(ground.slope),
        **goal.goals,
    }
    return {name: np.asarray(value, np.float32) for name, value in goals.items()}


def _reward(adapter: ModelAdapter, name: str) -> str:
    """Return a packaged reward for the joints of a walker."""
    roles = {**adapter.roles, "joints": adapter.planned_joints}
    return fill_reward(resource_text("assets", "rewards", f"{name}.py"), roles)


def _starts(body: Walker, ground: Ground, noise: float) -> StartFn:
    """Return what draws postures and muscle activations of a walker at rest."""

    def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        qpos = np.array([body.start(rng, noise, ground) for _ in range(n)])
        act = [body.static(q) if body.model.na else np.zeros(0) for q in qpos]
        return qpos, np.zeros((n, body.model.nv)), np.array(act)

    return start


def _faults(episode: Trajectory, task: Task, goal: WalkGoal, ground: Ground) -> dict[str, str]:
    """Return what makes the gait of an episode no walk."""
    made = recording(episode, task) if goal.walk else None
    if made is None or goal.walk is None:
        return {}
    fell = ends_in_a_fall(episode.steps, task, goal, ground)
    return degenerate.faults(made, goal.walk, fell=fell, turn=goal.heading)


def _pushes(
    body: Walker, adapter: ModelAdapter, speed: float, at_s: float, every_s: float
) -> Callable[[SimState, float], SimState]:
    """Return what pushes a walker, as the settings of `locomotion` say."""

    def perturb(state: SimState, interval: float) -> SimState:
        time, qpos = np.asarray(state.time), np.asarray(state.qpos)
        due = np.maximum(np.ceil(time / every_s - 1e-9), 1) * every_s if every_s else at_s
        late = due - time + 1e-9  # tolerance for rounding errors of the summed time
        now = (late >= 0) & (late < interval)
        way = random_direction(qpos[now]) if every_s else np.asarray(adapter.forward)
        qvel = np.array(state.qvel)
        qvel[now] += body.push(qpos[now], speed * way)
        return state.replace(qvel=qvel)

    return perturb


def _heading(rot: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the angle [...] rad by which a body [..., 3, 3] has turned left since its rotation `first`."""
    turned = rot @ np.swapaxes(first, -1, -2)
    return np.arctan2(turned[..., 1, 0], turned[..., 0, 0])


def fallen(
    steps: Step, first: Step, layout: Layout, adapter: ModelAdapter, ground: Ground, lowest: float = FALLEN
) -> np.ndarray:
    """Return whether [..., T] the body has fallen at each of `steps`; `first` [...] is the first step of the episode.

    Fallen: pelvis or head below the share `lowest` of its start height above the ground, or contact with anything but
    the feet. Legs may touch each other, so for them the height of the knees decides.
    """
    now, then = Readout(layout, steps), Readout(layout, first)
    down = np.zeros(np.shape(steps.time), bool)
    for role in ("pelvis", "head"):
        body = adapter.role(role)
        at, began = now.pos(body), then.pos(body)
        height = at[..., 2] - ground.height(at[..., :2])
        down |= height < lowest * (began[..., 2] - ground.height(began[..., :2]))[..., None]
    for part in adapter.touch:
        if part not in (*FEET, *LEGS):
            down |= now.touch(part) > TOUCH_N
    for role in ("left_shank", "right_shank"):
        if role in adapter.roles:
            knee = now.pos(adapter.role(role))
            down |= knee[..., 2] - ground.height(knee[..., :2]) < KNEE_M
    return down


def ends_in_a_fall(steps: Step, task: Task, goal: WalkGoal, ground: Ground) -> bool:
    """Return whether an episode [T] ends in a fall, or a walk with a trunk that leans by more than TOPPLING_DEG."""
    first = Step(**{name: np.asarray(value)[0] for name, value in vars(steps).items()})
    fell = bool(fallen(steps, first, task.layout, task.adapter, ground)[-1])
    if goal.walk and "trunk" in task.roles:  # an episode can end before a fall does
        lean = biomechanics.trunk_tilt(Readout(task.layout, steps).rot(task.roles["trunk"]))
        fell |= bool(lean[-1] > TOPPLING_DEG)
    return fell


def measured(episode: Trajectory, task: Task, goal: WalkGoal, ground: Ground) -> Metrics:
    """Return the measures of one episode [T], which ends when the body falls."""
    read, adapter = Readout(task.layout, episode.steps), task.adapter
    time, pelvis = read.time, read.pos(adapter.role("pelvis"))
    fell = ends_in_a_fall(episode.steps, task, goal, ground)
    height = pelvis[:, 2] - ground.height(pelvis[:, :2])
    upright = np.flatnonzero(height >= UPRIGHT * height[0])[-1]
    rot = read.rot(adapter.role("pelvis"))
    heading = np.unwrap(_heading(rot, rot[0]))[upright]
    begun = int(np.searchsorted(time, goal.turn_s))  # progress counts once the goal heading applies
    ahead = np.array([np.cos(goal.heading), np.sin(goal.heading)])
    moved = pelvis[upright, :2] - pelvis[min(begun, upright), :2]
    distance, lateral = float(moved @ ahead), float(abs(moved @ np.array([-ahead[1], ahead[0]])))
    metrics = biomechanics.metrics(episode, task, goal.walk.sides if goal.walk else SIDES) | {
        "fell": float(fell),
        "distance_m": distance,
        "lateral_drift_m": lateral,
        "heading_change_rad": float(heading),
        "mean_speed_m_s": distance / max(float(time[upright] - time[min(begun, upright)]), 1e-6),
    }
    if fell:
        metrics["time_to_fall_s"] = float(time[-1] - time[0])
    return {"success": float(succeeded(metrics, goal)), **metrics}


def succeeded(metrics: Metrics, goal: WalkGoal) -> bool:
    """Return whether the body stayed upright, reached the goal and, if it is to walk, walked."""
    if goal.walk and goal.walk.shortfalls(metrics):
        return False
    if metrics["fell"] or abs(metrics["heading_change_rad"] - goal.heading) > goal.max_heading_error:
        return False
    if metrics.get("trunk_tilt_max_deg", 0.0) > goal.max_tilt_deg:
        return False
    if not goal.speed:
        return float(np.hypot(metrics["distance_m"], metrics["lateral_drift_m"])) <= goal.max_drift_m
    if goal.speed_tolerance is not None and _off_speed(metrics, goal) > goal.speed_tolerance:
        return False
    return metrics["distance_m"] >= goal.min_distance_m and metrics["lateral_drift_m"] <= goal.max_drift_m


def _off_speed(metrics: Metrics, goal: WalkGoal) -> float:
    """Return the relative error of the mean speed."""
    return abs(metrics["mean_speed_m_s"] - goal.speed) / goal.speed


def score(metrics: Metrics, goal: WalkGoal, episode_s: float) -> float:
    """Return a score: success first, then time upright, then gait, then distance, straightness and heading.

    6 degrees of tilt of the trunk beyond the limit count 1, as in other tasks. Where the speed matters, a distance
    beyond that at the goal speed is lost again.
    """
    value = 200.0 * metrics["success"] + 100.0 * metrics.get("time_to_fall_s", episode_s) / episode_s
    value -= abs(metrics["heading_change_rad"] - goal.heading) + metrics["lateral_drift_m"]
    value -= max(metrics.get("trunk_tilt_max_deg", 0.0) - goal.max_tilt_deg, 0.0) / 6
    distance = metrics["distance_m"]
    if not goal.speed:
        return value - abs(distance)
    quality = goal.walk.quality(metrics) if goal.walk else 1.0
    share = distance / (goal.speed * episode_s)
    return value + 50.0 * quality + 20.0 * min(share, 1.0 if goal.speed_tolerance is None else 2.0 - share)


def _speed_needs(metrics: Metrics, goal: WalkGoal) -> list[Need]:
    """Return the problems of the speed. Low speeds are reported even if any speed is a success."""
    tolerance, speed = goal.speed_tolerance, metrics["mean_speed_m_s"]
    needs = [Need(f"it moves at {speed:.2f} m/s, the target is {goal.speed:g} m/s", k) for k in ("forward", "gait")]
    if tolerance is None:
        return needs[:1] if speed < (1 - SPEED_TOLERANCE) * goal.speed else []
    if _off_speed(metrics, goal) <= tolerance:
        return []
    return needs if speed < _SLOWEST * goal.speed else needs[:1]


def diagnose(metrics: Metrics, goal: WalkGoal) -> list[Need]:
    """Return the problems of an episode, the most general first."""
    needs = []
    if metrics["fell"]:
        when = f"the body falls after {metrics['time_to_fall_s']:.1f} s"
        needs += [Need(when, "upright"), Need(when, "balance"), Need(when, "height")]
    if goal.speed:
        needs += _speed_needs(metrics, goal)
    if metrics["lateral_drift_m"] > goal.max_drift_m:
        needs.append(Need(f"it drifts {metrics['lateral_drift_m']:.2f} m to the side", "straight"))
    off = metrics["heading_change_rad"] - goal.heading
    if abs(off) > goal.max_heading_error:
        side = "left" if off > 0 else "right"
        needs.append(Need(f"it faces {np.rad2deg(abs(off)):.0f} degrees too far {side}", "straight"))
    if not goal.speed and abs(metrics["distance_m"]) > goal.max_drift_m:
        needs.append(Need(f"it moves {metrics['distance_m']:.2f} m instead of standing still", "steady"))
    if (tilt := metrics.get("trunk_tilt_max_deg", 0.0)) > goal.max_tilt_deg:
        needs.append(Need(f"its trunk tilts by up to {tilt:.0f} degrees", "upright"))
    if goal.walk and not metrics["fell"]:
        needs += [Need(words, "gait") for words in goal.walk.shortfalls(metrics).values()]
    return needs + biomechanics.biomechanical_needs(metrics)
