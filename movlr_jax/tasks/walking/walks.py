"""The standing and walking tasks: goal, ground and hand-written reward of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from movlr_jax._util.parts import setting
from movlr_jax.biomech.gait.criteria import GaitCriteria
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter
from movlr_jax.tasks.base import Task, positive
from movlr_jax.tasks.walking.locomotion import SPEED_TOLERANCE, WalkGoal, locomotion
from movlr_jax.tasks.walking.terrain import rough, slope

# muscles weakened in the injured leg: both heads of the biceps femoris, both gastrocnemii, semimembranosus and
# semitendinosus
INJURED = ("biceps_femoris", "gastrocnemius", "semimembranosus", "semitendinosus")
# hand-written rewards: `walk` has penalties for planners; `gait` rewards walking more than standing, for learning;
# `imitate` follows a recorded motion, and `stride` is for planners around one; `bird` is `imitate` with the ostrich's
# joints and its own weights, and without a term for the adduction of the hips, which its stride lacks
HAND_MADE = ("walk", "gait", "imitate", "bird", "stride")
_GAIT = "whether the body stays up and moves forward, then trunk, lift and placement of the feet, knees and hips"


@dataclass(frozen=True)
class Gait:
    """Settings of all walking tasks. start_noise: see `locomotion`. walk: what counts as walking."""

    # read by the hand-written rewards; trained policies observe its phase
    stride_frequency_hz: float = setting(0.8, "strides (two steps) per second", above=0)
    human: str = setting("walk", "name of the hand-written reward", choices=HAND_MADE)
    start_noise: float = 0.01  # rad
    walk: GaitCriteria = field(default_factory=GaitCriteria)


@dataclass(frozen=True)
class Steady(Gait):
    """Settings of the walks in a straight line."""

    speed_m_s: float = setting(1.0, "speed of the walk, m/s", above=0)
    speed_tolerance: float = setting(SPEED_TOLERANCE, "largest relative error of the speed in a success", above=0)


@dataclass(frozen=True)
class Injured(Steady):
    """A gait whose legs may differ; an injured leg is not compared with people's."""

    walk: GaitCriteria = field(default_factory=lambda: GaitCriteria(symmetry=None, legs="healthy"))


@dataclass(frozen=True)
class Bird(Steady):
    """The gait of a bird: there is no human reference for it, and its trunk stays level."""

    walk: GaitCriteria = field(
        default_factory=lambda: GaitCriteria(gait_r=None, knee_swing_deg=None, trunk_tilt_deg=15.0)
    )


def stand(
    adapter: ModelAdapter, *, episode_s: float, start_noise: float = 0.01, push_m_s: float = 0.0, push_s: float = 2.0
) -> Task:
    """Stand upright to the end, within 0.3 m of the start and with the trunk within 20 degrees of it."""
    goal = WalkGoal(
        name="stand",
        description="stand still and upright",
        focus="whether the body stays up, then sway, drift and the posture of trunk and legs",
        reward="stand",
        max_tilt_deg=20.0,
    )
    return locomotion(adapter, goal, episode_s=episode_s, start_noise=start_noise, push_m_s=push_m_s, push_s=push_s)


def flat_walk(adapter: ModelAdapter, *, episode_s: float, gait: Steady) -> Task:
    """Walk forward on level ground."""
    goal = _straight("flat_walk", f"walk forward in a straight line at {_about(gait)} with good posture", gait)
    return locomotion(adapter, goal, episode_s=episode_s, start_noise=gait.start_noise)


def slope_walk(adapter: ModelAdapter, *, episode_s: float, slope_deg: float = 5.0, gait: Steady) -> Task:
    """Walk forward up a slope."""
    if not -30 <= slope_deg <= 30:
        raise UserError(f"task.settings.slope_deg={slope_deg:g}: it must be from -30 to 30 degrees")
    description = f"walk straight up a slope of {slope_deg:g} degrees at {_about(gait)} with good posture"
    goal, ground = _straight("slope_walk", description, gait), slope(slope_deg)
    return locomotion(adapter, goal, episode_s=episode_s, ground=ground, start_noise=gait.start_noise)


def rough_walk(
    adapter: ModelAdapter, *, episode_s: float, bump_m: float = 0.03, terrain_seed: int = 0, gait: Steady
) -> Task:
    """Walk forward over random bumps."""
    if bump_m < 0:
        raise UserError(f"task.settings.bump_m={bump_m:g}: it must be 0 or more")
    description = f"walk forward in a straight line over rough ground at {_about(gait)} with good posture"
    goal, ground = _straight("rough_walk", description, gait), rough(bump_m, terrain_seed)
    return locomotion(adapter, goal, episode_s=episode_s, ground=ground, start_noise=gait.start_noise)


def left_turn(
    adapter: ModelAdapter,
    *,
    episode_s: float,
    speed_m_s: float = 0.8,
    turn_deg: float = 90.0,
    turn_s: float = 4.0,
    gait: Gait,
) -> Task:
    """Walk forward and, from turn_s on, to the left. The distance is measured along the new heading after turn_s.

    Success bounds the heading at the end and the distance, at least 1 m, but not the speed: a slow turn counts.
    """
    goal = _walking(
        "left_turn",
        f"walk forward, after {turn_s:g} s turn left by {turn_deg:g} degrees and walk on",
        positive("speed_m_s", speed_m_s),
        gait,
        f"; after {turn_s:g} s, whether the body turns left and goes where it then faces",
        heading=float(np.deg2rad(turn_deg)),
        turn_s=turn_s,
        speed_tolerance=None,  # the path of the turn is not along the new heading
        min_distance_m=1.0,
        max_drift_m=float("inf"),
        max_heading_error=float(np.deg2rad(10)),
    )
    return locomotion(adapter, goal, episode_s=episode_s, start_noise=gait.start_noise)


def injured_walk(
    adapter: ModelAdapter, *, episode_s: float, strength: float = 0.0, side: str = "right", gait: Injured
) -> Task:
    """Walk forward on level ground with hamstrings and calf of one leg at the share `strength` of their force."""
    if not 0 <= strength <= 1:
        raise UserError(f"task.settings.strength={strength:g}: the share of force must be from 0 to 1")
    if side not in ("left", "right"):
        raise UserError(f"task.settings.side={side}: it must be left or right")
    groups = [f"{group}_{side[0]}" for group in INJURED]
    missing = [group for group in groups if group not in adapter.muscle_groups]
    if missing:
        raise UserError(
            f"model {adapter.name!r} has no muscle group {missing[0]!r}, which this task weakens; "
            f"it has: {', '.join(adapter.muscle_groups) or 'none'}"
        )
    if gait.walk.legs == "healthy":
        healthy = "left" if side == "right" else "right"
        gait = replace(gait, walk=replace(gait.walk, legs=healthy))
    description = (
        f"walk forward in a straight line at {_about(gait)} although hamstrings and calf of the "
        f"{side} leg {'do not work' if strength == 0 else 'are weak'}"
    )
    goal = _straight("injured_walk", description, gait)
    weaken = {muscle: strength for group in groups for muscle in adapter.muscle_groups[group]}
    return locomotion(adapter, goal, episode_s=episode_s, start_noise=gait.start_noise, weaken=weaken)


def ostrich_walk(adapter: ModelAdapter, *, episode_s: float, gait: Bird) -> Task:
    """Walk forward on level ground with the body of an ostrich."""
    posture = "its body level, its legs rather straight, its head steady"
    description = f"the ostrich walks forward at {_about(gait)}, {posture}"
    goal = _straight("ostrich_walk", description, gait, "; the neck and head")
    return locomotion(adapter, goal, episode_s=episode_s, start_noise=gait.start_noise)


def _about(gait: Steady) -> str:
    return f"about {gait.speed_m_s:g} m/s"


def _straight(name: str, description: str, gait: Steady, also: str = "") -> WalkGoal:
    return _walking(name, description, gait.speed_m_s, gait, also, speed_tolerance=gait.speed_tolerance)


def _walking(name: str, description: str, speed_m_s: float, gait: Gait, also: str = "", **changes: Any) -> WalkGoal:
    """Return the goal of a walk; `also` is appended to the focus."""
    return WalkGoal(
        name,
        description,
        focus=_GAIT + also,
        speed=speed_m_s,
        goals={"stride_frequency": np.asarray(gait.stride_frequency_hz, np.float32)},
        reward=gait.human,
        first="walk",
        walk=gait.walk,
        **changes,
    )
