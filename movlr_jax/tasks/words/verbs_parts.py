"""Verbs of parts and joints: raise, lower, point, bend, wave, and postures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import lark
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.parts import Part
from movlr_jax.tasks.words.said import BENT, STRAIGHT, UPRIGHT, WAYS, NotRead, Said, Slots, Tree, span
from movlr_jax.tasks.words.scene import HINGES, floats

_WAVE = 0.25  # how far a part that waves swings to either side, as a share of its distance from the trunk
_LEVEL = ("level", "horizontal", "horizontally")
_HIGH, _LOWERED = ("up", "raised", "lifted", "overhead"), ("down", "lowered")


class PartVerbs(Said):
    """Clauses of parts of the body, joints, and what handles objects."""

    def _posture(self, tree: Tree) -> list[c.Clause]:
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
        hinge = word in (*BENT, *STRAIGHT)
        before = self.last
        parts = self._nouns(nouns, "hinge" if hinge else "")
        self.last = before or parts
        return self._in_state(parts, word, tree)

    def _in_state(self, parts: Sequence[Part], word: str, tree: Tree) -> list[c.Clause]:
        """Return that parts are in a state: raised, bent, upright, level, sideways."""
        if word in UPRIGHT:
            return self._upright(parts)
        if word in _LEVEL:
            return [
                c.Pointed(self.scene.of, part, self.scene.of.up, "level", floats(self.scene.vertical(part)))
                for part in self._free(parts)
                if part.offset is not None
            ]
        if word in _HIGH or word in _LOWERED:
            return [self.scene.raised(part, 1 if word in _HIGH else -1) for part in self._free(parts)]
        if word in BENT:
            return self._bent(parts, 1, None, None)
        if word in STRAIGHT:
            return self._bent(parts, 1, None, 0.0)
        return self._points(parts, word, tree)

    def _points(self, parts: Sequence[Part], word: str, tree: Tree) -> list[c.Clause]:
        if word in ("sideways", "to side", "aside"):
            return [
                self.scene.pointed(part, self.scene.aside(part), "sideways") for part in self._free(parts)
            ]
        word = {"forwards": "forward", "ahead": "forward", "backwards": "backward", "back": "backward"}.get(
            word, word
        )
        way = {"backward": "back", "upward": "up", "downward": "down"}.get(word, word)
        if way not in WAYS:
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
        bent = any(str(s.children[0]) in BENT for s in slots.left if s.data == "state")
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
        """Return the clauses of joints that have the names of knees and elbows: by the angle between segments."""
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

    def _grip(self, must: bool = True) -> list[c.Clause]:
        fingers = self.scene.fingers()
        return [c.Gripped(fingers, must)] if fingers else []

    def _own(self, things: Sequence[Part], verb: str) -> list[Part]:
        if not (free := self._free(things)):
            raise NotRead(things[0].words, f"cannot be the part to {verb}: it is the body itself")
        return free
