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
from movlr_jax.rewards.term import Term, along, array_of, entry, identifier, quoted, tuple_of
from movlr_jax.tasks.words.parts import Part

Vector = tuple[float, ...]
UP: Vector = (0.0, 0.0, 1.0)
HOLD_S = 0.5  # s at the end of a phase in which what should be reached is measured
_SHARE = 0.1  # tolerance of an amount, as a share of it
_LENGTH, _ANGLE, _NEAR = 0.05, np.deg2rad(5.0), 0.02  # smallest tolerances: m, rad, m between surfaces
_OFF = np.deg2rad(20.0)  # of a direction
_AT_ONCE = 2.5  # rad, greatest angle to turn by for which the requested heading does not move
_RATE = 1.5  # rad/s, of a requested heading that moves
_CYCLE_S = 2.0  # in which a body goes down and comes up
_WAVES_HZ, _STEPS_HZ = 1.0, 2.0
_PER_S = 0.2  # s, the shortest time over which a mean speed is taken
_COUNTED = 0.05  # m, height of a jump or step that counts


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
    def about(cls, amount: float, least: float = _LENGTH) -> Goal:
        tolerance = max(_SHARE * abs(amount), least)
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
    # which value of a phase counts: the worst that is held in its last HOLD_S, that at its end, the largest, the worst
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
        return {"m": _LENGTH, "rad": 0.2}.get(self.metric.rpartition("_")[2], 0.1)

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


# The whole body.


@dataclass(frozen=True)
class Travel(Clause):
    """Travel along `way`; without `distance`, as far as the speed takes it."""

    of: Subject
    way: Vector  # unit vector [3] in the world; with `turns` at the start, from where it turns with the body
    speed: float  # m/s
    word: str = ""  # "forward", "to the post"
    exact: bool = False  # whether the sentence gives the speed
    distance: float | None = None  # m
    turns: bool = False  # whether `way` turns with the body
    begun: Vector = (0.0, 0.0, 0.0)  # [3] m, where it should be when this phase begins, for its terms
    leads: bool = False  # whether its velocity is the goal of the task
    kind, counts, touches = "forward", "end", "place"

    @property
    def metric(self) -> str:
        return "progress_m_s" if self.distance is None else "distance_m"

    @property
    def goal(self) -> Goal:
        if self.distance is not None:
            return Goal.about(self.distance)
        if self.exact:
            return Goal.about(self.speed)
        return Goal(0.5 * self.speed, best=self.speed, scale=self.speed)

    @property
    def fold(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "sum" if self.turns else ""

    @property
    def limit(self) -> float:
        return 0.3 if self.distance is not None else 0.1

    @property
    def seconds(self) -> float:
        return 1.5 if self.distance is None else self.distance / self.speed + 0.5

    @property
    def pace(self) -> str:
        """Expression of the speed along the way, m/s."""
        if self.turns:
            return f"jnp.dot({self.of.velocity}, {self.of.turned} @ {array_of(self.way)})"
        return along(self.of.velocity, self.way)

    @property
    def quantity(self) -> str:
        return self.pace if self.turns else along(self.of.moved, self.way)

    def curve(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        covered = super().curve(values, time)
        return covered if self.distance is not None else covered / np.maximum(time - time[0], _PER_S)

    def text(self) -> str:
        amount = "" if self.distance is None else f" {self.distance:.3g} m"
        frame = ", seen from the body as it turns" if self.turns else ""
        return f"move {self.word or 'along ' + str(self.way)}{amount} at about {self.speed:.2g} m/s{frame}"

    def terms(self) -> list[Term]:
        goal = 'jnp.linalg.norm(state.goal("velocity"))' if self.leads else f"{self.speed:g}"
        progress = Term("progress", "forward", 5.0, f"jnp.minimum({self.pace} / {goal}, 1.0)")
        if self.distance is not None and not self.turns:
            begun = float(np.dot(self.begun, self.way))
            left = f"({self.distance + begun:.4g} - {along(self.of.moved, self.way)})"
            wanted = f"{self.speed:g} * jnp.clip({left} / 0.3, -1.0, 1.0)"
            terms = [
                Term("remaining", "forward", 10.0, error(left)),
                Term("approach", "forward", 5.0, error(f"{self.pace} - {wanted}")),
            ]
        elif self.exact:  # being too fast is a fault, too
            terms = [Term("speed", "forward", 5.0, error(f"{self.pace} / {goal} - 1.0")), progress]
        else:
            terms = [progress, Term("speed", "forward", 3.0, error(f"{self.pace} - {goal}"))]
        if abs(np.dot(self.way, self.of.up)) < 0.7 and not self.turns:
            aside = np.cross(self.of.up, self.way)
            moved = along(self.of.moved, aside.tolist())
            off = float(np.dot(self.begun, aside))
            terms.append(Term("drift", "straight", 1.0, error(f"{moved} - {off:.4g}" if off else moved)))
        return terms


@dataclass(frozen=True)
class Turn(Clause):
    """Turn about the vertical, left or right, by an angle or as far as it can."""

    of: Subject
    sign: int = 1  # 1 left, -1 right
    angle: float | None = None  # rad
    begun: float = 0.0  # rad, left, how far it should have turned when this phase begins, for its terms
    kind, counts, fold, touches = "turning", "end", "unwrap", "heading"

    @property
    def metric(self) -> str:
        return "turned_rad"

    @property
    def goal(self) -> Goal:
        if self.angle is None:
            return Goal(1.0, best=3.0, scale=1.0)
        return Goal.about(self.angle, np.deg2rad(10.0))

    @property
    def seconds(self) -> float:
        return 1.5 if self.angle is None else self.angle / _RATE + 0.5

    @property
    def quantity(self) -> str:
        return self.of.yaw if self.sign > 0 else f"-{self.of.yaw}"

    def text(self) -> str:
        return f"turn {side(self.sign)}" + ("" if self.angle is None else f" by {degrees(self.angle)}")

    def terms(self) -> list[Term]:
        if self.angle is None:
            rate = along(f"state.angvel({quoted(self.of.name)})", [self.sign * c for c in self.of.up])
            return [Term("turn_rate", "turning", 3.0, f"jnp.clip({rate}, -2.0, 2.0)")]
        wanted = self.begun + self.sign * self.angle
        return [Term("heading", "turning", 10.0, error(heading(self.of, wanted)))]


def heading(of: Subject, wanted: float) -> str:
    """Return the expression of the angle in rad between the heading and the requested one, left of the start.

    Half a turn to the left and to the right end the same, so for large angles the requested heading turns, too.
    """
    sign, angle = ("-" if wanted > 0 else "+"), abs(wanted)
    if angle <= _AT_ONCE:
        return f"{of.yaw} {sign} {angle:g}" if angle else of.yaw
    off = f"{of.yaw} {sign} jnp.minimum({_RATE:g} * state.time, {angle:g})"
    return f"jnp.arctan2(jnp.sin({off}), jnp.cos({off}))"


@dataclass(frozen=True)
class Face(Clause):
    """Face a direction at the end."""

    of: Subject
    angle: float = 0.0  # rad, left of the direction at the start
    word: str = "forward"
    kind, touches = "turning", "heading"

    @property
    def metric(self) -> str:
        return "heading_error_rad"

    @property
    def goal(self) -> Goal:
        return Goal(high=_OFF, scale=1.0)

    @property
    def quantity(self) -> str:
        off = f"({self.of.yaw} - {self.angle:g})" if self.angle else self.of.yaw
        return f"jnp.abs(jnp.arctan2(jnp.sin({off}), jnp.cos({off})))"

    def text(self) -> str:
        return "keep its heading" if not self.angle else f"face {self.word} ({degrees(self.angle)} left)"

    def terms(self) -> list[Term]:
        return [Term("heading", "turning", 10.0, error(heading(self.of, self.angle)))]


@dataclass(frozen=True)
class Stay(Clause):
    """Keep its place on the ground."""

    of: Subject
    kind, counts, touches = "steady", "worst", "place"

    @property
    def metric(self) -> str:
        return "drift_error_m"

    @property
    def goal(self) -> Goal:
        return Goal(high=0.3, scale=0.3)

    @property
    def quantity(self) -> str:
        return self.of.horizontal(self.of.moved)

    def text(self) -> str:
        return "stay in place"

    def terms(self) -> list[Term]:
        return [Term("sway", "steady", 3.0, error(self.of.horizontal(self.of.velocity)))]


@dataclass(frozen=True)
class Jump(Clause):
    """Leave the ground, `times` times or at least once."""

    of: Subject
    amount: float | None = None  # m
    times: int | None = None
    kind, touches = "jump", "height"

    @property
    def counts(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "largest"

    @property
    def metric(self) -> str:
        return "rise_m" if self.times is None else "jumps"

    @property
    def goal(self) -> Goal:
        if self.times is not None:
            return Goal(self.times - 0.5, self.times + 0.5, scale=float(self.times))
        return Goal(0.1, best=0.5) if self.amount is None else Goal.about(self.amount)

    @property
    def quantity(self) -> str:  # not by walking uphill, nor off a ledge
        rose = along(self.of.moved, self.of.up)
        return rose if self.of.level else f"jnp.minimum({rose}, {self.of.risen})"

    def curve(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        return values if self.times is None else swings(values, _COUNTED, half=True)

    def text(self) -> str:
        by = "" if self.amount is None else f" by {quantity(self.amount, 'm_m')}"
        return f"leave the ground{by}" + ("" if self.times is None else f" {self.times} times")

    def terms(self) -> list[Term]:
        up = along(self.of.velocity, self.of.up)
        rise = f"jnp.maximum({along(self.of.moved, self.of.up)}, 0.0)"
        if self.times is not None:
            beat = f"{0.2} * jnp.maximum(jnp.sin({2 * np.pi:.4g} * state.time), 0.0)"
            return [Term("rise", "jump", 20.0, error(f"{rise} - {beat}"))]
        if self.amount is not None:
            rise = f"jnp.minimum({rise}, {self.amount:g})"
        return [Term("rise", "jump", 20.0, rise), Term("lift", "jump", 2.0, f"jnp.maximum({up}, 0.0)")]


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


@dataclass(frozen=True)
class Risen(Clause):
    """Be higher above the ground than at the beginning, or lower."""

    of: Subject
    sign: int = 1
    amount: float | None = None  # m
    word: str = "get up"
    kind, touches = "up", "height"

    @property
    def metric(self) -> str:
        return "raised_m" if self.sign > 0 else "lowered_m"

    @property
    def goal(self) -> Goal:
        return Goal(0.1, best=0.5) if self.amount is None else Goal.about(self.amount)

    @property
    def quantity(self) -> str:
        return self.of.risen if self.sign > 0 else f"-{self.of.risen}"

    def text(self) -> str:
        return self.word + ("" if self.amount is None else f" by {quantity(self.amount, 'm_m')}")

    def terms(self) -> list[Term]:
        if self.amount is not None:
            return [Term("raised", "up", 20.0, error(f"{self.quantity} - {self.amount:g}"))]
        return [Term("raised", "up", 20.0, self.quantity)]


@dataclass(frozen=True)
class AtHeight(Clause):
    """A body at a height above the ground: about `amount`, or at most with `low`."""

    of: Subject
    body: str
    amount: float  # m
    word: str
    low: bool = False
    kind, touches = "height", "height"

    @property
    def metric(self) -> str:
        return "height_m" if self.body == self.of.name else f"{identifier(self.body)}_height_m"

    @property
    def goal(self) -> Goal:
        if self.low:
            return Goal(high=self.amount, scale=max(self.amount, 0.1))
        return Goal.about(self.amount)

    @property
    def quantity(self) -> str:
        return f"state.height({quoted(self.body)})"

    def text(self) -> str:
        return self.word

    def terms(self) -> list[Term]:
        high = f"{self.quantity} - {self.amount:.4g}"
        name = f"{identifier(self.body)}_height"
        return [Term(name, "height", 20.0, error(f"jnp.maximum({high}, 0.0)" if self.low else high))]


@dataclass(frozen=True)
class Squat(Clause):
    """Go down by `depth`, and with `returns` come up again within 2 s."""

    of: Subject
    depth: float  # m
    returns: bool = False
    exact: bool = False  # whether the sentence gives the depth
    kind, touches = "down", "height"

    @property
    def metric(self) -> str:
        return "down_and_up_m" if self.returns else "down_m"

    @property
    def goal(self) -> Goal:
        if self.exact:
            return Goal.about(self.depth)
        return Goal(0.7 * self.depth, best=self.depth, scale=self.depth)

    @property
    def quantity(self) -> str:
        return f"-{self.of.risen}"

    def value(self, curve: np.ndarray, time: np.ndarray) -> float:
        """Return how far it is down; with `returns` how far it went down and came up again, the smaller one."""
        held = curve[time > time[-1] - HOLD_S]
        return float(min(curve.max(), curve.max() - held.max()) if self.returns else held.min())

    def text(self) -> str:
        return f"go down by {100 * self.depth:.0f} cm{' and come up again' * self.returns}"

    def terms(self) -> list[Term]:
        swing = f" * jnp.sin(jnp.pi * jnp.minimum(state.time / {_CYCLE_S:g}, 1.0)) ** 2" * self.returns
        return [Term("depth", "down", 30.0, error(f"{self.of.risen} + {self.depth:g}{swing}"))]


@dataclass(frozen=True)
class Stepping(Clause):
    """Lift the feet in turn, two steps per second."""

    of: Subject
    feet: tuple[Part, Part]
    high: float = 0.05  # m, a lower step is none
    kind, counts = "part", "end"

    @property
    def metric(self) -> str:
        return "steps_hz"

    @property
    def goal(self) -> Goal:
        return Goal(0.5 * _STEPS_HZ, best=_STEPS_HZ, scale=_STEPS_HZ)

    @property
    def quantity(self) -> str:
        one, other = self.feet
        return along(f"({one.text()} - {other.text()})", self.of.up)

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.feet

    def curve(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        return swings(values, 1.6 * self.high) / np.maximum(time - time[0], _PER_S)

    def text(self) -> str:
        return "lift the feet in turn"

    def terms(self) -> list[Term]:
        swing = f"{1.5 * self.high:.3g} * jnp.sin({np.pi * _STEPS_HZ:.4g} * state.time)"
        return [Term("steps", "part", 20.0, error(f"{self.quantity} - {swing}"))]


@dataclass(frozen=True)
class Lasts(Clause):
    """A phase that takes some time: "stand for 2 seconds"."""

    s: float
    kind, counts = "steady", "end"
    quantity = "state.time"

    @property
    def metric(self) -> str:
        return "lasted_s"

    @property
    def goal(self) -> Goal:
        return Goal(0.95 * self.s, scale=self.s)

    @property
    def seconds(self) -> float:
        return self.s

    def text(self) -> str:
        return f"for {self.s:g} s"

    def terms(self) -> list[Term]:
        return []


# Parts of the body, joints and objects.


@dataclass(frozen=True)
class OfPart(Clause):
    of: Subject
    part: Part

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.part,)

    @property
    def moved(self) -> str:
        return f"({self.part.text()} - {self.part.text('state.initial')})"


@dataclass(frozen=True)
class Raised(OfPart):
    """A part or object that is higher than at the beginning, or lower if `sign` is -1."""

    sign: int = 1
    amount: float | None = None  # m
    most: float = np.inf  # m, above which more does not count for the terms

    @property
    def touches(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.part.name

    @property
    def way(self) -> str:
        return "up" if self.sign > 0 else "down"

    @property
    def metric(self) -> str:
        return f"{self.part.name}_{'raised' if self.sign > 0 else 'lowered'}_m"

    @property
    def goal(self) -> Goal:
        if self.amount is not None:
            return Goal.about(self.amount, _NEAR)
        return Goal(_LENGTH, best=min(0.5, self.most), scale=0.2)

    @property
    def quantity(self) -> str:
        return along(self.moved, [self.sign * c for c in self.of.up])

    def text(self) -> str:
        return f"{self.part.words} {self.way}" + (
            "" if self.amount is None else f" by {quantity(self.amount, 'm_m')}"
        )

    def terms(self) -> list[Term]:
        name, height = f"{self.part.name}_{self.way}", self.quantity
        if self.amount is not None:
            return [Term(name, self.kind, 100.0, error(f"{height} - {self.amount:g}"))]
        height = height if np.isinf(self.most) else f"jnp.minimum({height}, {self.most:g})"
        return [Term(name, self.kind, 20.0, height)]


@dataclass(frozen=True)
class Bent(OfPart):
    """A knee or elbow that is bent more than at the beginning, or less if `sign` is -1; or to an angle."""

    above: str = ""  # body at whose origin the segment above the joint begins
    below: Vector = ()  # [3] m, along the segment below the joint, in the frame of its body
    sign: int = 1
    by: float | None = None  # rad
    to: float | None = None  # rad, of the angle between the segments; 0 is straight
    still: bool = False  # whether the segment above should not turn

    @property
    def touches(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.part.name

    @property
    def way(self) -> str:
        return "bent" if self.sign > 0 else "straight"

    @property
    def metric(self) -> str:
        if self.to is not None:
            return f"{self.part.name}_angle_rad"
        return f"{self.part.name}_{'bent' if self.sign > 0 else 'straightened'}_rad"

    @property
    def goal(self) -> Goal:
        if self.to is not None:
            return Goal.about(self.to, _ANGLE)
        return Goal(0.35, best=1.5, scale=0.5) if self.by is None else Goal.about(self.by, _ANGLE)

    def angle(self, state: str = "state") -> str:
        above = f"({state}.pos({quoted(self.above)}) - {state}.pos({quoted(self.part.place)}))"
        below = f"({state}.rot({quoted(self.part.place)}) @ {array_of(self.below)})"
        return f"jnp.arctan2(jnp.linalg.norm(jnp.cross({above}, {below})), -jnp.dot({above}, {below}))"

    @property
    def quantity(self) -> str:
        if self.to is not None:
            return self.angle()
        return f"{'-' if self.sign < 0 else ''}({self.angle()} - {self.angle('state.initial')})"

    def text(self) -> str:
        amount = "" if self.to is None else f" to {degrees(self.to)}"
        return f"{self.part.words} {self.way}{amount if self.by is None else ' by ' + degrees(self.by)}"

    def terms(self) -> list[Term]:
        asked = self.to if self.to is not None else self.by
        bent = self.quantity if asked is None else error(f"{self.quantity} - {asked:.4g}")
        if self.still:
            rot = f"rot({quoted(self.above)})"
            turned = f"shaping.rotation_error(state.{rot}, state.initial.{rot})"
            bent += f" - 0.5 * shaping.smooth_abs({turned})"
        return [Term(f"{self.part.name}_{self.way}", self.kind, 10.0, bent)]


@dataclass(frozen=True)
class Joint(Clause):
    """A hinge or slide by its name: turned or moved from where it was, or to a value."""

    joint: str
    sign: int = 1
    by: float | None = None  # rad or m
    to: float | None = None
    slides: bool = False
    kind = "joint"

    @property
    def touches(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.joint

    @property
    def metric(self) -> str:
        how = "at" if self.to is not None else ("moved" if self.slides else "turned")
        return f"{identifier(self.joint)}_{how}_{'m' if self.slides else 'rad'}"

    @property
    def goal(self) -> Goal:
        least = _NEAR if self.slides else _ANGLE
        asked = self.to if self.to is not None else self.by
        if asked is not None:
            return Goal.about(asked, least)
        return Goal(0.05, best=0.2) if self.slides else Goal(0.35, best=1.5, scale=0.5)

    @property
    def quantity(self) -> str:
        now = f"state.q({quoted(self.joint)})"
        if self.to is not None:
            return now
        return f"{'-' if self.sign < 0 else ''}({now} - state.initial.q({quoted(self.joint)}))"

    def text(self) -> str:
        asked = self.to if self.to is not None else self.by
        word = " to" if self.to is not None else " by"
        amount = "" if asked is None else f"{word} {quantity(self.sign * asked, self.metric)}"
        return f"joint {self.joint} {'moves' if self.slides else 'turns'}{amount}"

    def terms(self) -> list[Term]:
        asked = self.to if self.to is not None else self.by
        name = f"{identifier(self.joint)}_turned"
        if asked is None:
            return [Term(name, "joint", 5.0, self.quantity)]
        return [Term(name, "joint", 20.0, error(f"{self.quantity} - {asked:.4g}"))]


_TILTS = ("upright", "level")  # directions of an axis that should be vertical


@dataclass(frozen=True)
class Pointed(OfPart):
    """A part that points along `way` in the world: a limb from its beginning to its end, or an axis of a body."""

    way: Vector = UP  # unit vector [3]
    word: str = "upright"
    axis: Vector | None = None  # [3], in the frame of the body; None for a limb

    @property
    def touches(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.part.name

    @property
    def metric(self) -> str:
        return f"{self.part.name}_{'tilt' if self.word in _TILTS else 'direction'}_error_rad"

    @property
    def goal(self) -> Goal:
        return Goal(high=_OFF, scale=0.5)

    @property
    def quantity(self) -> str:
        if self.axis is not None:
            cosine = along(f"(state.rot({quoted(self.part.place)}) @ {array_of(self.axis)})", self.way)
        else:
            limb = f"({self.part.text()} - state.pos({quoted(self.part.base)}))"
            cosine = f"{along(limb, self.way)} / (jnp.linalg.norm({limb}) + 1e-6)"
        return f"jnp.arccos(jnp.clip({cosine}, -1.0, 1.0))"

    def text(self) -> str:
        return f"{self.part.words} {self.word}"

    def terms(self) -> list[Term]:
        name = f"{self.part.name}_{self.word.replace(' ', '_')}"
        if self.axis is None:  # how far it reaches
            reach = f"({self.part.text()} - state.pos({quoted(self.part.base)}))"
            return [Term(name, self.kind, 20.0, along(reach, self.way))]
        return [Term(name, self.kind, 10.0, error(self.quantity))]


@dataclass(frozen=True)
class Near(OfPart):
    """A part or object that is at another one; with `above`, that many m over it; with `apart`, away from it."""

    other: Part = None  # type: ignore[assignment]
    within: float = 0.1  # m between the two, so that they touch
    must: bool = True  # False: only on the way to something else
    above: float = 0.0  # m
    apart: bool = False
    word: str = "at"
    kind = "place"

    @property
    def touches(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.part.name

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.part, self.other)

    @property
    def metric(self) -> str:
        end = "distance_m" if self.apart else "error_m"
        return f"{self.part.name}_{'on' if self.above else 'to'}_{self.other.name}_{end}"

    @property
    def goal(self) -> Goal:
        if not self.must:
            return Goal()
        return Goal(self.within, scale=0.1) if self.apart else Goal(high=self.within, scale=0.2)

    @property
    def limit(self) -> float:
        return self.within

    @property
    def target(self) -> str:
        if not self.above:
            return self.other.text()
        return f"({self.other.text()} + {array_of([self.above * c for c in self.of.up])})"

    @property
    def quantity(self) -> str:
        return f"jnp.linalg.norm({self.part.text()} - {self.target})"

    def text(self) -> str:
        word = "away from" if self.apart else "on" if self.above else self.word
        return (
            f"{self.part.words} {word} {self.other.words}"
            if self.must
            else f"{self.part.words} to {self.other.words}"
        )

    def terms(self) -> list[Term]:
        name = f"{self.part.name}_to_{self.other.name}"
        if self.apart:
            return [Term(f"{name}_apart", "place", 20.0, f"jnp.minimum({self.quantity}, {self.within:g})")]
        return distance_terms(name, self.part.text(), self.target)


@dataclass(frozen=True)
class Shifted(OfPart):
    """An object that moves, along `way` or anywhere."""

    way: Vector | None = None
    amount: float | None = None  # m
    word: str = "moves"
    kind = "place"

    @property
    def touches(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.part.name

    @property
    def metric(self) -> str:
        return f"{self.part.name}_moved_m"

    @property
    def goal(self) -> Goal:
        return Goal(0.1, best=0.5) if self.amount is None else Goal.about(self.amount, _NEAR)

    @property
    def quantity(self) -> str:
        return along(self.moved, self.way) if self.way else self.of.horizontal(self.moved)

    def text(self) -> str:
        return f"{self.part.words} {self.word}" + (
            "" if self.amount is None else f" by {quantity(self.amount, 'm_m')}"
        )

    def terms(self) -> list[Term]:
        name = f"{self.part.name}_moved"
        if self.amount is not None:
            return [Term(name, self.kind, 50.0, error(f"{self.quantity} - {self.amount:g}"))]
        return [Term(name, self.kind, 20.0, self.quantity)]


@dataclass(frozen=True)
class Gripped(Clause):
    """Fingers that touch something: at least two of them, or all of one or two."""

    fingers: tuple[str, ...]  # touch parts
    must: bool = True  # False: only on the way to something else
    kind = "hold"

    @property
    def metric(self) -> str:
        return "fingers_in_contact"

    @property
    def goal(self) -> Goal:
        return Goal(min(2, len(self.fingers)) - 0.5, scale=1.0) if self.must else Goal()

    @property
    def quantity(self) -> str:
        return " + ".join(f"1.0 * (state.touch({quoted(f)}) > 0.05)" for f in self.fingers)

    def text(self) -> str:
        return "fingers in contact" if self.must else "fingers closing"

    def terms(self) -> list[Term]:
        grip = f"sum(jnp.tanh(state.touch(finger) / 5.0) for finger in {tuple_of(self.fingers)})"
        return [Term("grip", "hold", 3.0, f"{grip} / {len(self.fingers)}")]


@dataclass(frozen=True)
class Waved(OfPart):
    """A part that swings from side to side, relative to the trunk: `times`, or once per second."""

    trunk: str = ""
    side: Vector = (0.0, 1.0, 0.0)  # unit vector [3] to the left, in the world frame
    far: float = 0.1  # m to either side
    times: int | None = None
    counts = "end"

    @property
    def metric(self) -> str:
        return f"{self.part.name}_{'waves_hz' if self.times is None else 'waves'}"

    @property
    def goal(self) -> Goal:
        if self.times is not None:
            return Goal(self.times - 0.5, self.times + 1.0, scale=float(self.times))
        return Goal(0.5 * _WAVES_HZ, best=_WAVES_HZ, scale=_WAVES_HZ)

    @property
    def quantity(self) -> str:
        away = (f"({self.part.text(s)} - {s}.pos({quoted(self.trunk)}))" for s in ("state", "state.initial"))
        return along(f"({' - '.join(away)})", self.side)

    @property
    def seconds(self) -> float:
        return 1.5 if self.times is None else self.times / _WAVES_HZ + 0.5

    def curve(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        there_and_back = 0.5 * swings(values, self.far)
        return (
            there_and_back if self.times is not None else there_and_back / np.maximum(time - time[0], _PER_S)
        )

    def text(self) -> str:
        return f"{self.part.words} waves" + ("" if self.times is None else f" {self.times} times")

    def terms(self) -> list[Term]:
        swing = f"{self.far:.2g} * jnp.sin({2 * np.pi * _WAVES_HZ:.4g} * state.time)"
        return [Term(f"{self.part.name}_waves", "part", 20.0, error(f"{self.quantity} - {swing}"))]


@dataclass(frozen=True)
class Never(Clause):
    """What should not happen at any time of a phase: "without bending the knees"."""

    what: Clause
    counts = "worst"

    @property
    def kind(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.what.kind

    @property
    def metric(self) -> str:
        return f"never_{self.what.metric}"

    @property
    def goal(self) -> Goal:
        if isinstance(self.what, Near):
            return Goal(self.what.limit, scale=0.1)
        return Goal(high=self.what.limit, scale=max(self.what.limit, 0.1))

    @property
    def quantity(self) -> str:
        return self.what.quantity

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.what.parts

    def curve(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        curve = self.what.curve(values, time)
        return curve if isinstance(self.what, Near) else np.abs(curve)

    def text(self) -> str:
        return f"never {self.what.text()}"

    def terms(self) -> list[Term]:
        name = f"never_{self.what.terms()[0].name}"
        if isinstance(self.what, Near):
            return [Term(name, self.kind, 20.0, f"jnp.minimum({self.quantity}, {2 * self.what.limit:g})")]
        return [Term(name, self.kind, 10.0, error(self.quantity))]


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
    names = {(1, 0, 0): "x", (-1, 0, 0): "minus_x", (0, 1, 0): "y", (0, -1, 0): "minus_y", (0, 0, 1): "z"}
    return [
        Term(
            f"along_{names.get(tuple(int(c) for c in way), 'minus_z')}",
            "forward",
            3.0,
            f"jnp.tanh({along('state.com_vel', way)})",
        )
        for way in ways
    ] + upright_terms(of, False)
