"""Read a motion from the words of a task description.

Only the description and the model are read, never the measures of the task. Unknown words are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np

from movlr_jax.biomech.world import EARTH, World, world_of
from movlr_jax.models.derived import travels
from movlr_jax.models.from_path import above
from movlr_jax.tasks.aims import NEGATIONS, Reader, is_form
from movlr_jax.tasks.base import Motion, axis_text
from movlr_jax.tasks.parts import Parts

CROUCHED = 0.3  # as FALLEN, for motions close to the ground
_LYING = 0.3  # height of the root, as a share of the body's length, below which a body lies
_LOWEST = 0.1  # m, a body that starts lower is not expected to stay upright, unless the words say so
# Froude number speed^2 / (g height) of walking, running, and moving close to the ground
_FROUDE = {"walk": 0.25, "run": 1.0, "low": 0.1}
_PACES = {
    "walk": "walk go move march travel advance stroll climb drive ride trot amble hop skip",
    "run": "run jog gallop sprint dash bound canter",
    "low": "crawl roll slide swim slither fly creep glide wriggle",
}
_JUMPS, _TURNS, _STILL = "jump leap bounce hop", "turn spin rotate pivot", "stand balance still upright"
_POSTURE = ("trunk", "pelvis")  # roles of bodies that the posture of the whole body is made of
_NEAR = 0.05  # m, a place that is closer gives no direction
_RISES = "stand get rise"
_UPRIGHT = "stand balance upright"
_CROUCHES, _DOWN = "squat crouch lunge duck stoop", "kneel sit lie lying"
_DEPTH = 0.3  # share of its height by which a body goes down that squats
_AGAIN = ("again", "up", "return", "back", "squats")
_CARRY = (
    "move drive roll slide turn spin rotate pivot balance"  # verbs that can have an object: "move the hand"
)
_TEMPO = {"fast": 1.5, "quickly": 1.5, "slowly": 0.5}
_WAYS = {  # ahead, left, up
    "forward": (1, 0, 0), "forwards": (1, 0, 0), "ahead": (1, 0, 0),
    "backward": (-1, 0, 0), "backwards": (-1, 0, 0), "back": (-1, 0, 0),
    "left": (0, 1, 0), "leftwards": (0, 1, 0), "right": (0, -1, 0), "rightwards": (0, -1, 0),
    "up": (0, 0, 1), "upward": (0, 0, 1), "upwards": (0, 0, 1),
    "down": (0, 0, -1), "downward": (0, 0, -1), "downwards": (0, 0, -1),
}  # fmt: skip
_SIDES = ("left", "right", "back", "up", "down")  # not a direction before a noun: "the left leg"
_FOLLOWS = (
    "",
    "and",
    "then",
    "at",
    "as",
    "for",
    "by",
    "while",
    "with",
    "without",
    "until",
    "in",
    "on",
    "to",
    "facing",
)
_ARTICLES = ("the", "a", "an", "its", "your", "his", "her", "both")
_TO = r"\b(?:to|towards?|for)\s+"
_FACING = (
    r"(?<!not )(?<!without )\b(?:fac(?:es?|ing)|look(?:s|ing)? at|(?:turn|rotat|pivot)\w* (?:to|towards?))\s+"
)
_NUMBER = r"(\d+(?:\.\d+)?)\s*-?\s*"
_TURN_BY = re.compile(
    rf"\b(?:turn|spin|rotat|pivot)\w*\b(?:(?!\band\b|\bthen\b)[^.,;])*?\b{_NUMBER}(?:(°|deg)|rad)"
)
_PART_TURNS = {  # degrees
    re.compile(r"\bturn(?:s|ing)? (?:\w+ )?(?:around|round|about)\b(?! (?:the|a|an|its)\b)"): 180.0,
    re.compile(r"\bhalf (?:a )?turn\b"): 180.0,
    re.compile(r"\bquarter (?:of a )?turn\b"): 90.0,
    re.compile(r"\b(?:full|whole) turn\b"): 360.0,
}
_POSED = re.compile(  # what a body stands on, other than its feet
    r"\bon (?:(?:its|the|his|her|your|only) )*"
    r"(?:((?:hind|rear|back|front|fore)[ -]?(?:legs?|feet|paws|wheels?)|hands|head|back|knees)"
    r"|(?:one|left|right) (?:leg|foot|hand|wheel)|toes|tiptoes?|heels)\b"
)
_HERE = re.compile(r"\b(in place|on the spot)\b")
_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*(m/s|met(?:er|re)s?\s+(?:per|a)\s+second|km/h)")
_AXIS = re.compile(
    r"([+-]?)\b([xyz])[ -](?:axis|direction)|\balong (?:the )?([+-]?)([xyz])\b|([+-])([xyz])\b"
)


def motion_of(
    description: str,
    model: mujoco.MjModel,
    qpos: np.ndarray,
    root: str,
    forward: Sequence[float],
    roles: Mapping[str, str],
    sites: Sequence[str],
) -> Motion:
    """Read the motion from `description`, for a model that starts at `qpos` [nq] and faces `forward` [3].

    roles: role -> body or site; sites: those that an episode records.
    """
    start = mujoco.MjData(model)
    start.qpos[:] = qpos
    mujoco.mj_kinematics(model, start)
    world = world_of(model, model.body(root).id)
    around = _around(world, forward)
    reader = _reader(Parts(model, roles, sites), start, root, roles, around)
    aims, read, text = reader.read(description.lower(), travels=_travels(description.lower()))
    words = re.findall(r"[a-z]+", text)
    subject = root if aims else _subject(words, model, root, around[0])
    up, level = tuple(world.up.tolist()), world.level is not None
    said = _said(words, Motion(subject, up=up, level=level))
    motion, paces, way, heading = said.motion, said.paces, said.way, said.heading
    read += said.read
    if found := _place(text, _FACING, start, motion):
        read.append(f"face {found[0]}")
        heading = float(np.arctan2(around[1] @ found[1], around[0] @ found[1]))
    elif motion.turn and (degrees := _turn_by(text)):
        read.append(f"by {degrees:g}°")
        heading = motion.turn * np.deg2rad(degrees)
    if heading is not None:
        motion = replace(motion, turn=-1 if heading < 0 else 1, angle=abs(heading))
    if axis := _AXIS.search(text):
        sign, name = next((a, b) for a, b in zip(axis.groups()[::2], axis.groups()[1::2], strict=True) if b)
        towards = np.eye(3)["xyz".index(name)] * (-1.0 if sign == "-" else 1.0)
        read.append(axis[0].strip())
    elif way is None and (found := _place(text, _TO, start, motion)):
        place, towards = found
        read.append(f"to {place}")
    else:
        towards = np.asarray(way or (1, 0, 0)) @ around
    here = _HERE.search(text)
    if here:
        read.append(here[0])
        motion = replace(motion, still=True)
    # without a direction, "hop" means to jump in place; a jump with a direction travels
    travelling = (paces and not (motion.jump and way is None and not axis)) or (motion.jump and (way or axis))
    if here or (motion.jump and towards @ world.up > 0):
        travelling = False
    height = float(world.height(start.body(motion.subject).xpos))
    if motion.rise:
        lies = _lies(start, motion, height)
        motion = replace(motion, rise=lies, still=not lies, upright=motion.upright and not lies)
    asked = any(is_form(word, _UPRIGHT) for word in read)  # a body on wheels may start lower
    posed = _POSED.search(text)
    if posed and not posed[1] and (raised := reader.standing_on(posed[0])):
        read.append(posed[0])
        aims += raised
    upright = (
        motion.upright and "low" not in paces and (height > _LOWEST or asked) and not (posed and posed[1])
    )
    motion = replace(motion, words=tuple(dict.fromkeys(read)), upright=upright)
    if travelling:
        pace = "low" if "low" in paces else "run" if "run" in paces else "walk"
        given = _SPEED.search(text)
        speed = said.tempo * float(np.sqrt(_FROUDE[pace] * (world.gravity or EARTH) * max(height, _LOWEST)))
        if given:
            speed = float(given[1]) / (3.6 if given[2] == "km/h" else 1.0)
        x, y, z = (float(c) + 0.0 for c in np.round(towards, 6))
        motion = replace(motion, way=(x, y, z), speed=float(f"{speed:.2g}"), exact=bool(given))
    motion = _possible(motion, model)
    goes = motion.way or motion.jump or motion.turn
    if said.crouches and motion.upright and not goes:
        motion = replace(motion, depth=round(_DEPTH * height, 2), returns=said.comes_up)
    if not (motion.moves or motion.still or aims):
        aims = reader.meeting(text)
    if aims or motion.depth:  # the rest of a body that can fall should stay where it is
        motion = replace(motion, aims=tuple(dict.fromkeys(aims)), still=motion.upright and not goes)
    return motion


@dataclass
class _Said:
    """What single words say."""

    motion: Motion
    read: list[str] = field(default_factory=list)  # the words that were understood
    paces: list[str] = field(default_factory=list)
    way: tuple[int, int, int] | None = None  # ahead, left, up
    tempo: float = 1.0
    heading: float | None = None  # rad, left of the direction at the start
    crouches: bool = False
    comes_up: bool = False  # after that


def _said(words: Sequence[str], motion: Motion) -> _Said:
    """Read the words of a description one by one, for a `motion` that has a subject."""
    said = _Said(motion)
    for i, word in enumerate(words):
        before, after = words[max(0, i - 2) : i], words[i + 1] if i + 1 < len(words) else ""
        carried = after in _ARTICLES and is_form(word, _CARRY) and motion.subject not in words[i + 1 : i + 4]
        if carried or any(w in NEGATIONS for w in before):
            continue
        known = [kind for kind, verbs in _PACES.items() if is_form(word, verbs)]
        said.paces += known
        said.comes_up |= said.crouches and word in _AGAIN
        if word == "up" and any(is_form(w, _RISES) for w in before[-1:]):
            motion = replace(motion, rise=True)
        elif word in _WAYS and (word not in _SIDES or after in _FOLLOWS):
            if any(is_form(w, "face") for w in words[max(0, i - 3) : i]):
                if _WAYS[word][2]:  # "face up"
                    continue
                said.heading = _angle((1, 0, 0), _WAYS[word])
                said.read.append("face")
            elif motion.turn:
                motion = replace(motion, turn=-1 if word == "right" else 1)
            else:
                said.way = said.way or _WAYS[word]
        elif is_form(word, _TURNS):
            motion = replace(motion, turn=1)
        elif word == "clockwise" and motion.turn:  # seen from above
            motion = replace(motion, turn=1 if before[-1:] in (["counter"], ["anti"]) else -1)
        elif is_form(word, _JUMPS):
            motion = replace(motion, jump=True)
        elif is_form(word, _STILL):
            motion = replace(motion, still=True, rise=motion.rise or is_form(word, "stand"))
        elif is_form(word, "rise"):
            motion = replace(motion, rise=True)
        elif is_form(word, _CROUCHES):
            motion = replace(motion, lowest=CROUCHED)
            said.crouches = True
        elif is_form(word, _DOWN):
            motion = replace(motion, upright=False)
        elif word in _TEMPO:
            said.tempo *= _TEMPO[word]
        elif not known:
            continue
        said.read.append(word)
    said.motion = motion
    return said


def _travels(text: str) -> bool:
    """Return whether a verb of travel occurs, other than "move"."""
    words = (word for word in re.findall(r"[a-z]+", text) if not is_form(word, "move"))
    return any(is_form(word, verbs) for word in words for verbs in (*_PACES.values(), _JUMPS))


def _reader(
    parts: Parts, start: mujoco.MjData, root: str, roles: Mapping[str, str], around: np.ndarray
) -> Reader:
    """Return the reader of what parts of the body should do, apart from its root and trunk if it can fall."""
    ways = {word: np.asarray(way) @ around for word, way in _WAYS.items()}
    posture = [root, *(roles[role] for role in _POSTURE if role in roles)]
    whole = posture if travels(start.model, root, around[2].tolist()) else []
    return Reader(parts, start, ways, whole, roles.get("trunk", root))


def towards(motion: Motion, velocity: Sequence[float]) -> Motion:
    """Return `motion` with the `velocity` [3] m/s that the task sets explicitly."""
    speed = float(np.linalg.norm(velocity))
    if speed == 0.0:
        return replace(motion, way=None, speed=0.0, still=True)
    x, y, z = (float(v) / speed for v in velocity)
    return replace(motion, way=(x, y, z), speed=speed, exact=True)


def _subject(words: Sequence[str], model: mujoco.MjModel, root: str, ahead: np.ndarray) -> str:
    """Return the free body that the words name, or else the root."""
    names = [model.body(b).name for b in range(1, model.nbody) if model.body_jntnum[b]]
    free = [n for n in names if n != root and n.lower() in words and travels(model, n, ahead.tolist())]
    return root if root.lower() in words or not free else free[0]


def pose(description: str) -> str:
    """Return the words that name what the body stands on, if not its feet, as in "on its hind legs"; else ""."""
    found = _POSED.search(description.lower())
    return found[0] if found else ""


def length_of(model: mujoco.MjModel, data: mujoco.MjData, body: str) -> float:
    """Return the length in m of a body with all that it carries, between the frames of its parts."""
    root = model.body(body).id
    own = [b for b in range(model.nbody) if root in above(model, b)]
    return float(np.linalg.norm(np.ptp(data.xpos[own], axis=0)))


def _lies(data: mujoco.MjData, motion: Motion, height: float) -> bool:
    """Return whether a body that can rise lies on the ground, with its origin at `height` m."""
    low = height < _LYING * length_of(data.model, data, motion.subject)
    return low and travels(data.model, motion.subject, motion.up)


def _turn_by(text: str) -> float:
    """Return by how many degrees words ask to turn; 0 if they do not say."""
    if found := _TURN_BY.search(text):
        return float(found[1]) if found[2] else float(np.rad2deg(float(found[1])))
    return next((degrees for words, degrees in _PART_TURNS.items() if words.search(text)), 0.0)


def _angle(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the angle in rad, left positive, from the horizontal direction of `a` [3] to that of `b` [3]."""
    return float(np.arctan2(a[0] * b[1] - a[1] * b[0], a[0] * b[0] + a[1] * b[1]))


def _place(text: str, before: str, data: mujoco.MjData, motion: Motion) -> tuple[str, np.ndarray] | None:
    """Return the body or site that `text` names after `before`, with its horizontal direction [3]; or None."""
    model, up = data.model, np.asarray(motion.up)
    places = {model.body(b).name: data.xpos[b] for b in range(1, model.nbody)}
    places |= {model.site(i).name: data.site_xpos[i] for i in range(model.nsite)}
    for name, at in places.items():
        said = r"\W+".join(re.findall("[a-z0-9]+", name.lower()))
        away = at - data.body(motion.subject).xpos
        away = away - (away @ up) * up
        distance = float(np.linalg.norm(away))
        if said and distance > _NEAR and re.search(rf"{before}(?:the\s+)?{said}\b", text):
            return name, away / distance
    return None


def _around(world: World, forward: Sequence[float]) -> np.ndarray:
    """Return the directions ahead, left and up [3, 3] of a body that faces `forward` [3], as rows."""
    return np.array([forward, np.cross(world.up, forward), world.up])


def _possible(motion: Motion, model: mujoco.MjModel) -> Motion:
    """Remove motions that no joint of the body allows."""
    lacks = []
    if motion.way and not travels(model, motion.subject, motion.way):
        lacks.append(f"move along {axis_text(motion.way)}")
        motion = replace(motion, way=None)
    if motion.jump and not travels(model, motion.subject, motion.up):
        lacks.append("leave the ground")
        motion = replace(motion, jump=False)
    if motion.turn and not travels(model, motion.subject, motion.up, turning=True):
        lacks.append("turn about the vertical")
        motion = replace(motion, turn=0, angle=None)
    stands = motion.upright and travels(model, motion.subject, motion.up)
    return replace(motion, lacks=" or ".join(lacks), upright=stands)
