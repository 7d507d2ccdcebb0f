"""What each verb of the grammar means on a model: from a parse to clauses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import lark
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.rewards.term import axis_text
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.parts import Part
from movlr_jax.tasks.words.scene import HINGES, Scene, floats
from movlr_jax.tasks.words.sentence import FALLEN, Sentence

_CROUCHED = 0.3  # as FALLEN, for motions close to the ground
_DEPTH = 0.3  # share of its height by which a body goes down that squats
_SIT = 0.6  # share of its height at which a body sits, most
_WAVE = 0.25  # how far a part that waves swings to either side, as a share of its distance from the trunk
_RUN = ["run", "jog", "gallop", "sprint", "dash", "bound", "canter"]
_LOW = ["crawl", "roll", "slide", "swim", "slither", "fly", "creep", "glide", "wriggle"]
_FREE = [
    "crawl",
    "roll",
    "slide",
    "swim",
    "slither",
    "creep",
    "wriggle",
]  # being close to the ground is no fall
_TEMPO = {"fast": 1.5, "quickly": 1.5, "slowly": 0.5, "slow": 0.5}
_WAYS = {"forward": (1, 0, 0), "ahead": (1, 0, 0), "back": (-1, 0, 0), "left": (0, 1, 0), "right": (0, -1, 0),
         "up": (0, 0, 1), "down": (0, 0, -1)}  # fmt: skip
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
            "ten": 10, "half": 0.5}  # fmt: skip
_TIMES = {"once": 1, "twice": 2, "thrice": 3}
_PART_TURNS = {
    "half": np.pi,
    "quarter": np.pi / 2,
    "full": 2 * np.pi,
    "whole": 2 * np.pi,
    "around": np.pi,
    "round": np.pi,
}
_UPRIGHT, _LEVEL = ("upright", "vertical", "vertically", "balanced"), ("level", "horizontal", "horizontally")
_HIGH, _LOWERED = ("up", "raised", "lifted", "overhead"), ("down", "lowered")
_BENT, _STRAIGHT = ("bent", "flexed"), ("straight", "straightened", "stiff", "locked", "extended")


class NotRead(Exception):
    """A word of a parse that means nothing on this model, and why."""

    def __init__(self, word: str, why: str, at: int = 0):
        self.word, self.why, self.at = word, why, at


def span(tree: lark.Tree, text: str) -> tuple[str, int]:
    """Return the words of `text` that a tree covers, and where they begin."""
    tokens = list(tree.scan_values(lambda value: isinstance(value, lark.Token)))
    if not tokens:
        return "", 0
    begin, end = min(t.start_pos for t in tokens), max(t.end_pos for t in tokens)
    return text[begin:end], begin


@dataclass
class Slots:
    """What is said of a verb; what is left at the end was not understood."""

    text: str
    verb: str
    left: list[lark.Tree] = field(default_factory=list)

    def take(self, *kinds: str) -> list[lark.Tree]:
        found = [slot for slot in self.left if slot.data in kinds]
        self.left = [slot for slot in self.left if slot not in found]
        return found

    def one(self, kind: str) -> lark.Tree | None:
        found = self.take(kind)
        if len(found) > 1:
            raise self.unread(found[1], "is said twice")
        return found[0] if found else None

    def unread(self, slot: lark.Tree, why: str = "") -> NotRead:
        word = self.words(slot)
        return NotRead(
            word, why or f"says nothing that is understood of {self.verb!r}", span(slot, self.text)[1]
        )

    def words(self, slot: lark.Tree) -> str:
        return span(slot, self.text)[0]

    def done(self) -> None:
        if self.left:
            raise self.unread(self.left[0])


@dataclass
class Interpreter:
    """Makes clauses of one parse. It keeps what the sentence said before: verb, things, asked place and heading."""

    scene: Scene
    text: str
    verb: lark.Token | None = None
    last: list[Part] = field(default_factory=list)  # that "it" means
    balance: bool | None = None  # None: as the body stands at the start
    lowest: float = FALLEN
    travelled: np.ndarray = field(default_factory=lambda: np.zeros(3))  # [3] m, by the phases before
    yaw: float | None = 0.0  # rad, left, by the phases before; None: not known
    risen: float | None = 0.0  # m, by the clauses before; None: not known
    leads: bool = True
    goal: float | None = None  # m, to the place that a travel goes to

    def sentence(self, tree: lark.Tree) -> Sentence:
        phases: list[list[c.Clause]] = []
        for phase in tree.children:
            for found in self._phase(phase):
                if self._merged(phases, found):
                    continue
                phases.append(found)
        if len(phases) > 1:
            phases = [self._with_amounts(phase) for phase in phases]
        balance = self.scene.stands if self.balance is None else self.balance and self.scene.rises
        every = [clause for phase in phases for clause in phase]
        goes = any(cl.touches in ("place", "heading") or isinstance(cl, c.Jump) for cl in every)
        if (
            balance
            and every
            and not goes
            and not any(isinstance(cl, c.Never) for cl in every)
            and self.scene.stands
        ):
            phases[-1].append(c.Stay(self.scene.of))
        if not every and not balance:
            raise NotRead(self.text, "asks for nothing that can be measured")
        return Sentence(
            self.text,
            self.scene.of,
            tuple(tuple(dict.fromkeys(p)) for p in phases if p),
            balance,
            self.lowest,
        )

    def _merged(self, phases: list[list[c.Clause]], found: Sequence[c.Clause]) -> bool:
        """Add "then stand up" to a squat before it, which then comes up again."""
        before = phases[-1] if phases else []
        if [type(cl) for cl in found] == [c.Stay] and any(isinstance(cl, c.Squat) for cl in before):
            phases[-1] = [replace(cl, returns=True) if isinstance(cl, c.Squat) else cl for cl in before]
            return True
        return False

    def _with_amounts(self, phase: list[c.Clause]) -> list[c.Clause]:
        """Give a travel without an amount one: what comes before or after another phase has an end."""
        return [
            replace(cl, distance=float(f"{1.5 * cl.speed:.2g}"))
            if isinstance(cl, c.Travel)
            and cl.distance is None
            and not any(isinstance(o, c.Lasts) for o in phase)
            else cl
            for cl in phase
        ]

    def _phase(self, tree: lark.Tree) -> list[list[c.Clause]]:
        """Return the clauses of a phase; as two phases where something is picked up and then put down."""
        groups: list[list[c.Clause]] = [[]]
        for clause in tree.children:
            picked = self.verb == "pick up" and groups[-1]
            made = self._clause(clause)
            if picked and any(isinstance(cl, c.Near) and cl.must for cl in made):
                groups.append([])
            groups[-1] += made
        for i, group in enumerate(groups):
            groups[i] = self._placed(self._consistent(group))
        return groups

    def _consistent(self, phase: list[c.Clause]) -> list[c.Clause]:
        """Return the clauses of a phase, if they can hold together. Raises NotRead."""
        for kind in (c.Turn, c.Travel, c.Face):
            found = list(dict.fromkeys(cl for cl in phase if isinstance(cl, kind)))
            if len(found) > 1:
                one, two = found[:2]
                word = c.side(two.sign) if isinstance(two, c.Turn) else two.word
                why = f"contradicts {one.text()!r} at the same time; say which is first, with 'then'"
                raise NotRead(word, why)
        if any(isinstance(cl, c.Travel | c.Jump) and cl.touches == "place" for cl in phase):
            phase = [cl for cl in phase if not isinstance(cl, c.Stay)]
        ups = {(cl.part, cl.sign) for cl in phase if isinstance(cl, c.Raised)}
        if both := [part for part, sign in ups if (part, -sign) in ups]:
            raise NotRead(both[0].words, "cannot go up and down at once")
        if any(isinstance(cl, c.Stepping) for cl in phase):  # "lifting the knees high" is how it steps
            lifted = any(isinstance(cl, c.Raised) for cl in phase)
            phase = [
                replace(cl, high=0.1) if isinstance(cl, c.Stepping) and lifted else cl
                for cl in phase
                if not isinstance(cl, c.Raised)
            ]
        if any(isinstance(cl, c.Squat) for cl in phase) and any(isinstance(cl, c.Stay) for cl in phase):
            phase = [
                replace(cl, returns=True) if isinstance(cl, c.Squat) else cl
                for cl in phase
                if not isinstance(cl, c.Stay)
            ]
        bends = [cl for cl in phase if isinstance(cl, c.Bent)]
        alone = len(bends) == len(phase)
        return [replace(cl, still=cl.still and alone) if isinstance(cl, c.Bent) else cl for cl in phase]

    def _placed(self, phase: list[c.Clause]) -> list[c.Clause]:
        """Turn the ways of a phase into the world, from where and how the body should be when it begins."""
        turns = next((cl for cl in phase if isinstance(cl, c.Turn)), None)
        placed: list[c.Clause] = []
        for cl in phase:
            if isinstance(cl, c.Travel) and not cl.word.startswith(("to ", "along ")):
                seen = bool(turns) or self.yaw is None
                way = np.asarray(cl.way) if seen else self.scene.turned(np.asarray(cl.way), self.yaw or 0.0)
                cl = replace(
                    cl, way=floats(way), turns=seen and abs(float(way @ np.asarray(self.scene.of.up))) < 0.7
                )
            if isinstance(cl, c.Travel):
                cl = replace(cl, begun=floats(self.travelled), leads=self.leads)
                self.leads = False
            if isinstance(cl, c.Turn) and self.yaw is not None:
                cl = replace(cl, begun=self.yaw)
            placed.append(cl)
        for cl in placed:
            if isinstance(cl, c.Travel):
                distance = cl.distance if cl.distance is not None else 1.5 * cl.speed
                self.travelled = self.travelled + distance * np.asarray(cl.way)
                self.risen = (self.risen or 0.0) + distance * float(np.dot(cl.way, self.scene.of.up))
            if isinstance(cl, c.Turn):
                self.yaw = None if cl.angle is None or self.yaw is None else self.yaw + cl.sign * cl.angle
        return placed

    # One clause.

    def _clause(self, tree: lark.Tree) -> list[c.Clause]:
        if tree.data == "posture":
            return self._posture(tree)
        children = list(tree.children)
        negated = isinstance(children[0], lark.Token) and children[0].type in ("NOT", "WITHOUT")
        children = children[1:] if negated else children
        if tree.data == "elided":
            if self.verb is None or self.verb.type not in (
                "TRAVEL",
                "TURN",
                "STEP",
                "RAISE",
                "LOWER",
                "BEND",
                "STRAIGHTEN",
                "WAVE",
                "TOUCH",
                "POINT",
                "KEEP",
                "JUMP",
            ):
                raise NotRead(self._span(tree), "has no verb", span(tree, self.text)[1])
        elif isinstance(children[0], lark.Tree):  # posture
            return self._posture(children[0])
        else:
            self.verb, *children = children
        verb = self.verb
        assert verb is not None
        slots = Slots(
            self.text, str(verb), [s for s in children if isinstance(s, lark.Tree) and s.data != "extent"]
        )
        seconds = slots.one("duration")
        make: Callable[[Slots, str], list[c.Clause]] = getattr(self, f"_{verb.type.lower()}")
        balance, lowest = self.balance, self.lowest
        made = make(slots, str(verb))
        slots.done()
        if negated:
            self.balance, self.lowest = (True if verb.type == "FALL" else balance), lowest
            return self._never(made, verb)
        if seconds:
            made = [*made, c.Lasts(self._number(seconds))]
        if not made and verb.type not in ("STAY", "KEEP", "STAND"):
            raise NotRead(str(verb), "asks for nothing that can be measured here", verb.start_pos or 0)
        return made

    def _never(self, made: Sequence[c.Clause], verb: lark.Token) -> list[c.Clause]:
        found: list[c.Clause] = []
        for cl in made:
            if verb.type == "FALL":
                continue
            if isinstance(cl, c.Travel):
                found.append(c.Stay(self.scene.of))
            elif isinstance(cl, c.Turn | c.Jump | c.Bent | c.Raised | c.Waved | c.Near | c.Joint | c.Squat):
                found.append(c.Never(cl))
            else:
                raise NotRead(str(verb), "cannot be excluded", verb.start_pos or 0)
        return found

    def _span(self, tree: lark.Tree) -> str:
        return span(tree, self.text)[0]

    # Slots.

    def _number(self, slot: lark.Tree, signed: bool = False) -> float:
        token = next(t for t in slot.children if t.type == "NUMBER")
        number = float(_NUMBERS.get(str(token), 0) or float(token))
        if number <= 0 and not signed:
            raise NotRead(
                str(token), "must be more than 0; say the direction in words", span(slot, self.text)[1]
            )
        return number

    def _length(self, slot: lark.Tree | None) -> float | None:
        if slot is None:
            return None
        unit = next(str(t) for t in slot.children if t.type == "LENGTH")
        return self._number(slot) * (0.01 if unit.startswith("c") else 0.001 if unit == "mm" else 1.0)

    def _angle(self, slot: lark.Tree | None, signed: bool = False) -> float | None:
        if slot is None:
            return None
        unit = next(str(t) for t in slot.children if t.type == "ANGLE")
        return float(self._number(slot, signed) * (1.0 if unit.startswith("rad") else np.pi / 180))

    def _times(self, slots: Slots) -> int | None:
        slot = slots.one("times")
        if slot is None:
            return None
        if slot.children[0] == "again":
            raise slots.unread(slot)
        return int(_TIMES.get(str(slot.children[0]), 0) or self._number(slot))

    def _ways(self, slots: Slots) -> list[str]:
        said = []
        for slot in slots.take("direction"):
            word = str(next(t for t in slot.children if t.type == "WAY"))
            stem = word.removesuffix(" side").removesuffix("wards").removesuffix("ward").removesuffix("s")
            said.append({"for": "forward", "forward": "forward", "back": "back"}.get(stem, stem))
        return list(dict.fromkeys(said))

    def _turned(self, slots: Slots) -> int:
        """Return the sign of a turn: 1 left, -1 right, 0 not said."""
        ways = self._ways(slots)
        signs = {"left": 1, "right": -1, "clockwise": -1}
        found = [1 if way.startswith(("counter", "anti")) else signs.get(way, 0) for way in ways]
        if 0 in found or len({*found}) > 1:
            raise NotRead(
                ways[-1],
                f"does not go with {slots.verb!r}" if 0 in found else f"contradicts {ways[0]!r}",
                len(self.text),
            )
        return found[0] if found else 0

    def _nouns(self, nouns: lark.Tree, side: str = "") -> list[Part]:
        """Return the parts and objects that nouns name, each of them. Raises NotRead, or UserError for a wrong side."""
        found: list[Part] = []
        for noun in nouns.children:
            words = str(self._span(noun)).split()
            if words[-1] in ("it", "them"):
                if not self.last:
                    raise NotRead(words[-1], "means nothing that was named before", span(noun, self.text)[1])
                found += self.last
                continue
            words = [HINGES.get(w, w) for w in words] if side == "hinge" else words
            sides = {s for part in self.last for s in ("left", "right") if s in part.words.split()}
            try:
                parts = self.scene.find(words, sides.pop() if len(sides) == 1 else "")
            except UserError as error:
                raise NotRead(
                    " ".join(words), f"is not a part of this model ({error})", span(noun, self.text)[1]
                ) from None
            if not parts:
                raise NotRead(
                    " ".join(words), "is no part, joint or object of this model", span(noun, self.text)[1]
                )
            found += parts
        self.last = found
        return found

    def _things(self, slots: Slots, hinge: bool = False) -> list[Part]:
        return [
            p for slot in slots.take("thing") for p in self._nouns(slot.children[0], "hinge" if hinge else "")
        ]

    def _places(self, slots: Slots, *preps: str) -> list[tuple[str, Part]]:
        """Return (preposition, part) of the places that are named with one of these kinds of prepositions."""
        found = []
        for slot in slots.take("place"):
            prep, nouns = slot.children
            before = self.last
            if prep.type not in preps:
                raise slots.unread(slot)
            found += [(str(prep), part) for part in self._nouns(nouns)]
            self.last = before or self.last
        return found

    def _joints(self, slots: Slots) -> list[str]:
        """Return the joints that the things are the names of, if all are."""
        things = [slot for slot in slots.left if slot.data == "thing"]
        names = [
            self.scene.joint(self._span(noun).split())
            for slot in things
            for noun in slot.children[0].children
        ]
        if names and all(names):
            slots.take("thing")
            return [joint for several in names for joint in several]
        return []

    def _movable(self, part: Part, slots: Slots) -> Part:
        if self.scene.fixed(part):
            raise NotRead(part.words, "cannot move, so nothing can be done with it here")
        return part

    def _along(self, way: str) -> np.ndarray:
        return np.asarray(_WAYS[way], float) @ self.scene.around

    # Verbs of the whole body.

    def _travel(self, slots: Slots, verb: str) -> list[c.Clause]:
        scene = self.scene
        if here := slots.take("here"):
            if verb in ("walk", "march", "run", "jog", "step", "trot", "sprint"):
                return self._step(slots, verb)
            raise slots.unread(here[0])
        ways, path = self._ways(slots), slots.one("path")
        kind = path.children[0].type if path else ""
        pace = "run" if verb in _RUN else "low" if verb in _LOW else "walk"
        if verb in _FREE:
            self.balance = False
        speed, given = scene.speed(pace), slots.one("speed")
        for slot in slots.take("tempo"):
            speed *= _TEMPO[str(slot.children[0])]
        if given:
            unit = next(str(t) for t in given.children if t.type == "SPEED")
            speed = self._number(given) / (3.6 if unit == "km/h" else 1.0)
        speed = float(f"{speed:.2g}")
        distance = self._length(slots.one("distance"))
        if any(slot.data == "place" for slot in slots.left) and distance is not None:
            raise NotRead(verb, "names a place and a distance")
        if kind == "SIDEWAYS" and not ways:
            raise slots.unread(path, "does not say to which side; say left or right")
        if kind == "CIRCLE":
            return self._circle(ways, speed, bool(given), distance)
        word, way = self._way(slots, ways, kind == "DIAGONALLY", path)
        if not scene.goes(way):
            said = word if ways or path else verb
            raise NotRead(said, f"is not possible: no joint lets {scene.root!r} move along {axis_text(way)}")
        if self.goal is not None:  # a place
            distance, self.goal = self.goal, None
        return [c.Travel(scene.of, floats(way), speed, word, bool(given), distance)]

    def _way(
        self, slots: Slots, ways: list[str], diagonal: bool, path: lark.Tree | None
    ) -> tuple[str, np.ndarray]:
        """Return the words for a direction and the direction [3]."""
        place, axis = self._places(slots, "TO"), slots.one("axis")
        if sum(map(bool, (ways, place, axis))) > 1 or len(place) > 1:
            raise NotRead(self.text, "names several directions")
        if axis:
            text = str(axis.children[-1])
            if text.startswith("vertical"):
                raise slots.unread(axis)
            letter = text.lstrip("+-")[0]
            return f"along {'-' if text[0] == '-' else '+'}{letter}", np.eye(3)["xyz".index(letter)] * (
                -1.0 if text[0] == "-" else 1.0
            )
        if place:
            towards = self.scene.towards(place[0][1])
            if towards is None:
                raise NotRead(place[0][1].words, "is where the body is")
            self.goal = self.scene.away(place[0][1])
            return f"to {place[0][1].words}", towards
        if len(ways) > 1 or diagonal:
            found = [self._along(way) for way in ways if way in _WAYS]
            if len(ways) != 2 or len(found) != 2 or abs(found[0] @ found[1]) > 0.5:
                two = (
                    f"contradicts {ways[0]!r}"
                    if len(ways) > 1
                    else "needs two directions, as in diagonally forward left"
                )
                raise NotRead(ways[-1] if len(ways) > 1 else "diagonally", two, len(self.text))
            return " and ".join(ways), (found[0] + found[1]) / np.sqrt(2.0)
        way = ways[0] if ways else "forward"
        if way not in _WAYS:
            raise NotRead(way, f"does not go with {slots.verb!r}")
        return {"back": "backward"}.get(way, way), self._along(way)

    def _circle(self, ways: list[str], speed: float, exact: bool, distance: float | None) -> list[c.Clause]:
        sign = -1 if "right" in ways or "clockwise" in ways else 1
        ahead = -1.0 if "back" in ways else 1.0
        turn = self._turning(sign, 2 * np.pi)
        return [
            c.Travel(
                self.scene.of,
                floats(ahead * self.scene.around[0]),
                speed,
                "in a circle",
                exact,
                distance,
                turns=True,
            ),
            *turn,
        ]

    def _step(self, slots: Slots, verb: str) -> list[c.Clause]:
        slots.take("here")
        if verb == "step" and any(s.data in ("direction", "place", "distance") for s in slots.left):
            return self._travel(slots, "walk")
        slots.take("tempo")
        try:
            feet = self.scene.parts.begin(["both", "feet"])[0]
        except UserError:
            feet = []
        if len(feet) < 2:
            raise NotRead(verb, "in place needs feet, and no bodies of this model are named so")
        self.balance = True if self.balance is None and self.scene.rises else self.balance
        return [c.Stepping(self.scene.of, (feet[0], feet[1])), c.Stay(self.scene.of)]

    def _turning(self, sign: int, angle: float | None, verb: str = "turn") -> list[c.Clause]:
        if not self.scene.goes(self.scene.of.up, turning=True):
            raise NotRead(verb, f"is not possible: no joint lets {self.scene.root!r} turn about the vertical")
        return [c.Turn(self.scene.of, sign, None if angle is None else float(angle))]

    def _turn(self, slots: Slots, verb: str) -> list[c.Clause]:
        if joints := self._joints(slots):
            return self._joint(slots, joints)
        if things := self._things(slots, hinge=True):
            return self._bends(things, slots, 1)
        if place := self._places(slots, "TO"):
            return self._facing(place[0][1])
        slots.take("here", "tempo")
        if axis := slots.one("axis"):
            if str(axis.children[-1])[0] not in "vz":
                raise slots.unread(axis)
        part = slots.one("part_turn")
        sign, angle, times = self._turned(slots), self._angle(slots.one("angle")), self._times(slots)
        whole = verb in ("spin", "rotate", "pivot")
        if part:
            word = str(part.children[0])
            if not (whole and word in ("around", "round")):
                angle = _PART_TURNS[word.split()[0]]
        elif verb in ("make", "twist"):
            raise NotRead(verb, "needs what to make, as in make half a turn")
        if times and angle is None:
            if not whole:
                raise NotRead(
                    " ".join(self.text.split()[-1:]) if times else "",
                    "does not say by how much; give the angle, or say spin",
                    len(self.text),
                )
            angle = 2 * np.pi
        if angle is not None and not sign and not part and angle < 2 * np.pi - 0.1:
            raise NotRead(verb, "does not say to which side; say left or right")
        return self._turning(sign or 1, None if angle is None else angle * (times or 1), verb)

    def _facing(self, part: Part) -> list[c.Clause]:
        towards = self.scene.towards(part)
        if towards is None:
            raise NotRead(part.words, "is where the body is")
        return self._faces(self.scene.yaw(towards), part.words)

    def _faces(self, angle: float, word: str) -> list[c.Clause]:
        if angle:
            self._turning(1, None)
        return [c.Face(self.scene.of, angle, word)]

    def _face(self, slots: Slots, verb: str) -> list[c.Clause]:
        ways = self._ways(slots)
        if things := self._things(slots) or [part for _, part in self._places(slots, "TO", "ON")]:
            return self._facing(things[0])
        angles = {"forward": 0.0, "ahead": 0.0, "left": np.pi / 2, "right": -np.pi / 2, "back": np.pi}
        if len(ways) != 1 or ways[0] not in angles:
            raise NotRead(verb, "needs one direction or place")
        return self._faces(angles[ways[0]], ways[0])

    def _jump(self, slots: Slots, verb: str) -> list[c.Clause]:
        scene = self.scene
        slots.take("here", "tempo")
        times, distance = self._times(slots), self._length(slots.one("distance"))
        goes_to = {*self._peek(slots)} - {"up"}
        goes = any(s.data in ("place", "axis") for s in slots.left) or goes_to
        if not scene.rises:
            raise NotRead(verb, f"is not possible: no joint lets {scene.root!r} leave the ground")
        if not goes:
            self._ways(slots)
            return [c.Jump(scene.of, distance, times)]
        if "down" in goes_to:
            raise NotRead("down", f"does not go with {verb!r}")
        if distance:
            slots.left.append(
                lark.Tree("distance", [lark.Token("NUMBER", str(distance)), lark.Token("LENGTH", "m")])
            )
        return [*self._travel(slots, "walk"), c.Jump(scene.of, None, times)]

    def _peek(self, slots: Slots) -> list[str]:
        kept = list(slots.left)
        ways = self._ways(slots)
        slots.left = kept
        return ways

    def _stand(self, slots: Slots, verb: str) -> list[c.Clause]:
        if verb == "balance" and (things := self._things(slots)):
            return self._upright(things)
        rises = self.scene.lies
        slots.take("here", "tempo")
        for slot in slots.take("state"):
            if str(slot.children[0]) not in (*_UPRIGHT, "still", "straight"):
                raise slots.unread(slot)
        if pose := slots.take("on_pose"):
            if str(pose[0].children[0]) not in ("on toes", "on tiptoes", "on tiptoe", "on heels"):
                self.balance = False
            raise slots.unread(pose[0], "cannot be measured")
        for slot in slots.take("times"):  # "stand up again"
            if slot.children[0] != "again":
                raise slots.unread(slot)
        if slots.take("on_leg"):
            return [*self._on_leg("left"), c.Stay(self.scene.of)]
        if self.scene.rises and not rises:
            self.balance = True
        if on := [slot for slot in slots.left if slot.data == "place"]:
            words = self._span(on[0].children[1]).split()
            if words[-1] not in ("leg", "foot", "paw", "legs", "feet") or {*words} & {
                "front",
                "rear",
                "hind",
                "back",
            }:
                raise slots.unread(on[0], "cannot be stood on here")
            parts = self._places(slots, "ON")
            if len(parts) == 1:
                side = next((w for w in ("left", "right") if w in parts[0][1].words.split()), "")
                return [*self._on_leg(side), c.Stay(self.scene.of)]
        if rises:
            self.balance = False if self.balance is None else self.balance
            return [c.Risen(self.scene.of)]
        return [c.Stay(self.scene.of)]

    def _on_leg(self, side: str) -> list[c.Clause]:
        """Return what it means to stand on one leg: the other foot is up."""
        other = "right" if side == "left" else "left"
        feet = [foot for foot in self.scene.parts.begin([other, "foot"])[0] if other in foot.words.split()]
        if not feet:
            raise NotRead(f"{side} leg", "needs two feet, and no bodies of this model are named so")
        return [self.scene.raised(foot) for foot in feet]

    def _stay(self, slots: Slots, verb: str) -> list[c.Clause]:
        slots.take("here")
        states = [str(slot.children[0]) for slot in slots.take("state")]
        if any(state not in (*_UPRIGHT, "still") for state in states):
            raise NotRead(states[0], f"says nothing that is understood of {verb!r}")
        if {*states} & {*_UPRIGHT}:
            self.balance = True
        held = not self.scene.rises and bool(self.last)  # "touch the ball and stay there"
        return [] if held or (states and "still" not in states) else [c.Stay(self.scene.of)]

    def _rise(self, slots: Slots, verb: str) -> list[c.Clause]:
        amount = self._length(slots.one("distance"))
        if {*self._ways(slots)} - {"up"}:
            raise NotRead(verb, "goes up; say walk or fly for other directions")
        if not self.scene.rises:
            raise NotRead(verb, f"is not possible: no joint lets {self.scene.root!r} rise")
        if height := slots.one("height"):
            return self._height(self._length(height) or 0.0, verb)
        if verb == "rise" and not self.scene.lies and amount is None:
            return [c.Stay(self.scene.of)]
        if self.scene.lies:
            self.balance = False
        self._rises(amount)
        return [c.Risen(self.scene.of, 1, amount, verb)]

    def _rises(self, amount: float | None) -> None:
        self.risen = None if amount is None or self.risen is None else self.risen + amount

    def _descend(self, slots: Slots, verb: str) -> list[c.Clause]:
        self._ways(slots)
        self.lowest = 0.0
        if height := slots.one("height"):
            return self._height(self._length(height) or 0.0, verb)
        amount = self._length(slots.one("distance"))
        self._rises(None if amount is None else -amount)
        return [c.Risen(self.scene.of, -1, amount, verb)]

    def _hover(self, slots: Slots, verb: str) -> list[c.Clause]:
        slots.take("here", "state")
        height = self._length(slots.one("height"))
        if height is None and self.risen is None:
            raise NotRead(verb, "does not say at which height")
        height = self.scene.of.height + (self.risen or 0.0) if height is None else height
        return [*self._height(height, verb), c.Stay(self.scene.of)]

    def _height(self, height: float, verb: str) -> list[c.Clause]:
        if not self.scene.rises:
            raise NotRead(verb, f"is not possible: no joint lets {self.scene.root!r} rise")
        word, self.risen = f"{verb} at {height:.3g} m", height - self.scene.of.height
        return [c.AtHeight(self.scene.of, self.scene.root, round(height, 3), word)]

    def _squat(self, slots: Slots, verb: str) -> list[c.Clause]:
        if {*self._ways(slots)} - {"down"}:
            raise NotRead(verb, "goes down; say walk for other directions")
        slots.take("here")
        if not self.scene.rises:
            raise NotRead(verb, f"is not possible: no joint lets {self.scene.root!r} sink")
        self.lowest = _CROUCHED
        depth = self._length(slots.one("distance"))
        return [
            c.Squat(self.scene.of, round(depth or _DEPTH * self.scene.of.height, 2), exact=depth is not None)
        ]

    def _lie(self, slots: Slots, verb: str) -> list[c.Clause]:
        slots.take("here")
        self.balance = False
        for slot in slots.take("state"):
            if str(slot.children[0]) != "still":
                raise slots.unread(slot)
        if not self.scene.rises:
            raise NotRead(verb, f"is not possible: no joint lets {self.scene.root!r} sink")
        most = round(0.35 * self.scene.of.height if self.scene.stands else 0.3 * self.scene.length, 3)
        return [c.AtHeight(self.scene.of, self.scene.root, most, "lie down", low=True)]

    def _fall(self, slots: Slots, verb: str) -> list[c.Clause]:
        return [] if not self.scene.rises else self._lie(slots, verb)

    def _sit(self, slots: Slots, verb: str) -> list[c.Clause]:
        self.balance = False
        most = round(_SIT * self.scene.of.height, 3)
        return [c.AtHeight(self.scene.of, self.scene.root, most, "sit down", low=True)]

    def _kneel(self, slots: Slots, verb: str) -> list[c.Clause]:
        self.balance = False
        knees = self.scene.parts.begin(["both", "knees"])[0]
        if len(knees) < 2:
            raise NotRead(verb, "needs knees, and no bodies of this model are named so")
        return [
            c.AtHeight(self.scene.of, knee.place, 0.15, f"{knee.words} on the ground", low=True)
            for knee in knees[:2]
        ]

    # Verbs of parts and joints.

    def _posture(self, tree: lark.Tree) -> list[c.Clause]:
        nouns = next(ch for ch in tree.children if ch.data == "nouns")
        state = next(ch for ch in tree.children if ch.data != "nouns")
        word = self._span(state)
        if (
            tree.children[0] is state
            and self.verb is not None
            and self.verb.type in ("TOUCH", "PUSH", "KICK")
        ):
            raise NotRead(
                word, f"says nothing that is understood of {self.verb!s}", span(state, self.text)[1]
            )
        hinge = word in (*_BENT, *_STRAIGHT)
        before = self.last
        parts = self._nouns(nouns, "hinge" if hinge else "")
        self.last = before or parts
        return self._in_state(parts, word, tree)

    def _in_state(self, parts: Sequence[Part], word: str, tree: lark.Tree) -> list[c.Clause]:
        """Return that parts are in a state: raised, bent, upright, level, sideways."""
        if word in _UPRIGHT:
            return self._upright(parts)
        if word in _LEVEL:
            return [
                c.Pointed(self.scene.of, part, self.scene.of.up, "level", floats(self.scene.vertical(part)))
                for part in self._free(parts)
                if part.offset is not None
            ]
        if word in _HIGH or word in _LOWERED:
            return [self.scene.raised(part, 1 if word in _HIGH else -1) for part in self._free(parts)]
        if word in _BENT:
            return self._bent(parts, 1, None, None)
        if word in _STRAIGHT:
            return self._bent(parts, 1, None, 0.0)
        return self._points(parts, word, tree)

    def _points(self, parts: Sequence[Part], word: str, tree: lark.Tree) -> list[c.Clause]:
        if word in ("sideways", "to side", "aside"):
            return [
                self.scene.pointed(part, self.scene.aside(part), "sideways") for part in self._free(parts)
            ]
        word = {"forwards": "forward", "ahead": "forward", "backwards": "backward", "back": "backward"}.get(
            word, word
        )
        way = {"backward": "back", "upward": "up", "downward": "down"}.get(word, word)
        if way not in _WAYS:
            raise NotRead(word, "is no direction of a part", span(tree, self.text)[1])
        return [self.scene.pointed(part, self._along(way), word) for part in self._free(parts)]

    def _free(self, parts: Sequence[Part]) -> list[Part]:
        """Return parts without the trunk of a body that can fall, whose posture is its balance."""
        posture = {self.scene.root, *(self.scene.roles.get(role, "") for role in ("trunk", "pelvis"))}
        return [part for part in parts if part.place not in posture] if self.scene.rises else list(parts)

    def _upright(self, parts: Sequence[Part]) -> list[c.Clause]:
        free = self._free(parts)
        if len(free) < len(parts):
            self.balance = True
        return [self.scene.upright(part) for part in free]

    def _bent(self, parts: Sequence[Part], sign: int, by: float | None, to: float | None) -> list[c.Clause]:
        found = [self.scene.bent(part, sign, by, to) for part in parts]
        if None in found:
            raise NotRead(
                parts[found.index(None)].words, "does not bend: it is no knee or elbow of this model"
            )
        return [clause for clause in found if clause]

    def _bends(self, parts: Sequence[Part], slots: Slots, sign: int) -> list[c.Clause]:
        return self._bent(parts, sign, self._angle(slots.one("angle")), self._angle(slots.one("angle_to")))

    def _joint(self, slots: Slots, joints: Sequence[str], sign: int = 1) -> list[c.Clause]:
        by, to = self._angle(slots.one("angle"), signed=True), self._angle(slots.one("angle_to"), signed=True)
        if by is not None and by < 0:
            sign, by = -sign, -by
        length = self._length(slots.one("distance"))
        made: list[c.Clause] = []
        for joint in joints:
            slides = bool(self.scene.model.joint(joint).type[0] == 2)
            if (slides and (by is not None or to is not None)) or (not slides and length is not None):
                raise NotRead(
                    joint, f"is a {'slide, which moves in m' if slides else 'hinge, which turns in degrees'}"
                )
            by = length if slides else by
            self._reachable(joint, to if to is not None else None if by is None else sign * by, to is None)
            made.append(c.Joint(joint, sign, by, to, slides))
        return made

    def _reachable(self, joint: str, value: float | None, change: bool) -> None:
        """Check that a joint can be at, or change by, a value in rad or m. Raises NotRead."""
        model = self.scene.model
        number = model.joint(joint).id
        if value is None or not model.jnt_limited[number]:
            return
        end = value + (float(self.scene.data.joint(joint).qpos[0]) if change else 0.0)
        low, high = model.jnt_range[number]
        if not low - 0.02 <= end <= high + 0.02:
            raise NotRead(
                joint, f"reaches {low:.3g} to {high:.3g} rad or m, so {end:.3g} is out of its range"
            )

    def _raise(self, slots: Slots, verb: str, sign: int = 1) -> list[c.Clause]:
        things = self._things(slots)
        if not things:
            raise NotRead(verb, "needs what to raise or lower")
        amount = self._length(slots.one("distance"))
        if all(not self.scene.own(part) for part in things):
            self._ways(slots)
            return self._handled(things, slots, lambda part: [self.scene.raised(part, sign, amount)])
        bent = any(str(s.children[0]) in _BENT for s in slots.left if s.data == "state")
        slots.left = [s for s in slots.left if not (s.data == "state" and bent)]
        ways, aside = self._ways(slots), slots.one("path")
        if place := self._places(slots, "TO", "ON"):
            return [self.scene.near(part, place[0][1]) for part in things]
        if aside:
            return self._points(things, "sideways", aside)
        if ways and ways[0] not in ("up", "down"):
            return self._points(things, ways[0], lark.Tree("way", []))
        free = self._free(things)
        if not free:
            raise NotRead(things[0].words, f"cannot be the part to {verb}: it is the body itself")
        return [self.scene.raised(part, sign, amount) for part in free]

    def _lower(self, slots: Slots, verb: str) -> list[c.Clause]:
        return self._raise(slots, verb, -1)

    def _keep(self, slots: Slots, verb: str) -> list[c.Clause]:
        before = list(self.last)
        states = [str(s.children[0]) for s in slots.left if s.data == "state"]
        hinge = bool({*states} & {*_BENT, *_STRAIGHT})
        things = self._things(slots, hinge)
        if not things:
            if not states:
                raise NotRead(verb, "needs what to keep")
            return self._stay(slots, verb)
        if states and (place := [slot for slot in slots.left if slot.data == "place"]):
            raise slots.unread(place[0])
        if place := self._places(slots, "TO", "ON"):
            return [self.scene.near(part, place[0][1]) for part in things]
        slots.take("state", "here")
        states += self._ways(slots) + [self._span(s) for s in slots.take("path")]
        if states == ["still"] or not states:
            if before == things and not states:  # "... and hold it there"
                return []
            if all(not self.scene.own(part) for part in things):
                return self._handled(things, slots, lambda part: [], must=True)
            raise NotRead(things[0].words, "is held in no way that is understood; say up, level, bent, ...")
        return [
            clause for state in states for clause in self._in_state(things, state, lark.Tree("state", []))
        ]

    def _point(self, slots: Slots, verb: str) -> list[c.Clause]:
        things = self._things(slots) or [p for s in slots.take("tool") for p in self._nouns(s.children[0])]
        if not things:
            raise NotRead(verb, "needs the part that points")
        if aside := slots.one("path"):
            return self._points(things, "sideways", aside)
        if place := self._places(slots, "TO", "ON"):
            return [self.scene.near(part, place[0][1]) for part in things]
        ways = self._ways(slots)
        if len(ways) != 1:
            raise NotRead(verb, "needs one direction, as in point the arm forward")
        return self._points(things, ways[0], lark.Tree("way", []))

    def _bend(self, slots: Slots, verb: str, sign: int = 1) -> list[c.Clause]:
        if joints := self._joints(slots):
            hinged = self._hinged(slots, joints, sign)
            return hinged or self._joint(slots, joints, sign)
        thing = next((slot for slot in slots.left if slot.data == "thing"), None)
        if thing and (joints := self.scene.finger_joints(self._span(thing).split())):
            slots.take("thing")
            return self._flexed(joints, slots, sign)
        things = self._things(slots, hinge=True)
        if not things:
            raise NotRead(verb, "needs a joint, as in bend the knee")
        return self._bends(things, slots, sign)

    def _flexed(self, joints: Sequence[str], slots: Slots, sign: int) -> list[c.Clause]:
        """Return that the joints of a finger turn to the side of their larger limit, or back."""
        by = self._angle(slots.one("angle"))
        limits = {joint: self.scene.model.joint(joint).range for joint in joints}
        return [
            c.Joint(j, sign * (1 if abs(high) >= abs(low) else -1), by) for j, (low, high) in limits.items()
        ]

    def _hinged(self, slots: Slots, joints: Sequence[str], sign: int) -> list[c.Clause]:
        """Return the clauses of joints that are called as the knees and elbows of bodies are: by the angle between."""
        found: list[Part] = []
        for joint in joints:
            words = [w for w in self.scene.joints[joint] if w != "joint"]
            parts = self.scene.find(words) if words and words[-1] in HINGES.values() else []
            if not parts:
                return []
            found += parts
        self.last = found
        return self._bends(found, slots, sign)

    def _straighten(self, slots: Slots, verb: str) -> list[c.Clause]:
        return self._bend(slots, verb, -1)

    def _wave(self, slots: Slots, verb: str) -> list[c.Clause]:
        scene, times = self.scene, self._times(slots)
        parts = self._things(slots) or [p for s in slots.take("tool") for p in self._nouns(s.children[0])]
        if not parts:
            try:
                parts = scene.parts.begin(["hand"], "right")[0]
            except UserError:
                parts = []
        if not parts:
            raise NotRead(
                verb, "needs a hand, and no body of this model is named so; name a part, as in wave the arm"
            )
        trunk = scene.roles.get("trunk", scene.root)
        made: list[c.Clause] = []
        for part in parts:
            away = float(np.linalg.norm(part.now(scene.data) - scene.data.body(trunk).xpos))
            side = floats(scene.around[1])
            made += [
                scene.raised(part, most=round(away, 2)),
                c.Waved(scene.of, part, trunk, side, round(_WAVE * away, 2), times),
            ]
        return made

    # Verbs of objects.

    def _handled(
        self,
        things: Sequence[Part],
        slots: Slots,
        make: Callable[[Part], list[c.Clause]],
        must: bool = False,
        grips: bool = True,
    ) -> list[c.Clause]:
        """Return the clauses of objects with the approach of what handles them."""
        tools = [part for slot in slots.take("tool") for part in self._nouns(slot.children[0])]
        made: list[c.Clause] = []
        for thing in things:
            self._movable(thing, slots)
            hands = tools or self.scene.hands[:1]
            made += [self.scene.near(hand, thing, must=must) for hand in hands if hand.place != thing.place]
            made += self._grip(must=False) if grips and not must else []
            made += make(thing)
        self.last = list(things)
        return made

    def _touch(self, slots: Slots, verb: str) -> list[c.Clause]:
        things = self._things(slots)
        tools = [part for slot in slots.take("tool") for part in self._nouns(slot.children[0])]
        if not things:
            if tools and (ways := self._ways(slots)):
                return self._points(tools, ways[0], lark.Tree("way", []))
            things = [part for _, part in self._places(slots, "TO")]
        if not things:
            raise NotRead(verb, "needs what to touch")
        slots.take("here")
        hands = tools or [
            hand for hand in self.scene.hands[:1] if hand.place not in {t.place for t in things}
        ]
        if not hands:
            raise NotRead(verb, "needs the part that touches, as in touch the head with the right hand")
        if len(things) > 1:  # "touch your toes": each with the hand of its side
            sided = {
                s: part for part in self.scene.hands for s in ("left", "right") if s in part.words.split()
            }
            pairs = [(sided.get(s), t) for t in things for s in ("left", "right") if s in t.words.split()]
            if tools or len(pairs) < len(things) or any(hand is None for hand, _ in pairs):
                raise NotRead(things[1].words, "cannot be touched at once; say first one, then the other")
            return [self.scene.near(hand, thing) for hand, thing in pairs if hand]
        self.last = hands if all(self.scene.own(t) for t in things) else things
        return [self.scene.near(hand, thing) for hand in hands for thing in things]

    def _push(self, slots: Slots, verb: str) -> list[c.Clause]:
        things = self._things(slots)
        if not things:
            raise NotRead(verb, "needs what to push")
        return self._moved(things, slots, verb)

    def _moved(self, things: Sequence[Part], slots: Slots, verb: str) -> list[c.Clause]:
        distance, ways = self._length(slots.one("distance")), self._ways(slots)
        place = self._places(slots, "TO", "ON")
        objects = all(not self.scene.own(part) for part in things)
        if place:
            if ways or distance:
                raise NotRead(verb, "names a place and a direction")
            prep, target = place[0]
            on = prep.startswith(("on", "at"))
            if objects:
                grips = verb not in ("push", "shove")
                return self._handled(
                    things, slots, lambda part: [self._put_at(part, target, on)], grips=grips
                )
            return [self.scene.near(part, target) for part in self._own(things, verb)]
        if len(ways) > 1:
            raise NotRead(ways[1], f"contradicts {ways[0]!r}")
        way = floats(self._along(ways[0])) if ways else None
        word = f"moves {ways[0]}" if ways else "moves"
        if objects:
            if ways and ways[0] in ("up", "down"):
                sign = 1 if ways[0] == "up" else -1
                return self._handled(things, slots, lambda part: [self.scene.raised(part, sign, distance)])
            shifted = c.Shifted(self.scene.of, things[0], way, distance, word)
            return self._handled(things, slots, lambda part: [replace(shifted, part=part)], grips=False)
        if not ways:
            raise NotRead(verb, "needs a direction or a place")
        if ways[0] in ("up", "down"):
            return [
                self.scene.raised(part, 1 if ways[0] == "up" else -1, distance)
                for part in self._own(things, verb)
            ]
        return [c.Shifted(self.scene.of, part, way, distance, word) for part in self._own(things, verb)]

    def _own(self, things: Sequence[Part], verb: str) -> list[Part]:
        if not (free := self._free(things)):
            raise NotRead(things[0].words, f"cannot be the part to {verb}: it is the body itself")
        return free

    def _put_at(self, part: Part, target: Part, on: bool) -> c.Near:
        if part.place == target.place:
            raise NotRead(target.words, "is the object itself")
        if on and not self.scene.own(target):
            return self.scene.on_top(part, target)
        return self.scene.near(part, target)

    def _move(self, slots: Slots, verb: str) -> list[c.Clause]:
        if joints := self._joints(slots):
            return self._joint(slots, joints)
        things = self._things(slots)
        if not things:
            if verb != "move":
                raise NotRead(verb, "needs what to move")
            return self._travel(slots, verb)
        return self._moved(things, slots, verb)

    def _put(self, slots: Slots, verb: str) -> list[c.Clause]:
        things = self._things(slots)
        if not things:
            raise NotRead(verb, "needs what to put, as in put the cube on the plate")
        if not any(s.data in ("place", "direction") for s in slots.left):
            raise NotRead(verb, "needs where to put it, as in put the cube on the plate")
        return self._moved(things, slots, verb)

    def _pick(self, slots: Slots, verb: str) -> list[c.Clause]:
        things = self._things(slots)
        if not things or any(self.scene.own(part) for part in things):
            raise NotRead(verb, "needs an object")
        amount = self._length(slots.one("distance"))
        grip = self._grip()
        return self._handled(
            things, slots, lambda part: [*grip, self.scene.raised(part, 1, amount)], must=True
        )

    def _grip(self, must: bool = True) -> list[c.Clause]:
        fingers = self.scene.fingers()
        return [c.Gripped(fingers, must)] if fingers else []

    def _grasp(self, slots: Slots, verb: str) -> list[c.Clause]:
        things = self._things(slots)
        if not things or any(self.scene.own(part) for part in things):
            raise NotRead(verb, "needs an object to grasp")
        grip = self._grip()
        return self._handled(things, slots, lambda part: list(grip), must=True)

    def _release(self, slots: Slots, verb: str) -> list[c.Clause]:
        things = self._things(slots)
        if not things or any(self.scene.own(part) for part in things):
            raise NotRead(verb, "needs an object to release")
        hand = self.scene.hands[0]
        return [
            replace(
                self.scene.near(hand, self._movable(part, slots)),
                within=self.scene.touching(hand, part) + 0.05,
                apart=True,
            )
            for part in things
        ]

    def _kick(self, slots: Slots, verb: str) -> list[c.Clause]:
        things = self._things(slots)
        tools = [part for slot in slots.take("tool") for part in self._nouns(slot.children[0])]
        if not things or any(self.scene.own(part) for part in things):
            raise NotRead(verb, "needs an object to kick")
        if not tools:
            tools = self.scene.parts.begin(["foot"], "right")[0]
        if not tools:
            raise NotRead(verb, "needs a foot, and no body of this model is named so")
        if len(ways := self._ways(slots)) > 1:
            raise NotRead(ways[1], f"contradicts {ways[0]!r}")
        way = floats(self._along(ways[0])) if ways else None
        made: list[c.Clause] = []
        for thing in things:
            self._movable(thing, slots)
            made.append(self.scene.near(tools[0], thing, must=False))
            made.append(
                c.Shifted(self.scene.of, thing, way, self._length(slots.one("distance")), "is kicked")
            )
        return made
