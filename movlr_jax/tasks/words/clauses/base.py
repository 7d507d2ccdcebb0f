"""The clauses of a sentence: what each one measures, what counts as its success, and its reward terms.

A clause is one frozen dataclass. Its `quantity` is an expression of a reward program, in `state` and `state.initial`.
The terms use it as it is; the measure is the same expression over the steps of a phase of an episode, with the state
at which the phase began as `state.initial`. So the two cannot disagree, and a measure is never clipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.biomech.world import World
from movlr_jax.rewards.term import Term, along, entry, quoted
from movlr_jax.tasks.words.parts import Part

Vector = tuple[float, ...]
UP: Vector = (0.0, 0.0, 1.0)
HOLD_S = 0.5  # s at the end of a phase in which what should be reached is measured
SHARE = 0.1  # tolerance of an amount, as a share of it
LENGTH, ANGLE, NEAR = 0.05, np.deg2rad(5.0), 0.02  # smallest tolerances: m, rad, m between surfaces
OFF = np.deg2rad(20.0)  # of a direction
AT_ONCE = 2.5  # rad, greatest angle to turn by for which the requested heading does not move
RATE = 1.5  # rad/s, of a requested heading that moves
CYCLE_S = 2.0  # in which a body goes down and comes up
WAVES_HZ, STEPS_HZ = 1.0, 2.0
PER_S = 0.2  # s, the shortest time over which a mean speed is taken
COUNTED = 0.05  # m, height of a jump or step that counts


@dataclass(frozen=True)
class Subject:
    """The body that the words move, and the world around it at the start."""

    name: str
    root: str
    up: Vector = UP  # unit vector [3] against gravity, world frame
    ahead: Vector = (1.0, 0.0, 0.0)  # horizontal unit vector [3] in which it faces
    level: bool = True  # whether the ground is level everywhere
    height: float = 0.0  # m above the ground

    @property
    def moved(self) -> str:
        """Expression of how far it is from where it began [3] m."""
        return f"(state.pos({quoted(self.name)}) - state.initial.pos({quoted(self.name)}))"

    @property
    def velocity(self) -> str:
        return "state.com_vel" if self.name == self.root else f"state.vel({quoted(self.name)})"

    @property
    def risen(self) -> str:
        """Expression of how far it is higher above the ground than at the beginning, m."""
        if self.level:
            return along(self.moved, self.up)
        return f"(state.height({quoted(self.name)}) - state.initial.height({quoted(self.name)}))"

    @property
    def turned(self) -> str:
        """Expression of its rotation [3, 3] since the beginning."""
        return f"(state.rot({quoted(self.name)}) @ state.initial.rot({quoted(self.name)}).T)"

    @property
    def yaw(self) -> str:
        """Expression of the angle about the vertical by which it has turned, rad, left positive."""
        ahead, left, _ = World(np.asarray(self.up)).frame
        return f"jnp.arctan2({entry(self.turned, left, ahead)}, {entry(self.turned, ahead, ahead)})"

    @property
    def tilt(self) -> str:
        """Expression of its tilt since the beginning, rad."""
        return f"jnp.arccos(jnp.clip({entry(self.turned, self.up, self.up)}, -0.999, 0.999))"

    def horizontal(self, vector: str) -> str:
        """Return the expression of the horizontal length of a vector [3]."""
        ahead, left, _ = World(np.asarray(self.up)).frame
        return f"jnp.hypot({along(vector, ahead)}, {along(vector, left)})"


@dataclass(frozen=True)
class Goal:
    """What counts as a success: a measure from `low` to `high`; more is better up to `best`."""

    low: float = -np.inf
    high: float = np.inf
    best: float = -np.inf
    scale: float = 0.1  # of the measure, for scores

    @classmethod
    def about(cls, amount: float, least: float = LENGTH) -> Goal:
        tolerance = max(SHARE * abs(amount), least)
        return cls(amount - tolerance, amount + tolerance, scale=max(abs(amount), least))

    def short(self, value: float) -> float:
        """Return by how much a value misses it; 0 for a success."""
        return max(self.low - value, value - self.high, 0.0)

    def score(self, value: float) -> float:
        """Return 0 for a success, less for a miss, and up to 5 where more than enough is better."""
        extra = np.clip((value - self.low) / max(self.best - self.low, 1e-6), 0.0, 1.0)
        return (5.0 * float(extra) if self.best > self.low else 0.0) - 20.0 * self.short(value) / self.scale

    def text(self, metric: str) -> str:
        low, high = (quantity(float(v), metric) for v in (self.low, self.high))
        if np.isinf(self.low):
            return "any" if np.isinf(self.high) else f"at most {high}"
        return f"at least {low}" if np.isinf(self.high) else f"{low} to {high}"


@dataclass(frozen=True)
class Clause:
    """What a part of a sentence asks for."""

    kind: ClassVar[str] = "part"  # of its terms and of what a diagnosis says is lacking
    # which value of a phase counts: the worst that is held in its last HOLD_S, its last, the largest, the worst
    counts: ClassVar[str] = "held"
    fold: ClassVar[str] = (
        ""  # of the values over a phase: unwrap (an angle), sum (a rate), swings (how many), mean
    )
    touches: ClassVar[str] = ""  # what it changes, so that a later phase may undo it: place, heading, height

    @property
    def metric(self) -> str:
        """Name of its measure, with the unit at the end."""
        raise NotImplementedError

    @property
    def goal(self) -> Goal:
        raise NotImplementedError

    @property
    def limit(self) -> float:
        """Most that the measure may be where the words say "without"."""
        return {"m": LENGTH, "rad": 0.2}.get(self.metric.rpartition("_")[2], 0.1)

    @property
    def quantity(self) -> str:
        """Expression of its measure."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Part, ...]:
        return ()

    @property
    def seconds(self) -> float:
        """How long it takes about, s."""
        return 1.5

    def text(self) -> str:
        raise NotImplementedError

    def terms(self) -> list[Term]:
        raise NotImplementedError

    def curve(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return the measure at each step of a phase [T], from the values of `quantity` and the time [T] s."""
        if self.fold == "unwrap":
            return np.unwrap(values) - values[0]
        if self.fold == "sum":
            return np.concatenate([[0.0], np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(time))])
        return values

    def value(self, curve: np.ndarray, time: np.ndarray) -> float:
        """Return the value of a phase that counts, from its curve [T]."""
        worst = np.min if np.isinf(self.goal.high) else np.max
        if self.counts == "end":
            return float(curve[-1])
        if self.counts == "largest":
            return float(curve.max())
        held = curve if self.counts == "worst" else curve[time > time[-1] - HOLD_S]
        if np.isfinite(self.goal.low) and np.isfinite(self.goal.high):  # an amount: the farthest from it
            middle = 0.5 * (self.goal.low + self.goal.high)
            return float(held[np.abs(held - middle).argmax()])
        return float(worst(held))

    def lacks(self, value: float) -> str:
        """Return what an episode with this value lacks, empty if nothing."""
        if not self.goal.short(value):
            return ""
        return f"{self.text()}: {quantity(value, self.metric)}, not {self.goal.text(self.metric)}"

    def said(self, value: float, metric: str = "") -> str:
        """Return what was asked and measured, in words."""
        return f"{self.text()}: {quantity(value, self.metric)} (asked {self.goal.text(self.metric)})"


def error(expression: str) -> str:
    return f"-shaping.smooth_abs({expression})"


def side(sign: float) -> str:
    return "left" if sign > 0 else "right"


def degrees(angle: float) -> str:
    return f"{np.rad2deg(angle):.0f}°"


def distance_terms(name: str, a: str, b: str) -> list[Term]:
    """Return terms for the distance of two positions, which are expressions of a reward program."""
    apart = f"jnp.linalg.norm({a} - {b})"
    return [
        Term(name, "place", 20.0, error(apart)),
        Term(f"{name}_near", "place", 5.0, f"shaping.gaussian({apart}, 0.1)"),
    ]


def swings(values: np.ndarray, far: float, half: bool = False) -> np.ndarray:
    """Return how often values [T] have swung to one side and back by `far` or more, up to each step [T].

    half: only the swings that go up count, each as one.
    """
    count, way, last, counted = 0, 0, values[0], np.zeros(len(values))  # last: the farthest on its way
    for i, at in enumerate(values):
        if way * (at - last) >= 0 and way:
            last = at
        elif abs(at - last) >= far:
            way = 1 if at > last else -1
            count, last = count + (1 if not half or way > 0 else 0), at
        counted[i] = count
    return counted


def upright_terms(of: Subject, turns: bool, keeps_height: bool = True) -> list[Term]:
    """Return the terms of balance: keep the height, and the posture or, for a body that turns, the tilt."""
    rot = f"rot({quoted(of.name)})"
    turned = of.tilt if turns else f"shaping.rotation_error(state.{rot}, state.initial.{rot})"
    terms = [
        Term("height", "height", 30.0, error(f"jnp.minimum({of.risen}, 0.0)")),
        Term("level", "upright", 10.0, error(turned)),
    ]
    return terms if keeps_height else terms[1:]


def any_way_terms(of: Subject, ways: Sequence[Sequence[float]]) -> list[Term]:
    """Return terms for all directions in `ways`, for a description that names no direction."""
    names: dict[tuple[int, ...], str] = {
        (1, 0, 0): "x",
        (-1, 0, 0): "minus_x",
        (0, 1, 0): "y",
        (0, -1, 0): "minus_y",
        (0, 0, 1): "z",
    }
    return [
        Term(
            f"along_{names.get(tuple(int(c) for c in way), 'minus_z')}",
            "forward",
            3.0,
            f"jnp.tanh({along('state.com_vel', way)})",
        )
        for way in ways
    ] + upright_terms(of, False)
