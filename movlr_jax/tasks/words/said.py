"""A clause of a parse: what is said of its verb, and what was said before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import lark
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.tasks.words.parts import Part
from movlr_jax.tasks.words.scene import HINGES, Scene
from movlr_jax.tasks.words.sentence import FALLEN

Tree = Any  # of lark; its children are trees and tokens
WAYS = {"forward": (1, 0, 0), "ahead": (1, 0, 0), "back": (-1, 0, 0), "left": (0, 1, 0), "right": (0, -1, 0),
         "up": (0, 0, 1), "down": (0, 0, -1)}  # fmt: skip
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
            "ten": 10, "half": 0.5}  # fmt: skip
UPRIGHT = ("upright", "vertical", "vertically", "balanced")
BENT, STRAIGHT = ("bent", "flexed"), ("straight", "straightened", "stiff", "locked", "extended")
_TIMES = {"once": 1, "twice": 2, "thrice": 3}


class NotRead(Exception):
    """A word of a parse that means nothing on this model, and why."""

    def __init__(self, word: str, why: str, at: int = 0):
        self.word, self.why, self.at = word, why, at


def span(tree: Tree, text: str) -> tuple[str, int]:
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
    left: list[Tree] = field(default_factory=list)

    def take(self, *kinds: str) -> list[Tree]:
        found = [slot for slot in self.left if slot.data in kinds]
        self.left = [slot for slot in self.left if slot not in found]
        return found

    def one(self, kind: str) -> Tree | None:
        found = self.take(kind)
        if len(found) > 1:
            raise self.unread(found[1], "is said twice")
        return found[0] if found else None

    def unread(self, slot: Tree, why: str = "") -> NotRead:
        word = self.words(slot)
        return NotRead(
            word, why or f"says nothing that is understood of {self.verb!r}", span(slot, self.text)[1]
        )

    def words(self, slot: Tree) -> str:
        return span(slot, self.text)[0]

    def done(self) -> None:
        if self.left:
            raise self.unread(self.left[0])


@dataclass
class Said:
    """What the sentence said before: verb, things, asked place and heading; and readers of what is said of a verb."""

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
    stops: str = ""  # verb of this phase that asks to stay in place

    def _span(self, tree: Tree) -> str:
        return span(tree, self.text)[0]

    def _number(self, slot: Tree, signed: bool = False) -> float:
        token = next(t for t in slot.children if t.type == "NUMBER")
        number = float(_NUMBERS.get(str(token), 0) or float(token))
        if number <= 0 and not signed:
            raise NotRead(
                str(token), "must be more than 0; say the direction in words", span(slot, self.text)[1]
            )
        return number

    def _length(self, slot: Tree | None) -> float | None:
        if slot is None:
            return None
        unit = next(str(t) for t in slot.children if t.type == "LENGTH")
        return self._number(slot) * (0.01 if unit.startswith("c") else 0.001 if unit == "mm" else 1.0)

    def _angle(self, slot: Tree | None, signed: bool = False) -> float | None:
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

    def _nouns(self, nouns: Tree, side: str = "") -> list[Part]:
        """Return the parts and objects that nouns name, each of them. Raises NotRead."""
        found: list[Part] = []
        for noun in nouns.children:
            words = str(self._span(noun)).split()
            if words[-1] in ("it", "them"):
                if not self.last or len(words) > 1:
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
        return np.asarray(WAYS[way], float) @ self.scene.around

    def _peek(self, slots: Slots) -> list[str]:
        kept = list(slots.left)
        ways = self._ways(slots)
        slots.left = kept
        return ways
