"""A clause of a parse: what is said of its verb, and what was said before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import lark
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models.hands import Fingers, fingers_of
from movlr_jax.models.names import part_of, place_of, side_of
from movlr_jax.tasks.words.clauses import Clause, P, Row, clause
from movlr_jax.tasks.words.parts import JOINTS, Part
from movlr_jax.tasks.words.scene import ABOUT, HINGES, ORDINALS, Scene
from movlr_jax.tasks.words.sentence import FALLEN

T = TypeVar("T")
Tree = Any  # of lark; its children are trees and tokens
WAYS = {"forward": (1, 0, 0), "ahead": (1, 0, 0), "back": (-1, 0, 0), "left": (0, 1, 0), "right": (0, -1, 0),
         "up": (0, 0, 1), "down": (0, 0, -1)}  # fmt: skip
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
           "ten": 10, "half": 0.5}  # fmt: skip
_UNITS = {"cm": 0.01, "cen": 0.01, "mm": 0.001, "inch": 0.0254, "ft": 0.3048, "deg": np.pi / 180, "rev": 2 * np.pi,
          "km/": 1 / 3.6, "mph": 0.44704, "ms": 0.001, "milli": 0.001, "min": 60.0}  # fmt: skip
_BENDS = ("waist", "neck", "head", "torso", "trunk")  # bodies that bend at the joints by which they hang on another
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
    lasts: bool = False  # whether it says for how long
    excluded: bool = False  # whether it should not happen
    bound: str = ""  # "at least" or "at most", of the amount that was taken

    def has(self, *kinds: str) -> Tree | None:
        """Return the first slot of these kinds that is left."""
        return next((slot for slot in self.left if slot.data in kinds), None)

    def take(self, *kinds: str) -> list[Tree]:
        found = [slot for slot in self.left if slot.data in kinds]
        self.left = [slot for slot in self.left if slot not in found]
        return found

    def one(self, *kinds: str) -> Tree | None:
        found = self.take(*kinds)
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
        word, at = span(slot, self.text)
        return NotRead(word, why or f"says nothing that is understood of {self.verb!r}", at)

    def number(self, *kinds: str, signed: bool = False) -> float | None:
        """Take the number of the slot of one of these kinds in m, rad, s or m/s; None if it is not said."""
        slot = self.one(*kinds)
        if slot is None:
            return None
        tokens = [t for t in slot.children if isinstance(t, lark.Token)]
        at = next((i for i, token in enumerate(tokens) if token.type == "NUMBER"), -1)
        if at < 0:
            return None
        token, *units = tokens[at:]
        number = float(NUMBERS.get(str(token), 0) or float(token))
        if number <= 0 and not signed:
            why = "must be more than 0; say the direction in words"
            raise NotRead(str(token), why, span(slot, self.text)[1])
        self.bound = next((str(t) for t in tokens if t.type == "BOUND"), self.bound)
        unit = str(units[0])
        return number * next((factor for begin, factor in _UNITS.items() if unit.startswith(begin)), 1.0)

    def negative(self, *kinds: str) -> bool:
        """Return whether a slot of one of these kinds is left that has a number below 0."""
        slot = self.has(*kinds)
        return slot is not None and any(str(token).startswith("-") for token in slot.children)

    def times(self, whole: bool = True) -> Any:
        """Take how often something is done, an int or a float that is not `whole`; None if it is not said."""
        slot = self.has("times")
        word = str(slot.children[0]) if slot else ""
        if word == "again":
            raise self.unread(slot)
        if word in _TIMES:
            self.one("times")
            return _TIMES[word]
        times = self.number("times")
        if slot and times and times % 1 and whole:
            raise self.unread(slot, "is no whole number")
        return times if times is None or times % 1 else int(times)

    def share(self) -> float | None:
        """Take how far of its way something goes: 1 is all of it."""
        slot = self.one("share")
        return None if slot is None else 0.5 if slot.children[0] == "halfway" else 1.0

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


def axis_of(phrase: Phrase, axis: Tree) -> tuple[str, np.ndarray]:
    """Return the words for an axis of the world with its sign, and its direction [3]."""
    text = {"positive": "+", "negative": "-"}.get(str(axis.children[0]), "") + str(axis.children[-1])
    if text == "vertical":
        raise phrase.unread(axis)
    sign, letter = "-" if text[0] == "-" else "+", text.lstrip("+-")
    return f"along {sign}{letter}", np.eye(3)["xyz".index(letter)] * float(f"{sign}1")


@dataclass
class Moved:
    """How the sentence has moved the body before."""

    travelled: np.ndarray = field(default_factory=lambda: np.zeros(3))  # [3] m, by the phases before
    measured: bool = True  # whether all these have distances
    yaw: float | None = 0.0  # rad, left, by the phases before; None: not known
    risen: float | None = 0.0  # m, by the clauses before; None: not known
    turned: bool = False  # whether a clause before turns it
    low: bool = False  # whether it lies, sits or kneels after the clauses before
    leads: bool = True  # whether the next travel is the first
    leaned: list[Clause] = field(default_factory=list)  # of the phases before, to stand upright again after


@dataclass
class Context:
    """The model, what the sentence said before, and readers of what is said of a verb."""

    scene: Scene
    text: str
    verb: lark.Token | None = None
    verbs: set[str] = field(default_factory=set)  # kinds of the verbs before
    thing: Tree | None = None  # that the last verb acts on
    last: list[Part] = field(default_factory=list)  # that "it" means
    it: list[list[str]] = field(default_factory=list)  # words of the joints or fingers that "it" means
    closed: list[Clause] = field(default_factory=list)  # of the last fingers that closed or opened
    at: dict[str, float | None] = field(default_factory=dict)  # joint -> value after the clauses before, if known
    balance: bool | None = None  # None: as the body stands at the start
    lowest: float = FALLEN
    moved: Moved = field(default_factory=Moved)
    begins: bool = True  # whether a phase begins
    up: bool = False  # whether this phase asks to stand up
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
        return self.scene.lies or self.moved.low

    def must_rise(self, phrase: Phrase, word: str) -> None:
        if not self.scene.rises:
            raise phrase.no(f"is not possible: no joint lets {self.scene.root!r} {word}")

    # Parts and objects.

    def said(self, nouns: Tree) -> list[list[str]]:
        """Return the words of each thing that nouns name: of "left and right arm" two, of "tip of the thumb" one."""
        found = list[list[str]]()
        for noun in nouns.children:
            if isinstance(noun, lark.Token):  # except
                found[-1] += ["except", *self.span(nouns.children[-1]).split()]
                break
            words = self.span(noun).split()
            if "of" in words:
                at = words.index("of")
                words = [word for word in (*words[at + 1 :], *words[:at]) if word not in ("the", "your", "its")]
            if "and" in words:
                at = words.index("and")
                found.append([*words[:at], *words[at + 2 :]])
                words = words[at + 1 :]
            found += self.it if words in (["it"], ["them"]) and self.it else [words]
        return found

    def named(self, phrase: Phrase, kind: str = "thing") -> list[list[str]]:
        """Return the words of each thing that slots of a kind name, and leave them."""
        return [words for slot in phrase.left if slot.data == kind for words in self.said(slot.children[0])]

    def nouns(self, nouns: Tree, hinge: bool = False, each: bool = False) -> list[Part]:
        """Return the parts and objects that nouns name, each of them. Raises NotRead.

        each: whether "shoulder" can mean that of each side of the parts that were named before.
        """
        found, at, said = list[Part](), span(nouns, self.text)[1], self.said(nouns)
        for words in said:
            if not words:
                raise NotRead(self.span(nouns), "names nothing", at)
            if words[-1] in ("it", "them"):
                if not self.last or len(words) > 1:
                    raise NotRead(words[-1], "means nothing that was named before", at)
                if words == ["it"] and len(self.last) > 1:
                    names = " or ".join(part.words for part in self.last)
                    raise NotRead("it", f"can mean {names}; say which one, or them", at)
                found += self.last
                continue
            if ordinal := next((word for word in words if word in ORDINALS), ""):
                raise NotRead(ordinal, "is known of joints of an arm or a finger alone; say the name", at)
            if "except" in words:
                at_word = words.index("except")
                every, none = (self.scene.known(some) for some in (words[:at_word], words[at_word + 1 :]))
                parts = [part for part in every if part.place not in {other.place for other in none}]
                if not none or len(parts) != len(every) - len(none):
                    raise NotRead(" ".join(words), "is no part, joint or object of this model", at)
                found += parts
                continue
            if {"other", "others"} & {*words}:
                found += self._others(words, hinge, at)
                continue
            count = next((NUMBERS[word] for word in words[1:] if "all" in words and word in NUMBERS), 0)
            words = [word for word in words if not count or word not in NUMBERS]
            words = [HINGES.get(word, word) for word in words] if hinge else words
            sides = {s for part in self.last for s in ("left", "right") if s in part.words.split()}
            side = sides.pop() if len(sides) == 1 else ""
            why = "is no part, joint or object of this model"
            if words == ["finger"] and self.scene.fingered:
                raise NotRead(" ".join(words), "can mean several; say which finger", at)
            try:
                parts = self.scene.find(words, side)
            except UserError as error:
                parts, why = [], f"is not a part of this model ({error})"
            if not parts:
                raise NotRead(" ".join(words), why, at)
            count = 2 if "both" in words else count
            if count and len(parts) != count:
                has = f"this model has {len(parts)} of the name {words[-1]!r}"
                raise NotRead(words[0], f"means {count:g}, and {has}", at)
            others = self.scene.others(words, parts[0], side) if len(parts) == 1 else []
            if len(parts) == 1 and (unsided := self.scene.unsided(words, parts[0])):
                others = [*parts, *unsided]  # "the left leg" of a body with a front left one and a rear one
            if each and len(others) == len(self.last) == len(sides) == 2:
                parts = others
            elif others:
                names = " or ".join(part.words for part in others)
                raise NotRead(" ".join(words), f"can mean {names}; say which one, or both or all", at)
            found += parts
        named = said == self.it or all(fingers_of(self.scene.fingered, words) for words in said)
        self.last, self.it = found, said if named else []
        return found

    def _others(self, words: list[str], hinge: bool, at: int) -> list[Part]:
        """Return the parts of the body that were not named just before: the other arm, the other legs."""

        def where(part: Part) -> object:
            around = part.words.split()
            return (place_of(around), side_of(around)) if side_of(around) else part.place

        kind = [word for word in words if word not in ("other", "others", *NUMBERS)]
        count = next((NUMBERS[word] for word in words if word in NUMBERS), 0)
        kind = kind or [part_of(part.words.split())[-1] for part in self.last[:1]]
        kind = [HINGES.get(word, word) for word in kind] if hinge else kind
        every = [part for part in self.scene.known(["all", *kind]) if self.scene.own(part)] if kind else []
        found = [part for part in every if where(part) not in map(where, self.last)]
        one = len(found) == 1 or words[-1].endswith("s") or words[-1] == "feet"
        if not found or not one or len(found) == len(every) or count not in (0, len(found)):
            raise NotRead(" ".join(words), "does not say which, as none was named just before", at)
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
        if it := [slot for slot in phrase.left if slot.data == "tool" and self.span(slot) in ("it", "them")]:
            raise phrase.unread(it[0], "can mean several; say the name")
        return [part for slot in phrase.take("tool") for part in self.nouns(slot.children[0])]

    def places(self, phrase: Phrase, *preps: str) -> list[tuple[str, Part]]:
        """Take (preposition, part) of the places that are named with one of these kinds of prepositions."""
        found = []
        for slot in phrase.take("place"):
            prep, nouns, *_ = slot.children
            before = self.last, self.it
            if prep.type not in preps:
                raise phrase.unread(slot)
            found += [(str(prep), part) for part in self.nouns(nouns, each=True)]
            self.last, self.it = before if any(before) else (self.last, self.it)
        return found

    def place(self, phrase: Phrase, *preps: str) -> tuple[str, Part] | None:
        """Take the one place, as `places`."""
        found = self.places(phrase, *preps)
        if len(found) > 1:
            raise NotRead(found[1][1].words, "is a second place; say which is first, with 'then'")
        return found[0] if found else None

    def joints(self, phrase: Phrase) -> list[str]:
        """Take the joints that the things are the names of, if all are."""
        return [joint for found in self._all(phrase, "thing", self.scene.joint) for joint in found]

    def hinges(self, phrase: Phrase, axis: np.ndarray | None = None) -> list[tuple[str, int]]:
        """Take the joints at the places that the things are, as the waist, with signs that turn them about `axis`.

        axis: [3], world frame; None: the joint that flexes it, or the only one. Raises NotRead if that is not known.
        """

        def find(words: list[str]) -> list[tuple[str, int]]:
            noun = words[-1].removesuffix("s")
            limb = noun in (*HINGES, *HINGES.values()) or (axis is None and noun not in (*JOINTS, *_BENDS))
            if limb or not (every := self.scene.hinges(words)):
                return []
            if axis is not None:
                along = {joint: float(self.scene.data.joint(joint).xaxis @ axis) for joint in every}
                found = [(joint, 1 if of > 0 else -1) for joint, of in along.items() if abs(of) > ABOUT]
            else:
                flex = [joint for joint in every if any("flex" in word for word in self.scene.joints[joint])]
                found = [(joint, 1) for joint in flex or every]
            wanted = 2 if "both" in words else 1
            if len(found) != wanted:
                several = f"can mean {', '.join(every[:-1])} or {every[-1]}; say the name of the joint"
                raise NotRead(" ".join(words), several if len(every) > 1 else "does not turn that way")
            return found

        return [joint for found in self._all(phrase, "thing", find) for joint in found]

    def fingers(self, phrase: Phrase, kind: str = "thing") -> list[Fingers]:
        """Take the hands and fingers that slots of a kind name, if all do."""

        def find(words: list[str]) -> list[Fingers]:
            if words in (["others"], ["other", "fingers"]):
                return [of.others for named in self.it for of in fingers_of(self.scene.fingered, named)]
            if "except" in words:
                at = words.index("except")
                every, none = (fingers_of(self.scene.fingered, some) for some in (words[:at], words[at + 1 :]))
                whole = any(of.digits == of.hand.fingers for of in every)  # no "index finger except the thumb"
                return [of.others for of in none if whole and len(none) == 1]
            found = fingers_of(self.scene.fingered, words)
            if found and (others := self.scene.other_hands(words)):
                raise NotRead(" ".join(words), f"can mean {' or '.join(others)}; say which one, or both")
            return found

        return [fingers for several in self._all(phrase, kind, find) for fingers in several]

    def _all(self, phrase: Phrase, kind: str, find: Callable[[list[str]], list[T]]) -> list[list[T]]:
        """Take the slots of a kind and return what they name, if `find` finds something for each; else leave them."""
        said = self.named(phrase, kind)
        found = [find(words) for words in said]
        if not found or not all(found):
            return []
        phrase.take(kind)
        self.last, self.it = [], said
        return found

    def movable(self, part: Part) -> Part:
        if self.scene.fixed(part):
            raise NotRead(part.words, "cannot move, so nothing can be done with it here")
        return part
