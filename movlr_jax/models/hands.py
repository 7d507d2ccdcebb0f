"""Hands and grippers of a model, from facts: chains of joints that begin at one palm and have names of fingers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from movlr_jax.models.derived import above
from movlr_jax.models.names import SIDES, adjectives_in, side_of, words_of

Travel = tuple[str, float, float]  # a joint, its value where the finger is straight or the jaw open, and the other
DIGITS = {"thumb": "thumb", "index": "index", "forefinger": "index", "fore": "index", "middle": "middle",
          "ring": "ring", "little": "little", "pinky": "little", "pinkie": "little"}  # fmt: skip
HANDS = ("hand", "fist", "gripper", "claw", "jaw")  # words for all fingers of one
_CODES = {"th": "thumb", "ff": "index", "if": "index", "mf": "middle", "rf": "ring", "lf": "little",
          "2": "index", "3": "middle", "4": "ring", "5": "little"}  # fmt: skip
_CODE = re.compile(  # of a name: rh_FFJ3, ffproximal, if_bs, THtip; proxph2, 2distph_r
    r"(?<![a-z])(th|ff|if|mf|rf|lf)(?=j\d|tip|knuckle|prox|mid|dist|meta|base|hub|[_\d]|$)"
    r"|(?<![a-z])(?:prox|mid|dist)ph([2-5])|(?<![a-z0-9])([2-5])(?:prox|mid|dist)ph",
    re.IGNORECASE,
)
_FINGERS = {"finger", "fingers", "jaw", "gripper", "pad", "knuckle", "fingertip", "fngr"}
_PARALLEL = 0.7  # cosine between the axes of joints of a finger that flex it, and not spread it
_MUCH = 2.0  # times as far as a finger bends back, it flexes
_FAR = 1.5  # rad or m, as far as a joint without limits moves
_BENT = 0.3  # share of its way to a fist at which a finger bends towards where its palm looks
_ASIDE = 0.1  # sine of the angle by which a thumb is aside
_TYPES = (2, 3)  # slide, hinge
_STEP, _DEEP = 0.05, 1e-3  # share of their way by which fingers close until they press in by so many m


@dataclass(frozen=True)
class Digit:
    """A finger, a thumb or a jaw, from its base to its tip. name: thumb, index, ..., or "" if no name tells."""

    name: str
    bodies: tuple[int, ...]
    joints: tuple[Travel, ...] = ()

    @property
    def tip(self) -> int:
        return self.bodies[-1]


@dataclass(frozen=True)
class Hand:
    """A palm, -1 for the world, with its digits. jaws: whether it is a gripper, whose digits close on each other.

    side: left, right or "", as names tell; shaped: as its shape tells.
    """

    palm: int
    side: str
    digits: tuple[Digit, ...]
    shaped: str = ""

    @property
    def jaws(self) -> bool:
        return not any(digit.name for digit in self.digits)

    @property
    def words(self) -> str:
        return f"{self.side} {'gripper' if self.jaws else 'hand'}".strip()

    @property
    def fingers(self) -> tuple[Digit, ...]:
        """Its digits without the thumb."""
        return tuple(digit for digit in self.digits if digit.name != "thumb")

    def named(self, words: Sequence[str]) -> tuple[Digit, ...]:
        """Return the digits that words name without a side, none if they name none."""
        word = words[-1].removesuffix("s") if words else ""
        which = DIGITS.get(words[0], "") if words[1:] in ([], ["finger"], ["fingers"]) and words else ""
        if which:
            return tuple(digit for digit in self.digits if digit.name == which)
        whole = len(words) == 1 and (words[0] in ("fingers", "jaws") or word in HANDS)
        return self.fingers if whole and word != ("fist" if self.jaws else "jaw") else ()


@dataclass(frozen=True)
class Fingers:
    """Digits of one hand that words name."""

    words: str
    hand: Hand
    digits: tuple[Digit, ...]

    @property
    def joints(self) -> tuple[Travel, ...]:
        return tuple(joint for digit in self.digits for joint in digit.joints)

    @property
    def others(self) -> Fingers:
        """The other fingers of the hand, without the thumb."""
        others = tuple(digit for digit in self.hand.fingers if digit not in self.digits)
        return Fingers(
            f"other fingers of {self.hand.words}" if self.hand.side else "other fingers", self.hand, others
        )


def fingers_of(hands: Sequence[Hand], words: Sequence[str]) -> list[Fingers]:
    """Return the fingers that words name, if any: of the hand of a side, of both hands, or of the first one."""
    words = [word for word in adjectives_in(words) if word not in ("the", "a", "an", "its", "your", "one")]
    sides = {*words} & {*SIDES}
    every = {*words} & {"both", "all"} or words[-1:] in (["hands"], ["grippers"], ["fists"])
    words = [word for word in words if word not in (*SIDES, "both", "all")]
    found = list[Fingers]()
    for hand in hands if every or sides else hands[:1]:
        digits = hand.named(words)
        if digits and (not sides or (hand.side or hand.shaped) in sides):
            only = hand.words if digits == hand.fingers else names_of(digits, hand.side)
            found.append(Fingers(only, hand, digits))
    return found


def names_of(digits: Sequence[Digit], side: str) -> str:
    """Return the words for digits of the hand of a side."""
    names = " and ".join(digit.name for digit in digits)
    return f"{side} {names}{' finger' * (names != 'thumb')}".strip()


def hands_of(model: mujoco.MjModel, data: mujoco.MjData) -> list[Hand]:
    """Return the hands and grippers of a model, the right one first. data: the model at the start."""
    found = list[Hand]()
    for palm, chains in _chains(model).items():
        names = [[name for b in chain for name in _names(model, b, b == chain[-1])] for chain in chains]
        digits = [digit_of(of) for of in names]
        named = {*digits} & {"thumb", "index"} and len({*digits} - {""}) > 1  # else LF and RF are feet
        kept = [
            (name if named else "", chain)
            for name, chain, of in zip(digits, chains, names, strict=True)
            if (name if named else {word for one in of for word in words_of(one)} & _FINGERS)
        ]
        if len(kept) > 1:
            carriers = (*above(model, max(palm, 0)), *(chain[0] for _, chain in kept if named))
            around = [words_of(_CODE.sub("", model.body(b).name)) for b in carriers]
            found.append(_hand(model, data, palm, next(filter(None, map(side_of, around)), ""), kept))
    return sorted(found or _single(model, data), key=lambda hand: hand.side != "right")


def _single(model: mujoco.MjModel, data: mujoco.MjData) -> list[Hand]:
    """Return grippers with one jaw that moves: a last body with the name of a finger, on one that has another."""
    found, parents = list[Hand](), {*model.body_parentid.tolist()}
    for leaf in range(1, model.nbody):
        palm = int(model.body_weldid[model.body_parentid[leaf]])
        kinds = [int(model.jnt_type[j]) for j in _joints(model, leaf)]
        fingers = [bool({*words_of(model.body(b).name)} & _FINGERS) for b in (leaf, palm)]
        if leaf not in parents and len(kinds) == 1 and kinds[0] in _TYPES and fingers == [True, False] and palm:
            arm = " ".join(model.body(b).name.lower() for b in above(model, palm))
            side = next((side for side in SIDES if side in arm), "")
            found.append(_hand(model, data, palm, side, [("", [leaf])]))
    return found


def digit_of(names: Sequence[str]) -> str:
    """Return which digit names of bodies and joints tell, "" for none."""
    codes = (code for name in names for found in _CODE.finditer(name.lower()) for code in found.groups() if code)
    words = (word for name in names for word in words_of(name))
    return next((_CODES[code] for code in codes), "") or next((DIGITS[word] for word in words if word in DIGITS), "")


def _chains(model: mujoco.MjModel) -> dict[int, list[list[int]]]:
    """Return palm -> chains of bodies that move by hinges and slides one after the other, each to its end."""
    weld = model.body_weldid
    moving = [b for b in range(1, model.nbody) if weld[b] == b]
    parent = {b: int(weld[model.body_parentid[b]]) for b in moving}
    chains = dict[int, list[list[int]]]()
    for leaf in set(moving) - {*parent.values()}:
        chain = [leaf]
        while (before := parent[chain[0]]) and [*parent.values()].count(before) == 1:
            chain.insert(0, before)
        if all(model.jnt_type[j] in _TYPES for b in chain for j in _joints(model, b)):
            chains.setdefault(parent[chain[0]], []).append(chain)
    return {palm: sorted(of) for palm, of in sorted(chains.items())}


def _joints(model: mujoco.MjModel, body: int) -> range:
    first = int(model.body_jntadr[body])
    return range(first, first + int(model.body_jntnum[body]))


def _names(model: mujoco.MjModel, body: int, last: bool) -> Iterator[str]:
    """Yield the names of what moves with a body; its sites only of the last one of a chain."""
    welded = np.flatnonzero(model.body_weldid == body)
    yield from (model.body(b).name for b in welded)
    yield from (model.joint(j).name for j in _joints(model, body))
    if last:
        yield from (model.site(s).name for s in range(model.nsite) if model.site_bodyid[s] in welded)


def _hand(
    model: mujoco.MjModel, data: mujoco.MjData, palm: int, side: str, chains: Sequence[tuple[str, list[int]]]
) -> Hand:
    """Return a hand with the joints that bring the tips of its digits to the middle of the palm, or jaws together."""
    jaws = not any(name for name, _ in chains)
    tips, bases = ([data.xipos[chain[i]] for _, chain in chains] for i in (-1, 0))
    meets = data.xipos[palm] if len(tips) == 1 else np.mean(tips, axis=0)  # a jaw alone meets the palm
    target = meets if jaws else 0.5 * (data.xpos[palm] + np.mean(bases, axis=0))
    digits = tuple(Digit(name, tuple(chain), _travels(model, data, chain, target, jaws)) for name, chain in chains)
    if jaws:
        return Hand(palm, side, digits)
    return _stopped(model, data, Hand(palm, side, digits, _shaped(model, data, digits)))


def _stopped(model: mujoco.MjModel, data: mujoco.MjData, hand: Hand) -> Hand:
    """Return the hand with its fingers closed as far as they come before they press into the palm or the thumb.

    They close joint by joint from straight, a step each in turn; the thumb stays where it is. Fingers side by side
    give way to each other.
    """
    joints = [joint for digit in hand.fingers for joint in digit.joints]
    at = [int(model.joint(name).qposadr[0]) for name, _, _ in joints]
    straight, closed = (np.array([joint[i] for joint in joints]) for i in (1, 2))
    moving = [body for digit in hand.fingers for body in digit.bodies]
    fixed = [hand.palm, *(body for digit in hand.digits for body in digit.bodies if body not in moving)]
    moved = mujoco.MjData(model)
    moved.qpos[:] = data.qpos

    def pressed(shares: np.ndarray) -> float:
        moved.qpos[at] = straight + shares * (closed - straight)
        mujoco.mj_kinematics(model, moved)
        mujoco.mj_collision(model, moved)
        bodies = model.body_weldid[model.geom_bodyid[moved.contact.geom]]
        meets = np.isin(bodies, moving).any(axis=1) & np.isin(bodies, fixed).any(axis=1)
        return float(-moved.contact.dist[meets].min(initial=0.0))

    shares, free = np.zeros(len(joints)), [*range(len(joints))]
    deepest = max(_DEEP, pressed(shares))
    while free:
        for i in list(free):
            further = shares.copy()
            further[i] = min(1.0, shares[i] + _STEP)
            if pressed(further) <= deepest:
                shares = further
            if shares[i] < further[i] or shares[i] >= 1.0:  # it was stopped, or is at its end
                free.remove(i)
    ends = (straight + np.maximum(shares, _BENT) * (closed - straight)).round(4).tolist()
    reached = {name: (name, a, end) for (name, a, _), end in zip(joints, ends, strict=True)}
    digits = (replace(digit, joints=tuple(reached.get(j[0], j) for j in digit.joints)) for digit in hand.digits)
    return replace(hand, digits=tuple(digits))


def spreads(model: mujoco.MjModel, digit: Digit) -> bool:
    """Return whether a finger has a joint that does not flex it."""
    joints = {model.joint(j).name for body in digit.bodies for j in _joints(model, body)}
    return bool(joints - {name for name, _, _ in digit.joints})


def facing(model: mujoco.MjModel, data: mujoco.MjData, hand: Hand) -> np.ndarray:
    """Return the direction [3] in the world to which a palm faces: that in which its fingertips begin to close."""
    joints = [joint for digit in hand.fingers for joint in digit.joints]
    at = [int(model.joint(name).qposadr[0]) for name, _, _ in joints]
    moved, tips = mujoco.MjData(model), list[np.ndarray]()
    moved.qpos[:] = data.qpos
    for share in (0.0, _BENT):
        moved.qpos[at] = [a + share * (b - a) for _, a, b in joints]
        mujoco.mj_kinematics(model, moved)
        tips.append(np.mean([moved.xpos[digit.tip] for digit in hand.fingers], axis=0))
        along = tips[0] - np.mean([moved.xpos[digit.bodies[0]] for digit in hand.fingers], axis=0)
    along, shift = along / np.linalg.norm(along), tips[1] - tips[0]
    across = shift - along * float(shift @ along)
    return across / np.linalg.norm(across)


def _shaped(model: mujoco.MjModel, data: mujoco.MjData, digits: Sequence[Digit]) -> str:
    """Return left or right by the side of the fingers on which the thumb is, "" for a hand without one or between."""
    thumbs, fingers = ([d for d in digits if (d.name == "thumb") == thumb] for thumb in (True, False))
    if not thumbs or not fingers:
        return ""
    at = list[np.ndarray]()
    for share in (0.0, _BENT):
        moved = mujoco.MjData(model)
        moved.qpos[:] = data.qpos
        for joint in (joint for digit in fingers for joint in digit.joints):
            moved.qpos[model.joint(joint[0]).qposadr[0]] = (1 - share) * joint[1] + share * joint[2]
        mujoco.mj_kinematics(model, moved)
        at.append(np.mean([moved.xipos[digit.tip] for digit in fingers], axis=0))
    bases = np.mean([data.xpos[digit.bodies[0]] for digit in fingers], axis=0)
    along, thumb = at[0] - bases, np.mean([data.xipos[digit.tip] for digit in thumbs], axis=0) - bases
    turn = float(np.cross(along, at[1] - at[0]) @ thumb)
    size = np.prod([np.linalg.norm(vector) for vector in (along, at[1] - at[0], thumb)])
    return "" if abs(turn) < _ASIDE * size else "right" if turn > 0 else "left"


def _travels(
    model: mujoco.MjModel, data: mujoco.MjData, chain: Sequence[int], target: np.ndarray, jaws: bool
) -> tuple[Travel, ...]:
    """Return the joints of a digit that flex it: those whose axis is about that of the last one.

    They flex the way that brings its tip nearer to `target` [3] m, all together; a finger the way in which it can
    turn much farther, if there is one. It is straight at zero, or as near to that as its range allows; a jaw is open
    at the other end.
    """
    every = [j for b in chain for j in _joints(model, b)]
    same = {j: float(data.xaxis[j] @ data.xaxis[every[-1]]) for j in every}
    joints = [j for j in every if abs(same[j]) > _PARALLEL and model.jnt_type[j] == model.jnt_type[every[-1]]]
    ends = np.array([model.jnt_range[j] if model.jnt_limited[j] else (-_FAR, _FAR) for j in joints])
    ends = np.where(np.array([[same[j] < 0.0] for j in joints]), ends[:, ::-1], ends).T  # [2, J]: each way
    far, moved = list[float](), mujoco.MjData(model)
    for end in ends:
        moved.qpos[:] = data.qpos
        moved.qpos[model.jnt_qposadr[joints]] = end
        mujoco.mj_kinematics(model, moved)
        far.append(float(np.linalg.norm(moved.xipos[chain[-1]] - target)))
    reach = np.abs(ends).sum(axis=1)
    flexes = int(np.argmin(far) if jaws or reach.max() < _MUCH * reach.min() else np.argmax(reach))
    closed, other = ends[flexes], ends[1 - flexes]
    straight = other if jaws else np.clip(0.0, ends.min(axis=0), ends.max(axis=0))
    values = zip(straight.round(4).tolist(), closed.round(4).tolist(), strict=True)
    return tuple((model.joint(j).name, a, b) for j, (a, b) in zip(joints, values, strict=True))
