"""Foot contacts, steps and strides of one episode, and the measures that follow from them.

A foot strike is the time at which the normal force of a foot rises above STRIKE after it was below LIFT. Thresholds
of 20 N (3 % of body weight) and more are common for force plates. Two thresholds ignore small fluctuations, and
contacts or swings shorter than BOUNCE_S are ignored as bounces.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STRIKE, LIFT = 0.05, 0.025  # force thresholds of foot strike and foot lift, as shares of body weight
BOUNCE_S = 0.06  # s
LIFTED_M = 0.03  # m; a foot of which no part is lower touches the other leg, not the ground
SLOWEST = 0.05  # m/s; below it, the direction of progress is undefined


@dataclass(frozen=True)
class Foot:
    """One foot over T control steps."""

    contact: np.ndarray  # [T] bool
    strikes: np.ndarray  # [n] indices of foot strikes
    heel: np.ndarray | None  # [T, 3] m
    toes: np.ndarray | None  # [T, 3] m

    @classmethod
    def of(
        cls,
        force: np.ndarray,
        time: np.ndarray,
        weight: float,
        heel: np.ndarray | None = None,
        toes: np.ndarray | None = None,
    ) -> Foot:
        """Find contacts and strikes from the normal force [T] N and the body weight in N."""
        contact = in_contact(force, time, weight)
        return cls(contact, np.flatnonzero(contact[1:] & ~contact[:-1]) + 1, heel, toes)

    @property
    def heights(self) -> np.ndarray | None:
        """Heights [T, parts] m of the heel and, if the model has them, the toes."""
        if self.heel is None:
            return None
        return np.stack([part[:, 2] for part in (self.heel, self.toes) if part is not None], axis=-1)

    @property
    def strides(self) -> list[tuple[int, int]]:
        """Indices (strike, next strike) of each complete stride."""
        return list(itertools.pairwise(self.strikes.tolist()))

    def lift(self, start: int, end: int) -> int:
        """Return the index at which the foot leaves the ground for the last time in the stride [start, end)."""
        return start + int(np.flatnonzero(self.contact[start:end])[-1]) + 1

    def peaks_in_swing(self, values: np.ndarray, strides: Sequence[tuple[int, int]]) -> np.ndarray:
        """Return [n] the largest of `values` [T] in the swing of each of `strides`."""
        return np.array([values[self.lift(a, b) : b + 1].max() for a, b in strides])


def ground_force(force: np.ndarray, heel: np.ndarray, toes: np.ndarray) -> np.ndarray:
    """Return the force [T] N of a foot without contacts in the air, as of a swinging foot with the other leg.

    heel, toes: heights [T] m above the ground. They are compared with their lowest values, for bodies have thickness.
    """
    lifted = np.minimum(heel - heel.min(), toes - toes.min())
    return np.where(lifted > LIFTED_M, 0.0, force)


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


def strikes_in_order(left: Foot, right: Foot) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices [n] of the strikes of both feet in the order of time, and their sides (0 left, 1 right)."""
    index = np.concatenate([left.strikes, right.strikes])
    side = np.repeat([0, 1], [len(left.strikes), len(right.strikes)])
    order = np.argsort(index, kind="stable")
    return index[order], side[order]


def _steps(left: Foot, right: Foot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the n steps, from strikes of one foot to the next strike of the other.

    Indices [n] of the strikes at their begin and end, and the foot [n] of the latter: 0 left, 1 right.
    """
    index, side = strikes_in_order(left, right)
    other = side[1:] != side[:-1]
    return index[:-1][other], index[1:][other], side[1:][other]


def cadence(time: np.ndarray, left: Foot, right: Foot) -> float | None:
    """Return the strikes of both feet per minute, from the first to the last; None with fewer than three."""
    strikes = np.sort(np.concatenate([left.strikes, right.strikes]))
    if len(strikes) < 3:
        return None
    seconds = float(time[strikes[-1]] - time[strikes[0]])
    return 60.0 * (len(strikes) - 1) / seconds if seconds > 0 else None


def progress(time: np.ndarray, com: np.ndarray, left: Foot, right: Foot) -> np.ndarray:
    """Return the direction of progress [n, 2] of the centre of mass [T, 3] at each step, a unit vector or nan.

    It is averaged over the strides (from a strike to the next one of the same foot) that start or end with the step,
    so that sway, which is periodic in a stride, does not affect it. nan if the body stands or there is no such
    stride.
    """
    steps, strikes = _steps(left, right), (left.strikes, right.strikes)
    ways = np.full((len(steps[0]), 2), np.nan)
    for i, (start, end, side) in enumerate(zip(*steps, strict=True)):
        later, earlier = strikes[1 - side], strikes[side]
        strides = [(start, at) for at in later[later > start][:1]]
        strides += [(at, end) for at in earlier[earlier < end][-1:]]
        way = sum((com[b, :2] - com[a, :2] for a, b in strides), np.zeros(2))
        length, seconds = np.linalg.norm(way), sum(time[b] - time[a] for a, b in strides)
        if length > SLOWEST * seconds:
            ways[i] = way / length
    return ways


def step_size(time: np.ndarray, com: np.ndarray, left: Foot, right: Foot) -> tuple[float, float] | tuple[None, None]:
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
    start, end, side = _steps(left, right)
    if len(set(side.tolist())) < 2:  # all strikes of one foot before those of the other
        return 0.0
    stands = [foot.contact[foot.strikes[0] : foot.strikes[-1]].mean() for foot in feet]
    indices = [_alike(*stands), _alike_by_side(time[end] - time[start], side)]
    lengths, _, side = _sizes(time, com, left, right)
    if len(set(side)) == 2:
        indices.append(_alike_by_side(lengths, side))
    return min(indices)


def foot_clearance(*feet: Foot) -> float | None:
    """Return the mean over swings of the largest foot height, m; None with fewer swings than feet.

    The height of a foot is that of the lower of heel and toes, each relative to its lowest position in stance. The
    reference is interpolated between the stances before and after the swing, since the ground may rise.
    """
    highest = []
    for foot in feet:
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
    return float(np.mean(highest)) if len(highest) >= len(feet) else None


def _sizes(time: np.ndarray, com: np.ndarray, left: Foot, right: Foot) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lengths, widths and sides [n] of the steps with a direction of progress."""
    start, end, side = _steps(left, right)
    if left.heel is None or right.heel is None:
        return np.empty(0), np.empty(0), np.empty(0, int)
    heels = np.stack([left.heel, right.heel])
    reach = (heels[side, end] - heels[1 - side, start])[:, :2]
    ahead = progress(time, com, left, right)
    known = np.isfinite(ahead).all(axis=-1)
    leftward = np.stack([-ahead[:, 1], ahead[:, 0]], axis=-1)
    lengths = (reach * ahead).sum(axis=-1)
    widths = (reach * leftward).sum(axis=-1) * np.where(side == 0, 1.0, -1.0)
    return lengths[known], widths[known], side[known]


def _alike_by_side(values: np.ndarray, side: np.ndarray) -> float:
    return _alike(float(values[side == 0].mean()), float(values[side == 1].mean()))


def _alike(left: float, right: float) -> float:
    whole = abs(left) + abs(right)
    return 1.0 - abs(left - right) / whole if whole > 0 else 1.0
