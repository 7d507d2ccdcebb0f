"""Verbs of objects: touch, push, put, pick up, grasp, release, kick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import lark

from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.parts import Part
from movlr_jax.tasks.words.said import NotRead, Slots
from movlr_jax.tasks.words.scene import floats
from movlr_jax.tasks.words.verbs_parts import PartVerbs


class ObjectVerbs(PartVerbs):
    """Clauses of objects, with the approach of what handles them."""

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

    def _put_at(self, part: Part, target: Part, on: bool) -> c.Near:
        if part.place == target.place:
            raise NotRead(target.words, "is the object itself")
        if on and not self.scene.own(target):
            return self.scene.on_top(part, target)
        return self.scene.near(part, target)

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
