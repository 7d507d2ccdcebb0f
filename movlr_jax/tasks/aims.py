"""What parts of a body should do, read from words: `raise the right arm`, `keep the pole upright`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models.from_path import above
from movlr_jax.rewards.term import Term, along, array_of, quoted
from movlr_jax.tasks.needs import HOLD_S, Need
from movlr_jax.tasks.parts import Part, Parts
from movlr_jax.tasks.readout import Readout

UP = (0.0, 0.0, 1.0)
_LIFTED = 0.05  # m, a smaller rise is none
_OFF = 0.35  # rad, an angle to the requested direction that a diagnosis names
_NEAR = 0.1  # m, within which one part is at another
_LONG = 0.03  # m, a shorter segment has no direction
_MIDDLE = 0.01  # m, from the middle of the body: a part there is on no side
_WAVES_HZ = 1.0  # of a part that waves
_WAVE = 0.25  # how far it swings to either side, as a share of its distance from the trunk at the start
_VERBS = {
    "raise": "raise lift elevate",
    "lower": "lower",
    "balance": "balance",
    "touch": "touch reach hit press tap",
    "hold": "hold keep with",
    "point": "point stretch extend swing",
    "wave": "wave",
    "bend": "bend flex",
    "straighten": "straighten",
    "move": "move bring put place push pull carry",
}
_AIMING = ("raise", "hold", "point", "touch")  # "reach forward with the hand" has no second part
NEGATIONS = ("not", "no", "without", "never", "avoid")
_APART = ("away", "from", "between", "past", "over", "around")
_UPRIGHT = ("upright", "vertical", "vertically", "balanced")
_LEVEL = ("level", "horizontal", "horizontally", "flat")
_HIGH = ("up", "upward", "upwards", "high", "overhead", "raised", "lifted")
_LOW = ("down", "downward", "downwards", "lowered")
_TILTS = ("upright", "level")  # directions of an axis that should be vertical
_BENT = ("bent", "flexed")
_STRAIGHT = ("straight", "straightened", "extended")
_STATES = {*_UPRIGHT, *_LEVEL, *_HIGH, *_LOW, *_BENT, *_STRAIGHT, "sideways", "forward", "forwards"}
_HINGES = {"arm": "elbow", "arms": "elbows", "leg": "knee", "legs": "knees"}  # of limbs that bend
_ASIDE = ("sideways", "side", "aside")
_AT = ("to", "towards", "toward", "onto", "on", "at", "against", "with")
_BETWEEN = re.compile(r"[,;:]|\.(?!\d)|\b(?:and|then|while|until)\b")


@dataclass(frozen=True)
class _OfPart:
    """What a part should do."""

    part: Part
    grows = False  # whether its measure should grow; if not, it is an error

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.part,)

    def score(self, value: float) -> float:
        """Return what its measure adds to the score of a motion; `default_score` counts errors."""
        return 0.0

    def measure(self, read: Readout) -> np.ndarray:
        """Return its measure at each step of an episode [T]."""
        raise NotImplementedError

    def value(self, read: Readout, held: np.ndarray, fell: bool) -> float:
        """Return the worst value at the steps `held` [T] of an episode."""
        return float((np.min if self.grows else np.max)(self.measure(read)[held]))


@dataclass(frozen=True)
class Raised(_OfPart):
    """A part that is higher than at the start, or lower if `sign` is -1; more than `most` does not count."""

    sign: int = 1
    most: float = float("inf")  # m
    up: tuple[float, ...] = UP  # unit vector [3]
    kind, grows = "part", True

    @property
    def way(self) -> str:
        return "up" if self.sign > 0 else "down"

    @property
    def metric(self) -> str:
        return f"{self.part.name}_{'raised' if self.sign > 0 else 'lowered'}_m"

    def text(self) -> str:
        return f"{self.part.words} {self.way}"

    def score(self, value: float) -> float:
        return 20.0 * value

    def measure(self, read: Readout) -> np.ndarray:
        """Return how many m it is above the start, or below, in an episode [T]; at most `most`."""
        height = self.sign * (self.part.at(read) @ np.asarray(self.up))
        return np.minimum(height - height[0], self.most)

    def need(self, value: float) -> Need | None:
        return None if value >= _LIFTED else Need(f"its {self.part.words} does not go {self.way}", self.kind)

    def terms(self) -> list[Term]:
        moved = f"({self.part.text()} - {self.part.text('state.initial')})"
        height = along(moved, [self.sign * c for c in self.up])
        height = height if np.isinf(self.most) else f"jnp.minimum({height}, {self.most:g})"
        return [Term(f"{self.part.name}_{self.way}", self.kind, 20.0, height)]


@dataclass(frozen=True)
class Bent(_OfPart):
    """A joint that is bent more than at the start, or less if `sign` is -1; more than `most` does not count."""

    above: str  # body at whose origin the segment above the joint begins
    below: tuple[float, ...]  # [3] m, along the segment below the joint, in the frame of its body
    size: float  # m^2, product of the lengths of both segments
    sign: int = 1
    most: float = float("inf")  # rad
    still: bool = False  # whether the segment above does not turn
    kind, grows = "part", True

    @property
    def way(self) -> str:
        return "bent" if self.sign > 0 else "straight"

    @property
    def metric(self) -> str:
        return f"{self.part.name}_{'bent' if self.sign > 0 else 'straightened'}_rad"

    def text(self) -> str:
        return f"{self.part.words} {self.way}"

    def score(self, value: float) -> float:
        return 10.0 * value

    def measure(self, read: Readout) -> np.ndarray:
        """Return by how many rad it is bent more than at the start, or less, in an episode [T]; at most `most`."""
        joint = read.pos(self.part.place)
        along_both = (read.pos(self.above) - joint) * (read.rot(self.part.place) @ np.asarray(self.below))
        bent = self.sign * np.arccos(np.clip(-along_both.sum(axis=-1) / self.size, -1.0, 1.0))
        return np.minimum(bent - bent[0], self.most)

    def need(self, value: float) -> Need | None:
        said = f"its {self.part.words} does not {'bend' if self.sign > 0 else 'straighten'}"
        return None if value >= min(_OFF, 0.5 * self.most) else Need(said, self.kind)

    def terms(self) -> list[Term]:
        def angle(state: str) -> str:
            above = f"({state}.pos({quoted(self.above)}) - {state}.pos({quoted(place)}))"
            below = f"({state}.rot({quoted(place)}) @ {array_of(self.below)})"
            return f"jnp.arccos(jnp.clip(-jnp.dot({above}, {below}) / {self.size:.6g}, -0.999, 0.999))"

        place, sign = self.part.place, "-" if self.sign < 0 else ""
        bent = f"{sign}{angle('state')}"
        if np.isfinite(self.most):
            bent = f"jnp.minimum({sign}({angle('state')} - {angle('state.initial')}), {self.most:.4g})"
        if self.still:
            rot = f"rot({quoted(self.above)})"
            turned = f"shaping.rotation_error(state.{rot}, state.initial.{rot})"
            bent += f" - 0.5 * shaping.smooth_abs({turned})"
        return [Term(f"{self.part.name}_{self.way}", self.kind, 10.0, bent)]


@dataclass(frozen=True)
class Pointed(_OfPart):
    """A part that points along `way` in the world: a limb from its beginning to its end, or an axis of a body."""

    way: tuple[float, ...]  # unit vector [3]
    word: str
    axis: tuple[float, ...] | None = None  # [3], in the frame of the body; None for a limb
    kind = "part"

    @property
    def metric(self) -> str:
        return f"{self.part.name}_{'tilt' if self.word in _TILTS else 'direction'}_error_rad"

    def text(self) -> str:
        return f"{self.part.words} {self.word}"

    def measure(self, read: Readout) -> np.ndarray:
        """Return the angle in rad to the requested direction in an episode [T]."""
        if self.axis is None:
            pointer = self.part.at(read) - read.pos(self.part.base)
        else:
            pointer = read.rot(self.part.place) @ np.asarray(self.axis)
        cosine = pointer @ np.asarray(self.way) / np.maximum(np.linalg.norm(pointer, axis=-1), 1e-9)
        return np.arccos(np.clip(cosine, -1.0, 1.0))

    def need(self, value: float) -> Need | None:
        said = f"its {self.part.words} ends {np.rad2deg(value):.0f} degrees from {self.word}"
        return Need(said, self.kind) if value > _OFF else None

    def terms(self) -> list[Term]:
        name = f"{self.part.name}_{self.word}"
        if self.axis is None:  # how far it reaches
            reach = f"({self.part.text()} - state.pos({quoted(self.part.base)}))"
            return [Term(name, self.kind, 20.0, along(reach, self.way))]
        cosine = along(f"(state.rot({quoted(self.part.place)}) @ {array_of(self.axis)})", self.way)
        angle = f"jnp.arccos(jnp.clip({cosine}, -0.999, 0.999))"
        return [Term(name, self.kind, 10.0, f"-shaping.smooth_abs({angle})")]


@dataclass(frozen=True)
class Met(_OfPart):
    """A part that is at another one."""

    other: Part
    kind = "place"

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.part, self.other)

    @property
    def metric(self) -> str:
        return f"{self.part.name}_to_{self.other.name}_error_m"

    def text(self) -> str:
        return f"{self.part.words} at {self.other.words}"

    def measure(self, read: Readout) -> np.ndarray:
        """Return the distance in m in an episode [T]."""
        return np.linalg.norm(self.part.at(read) - self.other.at(read), axis=-1)

    def need(self, value: float) -> Need | None:
        said = f"its {self.part.words} ends {100 * value:.0f} cm from its {self.other.words}"
        return Need(said, self.kind) if value > _NEAR else None

    def terms(self) -> list[Term]:
        name = f"{self.part.name}_to_{self.other.name}"
        return distance_terms(name, self.part.text(), self.other.text())


@dataclass(frozen=True)
class Waved(_OfPart):
    """A part that swings from side to side, relative to the trunk."""

    trunk: str
    side: tuple[float, ...]  # unit vector [3] to the left, in the world frame
    far: float  # m to either side
    kind = "part"

    @property
    def metric(self) -> str:
        return f"{self.part.name}_waves_hz"

    def text(self) -> str:
        return f"{self.part.words} waves"

    def score(self, value: float) -> float:
        return 10.0 * min(value, _WAVES_HZ)

    def value(self, read: Readout, held: np.ndarray, fell: bool) -> float:
        """Return how often per s it swings to one side and back in an episode [T], each time by `far` or more.

        Swings are counted over the whole episode; after a fall, none.
        """
        if fell:
            return 0.0
        sides = (self.part.at(read) - read.pos(self.trunk)) @ np.asarray(self.side)
        swings, way, last = 0, 0, sides[0]  # last: where it was farthest on its way
        for at in sides:
            if way * (at - last) >= 0 and way:
                last = at
            elif abs(at - last) >= self.far:
                swings, way, last = swings + 1, (1 if at > last else -1), at
        return swings / (2.0 * max(float(read.time[-1] - read.time[0]), 1e-6))

    def need(self, value: float) -> Need | None:
        return None if value >= 0.5 * _WAVES_HZ else Need(f"its {self.part.words} does not wave", self.kind)

    def terms(self) -> list[Term]:
        away = (f"({self.part.text(s)} - {s}.pos({quoted(self.trunk)}))" for s in ("state", "state.initial"))
        aside = along(f"({' - '.join(away)})", self.side)
        swing = f"{self.far:.2g} * jnp.sin({2 * np.pi * _WAVES_HZ:.4g} * state.time)"
        return [Term(f"{self.part.name}_waves", self.kind, 20.0, f"-shaping.smooth_abs({aside} - {swing})")]


Aim = Raised | Bent | Pointed | Met | Waved


def distance_terms(name: str, a: str, b: str) -> list[Term]:
    """Return terms for the distance of two positions, which are expressions of a reward program."""
    apart = f"jnp.linalg.norm({a} - {b})"
    return [
        Term(name, "place", 20.0, f"-shaping.smooth_abs({apart})"),
        Term(f"{name}_near", "place", 5.0, f"shaping.gaussian({apart}, 0.1)"),
    ]


def aim_metrics(aims: Sequence[Aim], read: Readout, fell: bool) -> dict[str, float]:
    """Return the worst value of each aim in the last HOLD_S of an episode [T]; after a fall also at its start."""
    held = read.time > read.time[-1] - HOLD_S
    held[0] |= fell
    return {aim.metric: aim.value(read, held, fell) for aim in aims}


class Reader:
    """Reads aims from a description.

    parts: finds parts by words; start: at the start posture; ways: word -> direction [3] in the world frame, also of
    "up"; whole:
    bodies whose motion other words describe; trunk: the body on whose left and right the limbs are.
    """

    def __init__(
        self,
        parts: Parts,
        start: mujoco.MjData,
        ways: Mapping[str, np.ndarray],
        whole: Sequence[str],
        trunk: str,
    ):
        self._parts, self._start, self._ways, self._whole, self._trunk = parts, start, ways, whole, trunk
        self._up = _floats(ways["up"])
        self._aims: list[Aim] = []
        self._last: list[Part] = []  # those that "it" means
        self._verb = ""

    def read(self, text: str, travels: bool) -> tuple[list[Aim], list[str], str]:
        """Return the aims of a text, the clauses that they come from, and the text without these clauses.

        travels: whether the body should also go somewhere, so that only what it holds meanwhile is an aim.
        """
        clauses, left = [], []
        for clause in chain.from_iterable(map(_with_states, _BETWEEN.split(text))):
            found = self._clause(re.findall(r"[a-z0-9]+", clause), travels)
            self._aims += found
            (clauses if found else left).append(clause)
        alone = all(isinstance(aim, Bent) for aim in self._aims)
        aims = [
            replace(aim, still=alone and aim.part.words.endswith("elbow")) if isinstance(aim, Bent) else aim
            for aim in self._aims  # legs that stand turn their thighs
        ]
        return (
            list(dict.fromkeys(aims)),
            [clause.strip() for clause in clauses],
            ", ".join(left) if clauses else text,
        )

    def meeting(self, text: str) -> list[Aim]:
        """Return that two bodies or sites meet, if a text names exactly two."""
        words = re.findall(r"[a-z0-9]+", text)
        named = [] if {*words} & {*NEGATIONS, *_APART} else self._parts.called(words)
        return [Met(named[1], named[0])] if len(named) == 2 else []

    def standing_on(self, words: str) -> list[Aim]:
        """Return what it means to stand on one leg: the other foot is up."""
        other = "left" if "right" in words else "right"
        try:
            feet, _ = self._parts.begin([other, "foot"])
        except UserError:  # it has no other foot
            return []
        return [Raised(foot, up=self._up) for foot in feet if other in foot.words]

    def _clause(self, words: Sequence[str], travels: bool) -> list[Aim]:
        for i, word in enumerate(words):
            verb = next((v for v, forms in _VERBS.items() if is_form(word, forms)), "")
            if (
                not verb
                or {*words[max(0, i - 3) : i]} & {*NEGATIONS}
                or (travels and verb not in ("hold", "wave"))
            ):
                continue
            self._verb = verb
            after = words[i + 1 :]
            if found := self._waves(self._waving(after)) if verb == "wave" else self._aims_of(verb, after):
                return found
        return self._aims_of(self._verb, words) if self._verb and self._aims else []

    def _waving(self, after: Sequence[str]) -> list[Part]:
        """Return the first parts that `after` names, as in "goodbye with both hands", or else the right hand."""
        named = (self._parts.begin(after[i:])[0] for i in range(len(after)))
        return next(filter(None, named), None) or self._parts.begin(["hand"], "right")[0]

    def _waves(self, parts: Sequence[Part]) -> list[Aim]:
        """Return that the parts are up and wave."""
        side, trunk = _floats(self._ways["left"]), self._start.body(self._trunk).xpos
        aims: list[Aim] = []
        for part in (part for part in parts if part.place not in self._whole):
            away = float(np.linalg.norm(part.now(self._start) - trunk))
            aims += [
                Raised(part, most=round(away, 2), up=self._up),
                Waved(part, self._trunk, side, round(_WAVE * away, 2)),
            ]
        return aims

    def _aims_of(self, verb: str, after: Sequence[str]) -> list[Aim]:
        if verb == "wave":
            return self._waves(self._parts.begin(after)[0])
        up = after[:1] == ["up"]
        after = after[1:] if up else after
        if after[:1] == ["with"]:
            after = after[1:]
        if bent := [word for word in after[:2] if word in _BENT]:  # "a bent elbow"
            after = [*(word for word in after if word not in _BENT), *bent]
        if bends := verb in ("bend", "straighten"):
            after = [_HINGES.get(word, word) for word in after]
        if after[:1] in (["it"], ["them"]):
            parts, rest = self._last, after[1:]
        else:
            parts, rest = self._parts.begin(after, _side(self._last))
        if not parts:
            return []
        said = {*rest}
        others = [self._parts.begin(rest[i + 1 :])[0] for i, word in enumerate(rest) if word in _AT]
        others = [other[0] for other in others if other and other[0] not in parts]
        self._last = parts
        if bends or (verb == "hold" and said & {*_BENT}):
            return self._bent(parts, -1 if verb == "straighten" else 1, rest)
        if verb == "touch" and others:
            return [Met(others[0], part) for part in parts]
        upright = verb == "balance" or (said & {*_UPRIGHT} and verb != "lower")
        if others and verb in ("raise", "move", "hold", "point") and not upright:
            return [Met(part, others[0]) for part in parts]
        parts = [part for part in parts if part.place not in self._whole]
        if upright:
            return [self._pointed(part, self._up, "upright") for part in parts]
        if said & {*_LEVEL}:
            return [
                Pointed(part, self._up, "level", self._vertical(part))
                for part in parts
                if part.offset is not None
            ]
        if said & {*_ASIDE} and verb in _AIMING:
            return [self._pointed(part, self._aside(part), "sideways") for part in parts]
        way = next((word for word in rest if word in self._ways and not {word} & {*_HIGH, *_LOW}), "")
        if way and verb in _AIMING:
            return [self._pointed(part, _floats(self._ways[way]), way) for part in parts]
        if verb == "raise" or (up and verb != "lower") or said & {*_HIGH}:
            return [Raised(part, up=self._up) for part in parts]
        if verb == "lower" or said & {*_LOW}:
            return [Raised(part, -1, up=self._up) for part in parts]
        return []

    def _bent(self, parts: Sequence[Part], sign: int, rest: Sequence[str]) -> list[Aim]:
        """Return the aims of those parts that are knees or elbows; `rest` may say by how many degrees."""
        data, model, aims = self._start, self._start.model, list[Aim]()
        numbers = [n for n, unit in pairwise(rest) if n.isdigit() and unit.startswith("deg")]
        most = np.deg2rad(float(numbers[0])) if numbers else np.inf
        for part in parts:
            if part.offset is None or part.words.split()[-1] not in _HINGES.values():
                continue
            body = model.body(part.place)
            below = _floats(body.ipos)
            for ancestor in above(model, body.id)[1:]:
                length = float(np.linalg.norm(data.xpos[ancestor] - data.xpos[body.id]))
                if length < _LONG:  # several joints in one place
                    continue
                size = length * float(np.linalg.norm(below))
                if size >= _LONG**2:
                    aims.append(Bent(part, model.body(ancestor).name, below, size, sign, float(most)))
                break
        return aims

    def _pointed(self, part: Part, way: tuple[float, ...], word: str) -> Pointed:
        """Return the aim of a limb, or of the axis of a body that is vertical at the start, if it has no length."""
        if part.offset is None or part.place != part.base:
            return Pointed(part, way, word)
        long = any(part.offset) and self._hangs(part)
        axis = np.asarray(part.offset) / np.linalg.norm(part.offset) if long else self._vertical(part)
        return Pointed(part, way, word, _floats(axis))

    def _hangs(self, part: Part) -> bool:
        """Return whether a part is connected to another one by joints, and does not move freely."""
        model = self._start.model
        return not (
            model.jnt_type[model.jnt_bodyid == model.body(part.base).id] == mujoco.mjtJoint.mjJNT_FREE
        ).any()

    def _vertical(self, part: Part) -> tuple[float, ...]:
        """Return the axis [3] in the frame of a body that is vertical at the start."""
        return _floats(np.asarray(self._up) @ self._start.body(part.place).xmat.reshape(3, 3))

    def _aside(self, part: Part) -> tuple[float, ...]:
        """Return the direction [3] away from the trunk, in the world frame."""
        left = (self._start.body(part.base).xpos - self._start.body(self._trunk).xpos) @ self._ways["left"]
        right = "right" in part.words.split() if abs(left) < _MIDDLE else left < 0
        return _floats(self._ways["right" if right else "left"])


def _with_states(clause: str) -> list[str]:
    """Split "raise the arm with the elbow bent" before "with", but not "touch the head with the hand"."""
    head, preposition, tail = clause.partition(" with ")
    touches = any(is_form(word, _VERBS["touch"]) for word in head.split())
    if touches or not {*re.findall(r"[a-z0-9]+", tail)} & _STATES:
        return [clause]
    return [head, preposition + tail]


def _side(parts: Sequence[Part]) -> str:
    """Return left or right, if all parts are on that side."""
    sides = {side for part in parts for side in ("left", "right") if side in part.words.split()}
    return sides.pop() if len(sides) == 1 else ""


def _floats(vector: Sequence[float] | np.ndarray) -> tuple[float, ...]:
    return tuple(float(v) + 0.0 for v in np.round(vector, 6))


def clauses_of(text: str) -> list[str]:
    """Split a text where a new motion may begin."""
    return [clause.strip() for clause in _BETWEEN.split(text) if clause.strip()]


def is_form(word: str, verbs: str) -> bool:
    """Return whether `word` is a form of one of `verbs`."""
    for verb in verbs.split():
        stem = verb.removesuffix("e")
        if word in (verb, verb + "s", stem + "ing", verb + verb[-1] + "ing"):
            return True
    return False
