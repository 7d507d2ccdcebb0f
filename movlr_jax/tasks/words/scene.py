"""What words can name on a model: directions, places, parts, joints and objects, at the start of an episode."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product, takewhile

import mujoco
import numpy as np

from movlr_jax.biomech.world import EARTH, box_corners, world_of
from movlr_jax.errors import UserError
from movlr_jax.models.derived import above, base_joints, driven_joints, driven_trees, lies, span_of, travels
from movlr_jax.models.hands import DIGITS, HANDS, Digit, Hand, facing, fingers_of, hands_of, names_of
from movlr_jax.models.motors import carrying
from movlr_jax.models.names import PLACES, SIDES, part_of, place_of, side_of, words_of
from movlr_jax.models.stance import soles_of
from movlr_jax.tasks.words.measure import Stance, Subject, Vector
from movlr_jax.tasks.words.parts import JOINTS, NAMED, Between, Part, Parts

_LOW = 0.1  # m, a body whose centre of mass starts lower is not expected to stay upright, unless the words say so
# Froude number speed^2 / (g height) of walking, running, and moving close to the ground
_FROUDE = {"walk": 0.25, "run": 1.0, "low": 0.1}
_BESIDE = 0.2  # m from the surface of a thing: a body that is there has reached it
_LONG = 0.03  # m, a shorter segment has no direction
_MIDDLE = 0.01  # m, from the middle of the body: a part there is on no side
TOUCH = 0.03  # m between the surfaces of two bodies that touch
_HANDS = ("hand", "palm", "gripper", "fingertip", "tip", "tool", "effector", "fist", "end")
_WHOLE = ("body", "trunk", "torso")  # the root, unless names or roles say another one
_SMALL = (  # in names, no parts of any
    "and", "at", "by", "for", "m", "of", "on", "s", "side", "site", "then", "to", "with", "while",
)  # fmt: skip
_FEET = ("foot", "feet", "paw")
_FINGERS = ("finger", "thumb", "index", "middle", "ring", "little", "jaw", "gripper", "tip", "pad")
HINGE = mujoco.mjtJoint.mjJNT_HINGE
_PARALLEL = 0.98  # cosine of the angle between the axis of a wheel and the line from left to right, least
_ON_AXIS = 0.01  # m from the axis of its joint to the centre of mass of a wheel, most
ABOUT = 0.7  # cosine of the angle between the axis of a joint and that of a turn
_JAWS = 3  # most of a gripper; a hand has more
ORDINALS = {"first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "sixth": 5, "seventh": 6, "last": -1}
HINGES = {"arm": "elbow", "arms": "elbows", "leg": "knee", "legs": "knees"}  # of limbs that bend


def _kind(part: Part) -> list[str]:
    """Return the words of a part without side, place and number."""
    return part_of(re.sub(r"\d", "", part.words).split())


def floats(vector: Sequence[float] | np.ndarray) -> Vector:
    return tuple(float(v) + 0.0 for v in np.round(vector, 6))


@dataclass(frozen=True)
class Scene:
    """A model at the start of an episode.

    qpos: [nq]; root: the body that actuators move; forward: [3], where it faces; roles: role -> body or site; sites:
    those that an episode records; touch: parts whose contact forces it records -> their bodies.
    """

    model: mujoco.MjModel
    qpos: np.ndarray
    root: str
    forward: Sequence[float]
    roles: Mapping[str, str]
    sites: Sequence[str]
    touch: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def data(self) -> mujoco.MjData:
        data = mujoco.MjData(self.model)
        data.qpos[:] = self.qpos
        mujoco.mj_kinematics(self.model, data)
        return data

    @cached_property
    def of(self) -> Subject:
        model, root = self.model, self.model.body(self.root).id
        world = world_of(model, root)
        height = float(world.height(self.data.xpos[root]))
        rails = tuple(
            (model.joint(j).name, 0.5 * float(np.ptp(model.jnt_range[j])))
            for j in sorted({*base_joints(model, root)} & {*driven_joints(model)})
            if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_SLIDE
        )
        return Subject(self.root, tuple(world.up.tolist()), world.level is not None, height, rails)

    @cached_property
    def around(self) -> np.ndarray:
        """Directions ahead, left and up [3, 3], as rows."""
        up = np.asarray(self.of.up)
        return np.array([self.forward, np.cross(up, self.forward), up])

    @cached_property
    def parts(self) -> Parts:
        return Parts(self.model, self.roles, self.sites)

    @cached_property
    def joints(self) -> dict[str, list[str]]:
        """Name -> words of the hinges and slides."""
        names = [self.model.joint(j) for j in range(self.model.njnt) if self.model.jnt_type[j] in (2, 3)]
        return {joint.name: words_of(joint.name) for joint in names if joint.name}

    @cached_property
    def nouns(self) -> set[str]:
        """All words of which names of parts, joints and objects are made."""
        known = {word for words in (*self.parts.names.values(), *self.joints.values()) for word in words}
        known |= {"it", "them", "joint", "other", "others", *(_WHOLE if self.rises else ["body"])}
        known |= {
            form for word in NAMED if self.known([word]) for form in (word, "feet" if word == "foot" else f"{word}s")
        }
        known |= {word for form in known for word in form.split()}  # upper arm, end effector
        digits = {digit.name for hand in self.fingered for digit in hand.digits}
        known |= {"finger", "tip", *HANDS} if digits else set()
        known -= set() if any(digits) else {"fist"}
        known |= {word for word, digit in DIGITS.items() if digit in digits}
        known |= {f"{word}s" for word in known if len(word) > 2 and not word.endswith("s")}
        return known - {*SIDES, *PLACES, *_SMALL}

    def known(self, words: Sequence[str], side: str = "") -> list[Part]:
        """Return the parts that words name; none also where the model has them only on another side."""
        try:
            return self.parts.find(words, side)
        except UserError:
            return []

    def find(self, words: Sequence[str], side: str = "") -> list[Part]:
        """Return the parts or objects that all the words name, on this side if they name none; or none."""
        if words[-1] in _WHOLE and {*words[:-1]} <= {"the"} and not self.known(words):
            return [self.parts.of(self.root)]
        fingers = fingers_of(self.fingered, [word for word in words if word not in ("tip", "tips")])
        if words[-1] in ("fingers", "jaws"):
            return [self.tip(of.hand, digit) for of in fingers for digit in of.digits]
        if found := [self.tip(of.hand, of.digits[0]) for of in fingers if len(of.digits) == 1]:
            return found
        whole = {
            of.words: int(self.model.body_parentid[of.digits[0].bodies[0]])
            for of in fingers if of.digits == of.hand.fingers
        }  # fmt: skip
        found = self.parts.find(words, side)
        if found and not 1 < len(whole) < len(found):
            return found
        palms = [(of, self.parts.of(self.model.body(body).name)) for of, body in whole.items()]
        return [replace(palm, words=of) if len(palms) > 1 else palm for of, palm in palms]

    def others(self, words: Sequence[str], part: Part, side: str = "") -> list[Part]:
        """Return all parts that words in the singular can mean, if they do not tell which of several; else none."""
        one = words[-1][-1] in "s0123456789" or {"one", "both", "all"} & {*words} or side in part.words.split()
        if not one and self.other_hands(words):
            return [replace(part, words=other) for other in self.other_hands(words)]
        alike = [] if one else self.known(["both", *words])
        found = [other for other in alike if _kind(other) == _kind(part)]
        return found if len(found) > 1 and all(map(self.own, found)) else []

    def unsided(self, words: Sequence[str], part: Part) -> list[Part]:
        """Return the parts at other places whose names tell no side, so that words for a side can mean them."""
        around = part.words.split()
        if not side_of(words) or place_of(words) or not place_of(around):
            return []
        alike = [other for other in self.known(["all", _kind(part)[-1]]) if _kind(other) == _kind(part)]
        return [other for other in alike if place_of(other.words.split()) and not side_of(other.words.split())]

    def other_hands(self, words: Sequence[str]) -> list[str]:
        """Return all that words for fingers of one hand can mean, if they do not tell of which hand; else none."""
        found = [of.words for of in fingers_of(self.fingered, ["both", *words])]
        told = {"one", "both", "all", "hands", "fists", "grippers", *SIDES} & {*words}
        return found if len(found) > 1 and not told else []

    @cached_property
    def fingered(self) -> list[Hand]:
        """Its hands and grippers with their fingers or jaws, the right one first."""
        return hands_of(self.model, self.data)

    def tip(self, hand: Hand, digit: Digit) -> Part:
        """Return the end of a finger: a site that is its tip, or its last body."""
        at = [s for s in self.sites if self.model.site(s).bodyid[0] == digit.tip]
        tip = next((s for s in at if s == self.roles.get(f"{digit.name}_site") or "tip" in s.lower()), "")
        part = self.parts.of(tip or self.model.body(digit.tip).name)
        return replace(part, words=names_of([digit], hand.side)) if digit.name else part

    def numbered(self, word: str) -> list[str]:
        """Return the names that differ from a word in their number only: joint1, joint2 for joint9."""
        stem = re.sub(r"\d+$", "", word)
        names = (*self.joints, *self.parts.names)
        return [name for name in names if stem != word and re.fullmatch(rf"{re.escape(stem)}\d+", name.lower())]

    def joint(self, words: Sequence[str]) -> list[str]:
        """Return the hinges and slides that the words name; "knees" names those that differ in side or number."""
        *of, ordinal, last = ["", *words]
        if last == "joint" and ordinal in ORDINALS:
            return self.along(of[1:])[ORDINALS[ordinal] :][:1]
        said = [word for word in words if word != "joint"] or list(words)
        known = {name: [w for w in of if w != "joint"] or list(of) for name, of in self.joints.items()}
        exact = [name for name, of in self.joints.items() if list(words) == of or said == known[name]]
        if exact or not said or not said[-1].endswith("s"):
            return exact[:1]
        singular = [*said[:-1], said[-1][:-1]]
        more = {*SIDES, *PLACES}
        return [n for n, of in known.items() if [w for w in of if w not in more and not w.isdigit()] == singular]

    def hinges(self, words: Sequence[str]) -> list[str]:
        """Return the joints at a place where the body turns or bends, as the waist, the left wrist or the head."""
        *more, noun = words
        said = {*more, noun.removesuffix("s")} - {"joint", "both", "all"}
        if named := [joint for joint, of in self.joints.items() if said <= {*of} and not self.slides(joint)]:
            return named
        parts = [part for part in self.known(words) if self.own(part)]
        ends, found = {self.body_of(self.parts.of(role)) for role in self.roles.values()}, list[str]()
        for body in map(self.body_of, parts):
            chain = [body, *takewhile(lambda b: b not in ends, above(self.model, body)[1:])]
            found += [joint for joint in self.moving(body) if int(self.model.joint(joint).bodyid[0]) in chain]
        return [joint for joint in dict.fromkeys(found) if not self.slides(joint)]

    @property
    def stands(self) -> bool:
        """Whether it can fall: it starts on its feet, and rises and sinks freely."""
        return self.com_height > _LOW and self.rises and not self.lies

    @cached_property
    def com_height(self) -> float:
        """Height in m above the ground of its frame, or of its centre of mass if that is higher."""
        mujoco.mj_comPos(self.model, self.data)
        root = self.model.body(self.root).id
        com = float(world_of(self.model, root).height(self.data.subtree_com[root]))
        return max(self.of.height, com)

    @cached_property
    def flies(self) -> bool:
        """Whether its motors can carry it through the air."""
        return carrying(self.model, self.qpos) is not None

    @cached_property
    def wheels(self) -> bool:
        """Whether all that moves it are wheels that roll ahead and back, so that it cannot go sideways."""
        aside = [abs(float(self.data.xaxis[j] @ self.around[1])) for j in self._below]
        return self.limbless and not self.flies and min(aside, default=0.0) > _PARALLEL

    @cached_property
    def _below(self) -> list[int]:
        """The joints of its parts, without those of its base."""
        model, root = self.model, self.model.body(self.root).id
        base = base_joints(model, root)
        return [j for j in range(model.njnt) if j not in base and root in above(model, int(model.jnt_bodyid[j]))]

    @cached_property
    def limbless(self) -> bool:
        """Whether it travels without limbs: all its joints turn wheels or propellers."""
        model, data, own = self.model, self.data, self._below
        mujoco.mj_comPos(model, data)
        levers = [data.subtree_com[model.jnt_bodyid[j]] - data.xanchor[j] for j in own]
        away = [float(np.linalg.norm(np.cross(data.xaxis[j], lever))) for j, lever in zip(own, levers, strict=True)]
        spins = [model.jnt_type[j] == HINGE and not model.jnt_limited[j] for j in own]
        return self.rises and all(spins) and max(away, default=0.0) < _ON_AXIS

    @cached_property
    def resting(self) -> float:
        """Height in m of its frame above its lowest point: that above the ground on which it rests as it is."""
        model, up = self.model, np.asarray(self.of.up)
        geoms = np.flatnonzero((model.geom_contype | model.geom_conaffinity) & (model.geom_bodyid > 0))
        own = [g for g in geoms if self.own(self.parts.of(model.body(int(model.geom_bodyid[g])).name))]
        at = float(self.data.body(self.root).xpos @ up)
        return at - min((float((box_corners(model, self.data, int(g)) @ up).min()) for g in own), default=at)

    @property
    def rises(self) -> bool:
        return travels(self.model, self.root, self.of.up)

    @property
    def lies(self) -> bool:
        return lies(self.model, self.data, self.model.body(self.root).id) and self.rises

    @cached_property
    def length(self) -> float:
        """Length in m of the body with all that it carries, between the frames of its parts."""
        return span_of(self.model, self.data, self.model.body(self.root).id)

    def goes(self, way: Sequence[float], turning: bool = False) -> bool:
        return travels(self.model, self.root, way, turning=turning)

    def speed(self, pace: str) -> float:
        """Return the usual speed in m/s of a pace: walk, run or low."""
        gravity = world_of(self.model, self.model.body(self.root).id).gravity or EARTH
        return float(np.sqrt(_FROUDE[pace] * gravity * max(self.of.height, _LOW)))

    def towards(self, part: Part, moved: np.ndarray, gap: float | None = None) -> tuple[np.ndarray, float] | None:
        """Return the horizontal direction [3] to a part and how far to go, m; None if it is there.

        moved: [3] m, how far the body is from where it starts. gap: m to leave between what is in front of the body
        and the part; None: about a step.
        """
        up = np.asarray(self.of.up)
        apart = part.now(self.data) - self.data.body(self.root).xpos - moved
        apart = apart - (apart @ up) * up
        distance = float(np.linalg.norm(apart))
        if distance <= TOUCH:
            return None
        if gap is not None:
            way, root = apart / distance, self.data.body(self.root).xpos
            at = ((self.data.body(name).xpos - root, self.rot(name), balls) for name, balls in self.surface)
            front = max((float((p + turn @ b[:3]) @ way + b[3]) for p, turn, balls in at for b in balls), default=0.0)
            return way, float(f"{distance - front - self.extends(part, -way) - gap:.2g}")
        return apart / distance, float(f"{max(distance - self.size(part) - _BESIDE, 0.5 * distance):.2g}")

    def yaw(self, way: np.ndarray) -> float:
        """Return the angle in rad, left positive, from ahead to a horizontal direction [3]."""
        return float(np.arctan2(self.around[1] @ way, self.around[0] @ way))

    def turned(self, way: np.ndarray, yaw: float) -> np.ndarray:
        """Return a direction [3] turned about the vertical by `yaw` rad."""
        ahead, left, up = self.around @ way
        cos, sin = np.cos(yaw), np.sin(yaw)
        return np.array([cos * ahead - sin * left, sin * ahead + cos * left, up]) @ self.around

    def stance(self, lifted: Sequence[Part]) -> Stance | None:
        """Return on which feet the body stands while these parts are up; None where it has no feet or lifts all."""
        model, root = self.model, self.model.body(self.root).id
        up = {self.body_of(part) for part in lifted if self.own(part)} - {root}
        feet = [part for part in self.known(["all", "feet"]) if self.own(part)] * self.stands

        def raised(foot: Part) -> bool:
            end = self.body_of(foot)  # toes are of a foot
            return any(body in above(model, end) or end in above(model, body) for body in up)

        soles = [self._sole(foot) for foot in feet if not raised(foot)]
        ends = {self.body_of(foot) for foot in feet if raised(foot)}
        ids = {part: [model.body(name).id for name in bodies] for part, bodies in self.touch.items()}
        pressed = tuple(part for part, bodies in ids.items() if any(ends & {*above(model, body)} for body in bodies))
        weight = float(model.body_subtreemass[root] * np.linalg.norm(model.opt.gravity))
        on = Between.of(soles) if soles[1:] else next(iter(soles), None)
        return Stance(on, bool(ends), pressed, weight) if on else None

    @cached_property
    def _soles(self) -> list[tuple[int, np.ndarray, float]]:
        """Points of the soles: number of a body, point [3] m in its frame, and how high it is at the start, m."""
        data, up = self.data, np.asarray(self.of.up)
        points = soles_of(self.model, data, up)
        return [(b, at, float((data.xpos[b] + data.xmat[b].reshape(3, 3) @ at) @ up)) for b, at in points]

    def _sole(self, foot: Part) -> Part:
        """Return the middle of the sole of a foot, or the foot where nothing of it is on the ground."""
        own = [at for at in self._soles if self.body_of(foot) in above(self.model, at[0])]
        if not own:
            return foot
        body, *_ = min(own, key=lambda at: at[2])
        middle = floats(np.mean([point for b, point, _ in own if b == body], axis=0).round(4))
        return replace(foot, place=self.model.body(body).name, offset=middle)

    # Objects.

    def on_body(self, part: Part) -> Part:
        """Return a part at a site as the point of its body, of which a velocity is known."""
        if part.offset is not None:
            return part
        site = self.model.site(part.place)
        body, at = self.model.body(int(site.bodyid[0])).name, tuple(float(x) for x in np.round(site.pos, 4))
        return replace(part, place=body, offset=(at[0], at[1], at[2]))

    def body_of(self, part: Part) -> int:
        model = self.model
        return int(model.site(part.place).bodyid[0]) if part.offset is None else model.body(part.place).id

    def own(self, part: Part) -> bool:
        """Whether a part belongs to the body that actuators move, or to what carries it."""
        model, body, root = self.model, self.body_of(part), self.model.body(self.root).id
        return (
            int(model.body_treeid[body]) in self._driven
            or root in above(model, body)
            or any(body in above(model, first) for first in (root, *self._bases))
        )

    @cached_property
    def _driven(self) -> set[int]:
        """The trees that actuators move, and that of the root."""
        return (driven_trees(self.model) | {int(self.model.body_treeid[self.model.body(self.root).id])}) - {-1}

    @cached_property
    def _bases(self) -> list[int]:
        """The first body of each of these trees."""
        return [int(np.flatnonzero(self.model.body_treeid == tree)[0]) for tree in self._driven]

    def fixed(self, part: Part) -> bool:
        """Whether a part cannot move."""
        return bool(self.model.body_weldid[self.body_of(part)] == 0)

    def _geoms(self, part: Part) -> np.ndarray:
        """Return the shapes of a part; none of a point."""
        point = part.offset is None or isinstance(part, Between)
        return np.flatnonzero((self.model.geom_bodyid == self.body_of(part)) & (not point))

    def size(self, part: Part) -> float:
        """Return the smallest half of the extent in m of a part; 0 of a point."""
        return float(self.model.geom_aabb[self._geoms(part), 3:].min(axis=1).max(initial=0.0))

    def extends(self, part: Part, way: np.ndarray) -> float:
        """Return how far in m the shapes of a part reach from its point along a direction [3] at the start."""
        data, at, found = self.data, part.now(self.data), [0.0]
        for g in self._geoms(part):
            turn, box = data.geom_xmat[g].reshape(3, 3), self.model.geom_aabb[g]
            found.append(float((data.geom_xpos[g] + turn @ box[:3] - at) @ way + np.abs(way @ turn) @ box[3:]))
        return max(found)

    def over(
        self, part: Part, other: Part, sign: int, gaps: Sequence[float], slack: float
    ) -> tuple[Vector, Vector, Vector]:
        """Return the middle, least and greatest [3] m from another part to one above it (sign 1) or below it (-1).

        gaps: the least and greatest between their surfaces, m. Their centres are at most `slack` m outside of the
        shapes of the other one, seen from above.
        """
        up = np.asarray(self.of.up)
        vertical = sign * up
        apart = self.extends(other, vertical) + (self.size(part) if self.own(part) else self.extends(part, -vertical))
        ends = [vertical * (apart + gap) for gap in gaps]
        low, high = np.min(ends, axis=0), np.max(ends, axis=0)
        flat = self._geoms(other)[self.model.geom_type[self._geoms(other)] != mujoco.mjtGeom.mjGEOM_SPHERE]
        for axis in np.eye(3)[np.abs(up) < _MIDDLE] if len(flat) else []:
            high = high + axis * max(self.extends(other, axis) - slack, 0.0)
            low = low - axis * max(self.extends(other, -axis) - slack, 0.0)
        return floats(ends[0]), floats(low), floats(high)

    @cached_property
    def surface(self) -> tuple[tuple[str, tuple[Vector, ...]], ...]:
        """Bodies of its own with balls (x, y, z, radius) m, in their frames, that fill the shapes that collide."""
        model, found = self.model, dict[str, tuple[Vector, ...]]()
        for g in np.flatnonzero((model.geom_contype | model.geom_conaffinity) != 0):
            name = model.body(int(model.geom_bodyid[g])).name
            if model.geom_bodyid[g] and self.own(self.parts.of(name)):
                half, turn = model.geom_aabb[g, 3:], np.zeros(9)
                mujoco.mju_quat2Mat(turn, model.geom_quat[g])
                radius, long = np.sort(half)[1], int(half.argmax())
                along = np.linspace(-1.0, 1.0, 1 + int(np.ceil((half[long] - radius) / radius)))
                along = along if len(along) > 1 else np.zeros(1)
                centres = model.geom_pos[g] + np.outer(along * (half[long] - radius), turn.reshape(3, 3)[:, long])
                found[name] = found.get(name, ()) + tuple(floats([*centre, radius]) for centre in centres)
        return tuple(found.items())

    def surface_of(self, part: Part) -> tuple[tuple[str, tuple[Vector, ...]], ...]:
        """Return the surface of a body, or of a hand with its fingers or jaws; none of a point or a joint."""
        model, body, word = self.model, self.body_of(part), part.words.split()[-1]
        palms = [of for of in self.fingered if of.palm == model.body_weldid[body]]
        if palms and word in (*_HANDS, *HANDS) and part.place not in self.fingers():
            tops = {body, *(digit.bodies[0] for of in palms for digit in of.digits)}
        elif part.offset is None or word in JOINTS or np.abs(part.offset - model.body_ipos[body]).max() > _MIDDLE:
            return ()
        else:
            tops = {body, *(np.flatnonzero(model.body_parentid == body) if word in _FEET else ())}  # with its toes
        fingers = tops if palms else set[int]()
        return tuple(
            (name, balls)
            for name, balls in self.surface
            if model.body(name).id in tops or fingers & {*above(model, model.body(name).id)}
        )

    def extent(self, thing: Part) -> tuple[Vector, float]:
        """Return half the size [3] m of a thing with one shape, a box, or the radius in m of a ball or a point."""
        if thing.offset is None:
            return (0.0, 0.0, 0.0), 0.0
        geoms = np.flatnonzero(self.model.geom_bodyid == self.body_of(thing))
        if len(geoms) != 1 or any(self.model.geom_pos[geoms[0]]):
            raise UserError(f"{thing.words} has no single shape, so that nothing touches it cannot be measured")
        half = self.model.geom_aabb[geoms[0], 3:]
        round_ = self.model.geom_type[geoms[0]] == mujoco.mjtGeom.mjGEOM_SPHERE
        return ((0.0, 0.0, 0.0), float(half[0])) if round_ else (floats(half), 0.0)

    def touching(self, part: Part, other: Part) -> float:
        """Return the distance in m between two parts at which they touch."""
        return round(TOUCH + self.size(part) + self.size(other), 3)

    @cached_property
    def hands(self) -> list[Part]:
        """What it handles objects with, the right hand first: its hands, or the end of its longest chain."""
        if found := [part for part in self.known(["hands"]) if self.own(part)]:
            return sorted(found, key=lambda part: "right" not in part.words.split())
        for word in _HANDS:
            named = (name for name, words in self.parts.names.items() if word in words and name != self.root)
            if found := [part for part in map(self.parts.of, named) if self.own(part)]:
                return found[:1]
        root = self.model.body(self.root).id
        chain = [b for b in range(1, self.model.nbody) if root in above(self.model, b)]
        last = max(chain, key=lambda b: len(above(self.model, b)), default=root)
        return [self.parts.of(self.model.body(last).name)]

    def fingers(self) -> tuple[str, ...]:
        """Return the touch parts that are fingers or jaws of a gripper."""
        tips = {self.model.body(digit.tip).name for hand in self.fingered for digit in hand.digits}
        return tuple(p for p in self.touch if p in tips or {w.removesuffix("s") for w in words_of(p)} & {*_FINGERS})

    def grip(self, hand: Part) -> Part:
        """Return the point between the jaws, if a hand is a gripper with a few of them; else the hand."""
        model, fingers = self.model, self.fingers()
        top = self.body_of(hand)
        top = int(model.body_parentid[top]) if hand.place in fingers else top
        named = {name: mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name) for name in fingers}
        jaws = [name for name, body in named.items() if body >= 0 and top in above(model, body)]
        if not 2 <= len(jaws) <= _JAWS:
            return hand
        return Between.of([Part(name, name, self._middle(name), name) for name in jaws], hand)

    def _middle(self, body: str) -> Vector:
        """Return the middle [3] of the shapes of a body that collide, m in its frame."""
        model = self.model
        own = (model.geom_bodyid == model.body(body).id) & ((model.geom_contype | model.geom_conaffinity) != 0)
        return floats(model.geom_pos[own].mean(axis=0).round(4)) if own.any() else (0.0, 0.0, 0.0)

    # Parts at the start.

    def bends(self, part: Part) -> tuple[str, Vector] | None:
        """Return the body above a knee or elbow and the segment [3] m below it; None if it is no such joint."""
        model, data = self.model, self.data
        if part.offset is None or part.words.split()[-1] not in HINGES.values():
            return None
        body = model.body(part.place)
        for ancestor in above(model, body.id)[1:]:
            length = float(np.linalg.norm(data.xpos[ancestor] - data.xpos[body.id]))
            if length >= _LONG:  # else several joints in one place
                long = length * float(np.linalg.norm(body.ipos)) >= _LONG**2
                return (model.body(ancestor).name, floats(body.ipos)) if long else None
        return None

    def bending(self, part: Part, upper: str, below: Vector) -> tuple[float, float, float]:
        """Return the least and greatest angle in rad that a knee or elbow reaches, and that at the start."""
        model, moved = self.model, mujoco.MjData(self.model)
        chain = {*above(model, model.body(part.place).id)} - {*above(model, model.body(upper).id)}
        hinges = [j for j in range(model.njnt) if model.jnt_bodyid[j] in chain and model.jnt_type[j] == HINGE]
        ranges = [model.jnt_range[j] if model.jnt_limited[j] else (-np.pi, np.pi) for j in hinges]
        wide = sorted(range(len(hinges)), key=lambda i: -np.ptp(ranges[i]))[:2]

        def angle(data: mujoco.MjData) -> float:
            up = data.body(upper).xpos - data.body(part.place).xpos
            down = data.body(part.place).xmat.reshape(3, 3) @ np.asarray(below)
            return float(np.arctan2(np.linalg.norm(np.cross(up, down)), -up @ down))

        found = [angle(self.data)]
        for values in product(*(np.linspace(ranges[i][0], ranges[i][1], 33) for i in wide)):
            moved.qpos[:] = self.qpos
            moved.qpos[model.jnt_qposadr[[hinges[i] for i in wide]]] = values
            mujoco.mj_kinematics(model, moved)
            found.append(angle(moved))
        return min(found), max(found), found[0]

    def slides(self, joint: str) -> bool:
        return bool(self.model.joint(joint).type[0] == mujoco.mjtJoint.mjJNT_SLIDE)

    def reach(self, joint: str) -> tuple[float, float, float]:
        """Return the least and greatest value of a joint in rad or m, and that at the start."""
        low, high = self.model.joint(joint).range if self.model.joint(joint).limited[0] else (-np.inf, np.inf)
        return float(low), float(high), float(self.data.joint(joint).qpos[0])

    def moving(self, body: int) -> list[str]:
        """Return the joints that move a body relative to what carries all, in their order."""
        base = above(self.model, self.model.body(self.root).id) if self.rises else []
        bodies = {*above(self.model, body)} - {*base}
        return [joint for joint in self.joints if int(self.model.joint(joint).bodyid[0]) in bodies]

    def along(self, words: Sequence[str]) -> list[str]:
        """Return the joints of a finger, a limb, or an arm that is all of the body, in their order."""
        digits = [digit for of in fingers_of(self.fingered, words) if words for digit in of.digits]
        if len(digits) == 1:
            return [j for j in self.joints if int(self.model.joint(j).bodyid[0]) in digits[0].bodies]
        parts = [] if digits else self.known(words) if words else [] if self.rises else self.hands
        return self.moving(self.body_of(parts[0])) if len(parts) == 1 else []

    def axis(self, part: Part) -> Vector | None:
        """Return the axis [3] of a body that points where the body does, in its frame; None for a limb or a site."""
        if part.offset is None or part.place != part.base:
            return None
        kinds = self.model.jnt_type[self.model.jnt_bodyid == self.model.body(part.base).id]
        if any(part.offset) and not (kinds == mujoco.mjtJoint.mjJNT_FREE).any():  # it hangs on another one
            return floats(np.asarray(part.offset) / np.linalg.norm(part.offset))
        return self.vertical(part)

    def palm(self, part: Part) -> tuple[Part, Vector] | None:
        """Return the body of a palm and where it faces [3], in its frame; None where no fingers tell."""
        side = side_of(part.words.split())
        hands = [hand for hand in self.fingered if not hand.jaws and hand.palm > 0 and side in ("", hand.side)]
        if not hands or not any(digit.joints for digit in hands[0].fingers):
            return None
        body = self.model.body(hands[0].palm).name
        return replace(self.parts.of(body), words=part.words), floats(
            facing(self.model, self.data, hands[0]) @ self.rot(body)
        )

    def rot(self, body: str) -> np.ndarray:
        """Return the rotation [3, 3] of a body at the start."""
        return self.data.body(body).xmat.reshape(3, 3)

    def tilts(self, body: str, axis: np.ndarray) -> bool:
        """Return whether a joint between a body and the one that carries it all turns it about an axis [3]."""
        model, chain = self.model, above(self.model, self.model.body(body).id)
        hinges = [j for j in range(model.njnt) if model.jnt_bodyid[j] in chain and model.jnt_type[j] == HINGE]
        return any(abs(float(self.data.xaxis[j] @ axis)) > ABOUT for j in hinges)

    def vertical(self, part: Part) -> Vector:
        """Return the axis [3] in the frame of a body that is vertical at the start."""
        return floats(np.asarray(self.of.up) @ self.rot(part.place))

    def flat(self, part: Part) -> Vector | None:
        """Return the axis [3] of a body, in its frame, that is vertical where it is level; None for a limb.

        A limb is long and not level at the start, as an arm that hangs down. Other bodies are level as they start.
        """
        away = part.now(self.data) - self.data.body(part.base).xpos
        length, rises = float(np.linalg.norm(away)), abs(float(away @ np.asarray(self.of.up)))
        if length < _MIDDLE or rises < 0.5 * length:
            return self.vertical(part)
        spans = [self.extends(part, way) + self.extends(part, -way) for way in np.linalg.svd(away[None])[2]]
        return None if part.base != part.place or spans[0] > 2 * max(spans[1:]) else self.vertical(part)

    def aside(self, part: Part) -> np.ndarray:
        """Return the direction [3] away from the trunk, in the world frame."""
        trunk = self.roles.get("trunk", self.root)
        left = (self.data.body(part.base).xpos - self.data.body(trunk).xpos) @ self.around[1]
        right = "right" in part.words.split() if abs(left) < _MIDDLE else left < 0
        return -self.around[1] if right else self.around[1]


def plain(word: str) -> list[str]:
    """Split a word as names of models are: joint1 -> joint, 1; red_ball -> red, ball."""
    return words_of(word) if re.search(r"[_/:\d]", word) and not re.fullmatch(r"[\d.]+", word) else [word]
