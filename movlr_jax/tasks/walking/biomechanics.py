"""Gait, work and effort of one finished episode, as measures and time series, for all tasks.

Gait is computed from the normal forces of the touch parts left_foot and right_foot and from the positions of the
bodies with these roles (the heels). A foot strike is the time at which the force of a foot rises above STRIKE after
it was below LIFT. Thresholds of 20 N (3 % of body weight) and more are common for force plates. Two thresholds
ignore small fluctuations, and contacts or swings shorter than BOUNCE_S are ignored as bounces.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from movlr_jax.tasks.base import Metrics, Need, Task, joints_at_limit
from movlr_jax.tasks.readout import Readout
from movlr_jax.types import Trajectory

STRIKE, LIFT = 0.05, 0.025  # force thresholds of foot strike and foot lift, as shares of body weight
BOUNCE_S = 0.06  # s
STRIDE_S = 1.0  # s, about one stride
SLOWEST = 0.05  # m/s; below it, the direction of progress is undefined
NEAREST = 0.1  # m; below it, the cost of transport is undefined
FEET = ("left_foot", "right_foot")
TOES = ("left_toes", "right_toes")

# Limits beyond which a motion is criticised. Human walking has symmetry above 0.9, steps 0.05 to 0.13 m wide, and
# about 1.8 steps per second; toes clear the ground by 1 to 2 cm and rise to 5 cm and more (Winter, Biomechanics and
# Motor Control of Human Movement). The limits are wide enough for other walkers and non-human gaits.
LEAST_SYMMETRY = 0.8
LEAST_CLEARANCE_M = 0.02
WIDEST_STEP_M = 0.25
FASTEST_CADENCE_HZ = 3.0
MOST_AT_LIMITS = 0.2
MOST_EFFORT = 0.1  # muscles at 0.3 of their full activation, root mean square
MOST_COST = 1.0  # about ten times the positive work of human walking


@dataclass(frozen=True)
class Foot:
    """One foot over T control steps."""

    contact: np.ndarray  # [T] bool
    strikes: np.ndarray  # [n] indices of foot strikes
    heel: np.ndarray | None  # [T, 3] m
    heights: np.ndarray | None  # [T, parts] m, of the heel and, if the model has them, the toes


@dataclass(frozen=True)
class Steps:
    """n steps, each from a strike of one foot to the next strike of the other."""

    start: np.ndarray  # [n] index of the strike of the other foot
    end: np.ndarray  # [n] index of the strike of this foot
    side: np.ndarray  # [n] this foot: 0 left, 1 right


def metrics(episode: Trajectory, task: Task) -> Metrics:
    """Return the gait measures of one episode [T, ...]; empty for bodies that do not walk.

    cost_of_transport, symmetry, cadence_hz, step_length_m, step_width_m, foot_clearance_m: see the functions below. A
    measure is absent if the episode has too few steps for it.
    """
    if not _walks(task):
        return {}
    read = Readout(task.layout, episode.steps)
    time, com = read.time.astype(float), read.com.astype(float)
    with np.errstate(all="ignore"):  # diverged episodes have invalid numbers and are marked elsewhere
        weight = weight_of(task)
        left, right = (_foot(read, task, side, weight) for side in (0, 1))
        work = positive_work(time, read.actuator("force"), read.actuator("velocity"))
        found = {
            # undefined for a standing body, whose sway is not a travelled distance
            "cost_of_transport": cost_of_transport(work, weight, travelled(time, com))
            if np.linalg.norm((com[-1] - com[0])[:2]) >= NEAREST
            else None,
            "symmetry": symmetry(time, com, left, right),
            "cadence_hz": cadence(time, left, right),
            "foot_clearance_m": foot_clearance(left, right),
        }
        found["step_length_m"], found["step_width_m"] = step_size(time, com, left, right)
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def series(episode: Trajectory, task: Task) -> dict[str, np.ndarray]:
    """Return curves [T] of one episode [T, ...] with units in their names; gait curves only for walkers."""
    read = Readout(task.layout, episode.steps)
    used = np.asarray(episode.steps.act if task.model.na else episode.actions, float)
    curves = {"effort": np.square(used).mean(axis=-1)}
    if task.model.jnt_limited.any():
        curves["joint_limit_fraction"] = joints_at_limit(task.model, np.asarray(episode.steps.qpos))
    if not _walks(task):
        return curves
    curves["speed_m_s"] = np.linalg.norm(read.com_vel[:, :2], axis=-1)
    trunk = next((role for role in ("pelvis", "trunk") if role in task.roles), None)
    if trunk:
        curves[f"{trunk}_height_m"] = read.pos(task.roles[trunk])[:, 2]
    for part in FEET:
        curves[f"{part}_force_n"] = read.touch(part)
    for part in FEET:
        if part in task.roles:
            curves[f"{part}_height_m"] = read.pos(task.roles[part])[:, 2]
    return curves


def biomechanical_needs(measured: Mapping[str, float]) -> list[Need]:
    """Return the problems of a motion that do not depend on the task; absent measures are skipped."""
    needs = []

    def over(name: str, limit: float) -> bool:
        return measured.get(name, limit) > limit

    if measured.get("symmetry", 1.0) < LEAST_SYMMETRY:
        needs.append(
            Need(f"the legs do not alternate symmetrically: symmetry {measured['symmetry']:.2f} of 1", "gait")
        )
    if over("cadence_hz", FASTEST_CADENCE_HZ):
        needs.append(
            Need(f"the steps are too fast and short: {measured['cadence_hz']:.1f} per second", "gait")
        )
    if measured.get("foot_clearance_m", LEAST_CLEARANCE_M) < LEAST_CLEARANCE_M:
        lifted = 100 * measured["foot_clearance_m"]
        needs.append(Need(f"the feet are hardly lifted: {lifted:.1f} cm", "gait"))
    if measured.get("step_width_m", 0.0) < 0.0:
        needs.append(Need("the feet cross the midline from step to step", "gait"))
    if over("step_width_m", WIDEST_STEP_M):
        wide = 100 * measured["step_width_m"]
        needs.append(Need(f"the steps are {wide:.0f} cm wide", "gait"))
    if over("joint_limit_fraction", MOST_AT_LIMITS):
        share = 100 * measured["joint_limit_fraction"]
        needs.append(Need(f"joints are at their limits {share:.0f} % of the time", "economy"))
    if over("effort", MOST_EFFORT) or over("cost_of_transport", MOST_COST):
        needs.append(Need("the muscles work harder than the motion needs", "economy"))
    return needs


def weight_of(task: Task) -> float:
    """Return the weight in N of the body whose centre of mass is measured."""
    mass = task.model.body_subtreemass[task.model.body(task.adapter.root).id]
    return float(mass * np.linalg.norm(task.model.opt.gravity))


def in_contact(force: np.ndarray, time: np.ndarray, weight: float) -> np.ndarray:
    """Return whether [T] a foot with normal force [T] N is in contact."""
    crossing = np.where(force > STRIKE * weight, 1, np.where(force < LIFT * weight, -1, 0))
    latest = np.maximum.accumulate(np.where(crossing != 0, np.arange(len(force)), 0))
    contact = crossing[latest] > 0
    for bounce in (False, True):  # remove too short swings within a contact, then too short contacts
        edges = np.flatnonzero(np.diff(contact)) + 1
        for begin, end in itertools.pairwise(edges):
            if contact[begin] == bounce and time[end] - time[begin] < BOUNCE_S:
                contact[begin:end] = not bounce
    return contact


def steps_of(left: Foot, right: Foot) -> Steps:
    """Return all steps, from consecutive strikes of opposite feet."""
    index = np.concatenate([left.strikes, right.strikes])
    side = np.repeat([0, 1], [len(left.strikes), len(right.strikes)])
    order = np.argsort(index, kind="stable")
    index, side = index[order], side[order]
    other = side[1:] != side[:-1]
    return Steps(start=index[:-1][other], end=index[1:][other], side=side[1:][other])


def cadence(time: np.ndarray, left: Foot, right: Foot) -> float | None:
    """Return the strikes of both feet per second, from the first to the last; None with fewer than three."""
    strikes = np.sort(np.concatenate([left.strikes, right.strikes]))
    if len(strikes) < 3:
        return None
    seconds = float(time[strikes[-1]] - time[strikes[0]])
    return (len(strikes) - 1) / seconds if seconds > 0 else None


def progress(time: np.ndarray, com: np.ndarray, left: Foot, right: Foot) -> np.ndarray:
    """Return the direction of progress [n, 2] of the centre of mass [T, 3] at each step, a unit vector or nan.

    It is averaged over the strides (from a strike to the next one of the same foot) that start or end with the step,
    so that sway, which is periodic in a stride, does not affect it. nan if the body stands or there is no such
    stride.
    """
    steps, strikes = steps_of(left, right), (left.strikes, right.strikes)
    ways = np.full((len(steps.end), 2), np.nan)
    for i, (start, end, side) in enumerate(zip(steps.start, steps.end, steps.side, strict=True)):
        later, earlier = strikes[1 - side], strikes[side]
        strides = [(start, at) for at in later[later > start][:1]]
        strides += [(at, end) for at in earlier[earlier < end][-1:]]
        way = sum((com[b, :2] - com[a, :2] for a, b in strides), np.zeros(2))
        length, seconds = np.linalg.norm(way), sum(time[b] - time[a] for a, b in strides)
        if length > SLOWEST * seconds:
            ways[i] = way / length
    return ways


def step_size(
    time: np.ndarray, com: np.ndarray, left: Foot, right: Foot
) -> tuple[float, float] | tuple[None, None]:
    """Return mean length and width of the steps, m; None with fewer than two.

    Measured from heel strike to heel strike of the other foot, along and across the direction of progress. The width
    is positive if the left foot is on the left; it is negative if the feet cross. The length of a backward step is
    negative.
    """
    lengths, widths, _ = _sizes(time, com, left, right)
    return (float(lengths.mean()), float(widths.mean())) if len(lengths) > 1 else (None, None)


def symmetry(time: np.ndarray, com: np.ndarray, left: Foot, right: Foot) -> float | None:
    """Return the gait symmetry: 1 if left and right alternate equally, 0 if one does nothing; None with few steps.

    The minimum over step time, stance share and step length of 1 - |l - r| / (|l| + |r|), one minus the symmetry
    index of Robinson et al. (1987). It needs four strikes.
    """
    feet = (left, right)
    if sum(len(foot.strikes) for foot in feet) < 4:
        return None
    if min(len(foot.strikes) for foot in feet) < 2:
        return 0.0
    steps = steps_of(left, right)
    took = time[steps.end] - time[steps.start]
    stands = [foot.contact[foot.strikes[0] : foot.strikes[-1]].mean() for foot in feet]
    indices = [_alike(*stands), _alike(*_by_side(took, steps.side))]
    lengths, _, side = _sizes(time, com, left, right)
    if len(set(side)) == 2:
        indices.append(_alike(*_by_side(lengths, side)))
    return min(indices)


def foot_clearance(left: Foot, right: Foot) -> float | None:
    """Return the mean over swings of the largest foot height, m; None with fewer than two swings.

    The height of a foot is that of the lower of heel and toes, each relative to its lowest position in stance. The
    reference is interpolated between the stances before and after the swing, since the ground may rise.
    """
    highest = []
    for foot in (left, right):
        if foot.heights is None:
            continue
        for strike in foot.strikes:
            lifts = np.flatnonzero(foot.contact[:strike])
            if not len(lifts):
                continue  # the episode started with this foot in the air
            lift, earlier = lifts[-1], foot.strikes[foot.strikes < strike]
            landed = earlier[-1] if len(earlier) else 0
            leaves = np.flatnonzero(~foot.contact[strike:])
            after = foot.heights[strike : strike + leaves[0] if len(leaves) else None]
            before, swing = foot.heights[landed : lift + 1], foot.heights[lift : strike + 1]
            level = np.linspace(before.min(axis=0), after.min(axis=0), len(swing))
            highest.append((swing - level).min(axis=-1).max())
    return float(np.mean(highest)) if len(highest) > 1 else None


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


def _walks(task: Task) -> bool:
    return all(foot in task.layout.touch for foot in FEET)


def _foot(read: Readout, task: Task, side: int, weight: float) -> Foot:
    contact = in_contact(read.touch(FEET[side]), read.time.astype(float), weight)
    parts = [task.roles[role] for role in (FEET[side], TOES[side]) if role in task.roles]
    has_heel = FEET[side] in task.roles
    return Foot(
        contact=contact,
        strikes=_rising(contact),
        heel=read.pos(task.roles[FEET[side]]) if has_heel else None,
        heights=np.stack([read.pos(body)[:, 2] for body in parts], axis=-1) if has_heel else None,
    )


def _rising(contact: np.ndarray) -> np.ndarray:
    return np.flatnonzero(contact[1:] & ~contact[:-1]) + 1


def _sizes(
    time: np.ndarray, com: np.ndarray, left: Foot, right: Foot
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lengths, widths and sides [n] of the steps with a direction of progress."""
    steps = steps_of(left, right)
    if left.heel is None or right.heel is None:
        return np.empty(0), np.empty(0), np.empty(0, int)
    heels = np.stack([left.heel, right.heel])
    reach = (heels[steps.side, steps.end] - heels[1 - steps.side, steps.start])[:, :2]
    ahead = progress(time, com, left, right)
    known = np.isfinite(ahead).all(axis=-1)
    leftward = np.stack([-ahead[:, 1], ahead[:, 0]], axis=-1)
    lengths = (reach * ahead).sum(axis=-1)
    widths = (reach * leftward).sum(axis=-1) * np.where(steps.side == 0, 1.0, -1.0)
    return lengths[known], widths[known], steps.side[known]


def _by_side(values: np.ndarray, side: np.ndarray) -> tuple[float, float]:
    return float(values[side == 0].mean()), float(values[side == 1].mean())


def _alike(left: float, right: float) -> float:
    whole = abs(left) + abs(right)
    return 1.0 - abs(left - right) / whole if whole > 0 else 1.0
