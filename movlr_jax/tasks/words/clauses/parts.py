"""Clauses of parts of the body, joints and objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.rewards.term import Term, along, array_of, identifier, quoted, tuple_of
from movlr_jax.tasks.words.clauses.base import (
    ANGLE,
    LENGTH,
    NEAR,
    OFF,
    PER_S,
    UP,
    WAVES_HZ,
    Clause,
    Goal,
    Subject,
    Vector,
    degrees,
    distance_terms,
    error,
    swings,
)
from movlr_jax.tasks.words.parts import Part


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
            return Goal.about(self.amount, NEAR)
        return Goal(LENGTH, best=min(0.5, self.most), scale=0.2)

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
            return Goal.about(self.to, ANGLE)
        return Goal(0.35, best=1.5, scale=0.5) if self.by is None else Goal.about(self.by, ANGLE)

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
        least = NEAR if self.slides else ANGLE
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


TILTS = ("upright", "level")  # directions of an axis that should be vertical


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
        return f"{self.part.name}_{'tilt' if self.word in TILTS else 'direction'}_error_rad"

    @property
    def goal(self) -> Goal:
        return Goal(high=OFF, scale=0.5)

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
        return Goal(0.1, best=0.5) if self.amount is None else Goal.about(self.amount, NEAR)

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
        return Goal(0.5 * WAVES_HZ, best=WAVES_HZ, scale=WAVES_HZ)

    @property
    def quantity(self) -> str:
        away = (f"({self.part.text(s)} - {s}.pos({quoted(self.trunk)}))" for s in ("state", "state.initial"))
        return along(f"({' - '.join(away)})", self.side)

    @property
    def seconds(self) -> float:
        return 1.5 if self.times is None else self.times / WAVES_HZ + 0.5

    def curve(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        there_and_back = 0.5 * swings(values, self.far)
        return (
            there_and_back if self.times is not None else there_and_back / np.maximum(time - time[0], PER_S)
        )

    def text(self) -> str:
        return f"{self.part.words} waves" + ("" if self.times is None else f" {self.times} times")

    def terms(self) -> list[Term]:
        swing = f"{self.far:.2g} * jnp.sin({2 * np.pi * WAVES_HZ:.4g} * state.time)"
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
