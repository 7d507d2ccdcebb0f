"""What a clause is measured by: the body, the quantity, what counts as a success, and the values that count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from movlr_jax._util.quantities import span
from movlr_jax.biomech.world import World
from movlr_jax.rewards.term import Term, along, entry, identifier, quoted
from movlr_jax.tasks.words.parts import Part

Vector = tuple[float, ...]
Curve = Callable[[np.ndarray, np.ndarray], np.ndarray]  # values [T] and time [T] s -> measure [T]
UP: Vector = (0.0, 0.0, 1.0)
HOLD_S = 0.5  # s at the end of a phase in which what should be reached is measured
SHARE = 0.1  # tolerance of an amount, as a share of it
LENGTH, ANGLE, NEAR = 0.05, np.deg2rad(5.0), 0.02  # smallest tolerances: m, rad, m between surfaces
LEG, _FEET = 60.0, 20.0  # weights of a leg that goes up and of the balance on the others, and of that on all feet
PER_S = 0.2  # s, the shortest time over which a mean speed is taken


@dataclass(frozen=True)
class Subject:
    """The body that the words move, and the world around it at the start. Its properties are expressions."""

    name: str
    up: Vector = UP  # unit vector [3] against gravity, world frame
    level: bool = True  # whether the ground is level everywhere
    height: float = 0.0  # m above the ground
    rails: tuple[tuple[str, float], ...] = ()  # joints of its base with ends and a motor; half of their ranges, m

    @property
    def moved(self) -> str:
        """How far it is from where it began [3] m."""
        return f"(state.pos({quoted(self.name)}) - state.initial.pos({quoted(self.name)}))"

    @property
    def risen(self) -> str:
        """How far it is higher above the ground than at the beginning, m."""
        if self.level:
            return along(self.moved, self.up)
        return f"(state.height({quoted(self.name)}) - state.initial.height({quoted(self.name)}))"

    @property
    def turned(self) -> str:
        """Its rotation [3, 3] since the beginning."""
        return f"(state.rot({quoted(self.name)}) @ state.initial.rot({quoted(self.name)}).T)"

    @property
    def yaw(self) -> str:
        """The angle about the vertical by which it has turned, rad, left positive."""
        ahead, left, _ = World(np.asarray(self.up)).frame
        return f"jnp.arctan2({entry(self.turned, left, ahead)}, {entry(self.turned, ahead, ahead)})"

    @property
    def tilt(self) -> str:
        """Its tilt since the beginning, rad."""
        return f"jnp.arccos(jnp.clip({entry(self.turned, self.up, self.up)}, -0.999, 0.999))"

    def horizontal(self, vector: str) -> str:
        """Return the expression of the horizontal length of a vector [3]."""
        ahead, left, _ = World(np.asarray(self.up)).frame
        return f"jnp.hypot({along(vector, ahead)}, {along(vector, left)})"


@dataclass(frozen=True)
class Stance:
    """On which feet a body stands, as some of its legs may do something else."""

    on: Part  # the middle of the soles on which it stands
    lifts: bool  # whether other feet are up
    lifted: tuple[str, ...]  # touch parts of these
    newtons: float  # its weight

    def terms(self, up: Vector) -> list[Term]:
        """Return the terms of balance: its capture point over the feet, and no force on those that are up."""
        rows = World(np.asarray(up)).frame[:2].tolist()
        on = f"({self.on.text()})[:2]" if up == UP else f"jnp.array({rows}) @ ({self.on.text()})"
        weight = LEG if self.lifts else _FEET
        terms = [Term("carried", "part", weight, error(f"jnp.linalg.norm(state.capture_point - {on})"))]
        if self.lifted:
            pressed = " + ".join(f"state.touch({quoted(name)})" for name in self.lifted)
            terms.append(Term("unloaded", "part", 10.0, f"-({pressed}) / {self.newtons:.3g}"))
        return terms


@dataclass(frozen=True)
class Goal:
    """What counts as a success: a measure from `low` to `high`; more is better up to `best`."""

    low: float = -np.inf
    high: float = np.inf
    best: float = -np.inf
    scale: float = 0.1  # of the measure, for scores

    def short(self, value: float) -> float:
        """Return by how much a value misses it; 0 for a success."""
        return max(self.low - value, value - self.high, 0.0)

    def score(self, value: float) -> float:
        """Return 0 for a success, less for a miss, and up to 5 where more than enough is better."""
        extra = np.clip((value - self.low) / max(self.best - self.low, 1e-6), 0.0, 1.0)
        return (5.0 * float(extra) if self.best > self.low else 0.0) - 20.0 * self.short(value) / self.scale

    def text(self, metric: str, beside: Sequence[float] = ()) -> str:
        """Return it in words; `beside`: values that are written next to it, in its unit."""
        return span(self.low, self.high, metric, beside)


def about(amount: float | None, least: float, free: Goal) -> Goal:
    """Return the goal of an amount, with a tolerance of at least `least`; `free` if no amount is said.

    The tolerance is at most half the amount, so that to do nothing is no success.
    """
    if amount is None:
        return free
    tolerance = min(max(SHARE * abs(amount), least), 0.5 * abs(amount) or least)
    return Goal(amount - tolerance, amount + tolerance, scale=max(abs(amount), least))


def as_it_is(values: np.ndarray, time: np.ndarray) -> np.ndarray:
    return values


def unwrapped(values: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Return an angle without jumps of a whole turn, from its beginning."""
    return np.unwrap(values) - values[0]


def integral(values: np.ndarray, time: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(time))])


def per_second(curve: Curve) -> Curve:
    """Return the mean rate since the beginning, of a curve that grows."""
    return lambda values, time: curve(values, time) / np.maximum(time - time[0], PER_S)


def swings(far: float, up: bool = False, each: float = 1.0) -> Curve:
    """Return the curve of how often values have swung to one side and back by `far` or more, times `each`.

    up: only the swings that go up count.
    """

    def counted(values: np.ndarray, time: np.ndarray) -> np.ndarray:
        count, way, last, counts = 0, 0, values[0], np.zeros(len(values))  # last: the farthest on its way
        for i, at in enumerate(values):
            if way * (at - last) >= 0 and way:
                last = at
            elif abs(at - last) >= far:
                way = 1 if at > last else -1
                count, last = count + (not up or way > 0), at
            counts[i] = each * count
        return counts

    return counted


@dataclass(frozen=True)
class Measure:
    """A row of the table of clauses: how a clause is said, measured, judged and rewarded.

    `quantity` is an expression of a reward program, in `state` and `state.initial`. The terms use it as it is; the
    measure is the same expression over the steps of a phase of an episode, with the state at which the phase began
    as `state.initial`. So the two cannot disagree, and a measure is never clipped.
    """

    text: str
    metric: str  # its name, with the unit at the end
    quantity: str
    goal: Goal
    terms: tuple[Term, ...] = ()
    kind: str = "part"  # of what a diagnosis says is lacking
    curve: Curve = as_it_is  # what is made of the values of `quantity` over a phase
    # what counts of a curve: the worst of its last HOLD_S (held), its end, its largest, least or worst value, or how
    # far it went and came back (returned)
    counts: str = "held"
    changes: str = ""  # what it changes, so that a later phase may undo it: place, heading, height, a part
    state_tells: bool = True  # whether a single state tells that it is done
    seconds: float = 1.5  # how long it takes about
    parts: tuple[Part, ...] = ()
    limit: float = 0.0  # most that it may be where the words say "without"; 0: that of its unit

    def value(self, curve: np.ndarray, time: np.ndarray) -> float:
        """Return the value of a phase that counts, from its curve [T]."""
        low, high = self.goal.low, self.goal.high
        held = curve if self.counts == "worst" else curve[time > time[-1] - HOLD_S]
        if self.counts == "end":
            return float(curve[-1])
        if self.counts == "largest":
            return float(curve.max())
        if self.counts == "least":
            return float(curve.min())
        if self.counts == "returned":
            return float(min(curve.max(), curve.max() - held.max()))
        if np.isfinite(low) and np.isfinite(high):  # an amount: the farthest from it
            return float(held[np.abs(held - 0.5 * (low + high)).argmax()])
        return float(held.min() if np.isinf(high) else held.max())

    def so_far(self, curve: np.ndarray) -> np.ndarray:
        """Return the value that counts if the phase ends at each step of a curve [T]."""
        if self.counts == "largest" or (self.counts == "worst" and np.isfinite(self.goal.high)):
            return np.maximum.accumulate(curve)
        if self.counts in ("worst", "least"):
            return np.minimum.accumulate(curve)
        peak = np.maximum.accumulate(curve)
        return np.minimum(peak, peak - curve) if self.counts == "returned" else curve

    def satisfied(self, curve: np.ndarray) -> np.ndarray:
        """Return at which steps of a curve [T] it is satisfied, so that the next phase may begin."""
        curve = self.so_far(curve)
        return (self.goal.low <= curve) & (curve <= self.goal.high)

    def rest(self, curve: np.ndarray) -> np.ndarray:
        """Return how far it is from the middle of its goal, or how little beyond its bound, in tolerances [T]."""
        low, high, curve = self.goal.low, self.goal.high, self.so_far(curve)
        if self.metric == "lasted_s" or self.counts == "worst" or (np.isinf(low) and np.isinf(high)):
            return np.zeros(len(curve))
        if np.isfinite(low) and np.isfinite(high):
            return np.abs(curve - 0.5 * (low + high)) / (0.5 * (high - low))
        return (curve if np.isinf(low) else -curve) / self.goal.scale

    def asked(self, value: float, between: str = "{}: {} (asked {})") -> str:
        """Return what was asked and measured, in words."""
        found = span(value, value, self.metric, (self.goal.low, self.goal.high))
        return between.format(self.text, found, self.goal.text(self.metric, (value,)))

    @property
    def bound(self) -> str | None:
        """Expression of whether it is done, empty if nothing is asked; None if a state does not tell."""
        if not self.state_tells or not self.changes or self.counts in ("worst", "largest", "least"):
            return None
        if np.isfinite(self.goal.low):  # more than enough has passed it
            return f"({self.quantity} >= {self.goal.low:.4g})"
        return f"({self.quantity} <= {self.goal.high:.4g})" if np.isfinite(self.goal.high) else ""


def error(expression: str) -> str:
    return f"-shaping.smooth_abs({expression})"


def rail_term(joint: str, half: float) -> Term:
    """Return the term that keeps a body on a rail near where it began, away from the ends. half: of its length, m."""
    gone = f"(state.q({quoted(joint)}) - state.initial.q({quoted(joint)}))"
    return Term(f"{identifier(joint)}_centred", "part", 10.0, f"-jnp.square({gone} / {half:.4g})")


def distance_terms(name: str, a: str, b: str) -> list[Term]:
    """Return terms for the distance of two positions, which are expressions of a reward program."""
    apart = f"jnp.linalg.norm({a} - {b})"
    return [
        Term(name, "place", 20.0, error(apart)),
        Term(f"{name}_near", "place", 5.0, f"shaping.gaussian({apart}, 0.1)"),
    ]


def upright_terms(of: Subject, turns: bool, keeps_height: bool = True) -> list[Term]:
    """Return the terms of balance: keep the height, and the posture or, for a body that turns, the tilt."""
    rot = f"rot({quoted(of.name)})"
    turned = of.tilt if turns else f"shaping.rotation_error(state.{rot}, state.initial.{rot})"
    level = Term("level", "upright", 10.0, error(turned))
    height = Term("height", "height", 30.0, error(f"jnp.minimum({of.risen}, 0.0)"))
    return [height, level] if keeps_height else [level]
