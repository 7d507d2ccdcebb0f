"""Motions that meet a distance without walking: locked knees, shuffling, hopping, dragging, falling forward.

`faults` names what it finds, the most specific first. The limits are far from those of human walking, so that an
unusual walk is not a fault.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from movlr_jax.biomech.gait import events
from movlr_jax.biomech.gait.analysis import SIDES, SKIPPED, GaitRecording
from movlr_jax.biomech.gait.criteria import GaitCriteria, locked_knees
from movlr_jax.biomech.gait.events import Foot

STILL = 0.1  # m/s; a slower body stands
FEW = 4  # strikes of both feet; with fewer, a fall is not the end of a walk
QUICK = 0.6  # m/s until the end of a fall; a faster body was thrown forward
SPIN_DEG, SPIN_RATE = 150.0, 40.0  # more turning than was asked for, in degrees and degrees per second
SIDEWAYS = 0.7  # share of the speed across the direction in which the body faces
TOGETHER = 0.12  # share of the stride between strikes of both feet that are one hop
FLIGHT = 0.05  # share of the time in the air that makes a hop
IDLE = 0.1  # share of the time in contact of a foot that is not used
SLIP = 0.4  # speed of a foot in contact as a share of the body's
CROUCHED_DEG = 38.0  # mean knee flexion in stance
TIPTOE_DEG = 15.0  # heels above toes in early stance
LOW_M = 0.02  # clearance in swing of a shuffling foot
SHORT = 0.45  # step length of a shuffle as a share of the leg's length


def faults(made: GaitRecording, criteria: GaitCriteria, *, fell: bool, turn: float = 0.0) -> dict[str, str]:
    """Return name -> sentence of each degenerate pattern in an episode; empty for a walk.

    Args:
        made: The episode.
        criteria: Its knee_swing_deg and clearance_m are the limits of locked knees and dragged feet.
        fell: Whether the body fell.
        turn: The change of heading in rad that the task asks for.
    """
    return dict(_faults(made, criteria, fell, turn))


def _faults(made: GaitRecording, criteria: GaitCriteria, fell: bool, turn: float) -> Iterator[tuple[str, str]]:
    com, seconds = made.com, float(made.time[-1] - made.time[0])
    if seconds <= 0:
        return
    moved = (com[-1] - com[0])[:2]
    speed = float(np.linalg.norm(moved)) / seconds
    strikes = sum(len(foot.strikes) for foot in made.feet)
    if fell and strikes < FEW:
        if speed > QUICK:
            yield "lunge_and_fall", f"it lunges and falls after {seconds:.1f} s, at {speed:.1f} m/s"
        else:
            yield "slow_fall", f"it sinks to the ground within {seconds:.1f} s without a step"
        return
    if made.facing is not None:
        turned = np.unwrap(np.arctan2(made.facing[:, 1], made.facing[:, 0]))
        excess = np.degrees(abs(turned[-1] - turned[0]) - abs(turn))
        if excess > SPIN_DEG and excess / seconds > SPIN_RATE:
            yield "spin", f"it spins by {excess:.0f} degrees"
            return
    if speed < STILL:
        if not fell:
            yield "standing_still", f"it stays where it is: {np.linalg.norm(moved):.2f} m in {seconds:.1f} s"
        return
    if made.facing is not None:
        step = np.diff(com[:, :2], axis=0)
        ahead = float(np.sum(step * made.facing[1:])) / seconds
        across = float(np.sum(step[:, 1] * made.facing[1:, 0] - step[:, 0] * made.facing[1:, 1])) / seconds
        if ahead < -STILL:
            yield "backward", f"it walks backward at {-ahead:.2f} m/s"
        elif abs(across) > SIDEWAYS * speed:
            yield "sideways", f"it moves sideways at {abs(across):.2f} m/s"
    yield from _support(made)
    yield from _feet(made, criteria, speed)
    yield from _knees(made, criteria)


def _support(made: GaitRecording) -> Iterator[tuple[str, str]]:
    """Which feet carry the body: both in turn in a walk."""
    contact = np.stack([foot.contact for foot in made.feet])
    used = contact.mean(axis=1)
    if used.min() < IDLE < used.max():
        side = SIDES[int(used.argmin())]
        yield "one_legged", f"the {side} foot carries the body {100 * used.min():.0f} % of the time"
        return
    left, right = (made.time[foot.strikes] for foot in made.feet)
    if len(left) < 2 or len(right) < 2:
        return
    flight = float((~contact.any(axis=0)).mean())
    stride = float(min(np.median(np.diff(left)), np.median(np.diff(right))))
    apart = np.abs(left[:, None] - right[None, :]).min(axis=1) / stride
    if np.mean(apart < TOGETHER) > 0.5 and flight > FLIGHT:
        yield "hop", f"both feet hop together: {100 * flight:.0f} % of the time in the air"


def _feet(made: GaitRecording, criteria: GaitCriteria, speed: float) -> Iterator[tuple[str, str]]:
    """Whether the feet are lifted and stay where they were put."""
    slips = [_slip(foot, made.time) / speed for foot in made.feet]
    lifted = [events.foot_clearance(foot) for foot in made.feet]
    low = [lift is not None and lift < LOW_M for lift in lifted]
    least = criteria.clearance_m or 0.0
    dragged = [slip > SLIP or (lift is not None and lift < least) for slip, lift in zip(slips, lifted, strict=True)]
    knees = stance_knee(made)
    length, _ = events.step_size(made.time, made.com, *made.feet)
    short = length is not None and made.leg_length is not None and length < SHORT * made.leg_length
    if max(slips) > SLIP and knees is not None and knees > CROUCHED_DEG:
        yield "crouch_slide", f"it slides along with knees bent by {knees:.0f} degrees"
    elif all(dragged) or (all(low) and short):
        yield "shuffle", "it shuffles: both feet stay on the ground or are hardly lifted"
    elif any(dragged):
        side = SIDES[int(np.argmax(dragged))]
        yield "drag", f"it drags the {side} foot"
    pitch = [foot_pitch(foot) for foot in made.feet]
    known = [p for p in pitch if p is not None]
    if known and min(known) > TIPTOE_DEG:
        yield "tiptoe", f"it walks on its toes: heels up by {min(known):.0f} degrees in stance"


def _knees(made: GaitRecording, criteria: GaitCriteria) -> Iterator[tuple[str, str]]:
    knees = made.angles.get("knee_flexion")
    if knees is None or criteria.knee_swing_deg is None:
        return
    least = min(swing_knee(made, side) for side in criteria.sides)
    if least < criteria.knee_swing_deg:  # in the words of the criterion, so that both are told once
        yield "locked_knees", locked_knees(least)


def swing_knee(made: GaitRecording, side: str) -> float:
    """Return the mean over strides of the largest knee flexion in deg; of the whole episode if it has no stride."""
    i = SIDES.index(side)
    knee, foot = made.angles["knee_flexion"][i], made.feet[i]
    strides = foot.strides[SKIPPED:] or foot.strides
    return float(foot.peaks_in_swing(knee, strides).mean() if strides else knee.max())


def stance_knee(made: GaitRecording) -> float | None:
    """Return the mean knee flexion in stance of the straighter leg, deg; None without joint angles."""
    knees = made.angles.get("knee_flexion")
    if knees is None or not all(foot.contact.any() for foot in made.feet):
        return None
    return min(float(knee[foot.contact].mean()) for knee, foot in zip(knees, made.feet, strict=True))


def _slip(foot: Foot, time: np.ndarray) -> float:
    """Return the mean speed in m/s of a foot in contact, at its slower end: a foot rolls over its heel and toes."""
    parts = [part for part in (foot.heel, foot.toes) if part is not None]
    standing = foot.contact[1:] & foot.contact[:-1]
    if not parts or not standing.any():
        return 0.0
    speeds = [np.linalg.norm(np.diff(part[:, :2], axis=0), axis=-1) / np.diff(time) for part in parts]
    return float(np.min(speeds, axis=0)[standing].mean())


def foot_pitch(foot: Foot) -> float | None:
    """Return the mean angle in deg by which the heel is above the toes in early stance, 0 in the first posture."""
    if foot.heel is None or foot.toes is None or not len(foot.strikes):
        return None
    along = foot.heel - foot.toes
    pitch = np.degrees(np.arcsin(along[:, 2] / np.linalg.norm(along, axis=-1)))
    early = np.zeros(len(pitch), bool)
    for begin, end in foot.strides:
        early[begin : begin + (foot.lift(begin, end) - begin) // 2] = True
    return float(pitch[early].mean() - pitch[0]) if early.any() else None
