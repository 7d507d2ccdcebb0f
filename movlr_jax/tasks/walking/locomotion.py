"""Standing and walking: one scene and one measure for every walker, and what each task asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter
from movlr_jax.models.spec import compile_spec
from movlr_jax.physics.domain import Ranges
from movlr_jax.resources import resource_text
from movlr_jax.rewards.state import Layout, instrument, layout_of
from movlr_jax.tasks.base import Metrics, Need, Task, fill_reward
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.walking.biomechanics import biomechanical_needs
from movlr_jax.tasks.walking.terrain import Ground, flat
from movlr_jax.tasks.walking.walker import FEET, Walker, any_way, only_ground_contacts
from movlr_jax.types import Array, SimState, Step, Trajectory

LEGS = ("left_leg", "right_leg")  # touch parts that legs which cross press on as well
KNEE_M = 0.12  # m above the ground, a knee that is lower kneels
FALLEN = 0.6  # of its starting height above the ground: below it, the pelvis or the head has fallen
UPRIGHT = 0.8  # of the pelvis' starting height: below it, a body topples and its progress no longer counts
SPEED_TOLERANCE = 0.1  # of the speed that is asked for: as far as the mean of a success may be off it
_SLOWEST = 0.5  # of the speed that is asked for: below it, it is a gait that a walk lacks
TOUCH_N = 5.0  # N on anything but the feet is a fall


@dataclass(frozen=True)
class WalkGoal:
    """What a locomotion task asks for, beyond staying upright."""

    name: str
    description: str
    focus: str
    speed: float = 0.0  # m/s
    heading: float = 0.0  # rad, where to walk; left is positive
    turn_s: float = 0.0  # s, when the heading is asked for
    goals: Mapping[str, Array] = field(default_factory=dict)  # beside those that every walk has
    reward: str = "walk"  # which hand-made reward
    first: str = ""  # which reward to begin with; the hand-made one's own unless said
    # share of the speed that the mean over the episode, from rest, may be off in a success; None: any will do
    speed_tolerance: float | None = SPEED_TOLERANCE
    min_distance_m: float = 0.0
    max_drift_m: float = 0.3
    max_heading_error: float = 0.5  # rad


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
    """A walker on a ground with a goal.

    start_noise: standard deviation of the planned joints at the start, rad. push_m_s: speed given to the whole
    body at `push_s`, forward; negative pushes back. push_every_s > 0: instead at each multiple of it, any way.
    weaken: muscle -> the share of its force that is left. ranges: what differs from row to row in training.
    """
    if start_noise < 0:
        raise UserError(f"task.settings.start_noise={start_noise:g}: it must be 0 or more")
    ground = ground or flat()
    spec = adapter.load()
    floor = ground.add(spec)
    only_ground_contacts(spec, adapter, floor)
    for muscle, share in (weaken or {}).items():
        spec.actuator(muscle).gainprm[2] *= share
    goals = {
        "velocity": goal.speed * np.array([np.cos(goal.heading), np.sin(goal.heading), 0.0], np.float32),
        "heading": np.float32(goal.heading),
        "turn_time": np.float32(goal.turn_s),
        "slope": np.float32(ground.slope),
        **goal.goals,
    }
    goals = {name: np.asarray(value, np.float32) for name, value in goals.items()}
    instrument(spec, root=adapter.root, touch=adapter.touch, sites=adapter.sites)
    model = compile_spec(spec)
    layout = layout_of(model, goals)
    body = Walker(model, adapter)

    def start(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        qpos = np.array([body.start(rng, start_noise, ground) for _ in range(n)])
        act = [body.static(q) if model.na else np.zeros(0) for q in qpos]
        return qpos, np.zeros((n, model.nv)), np.array(act)

    def perturb(state: SimState, interval: float) -> SimState:
        time, qpos = np.asarray(state.time), np.asarray(state.qpos)
        due = np.maximum(np.ceil(time / push_every_s - 1e-9), 1) * push_every_s if push_every_s else push_s
        late = due - time + 1e-9  # clocks add up steps, with rounding
        now = (late >= 0) & (late < interval)
        way = any_way(qpos[now]) if push_every_s else np.asarray(adapter.forward)
        qvel = np.array(state.qvel)
        qvel[now] += body.push(qpos[now], push_m_s * way)
        return state.replace(qvel=qvel)  # pyright: ignore[reportAttributeAccessIssue]

    def over(steps: Step, first: Step) -> np.ndarray:
        return fallen(steps, first, layout, adapter, ground)

    def measure(episode: Trajectory, task: Task) -> Metrics:
        return measured(episode, task, goal, ground)

    roles = {**adapter.roles, "joints": '", "'.join(adapter.planned_joints)}
    human = resource_text("assets", "rewards", f"{goal.reward}_human.py")
    initial = resource_text("assets", "rewards", f"{goal.first or goal.reward}_initial.py")
    return Task(
        name=goal.name,
        description=goal.description,
        focus=goal.focus,
        adapter=adapter,
        model=model,
        layout=layout,
        goals=goals,
        episode_s=episode_s,
        start=start,
        measure=measure,
        score=lambda metrics: score(metrics, goal, episode_s),
        cameras=body.cameras(ground.slope),
        initial_reward=fill_reward(initial, roles),
        human_reward=fill_reward(human, roles),
        diagnose=lambda metrics: diagnose(metrics, goal),
        roles=adapter.roles,
        notes=(f"{adapter.name}: {adapter.source}; {adapter.licence}",),
        over=over,
        perturb=perturb if push_m_s else None,
        ranges=ranges,
    )


def _heading(rot: np.ndarray, first: np.ndarray) -> np.ndarray:
    """rad [...], how far a body [..., 3, 3] has turned left since its rotation `first`."""
    turned = rot @ np.swapaxes(first, -1, -2)
    return np.arctan2(turned[..., 1, 0], turned[..., 0, 0])


def fallen(steps: Step, first: Step, layout: Layout, adapter: ModelAdapter, ground: Ground) -> np.ndarray:
    """[..., T] whether a body lies at each of `steps`; `first` [...] began the episode.

    Pelvis or head below 0.6 of its starting height above the ground beneath it, or anything but feet on the
    ground. Legs may touch each other: of them it is the knee's height that tells.
    """
    now, then = Readout(layout, steps), Readout(layout, first)
    down = np.zeros(np.shape(steps.time), bool)
    for role in ("pelvis", "head"):
        body = adapter.role(role)
        at, began = now.pos(body), then.pos(body)
        height = at[..., 2] - ground.height(at[..., :2])
        down |= height < FALLEN * (began[..., 2] - ground.height(began[..., :2]))[..., None]
    for part in adapter.touch:
        if part not in (*FEET, *LEGS):
            down |= now.touch(part) > TOUCH_N
    for role in ("left_shank", "right_shank"):
        if role in adapter.roles:
            knee = now.pos(adapter.role(role))
            down |= knee[..., 2] - ground.height(knee[..., :2]) < KNEE_M
    return down


def measured(episode: Trajectory, task: Task, goal: WalkGoal, ground: Ground) -> Metrics:
    """Measures of one episode [T] that ends where the body fell, if it did."""
    steps = episode.steps
    first = Step(**{name: np.asarray(value)[0] for name, value in vars(steps).items()})
    read, adapter = Readout(task.layout, steps), task.adapter
    time, pelvis = read.time, read.pos(adapter.role("pelvis"))
    fell = bool(fallen(steps, first, task.layout, adapter, ground)[-1])
    height = pelvis[:, 2] - ground.height(pelvis[:, :2])
    upright = np.flatnonzero(height >= UPRIGHT * height[0])[-1]
    rot = read.rot(adapter.role("pelvis"))
    heading = np.unwrap(_heading(rot, rot[0]))[upright]
    begun = int(np.searchsorted(time, goal.turn_s))  # progress counts once the goal's heading is asked for
    ahead = np.array([np.cos(goal.heading), np.sin(goal.heading)])
    moved = pelvis[upright, :2] - pelvis[min(begun, upright), :2]
    distance, lateral = float(moved @ ahead), float(abs(moved @ np.array([-ahead[1], ahead[0]])))
    metrics = {
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
    """Upright to the end and where the goal asks for."""
    if metrics["fell"] or abs(metrics["heading_change_rad"] - goal.heading) > goal.max_heading_error:
        return False
    if not goal.speed:
        return float(np.hypot(metrics["distance_m"], metrics["lateral_drift_m"])) <= goal.max_drift_m
    if goal.speed_tolerance is not None and _off_speed(metrics, goal) > goal.speed_tolerance:
        return False
    return metrics["distance_m"] >= goal.min_distance_m and metrics["lateral_drift_m"] <= goal.max_drift_m


def _off_speed(metrics: Metrics, goal: WalkGoal) -> float:
    """How far the mean speed is from the one that is asked for, as a share of that."""
    return abs(metrics["mean_speed_m_s"] - goal.speed) / goal.speed


def score(metrics: Metrics, goal: WalkGoal, episode_s: float) -> float:
    """Orders candidates: success, then how long it stays upright, then how far it gets, straight and in heading."""
    value = 100.0 * metrics["success"] + 10.0 * metrics.get("time_to_fall_s", episode_s) / episode_s
    value -= abs(metrics["heading_change_rad"] - goal.heading) + metrics["lateral_drift_m"]
    distance = metrics["distance_m"]
    return value + 2.0 * min(distance, goal.speed * episode_s) if goal.speed else value - abs(distance)


def _speed_needs(metrics: Metrics, goal: WalkGoal) -> list[Need]:
    """What is wrong with the speed; where any will do for a success, a slow one can still be better."""
    tolerance, speed = goal.speed_tolerance, metrics["mean_speed_m_s"]
    needs = [
        Need(f"it moves at {speed:.2f} m/s, {goal.speed:g} m/s were asked for", k)
        for k in ("forward", "gait")
    ]
    if tolerance is None:
        return needs[:1] if speed < (1 - SPEED_TOLERANCE) * goal.speed else []
    if _off_speed(metrics, goal) <= tolerance:
        return []
    return needs if speed < _SLOWEST * goal.speed else needs[:1]


def diagnose(metrics: Metrics, goal: WalkGoal) -> list[Need]:
    """What is wrong with an episode, the most general first."""
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
    return needs + biomechanical_needs(metrics)
