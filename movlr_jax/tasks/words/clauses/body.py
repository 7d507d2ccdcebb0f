"""Clauses of the whole body: travel, turns, jumps, heights, steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.rewards.term import Term, along, array_of, identifier, quoted
from movlr_jax.tasks.words.clauses.base import (
    AT_ONCE,
    COUNTED,
    CYCLE_S,
    HOLD_S,
    OFF,
    PER_S,
    RATE,
    STEPS_HZ,
    Clause,
    Goal,
    Subject,
    Vector,
    degrees,
    error,
    side,
    swings,
)
from movlr_jax.tasks.words.parts import Part


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
        return (
            1.5 if self.distance is None else 1.5 * self.distance / self.speed + 0.5
        )  # it has to start and stop

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
        return covered if self.distance is not None else covered / np.maximum(time - time[0], PER_S)

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
                Term(
                    "progress",
                    "forward",
                    5.0,
                    f"jnp.clip({self.pace} / {goal}, -1.0, 1.0) * jnp.tanh({left} / 0.15)",
                ),
                Term("remaining", "place", 10.0, error(left)),
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
        return 1.5 if self.angle is None else self.angle / RATE + 0.5

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
    if angle <= AT_ONCE:
        return f"{of.yaw} {sign} {angle:g}" if angle else of.yaw
    off = f"{of.yaw} {sign} jnp.minimum({RATE:g} * state.time, {angle:g})"
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
        return Goal(high=OFF, scale=1.0)

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
        return values if self.times is None else swings(values, COUNTED, half=True)

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
        swing = f" * jnp.sin(jnp.pi * jnp.minimum(state.time / {CYCLE_S:g}, 1.0)) ** 2" * self.returns
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
        return Goal(0.5 * STEPS_HZ, best=STEPS_HZ, scale=STEPS_HZ)

    @property
    def quantity(self) -> str:
        one, other = self.feet
        return along(f"({one.text()} - {other.text()})", self.of.up)

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.feet

    def curve(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        return swings(values, 1.6 * self.high) / np.maximum(time - time[0], PER_S)

    def text(self) -> str:
        return "lift the feet in turn"

    def terms(self) -> list[Term]:
        swing = f"{1.5 * self.high:.3g} * jnp.sin({np.pi * STEPS_HZ:.4g} * state.time)"
        return [Term("steps", "part", 20.0, error(f"{self.quantity} - {swing}"))]


@dataclass(frozen=True)
class Lasts(Clause):
    """A phase that takes some time: "stand for 2 seconds"."""

    s: float
    kind, counts = "steady", "end"

    @property
    def metric(self) -> str:
        return "lasted_s"

    @property
    def quantity(self) -> str:
        return "state.time"

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
