"""A clause of a parse: what is said of its verb, and what was said before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import lark
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.tasks.words.clauses import Clause, P, Row, clause
from movlr_jax.tasks.words.parts import Part
from movlr_jax.tasks.words.scene import HINGES, Scene
from movlr_jax.tasks.words.sentence import FALLEN

Tree = Any  # of lark; its children are trees and tokens
WAYS = {"forward": (1, 0, 0), "ahead": (1, 0, 0), "back": (-1, 0, 0), "left": (0, 1, 0), "right": (0, -1, 0),
         "up": (0, 0, 1), "down": (0, 0, -1)}  # fmt: skip
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
            "ten": 10, "half": 0.5}  # fmt: skip
_UNITS = {"cm": 0.01, "cen": 0.01, "mm": 0.001, "deg": np.pi / 180, "km/": 1 / 3.6}  # first letters -> SI
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
class Phrase:
    """A verb and what is said of it: slots of the grammar. What is left at the end was not understood."""

    text: str
    verb: str
    left: list[Tree] = field(default_factory=list)

    def has(self, *kinds: str) -> bool:
        return any(slot.data in kinds for slot in self.left)

    def take(self, *kinds: str) -> list[Tree]:
        found = [slot for slot in self.left if slot.data in kinds]
        self.left = [slot for slot in self.left if slot not in found]
        return found

    def one(self, kind: str) -> Tree | None:
        found = self.take(kind)
        if len(found) > 1:
            raise self.unread(found[1], "is said twice")
        return found[0] if found else None

    def words(self, *kinds: str) -> list[str]:
        """Take slots of one word and return their words."""
        return [str(slot.children[-1]) for slot in self.take(*kinds)]

    def no(self, why: str) -> NotRead:
        """Return that the verb means nothing here."""
        return NotRead(self.verb, why)

    def unread(self, slot: Tree, why: str = "") -> NotRead:
        return NotRead(*_at(slot, self.text, why or f"says nothing that is understood of {self.verb!r}"))

    def number(self, kind: str, signed: bool = False) -> float | None:
        """Take the number of a slot in m, rad, s or m/s; None if it is not said."""
        slot = self.one(kind)
        if slot is None:
            return None
        token = next(t for t in slot.children if t.type == "NUMBER")
        number = float(_NUMBERS.get(str(token), 0) or float(token))
        if number <= 0 and not signed:
            why = "must be more than 0; say the direction in words"
            raise NotRead(str(token), why, span(slot, self.text)[1])
        unit = str(slot.children[-1])
        return number * next((factor for begin, factor in _UNITS.items() if unit.startswith(begin)), 1.0)

    def times(self) -> int | None:
        slot = self.one("times")
        if slot is None:
            return None
        if slot.children[0] == "again":
            raise self.unread(slot)
        word = str(slot.children[0])
        if word in _TIMES:
            return _TIMES[word]
        self.left.append(slot)
        return int(self.number("times") or 0)

    def ways(self, keep: bool = False) -> list[str]:
        """Take the directions: forward, back, left, right, up, down, clockwise, ..."""
        said = []
        for slot in [slot for slot in self.left if slot.data == "direction"]:
            word = str(slot.children[-1])
            stem = word.removesuffix(" side").removesuffix("wards").removesuffix("ward").removesuffix("s")
            said.append("forward" if stem == "for" else stem)
        if not keep:
            self.take("direction")
        return list(dict.fromkeys(said))

    def way(self) -> str:
        """Take the one direction; "" if it is not said."""
        if len(ways := self.ways()) > 1:
            raise NotRead(ways[1], f"contradicts {ways[0]!r}")
        return ways[0] if ways else ""

    def only(self, way: str, why: str) -> None:
        """Take the directions, which must be this one."""
        if other := [said for said in self.ways() if said != way]:
            raise NotRead(other[0], f"does not go with {self.verb!r}, which {why}")

    def done(self) -> None:
        if self.left:
            raise self.unread(self.left[0])


def _at(tree: Tree, text: str, why: str) -> tuple[str, str, int]:
    word, at = span(tree, text)
    return word, why, at


@dataclass
class Context:
    """The model, what the sentence said before, and readers of what is said of a verb."""

    scene: Scene
    text: str
    verb: lark.Token | None = None
    last: list[Part] = field(default_factory=list)  # that "it" means
    balance: bool | None = None  # None: as the body stands at the start
    lowest: float = FALLEN
    travelled: np.ndarray = field(default_factory=lambda: np.zeros(3))  # [3] m, by the phases before
    yaw: float | None = 0.0  # rad, left, by the phases before; None: not known
    risen: float | None = 0.0  # m, by the clauses before; None: not known
    low: bool = False  # whether it lies, sits or kneels after the clauses before
    leads: bool = True  # whether the next travel is the first
    stops: str = ""  # verb of this phase that asks to stay in place

    def clause(self, row: Row[P], *none: P.args, **given: P.kwargs) -> Clause:
        return clause(self.scene.of, row, *none, **given)

    def span(self, tree: Tree) -> str:
        return span(tree, self.text)[0]

    def along(self, way: str) -> np.ndarray:
        """Return the direction [3] in the world of a way of the body."""
        return np.asarray(WAYS[way], float) @ self.scene.around

    @property
    def lies(self) -> bool:
        """Whether it has to get up to stand."""
        return self.scene.lies or self.low

    def must_rise(self, phrase: Phrase, word: str) -> None:
        if not self.scene.rises:
            raise phrase.no(f"is not possible: no joint lets {self.scene.root!r} {word}")

    # Parts and objects.

    def nouns(self, nouns: Tree, hinge: bool = False) -> list[Part]:
        """Return the parts and objects that nouns name, each of them. Raises NotRead."""
        found: list[Part] = []
        for noun in nouns.children:
            words = self.span(noun).split()
            if words[-1] in ("it", "them"):
                if not self.last or len(words) > 1:
                    raise NotRead(words[-1], "means nothing that was named before", span(noun, self.text)[1])
                found += self.last
                continue
            words = [HINGES.get(word, word) for word in words] if hinge else words
            sides = {s for part in self.last for s in ("left", "right") if s in part.words.split()}
            why = "is no part, joint or object of this model"
            try:
                parts = self.scene.find(words, sides.pop() if len(sides) == 1 else "")
            except UserError as error:
                parts, why = [], f"is not a part of this model ({error})"
            if not parts:
                raise NotRead(" ".join(words), why, span(noun, self.text)[1])
            found += parts
        self.last = found
        return found

    def things(self, phrase: Phrase, needs: str = "", hinge: bool = False) -> list[Part]:
        """Take what the verb acts on. Raises NotRead if it needs something and there is nothing."""
        found = [part for slot in phrase.take("thing") for part in self.nouns(slot.children[0], hinge)]
        if needs and not found:
            raise phrase.no(f"needs {needs}")
        return found

    def objects(self, phrase: Phrase, needs: str) -> list[Part]:
        """Take the objects that the verb acts on, which are no parts of the body. Raises NotRead."""
        found = self.things(phrase, needs)
        if any(map(self.scene.own, found)):
            raise phrase.no(f"needs {needs}")
        return found

    def tools(self, phrase: Phrase) -> list[Part]:
        """Take the parts that act: "with the right hand"."""
        return [part for slot in phrase.take("tool") for part in self.nouns(slot.children[0])]

    def places(self, phrase: Phrase, *preps: str) -> list[tuple[str, Part]]:
        """Take (preposition, part) of the places that are named with one of these kinds of prepositions."""
        found = []
        for slot in phrase.take("place"):
            prep, nouns = slot.children
            before = self.last
            if prep.type not in preps:
                raise phrase.unread(slot)
            found += [(str(prep), part) for part in self.nouns(nouns)]
            self.last = before or self.last
        return found

    def joints(self, phrase: Phrase) -> list[str]:
        """Take the joints that the things are the names of, if all are."""
        nouns = [noun for slot in phrase.left if slot.data == "thing" for noun in slot.children[0].children]
        names = [self.scene.joint(self.span(noun).split()) for noun in nouns]
        if not names or not all(names):
            return []
        phrase.take("thing")
        return [joint for several in names for joint in several]

    def movable(self, part: Part) -> Part:
        if self.scene.fixed(part):
            raise NotRead(part.words, "cannot move, so nothing can be done with it here")
        return part
