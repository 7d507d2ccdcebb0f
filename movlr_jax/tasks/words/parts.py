"""Parts of a body that words name: `the right arm`, `both feet`, `its knee`, `pole`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.models.names import PLACES, SIDES, adjectives_in, part_of, place_of, side_of, words_of_all
from movlr_jax.rewards.term import array_of, identifier, quoted

_CENTRED = 0.01  # m, a centre of mass closer to the origin of its body counts as being there
_MASSLESS = 1e-6  # kg, a body that is lighter has no centre of mass, whatever its file says
_BEFORE = ("the", "a", "an", "its", "your", "his", "her", "their", "one", "each", "of", "both", "all")
_SINGULAR = {"feet": "foot", "calves": "calf"}
_LIMBS = ("arm", "leg", "limb", "wing", "tail", "finger")  # of several bodies, the last of which is the end
# word -> roles of such bodies and sites, the best first
_ROLES: Mapping[str, Sequence[str]] = {
    "arm": ("palm_site", "hand", "forearm", "upper_arm"),
    "hand": ("palm_site", "hand", "forearm"),
    "palm": ("palm_site", "hand", "forearm"),
    **dict.fromkeys(("effector", "end effector", "tool"), ("hand",)),
    "upper arm": ("upper_arm",),
    "leg": ("foot", "shank", "thigh"),
    "toe": ("toes", "foot", "shank"),
    **dict.fromkeys(("foot", "paw", "heel"), ("foot", "shank")),
    "chest": ("trunk",),
    "thumb": ("thumb_site",),
    **{f"{finger} finger": (f"{finger}_site",) for finger in ("index", "middle", "ring", "little")},
    **dict.fromkeys(("shin", "calf"), ("shank",)),
    **dict.fromkeys(("forehead", "face", "mouth", "chin", "nose"), ("head",)),
}
_ENDS = {"forearm": ("arm", "hand", "palm"), "shank": ("foot", "paw", "heel", "toe")}  # at the end of this segment
JOINTS = {  # a joint is where the body begins that it moves
    "knee": "shank", "elbow": "forearm", "shoulder": "upper_arm", "hip": "thigh", "ankle": "foot", "wrist": "hand",
}  # fmt: skip
# words for parts of bodies that no name of the model need have
NAMED = (
    *_ROLES, *JOINTS, "forearm", "thigh", "shank", "head", "trunk", "torso", "pelvis", "foot",
    "hand", "finger", "limb",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A site, or a point of a body."""

    words: str
    place: str  # name of the site or body
    offset: tuple[float, ...] | None  # [3] m, the point in the frame of the body; None for a site
    base: str  # the body that the limb begins with

    @property
    def name(self) -> str:
        return identifier(self.words)

    def text(self, state: str = "state") -> str:
        """Return the expression of a reward program for its position [3] m."""
        if self.offset is None:
            return f"{state}.site({quoted(self.place)})"
        origin = f"{state}.pos({quoted(self.place)})"
        if not any(self.offset):
            return origin
        return f"({origin} + {state}.rot({quoted(self.place)}) @ {array_of(self.offset)})"

    @property
    def moved(self) -> str:
        """Expression of how far it is from where it began [3] m."""
        return f"({self.text()} - {self.text('state.initial')})"

    @property
    def velocity(self) -> str:
        """Expression of its velocity [3] m/s, of a point of a body."""
        body, offset = quoted(self.place), array_of(self.offset or (0.0, 0.0, 0.0))
        turned = f" + jnp.cross(state.angvel({body}), state.rot({body}) @ {offset})" if any(self.offset or ()) else ""
        return f"(state.vel({body}){turned})"

    def now(self, data: mujoco.MjData) -> np.ndarray:
        """Return its position [3] m in `data`."""
        if self.offset is None:
            return data.site(self.place).xpos
        body = data.body(self.place)
        return body.xpos + body.xmat.reshape(3, 3) @ np.asarray(self.offset)

    def limb(self, data: mujoco.MjData) -> np.ndarray:
        """Return its limb [3] m in `data`, from where that begins to the part."""
        return self.now(data) - data.body(self.base).xpos

    def overhead(self, data: mujoco.MjData, up: np.ndarray) -> np.ndarray:
        """Return the position [3] m at which it is if its limb points `up` [3] from where it begins."""
        return data.body(self.base).xpos + up * float(np.linalg.norm(self.limb(data)))


@dataclass(frozen=True)
class Between(Part):
    """The point in the middle between several parts, as where the jaws of a gripper hold a thing.

    words, place, offset and base are those of the part that carries them.
    """

    ends: tuple[Part, ...] = ()

    @staticmethod
    def of(ends: Sequence[Part], carrier: Part | None = None) -> Between:
        """Return the point between `ends`, which `carrier` carries; that is the first of them if not given."""
        by = carrier or ends[0]
        return Between(by.words, by.place, by.offset, by.base, tuple(ends))

    def text(self, state: str = "state") -> str:
        return f"({' + '.join(end.text(state) for end in self.ends)}) / {len(self.ends)}"

    def now(self, data: mujoco.MjData) -> np.ndarray:
        return np.mean([end.now(data) for end in self.ends], axis=0)


class Parts:
    """Finds parts of a model by words. roles: role -> body or site; sites: those that an episode records."""

    def __init__(self, model: mujoco.MjModel, roles: Mapping[str, str], sites: Sequence[str]):
        self._model, self._roles = model, roles
        self._bodies = {model.body(b).name for b in range(1, model.nbody)}
        named = [*(model.body(b).name for b in range(1, model.nbody)), *sites]
        self._names = words_of_all([name for name in named if "attach" not in name.lower()])  # where others are fixed

    @property
    def names(self) -> Mapping[str, Sequence[str]]:
        """Name -> words of all bodies and sites."""
        return self._names

    def find(self, words: Sequence[str], side: str = "") -> list[Part]:
        """Return the parts that all the words name; none if they name none.

        side: left or right, preferred where `words` name none. Raises UserError for a side or place of a part that
        the model has only elsewhere, as the right hand of a body that has a left one.
        """
        words = adjectives_in(words)
        first = next((i for i, word in enumerate(words) if word not in _BEFORE), len(words))
        around = {*SIDES, *PLACES}
        sided = next((i for i, word in enumerate(words[first:]) if word not in around), 0)
        for begin in range(first, min(first + 1 + sided, len(words))):
            *more, noun = words[begin:]
            singular = _SINGULAR.get(noun, noun if noun.endswith("ss") else noun.removesuffix("s"))
            if found := self._named([*more, noun]) or self._named([*more, singular]):
                if begin > first:
                    raise self._missing(words[first:], found)
                alike = self._alike(found)
                if len(alike) > len(found) and side_of(words[begin:]):  # is foot_1 or foot_2 the right one?
                    raise self._missing(words[begin:], alike)
                if noun != singular or {"both", "all"} & {*words[:first]}:
                    return alike
                return [next((part for part in found if side in part.words.split()), found[0])]
        return []

    def _alike(self, found: Sequence[Part]) -> list[Part]:
        """Return `found`, or where that is one part without a side all that have its name and another number."""
        if len(found) != 1 or side_of(found[0].words.split()):
            return list(found)
        words = {name: [w for w in known if not w.isdigit()] for name, known in self._names.items()}
        mine = words.get(found[0].place)
        names = [name for name, of in words.items() if mine and of == mine and name in self._bodies]
        return [self._part(name, found[0].words) for name in names] if len(names) > 1 else list(found)

    def of(self, name: str) -> Part:
        """Return the part of a body or site."""
        return self._part(name, "")

    def _missing(self, words: Sequence[str], near: Sequence[Part]) -> UserError:
        """Return the error for a part that the words name, where the model has only those `near`."""
        has = ", ".join(dict.fromkeys(f"{part.words} ({part.place})" for part in near))
        return UserError(
            f"the description names the {' '.join(words)}, which this model does not have; it has: {has}. Name one "
            "of these, or give the body another name"
        )

    def _named(self, words: list[str]) -> list[Part]:
        """Return all parts that the words name, in the singular."""
        said, noun = {*words}, " ".join(part_of(words))
        if not noun:
            return []
        if noun in JOINTS and (found := self._of_role(noun, side_of(words), place_of(words))):
            return found  # not a marker of that name
        same = [name for name, known in self._names.items() if {w for w in known if not w.isdigit()} == said]
        exact = [name for name, known in self._names.items() if {*known} == said] + same
        if exact:
            return [self._part(name, noun) for name in dict.fromkeys(exact)]
        numbered = any(map(str.isdigit, words))  # "leg 2" is not any leg
        if not numbered and (found := self._of_role(noun, side_of(words), place_of(words))):
            return found
        alike = [name for name, known in self._names.items() if said <= {*known}]
        if side_of(words) and noun in _ROLES and self._of_role(noun, "", ""):  # it has one on another side
            alike = [name for name in alike if name in self._bodies and self._moves(name)]
        return [self._part(name, noun) for name in alike]

    def _moves(self, body: str) -> bool:
        return bool(self._model.body_weldid[self._model.body(body).id])

    def _of_role(self, noun: str, side: str, place: str) -> list[Part]:
        """Return the parts that have a role of this name, on this side and at this place, or on all if not said."""
        known = _ROLES.get(noun, (JOINTS.get(noun, noun.replace(" ", "_")),))
        ends = [role for role in self._roles for of in known if f"_{role}".endswith(f"_{of}")]
        sided = any(side_of(role.split("_")) for role in ends)
        placed = any(place_of(role.split("_")) for role in ends)
        if place and not placed:  # "the front leg" of a biped
            return []
        if side and not sided and not any(side in self._names.get(self._roles[role], ()) for role in ends):
            return []  # the left arm of a body with one arm
        sides = [side] if side and sided else ["", *SIDES]
        places = [place] if place else ["", *PLACES]
        found: list[Part] = []
        for at in places:
            for on in sides:
                around = [word for word in (at, on) if word]
                roles = ["_".join([*around, role]) for role in known]
                if role := next((role for role in roles if role in self._roles), ""):
                    ends_in = next((end for end, nouns in _ENDS.items() if noun in nouns), "")
                    # a hand is at the end of its forearm
                    whole = ends_in and role.endswith(ends_in)
                    scale = 0.0 if noun in JOINTS else 2.0 if whole else 1.0
                    begins = roles[-1] if noun in _LIMBS and roles[-1] in self._roles else ""
                    found.append(self._part(self._roles[role], noun, " ".join([*around, noun]), scale, begins))
        return found

    def _part(self, name: str, noun: str, words: str = "", scale: float = 1.0, begins: str = "") -> Part:
        """Return the part at a body, at `scale` times the offset of its centre of mass, or at a site.

        begins: the role of the body that the limb begins with, if it is known.
        """
        model, words = self._model, words or re.sub(r" (?=\d)", "", " ".join(self._names[name]))
        if name not in self._bodies:
            owner = model.body(int(model.site(name).bodyid[0])).name
            return Part(words, name, None, self._roles.get(begins, owner))
        limb = noun.split(" ")[-1] in _LIMBS
        end = self._end(name) if limb and name not in self._roles.values() else name
        offset = scale * model.body(end).ipos
        if np.linalg.norm(offset) < _CENTRED or model.body(end).mass[0] < _MASSLESS:
            offset = np.zeros(3)
        x, y, z = (float(v) + 0.0 for v in np.round(offset, 4))
        return Part(words, end, (x, y, z), self._roles.get(begins) or (self._base(name) if limb else name))

    def _children(self, body: int) -> list[int]:
        return [int(b) for b in np.flatnonzero(self._model.body_parentid == body) if b]

    def _end(self, name: str) -> str:
        """Return the last body of the chain that a body begins."""
        body = self._model.body(name).id
        while len(below := self._children(body)) == 1:
            body = below[0]
        return self._model.body(body).name

    def _base(self, name: str) -> str:
        """Return the first body of the chain that ends in a body: the one below a body with several chains."""
        body = self._model.body(name).id
        while (parent := int(self._model.body_parentid[body])) and len(self._children(parent)) == 1:
            body = parent
        return self._model.body(body).name
