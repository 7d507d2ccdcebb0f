"""Verbs of the whole body: travel, turns, jumps, heights and postures."""

from __future__ import annotations

import lark
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.rewards.term import axis_text
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.parts import Part
from movlr_jax.tasks.words.said import BENT, STRAIGHT, UPRIGHT, WAYS, NotRead, Slots, Tree
from movlr_jax.tasks.words.scene import floats
from movlr_jax.tasks.words.verbs_objects import ObjectVerbs

_CROUCHED = 0.3  # as FALLEN, for motions close to the ground
_DEPTH = 0.3  # share of its height by which a body goes down that squats
_SIT = 0.6  # share of its height at which a body sits, most
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
_PART_TURNS = {
    "half": np.pi,
    "quarter": np.pi / 2,
    "full": 2 * np.pi,
    "whole": 2 * np.pi,
    "around": np.pi,
    "round": np.pi,
}


class BodyVerbs(ObjectVerbs):
    """Clauses of the whole body."""

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
        if path and kind == "SIDEWAYS" and not ways:
            raise slots.unread(path, "does not say to which side; say left or right")
        if kind == "CIRCLE":
            return self._circle(ways, speed, bool(given), distance)
        word, way = self._way(slots, ways, kind == "DIAGONALLY", path)
        if not scene.goes(floats(way)):
            said = word if ways or path else verb
            raise NotRead(
                said, f"is not possible: no joint lets {scene.root!r} move along {axis_text(floats(way))}"
            )
        if self.goal is not None:  # a place
            distance, self.goal = self.goal, None
        return [c.Travel(scene.of, floats(way), speed, word, bool(given), distance)]

    def _way(
        self, slots: Slots, ways: list[str], diagonal: bool, path: Tree | None
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
            found = [self._along(way) for way in ways if way in WAYS]
            if len(ways) != 2 or len(found) != 2 or abs(found[0] @ found[1]) > 0.5:
                two = (
                    f"contradicts {ways[0]!r}"
                    if len(ways) > 1
                    else "needs two directions, as in diagonally forward left"
                )
                raise NotRead(ways[-1] if len(ways) > 1 else "diagonally", two, len(self.text))
            return " and ".join(ways), (found[0] + found[1]) / np.sqrt(2.0)
        way = ways[0] if ways else "forward"
        if way not in WAYS:
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
        slots.take("here")
        if (axis := slots.one("axis")) and str(axis.children[-1])[0] not in "vz":
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
        slots.take("here")
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

    def _stand(self, slots: Slots, verb: str) -> list[c.Clause]:
        if verb == "balance" and (things := self._things(slots)):
            return self._upright(things)
        rises = self.scene.lies
        slots.take("here")
        for slot in slots.take("state"):
            if str(slot.children[0]) not in (*UPRIGHT, "still", "straight"):
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
        if any(state not in (*UPRIGHT, "still") for state in states):
            raise NotRead(states[0], f"says nothing that is understood of {verb!r}")
        if {*states} & {*UPRIGHT}:
            self.balance = True
        held = not self.scene.rises and bool(self.last)  # "touch the ball and stay there"
        if held or (states and "still" not in states):
            return []
        self.stops = verb
        return [c.Stay(self.scene.of)]

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

    def _keep(self, slots: Slots, verb: str) -> list[c.Clause]:
        before = list(self.last)
        states = [str(s.children[0]) for s in slots.left if s.data == "state"]
        hinge = bool({*states} & {*BENT, *STRAIGHT})
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

    def _move(self, slots: Slots, verb: str) -> list[c.Clause]:
        if joints := self._joints(slots):
            return self._joint(slots, joints)
        things = self._things(slots)
        if not things:
            if verb != "move":
                raise NotRead(verb, "needs what to move")
            return self._travel(slots, verb)
        return self._moved(things, slots, verb)
