"""Words in the names of bodies, joints and sites: `LeftUpperArm_2`, `FL_calf`, `rhand`, `Fuß_li`, `robot/foot.R`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

SIDES = ("left", "right")
PLACES = ("front", "middle", "rear")

# word in a name or a sentence -> the side or place that it means
_ADJECTIVES = {
    **dict.fromkeys(("l", "left", "lft", "lt"), "left"),
    **dict.fromkeys(("r", "right", "rgt", "rt"), "right"),
    **dict.fromkeys(("links", "linker", "linke", "linkes", "linken", "li"), "left"),
    **dict.fromkeys(("rechts", "rechter", "rechte", "rechtes", "rechten", "re"), "right"),
    **dict.fromkeys(("front", "fore", "vorn", "vorne", "vorder", "vordere", "vorderer", "vorderes"), "front"),
    **dict.fromkeys(("rear", "hind", "hinten", "hinter", "hintere", "hinterer", "hinteres"), "rear"),
    **dict.fromkeys(("middle", "mid", "mitte"), "middle"),
}
# two letters for a place and a side, in either order, as on robots: FL, RR, LF, RH
_LETTERS = {"f": "front", "m": "middle", "h": "rear", "b": "rear"}
_CODES = {
    **{place + side[0]: (word, side) for place, word in (*_LETTERS.items(), ("r", "rear")) for side in SIDES},
    **{side[0] + place: (word, side) for place, word in _LETTERS.items() for side in SIDES},
    "lr": ("rear", "left"),
}
_GERMAN = {
    "fuss": ("foot",), "bein": ("leg",), "kopf": ("head",), "knie": ("knee",), "ellbogen": ("elbow",),
    "ellenbogen": ("elbow",), "schulter": ("shoulder",), "huefte": ("hip",), "rumpf": ("trunk",),
    "becken": ("pelvis",), "oberschenkel": ("thigh",), "unterschenkel": ("shank",), "oberarm": ("upper", "arm"),
    "unterarm": ("lower", "arm"), "zeh": ("toe",), "zehen": ("toes",), "pfote": ("paw",), "rad": ("wheel",),
    "daumen": ("thumb",), "ferse": ("heel",), "handgelenk": ("wrist",), "knoechel": ("ankle",),
}  # fmt: skip
# parts to whose names a side may be glued: lfoot, handR, leftarm
_LIMBS = {"arm", "leg", "foot", "feet", "hand", "paw", "thigh", "shank", "shin", "calf", "knee", "hip", "ankle",
          "toe", "toes", "heel", "wheel", "limb"}  # fmt: skip
_PARTS = {*_GERMAN, *_LIMBS, "elbow", "shoulder", "wrist", "palm", "finger", "fingers", "thumb", "femur", "tibia",
          "fibula", "humerus", "radius", "ulna", "clavicle", "scapula", "forearm", "upperarm", "lowerarm", "upperleg",
          "lowerleg", "calcn", "talus", "patella", "eye", "ear", "wing", "hoof", "collar", "upper", "lower", "up",
          "low"}  # fmt: skip
_OF_FEET = ("forefoot", "midfoot", "hindfoot", "rearfoot")  # segments of a foot, not feet at a place
_SPELT = {"ß": "ss", "ä": "ae", "ö": "oe", "ü": "ue"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words_of(name: str) -> list[str]:
    """Split a name into words, sides and places: `LeftUpperArm_2` -> left, upper, arm, 2; `FL_calf` -> front, left,
    calf; `mixamorig:RightHand` -> right, hand.
    """
    return _joined(_split(name), coded=True)


def words_of_all(names: Iterable[str]) -> dict[str, list[str]]:
    """Return name -> words for the names of one model.

    LF and RF mean the front only if other names have an LH or another place, as those of a quadruped; else the F says
    nothing.
    """
    split = {name: _split(name) for name in dict.fromkeys(names)}
    places = {_CODES[word][0] for words in split.values() for word in words if word in _CODES}
    return {name: _joined(words, coded=len(places) > 1) for name, words in split.items()}


def coded(word: str) -> str:
    """Return the place and side of two letters: "FL" -> "front left"; "" for other words."""
    return " ".join(_CODES.get(word.lower(), ()))


def side_of(words: Sequence[str]) -> str:
    """Return left or right, the first that is among `words`; "" for neither."""
    return next((word for word in words if word in SIDES), "")


def place_of(words: Sequence[str]) -> str:
    """Return front, middle or rear, the first that is among `words`; "" for none. A middle finger is at no place."""
    finger = {*words} & {"finger", "fingers"}
    return next((word for word in words if word in PLACES and not (finger and word == "middle")), "")


def part_of(words: Sequence[str]) -> list[str]:
    """Return `words` without side, place and numbers."""
    around = (*SIDES, place_of(words))
    return [word for word in words if word not in around and not word.isdigit()]


def adjectives_in(words: Sequence[str]) -> list[str]:
    """Return `words` with every side and place as one of SIDES and PLACES; "back" is a place before a limb."""
    words = [_ADJECTIVES.get(word, word) if len(word) > 2 else word for word in words]
    limbs = {*words} & {*_LIMBS, *(f"{limb}s" for limb in _LIMBS)}
    return ["rear" if word == "back" and limbs else word for word in words]


def _split(name: str) -> list[str]:
    """Split a name into lower-case words. Of namespaces before it, only sides and places count, if it has none."""
    name = re.sub("|".join(_SPELT), lambda found: _SPELT[found[0]], name)
    *spaces, words = [
        [part for word in _WORD.findall(space) for part in _unglued(word.lower())]
        for space in re.split(r"[/:]+", name.strip("/:"))
    ]
    around = {*_ADJECTIVES, *_CODES}
    outer = [] if {*words} & around else [word for space in spaces for word in space if word in around]
    return [*outer, *words]


def _unglued(word: str) -> list[str]:
    """Split a side or a place off a part: lfoot -> l, foot; footr -> r, foot; frontleft -> front, left."""
    if word in _PARTS or word in _ADJECTIVES or word in _OF_FEET:
        return [word]
    for adjective in sorted((*_ADJECTIVES, *_CODES), key=len, reverse=True):
        begins, ends = word.removeprefix(adjective), word.removesuffix(adjective)
        for rest in (begins, ends):
            if rest != word and rest and (rest in _PARTS or (len(adjective) > 2 and rest in _ADJECTIVES)):
                return [adjective, rest] if rest == begins else [rest, adjective]
            if rest != word and len(adjective) > 2 and (more := _unglued(rest)) != [rest]:
                return [adjective, *more] if rest == begins else [*more, adjective]
    return [word]


def _joined(split: Sequence[str], coded: bool) -> list[str]:
    """Return split words in English. coded: whether codes of two letters say a place, not only a side."""
    words: list[str] = []
    for word in split:
        if word in _CODES:
            place, side = _CODES[word]
            words += [place, side] if coded else [side]
        else:
            words += _GERMAN.get(word) or [_ADJECTIVES.get(word, word)]
    if "back" in words and (side_of(words) or {*words} & _LIMBS):
        words[words.index("back")] = "rear"
    return words


def with_pairs(words: Sequence[str]) -> list[str]:
    """Return `words` and the parts that two of them name: upper, arm -> upper, arm, upperarm."""
    full = ["upper" if word == "up" else "lower" if word == "low" else word for word in words]
    return [*words, *(a + b for a, b in pairwise(full) if a in ("upper", "lower"))]
