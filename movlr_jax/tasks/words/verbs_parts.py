"""Verbs of parts of the body, of joints and of objects. Each makes clauses of what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.parts import Between, Part
from movlr_jax.tasks.words.phrase import WAYS, Context, NotRead, Phrase, Tree, span
from movlr_jax.tasks.words.scene import HINGES, floats

UPRIGHT = ("upright", "vertical", "vertically", "balanced")
_LEVEL = ("level", "horizontal", "horizontally")
_HIGH, _LOWERED = ("up", "raised", "lifted", "overhead"), ("down", "lowered")
_BENT, _STRAIGHT = ("bent", "flexed"), ("straight", "straightened", "stiff", "locked", "extended")
_ASIDE = ("sideways", "to side", "aside")
_WAVE = 0.25  # how far a part that waves swings to either side, as a share of its distance from the trunk
_MOVES_JOINTS = ("move", "bring", "carry", "pull", "drag")
_PUTS = ("put", "place", "set")
_ON = 0.05  # m, distance from its place at which an object lies on another one
_AWAY = 0.05  # m between the surfaces of a hand and what it has released
_IN_JAWS = 0.5  # share of the distance at which a thing touches a gripper, at which it is between its jaws
_FORMS = {"forwards": "forward", "ahead": "forward", "backwards": "backward", "back": "backward"}
_STEMS = {"backward": "back", "upward": "up", "downward": "down"}


# Postures: a part is in a state.


def posture(ctx: Context, tree: Tree) -> list[Clause]:
    """Return the clauses of "with straight knees"."""
    nouns, state = sorted(tree.children, key=lambda child: child.data != "nouns")
    word, before = ctx.span(state), ctx.last
    if tree.children[0] is state and ctx.verb is not None and ctx.verb.type in ("TOUCH", "PUSH", "KICK"):
        raise NotRead(word, f"says nothing that is understood of {ctx.verb!s}", span(state, ctx.text)[1])
    parts = ctx.nouns(nouns, hinge=word in (*_BENT, *_STRAIGHT))
    ctx.last = before or parts
    return _in_state(ctx, parts, word, span(tree, ctx.text)[1])


def _in_state(ctx: Context, parts: Sequence[Part], word: str, at: int = 0) -> list[Clause]:
    """Return that parts are in a state: raised, bent, upright, level, sideways, forward."""
    if word in UPRIGHT:
        return upright(ctx, parts)
    if word in (*_BENT, *_STRAIGHT):
        return _bent(ctx, parts, to=None if word in _BENT else 0.0)
    free, scene = _free(ctx, parts), ctx.scene
    if word in _LEVEL:
        free = [part for part in free if part.offset is not None]
        return [
            ctx.clause(c.pointed, part=part, way=scene.of.up, word="level", axis=scene.vertical(part))
            for part in free
        ]
    if word in _HIGH or word in _LOWERED:
        return [ctx.clause(c.raised, part=part, sign=1 if word in _HIGH else -1) for part in free]
    if word in _ASIDE:
        return [_pointed(ctx, part, scene.aside(part), "sideways") for part in free]
    return _points(ctx, parts, word, at)


def _points(ctx: Context, parts: Sequence[Part], word: str, at: int = 0) -> list[Clause]:
    """Return that parts point in a direction."""
    word = _FORMS.get(word, word)
    way = _STEMS.get(word, word)
    if way not in WAYS:
        raise NotRead(word, "is no direction of a part", at)
    return [_pointed(ctx, part, ctx.along(way), word) for part in _free(ctx, parts)]


def _pointed(ctx: Context, part: Part, way: np.ndarray, word: str) -> Clause:
    return ctx.clause(c.pointed, part=part, way=floats(way), word=word, axis=ctx.scene.axis(part))


def _free(ctx: Context, parts: Sequence[Part], verb: str = "") -> list[Part]:
    """Return parts without the trunk of a body that can fall, whose posture is its balance.

    Raises NotRead if none is left that the verb could move.
    """
    scene = ctx.scene
    trunk = {scene.root, *(scene.roles.get(role, "") for role in ("trunk", "pelvis"))}
    free = [part for part in parts if part.place not in trunk] if scene.rises else list(parts)
    if verb and not free:
        raise NotRead(parts[0].words, f"cannot be the part to {verb}: it is the body itself")
    return free


def upright(ctx: Context, parts: Sequence[Part]) -> list[Clause]:
    """Return that limbs are vertical, or the axes of bodies that are so at the start."""
    free = _free(ctx, parts)
    if len(free) < len(parts):
        ctx.balance = True
    return [_pointed(ctx, part, np.asarray(ctx.scene.of.up), "upright") for part in free]


# Joints.


def _bent(
    ctx: Context, parts: Sequence[Part], sign: int = 1, by: float | None = None, to: float | None = None
) -> list[Clause]:
    made = list[Clause]()
    for part in parts:
        if not (bends := ctx.scene.bends(part)):
            raise NotRead(part.words, "does not bend: it is no knee or elbow of this model")
        still = part.words.endswith("elbow")
        made.append(
            ctx.clause(c.bent, part=part, above=bends[0], below=bends[1], sign=sign, by=by, to=to, still=still)
        )
    return made


def _bends(ctx: Context, parts: Sequence[Part], phrase: Phrase, sign: int) -> list[Clause]:
    return _bent(ctx, parts, sign, phrase.number("angle"), phrase.number("angle_to"))


def _joint(ctx: Context, phrase: Phrase, joints: Sequence[str], sign: int = 1) -> list[Clause]:
    by, to = phrase.number("angle", signed=True), phrase.number("angle_to", signed=True)
    if by is not None and by < 0:
        sign, by = -sign, -by
    length, made = phrase.number("distance"), list[Clause]()
    for name in joints:
        slides = bool(ctx.scene.model.joint(name).type[0] == 2)
        if (slides and (by is not None or to is not None)) or (not slides and length is not None):
            kind = "slide, which moves in m" if slides else "hinge, which turns in degrees"
            raise NotRead(name, f"is a {kind}")
        by = length if slides else by
        _check_range(ctx, name, sign * by if to is None and by is not None else to, to is None)
        made.append(ctx.clause(c.joint, name=name, sign=sign, by=by, to=to, slides=slides))
    return made


def _check_range(ctx: Context, joint: str, value: float | None, change: bool) -> None:
    """Check that a joint can be at, or change by, a value in rad or m. Raises NotRead."""
    model = ctx.scene.model
    number = model.joint(joint).id
    if value is None or not model.jnt_limited[number]:
        return
    end = value + (float(ctx.scene.data.joint(joint).qpos[0]) if change else 0.0)
    low, high = model.jnt_range[number]
    if not low - 0.02 <= end <= high + 0.02:
        why = f"reaches {low:.3g} to {high:.3g} rad or m, so {end:.3g} is out of its range"
        raise NotRead(joint, why)


def turn_things(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return the clauses of joints, or of knees and elbows, that are turned."""
    if joints := ctx.joints(phrase):
        return _joint(ctx, phrase, joints)
    return _bends(ctx, ctx.things(phrase, hinge=True), phrase, 1)


def _bend(ctx: Context, phrase: Phrase, sign: int = 1) -> list[Clause]:
    scene = ctx.scene
    thing = phrase.has("thing")
    if joints := ctx.joints(phrase):  # knees and elbows by the angle between segments
        words = [[word for word in scene.joints[joint] if word != "joint"] for joint in joints]
        hinges = [scene.find(of) if of and of[-1] in HINGES.values() else [] for of in words]
        if not all(hinges):
            return _joint(ctx, phrase, joints, sign)
        ctx.last = [part for parts in hinges for part in parts]
        return _bends(ctx, ctx.last, phrase, sign)
    if thing and (joints := scene.finger_joints(ctx.span(thing).split())):
        phrase.take("thing")
        by, made = phrase.number("angle"), list[Clause]()
        for joint in joints:  # to the side of its larger limit, or back
            low, high = scene.model.joint(joint).range
            made.append(ctx.clause(c.joint, name=joint, sign=sign if abs(high) >= abs(low) else -sign, by=by))
        return made
    return _bends(ctx, ctx.things(phrase, "a joint, as in bend the knee", hinge=True), phrase, sign)


# Parts.


def _arranged(ctx: Context, phrase: Phrase, parts: Sequence[Part], but: str = "") -> list[Clause]:
    """Return that parts are at a place, or point in a direction other than `but`; none if nothing is said of them."""
    way, aside = phrase.way(), phrase.one("path")
    if place := ctx.place(phrase, "TO", "ON"):
        return [near(ctx, part, place[1]) for part in parts]
    if aside:
        return _in_state(ctx, parts, "sideways")
    return _points(ctx, parts, way) if way and way != but else []


def _raise(ctx: Context, phrase: Phrase, sign: int = 1) -> list[Clause]:
    things, made = ctx.things(phrase, "what to raise or lower"), list[Clause]()
    way, opposite = ("up", "down") if sign > 0 else ("down", "up")
    if opposite in phrase.ways(keep=True):
        raise NotRead(opposite, f"does not go with {phrase.verb!r}")
    if not any(map(ctx.scene.own, things)):
        phrase.only(way, f"goes {way}; say move for other directions")
        made = _approach(ctx, phrase, things)
    elif (state := phrase.has("state")) and str(state.children[0]) in _BENT:
        phrase.one("state")
        made = _bent(ctx, things)
    elif arranged := _arranged(ctx, phrase, things, but=way):
        return arranged
    else:
        things = _free(ctx, things, phrase.verb)
    amount = phrase.number("distance")
    return [*made, *(ctx.clause(c.raised, part=part, sign=sign, amount=amount) for part in things)]


def _point(ctx: Context, phrase: Phrase) -> list[Clause]:
    things = ctx.things(phrase) or ctx.tools(phrase)
    if not things:
        raise phrase.no("needs the part that points")
    if arranged := _arranged(ctx, phrase, things):
        return arranged
    raise phrase.no("needs one direction, as in point the arm forward")


def _wave(ctx: Context, phrase: Phrase) -> list[Clause]:
    scene, times = ctx.scene, phrase.times()
    parts = ctx.things(phrase) or ctx.tools(phrase) or scene.known(["hand"], "right")
    if not parts:
        why = "needs a hand, and no body of this model is named so; name a part, as in wave the arm"
        raise phrase.no(why)
    if other := [part for part in parts if not scene.own(part)]:
        raise NotRead(other[0].words, "is no part of the body, so it cannot wave")
    trunk, left = scene.roles.get("trunk", scene.root), floats(scene.around[1])
    made = list[Clause]()
    for part in parts:
        away = float(np.linalg.norm(part.now(scene.data) - scene.data.body(trunk).xpos))
        far = round(_WAVE * away, 2)
        made.append(ctx.clause(c.raised, part=part, most=round(away, 2)))
        made.append(ctx.clause(c.waves, part=part, trunk=trunk, left=left, far=far, times=times))
    return made


def keep_things(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that parts or objects stay in a state, at a place, or in the hand."""
    before, states = list(ctx.last), [str(s.children[0]) for s in phrase.left if s.data == "state"]
    things = ctx.things(phrase, hinge=bool({*states} & {*_BENT, *_STRAIGHT}))
    if states and (place := phrase.has("place")):
        raise phrase.unread(place)
    if place := ctx.place(phrase, "TO", "ON"):
        return [near(ctx, part, place[1]) for part in things]
    phrase.take("state", "here")
    states += phrase.ways() + [ctx.span(slot) for slot in phrase.take("path")]
    if not states and before == things:  # "... and hold it there"
        return []
    if states and states != ["still"]:
        return [clause for state in states for clause in _in_state(ctx, things, state)]
    if any(map(ctx.scene.own, things)):
        raise NotRead(things[0].words, "is held in no way that is understood; say up, level, bent, ...")
    return _approach(ctx, phrase, things, must=True)


# Objects.


def near(ctx: Context, part: Part, other: Part, must: bool = True) -> Clause:
    """Return that a part touches another one."""
    return ctx.clause(c.near, part=part, other=other, within=ctx.scene.touching(part, other), must=must)


def _approach(
    ctx: Context, phrase: Phrase, things: Sequence[Part], must: bool = False, grips: bool = True
) -> list[Clause]:
    """Return that what handles objects is at them and its fingers close; not `must`: only on the way."""
    hands = ctx.tools(phrase) or ctx.scene.hands[:1]
    ctx.last = [ctx.movable(thing) for thing in things]
    fingers = ctx.scene.fingers() if grips else ()
    hands = [ctx.scene.grip(hand) for hand in hands] if fingers else hands
    at = [near(ctx, hand, thing, must) for thing in things for hand in hands if hand.place != thing.place]
    if not fingers:
        return at
    held = at[0] if len(at) == 1 else None
    return [*at, ctx.clause(c.gripped, fingers=fingers, must=must, **_held(held) if held else {})]


def _held(approach: Clause) -> dict[str, Any]:
    """Return the hand, the thing, and the distance in m at which it is in the grip of the hand."""
    share = _IN_JAWS if isinstance(approach["part"], Between) else 1.0
    return {"hand": approach["part"], "thing": approach["other"], "within": round(share * approach["within"], 4)}


def _touch(ctx: Context, phrase: Phrase) -> list[Clause]:
    things, tools = ctx.things(phrase), ctx.tools(phrase)
    if not things and tools and (way := phrase.way()):
        return _points(ctx, tools, way)
    things = things or [part for _, part in ctx.places(phrase, "TO")]
    if not things:
        raise phrase.no("needs what to touch")
    phrase.take("here")
    hands = tools or [hand for hand in ctx.scene.hands[:1] if hand.place not in {t.place for t in things}]
    if not hands:
        raise phrase.no("needs the part that touches, as in touch the head with the right hand")
    if len(things) > 1:  # "touch your toes": each with the hand of its side
        sides = [next((s for s in ("left", "right") if s in thing.words.split()), "-") for thing in things]
        sided = [next((h for h in ctx.scene.hands if side in h.words.split()), None) for side in sides]
        if tools or not all(sided):
            raise NotRead(things[1].words, "cannot be touched at once; say first one, then the other")
        return [near(ctx, hand, thing) for hand, thing in zip(sided, things, strict=True) if hand]
    ctx.last = hands if all(map(ctx.scene.own, things)) else things
    return [near(ctx, hand, thing) for hand in hands for thing in things]


def move_things(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that joints, parts or objects move: by an amount, in a direction, or to a place."""
    verb = phrase.verb
    if joints := ctx.joints(phrase) if verb in _MOVES_JOINTS else []:
        return _joint(ctx, phrase, joints)
    things = ctx.things(phrase, f"what to {verb}, as in {verb} the cube" + " on the plate" * (verb in _PUTS))
    if verb in _PUTS and not phrase.has("place", "direction"):
        raise phrase.no("needs where to put it, as in put the cube on the plate")
    distance, objects = phrase.number("distance"), not any(map(ctx.scene.own, things))
    if place := ctx.place(phrase, "TO", "ON"):
        if phrase.has("direction") or distance:
            raise phrase.no("names a place and a direction")
        return _moved_to(ctx, phrase, things, *place)
    word = phrase.way()
    if objects:
        made = _approach(ctx, phrase, things, grips=word in ("up", "down"))
    elif not word:
        raise phrase.no("needs a direction or a place")
    else:
        moves_root = ctx.scene.root in [part.place for part in things]
        if moves_root and not ctx.scene.goes(floats(ctx.along(word))):
            raise NotRead(word, f"is not possible: no joint lets {ctx.scene.root!r} move there")
        made, things = list[Clause](), _free(ctx, things, verb)
    if word in ("up", "down"):
        sign = 1 if word == "up" else -1
        return [*made, *(ctx.clause(c.raised, part=part, sign=sign, amount=distance) for part in things)]
    way, moves = floats(ctx.along(word)) if word else None, f"moves {word}".strip()
    return [
        *made,
        *(ctx.clause(c.shifted, part=part, way=way, amount=distance, word=moves) for part in things),
    ]


def _moved_to(ctx: Context, phrase: Phrase, things: Sequence[Part], prep: str, target: Part) -> list[Clause]:
    """Return that parts or objects are at a target, or objects on it."""
    if any(map(ctx.scene.own, things)):
        return [near(ctx, part, target) for part in _free(ctx, things, phrase.verb)]
    if target.place in {part.place for part in things}:
        raise NotRead(target.words, "is the object itself")
    made = _approach(ctx, phrase, things, grips=phrase.verb not in ("push", "shove"))
    there = [near(ctx, part, target) for part in things]
    if prep.startswith(("on", "at")) and not ctx.scene.own(target):
        up, scene = np.asarray(ctx.scene.of.up), ctx.scene
        heights = [round(scene.size(part, up) + scene.size(target, up), 3) for part in things]
        there = [cl.but(within=_ON, above=above) for cl, above in zip(there, heights, strict=True)]
    return [*made, *there]


def _pick(ctx: Context, phrase: Phrase) -> list[Clause]:
    things, amount = ctx.objects(phrase, "an object"), phrase.number("distance")
    made = _approach(ctx, phrase, things, must=True)
    return [*made, *(ctx.clause(c.raised, part=part, amount=amount) for part in things)]


def _grasp(ctx: Context, phrase: Phrase) -> list[Clause]:
    return _approach(ctx, phrase, ctx.objects(phrase, "an object to grasp"), must=True)


def _release(ctx: Context, phrase: Phrase) -> list[Clause]:
    hand, made = ctx.scene.hands[0], list[Clause]()
    for part in ctx.objects(phrase, "an object to release"):
        clause = near(ctx, hand, ctx.movable(part))
        made.append(clause.but(within=clause["within"] + _AWAY, apart=True))
    return made


def _kick(ctx: Context, phrase: Phrase) -> list[Clause]:
    things = ctx.objects(phrase, "an object to kick")
    feet = ctx.tools(phrase) or ctx.scene.known(["foot"], "right")
    if not feet:
        raise phrase.no("needs a foot, and no body of this model is named so")
    word, distance = phrase.way(), phrase.number("distance")
    way, made = floats(ctx.along(word)) if word else None, list[Clause]()
    for thing in things:
        made += [near(ctx, foot, ctx.movable(thing), must=False) for foot in feet]
        made.append(ctx.clause(c.shifted, part=thing, way=way, amount=distance, word="is kicked"))
    return made


PART_VERBS: dict[str, Callable[[Context, Phrase], list[Clause]]] = {
    "RAISE": _raise,
    "LOWER": lambda ctx, phrase: _raise(ctx, phrase, -1),
    "POINT": _point,
    "BEND": _bend,
    "STRAIGHTEN": lambda ctx, phrase: _bend(ctx, phrase, -1),
    "WAVE": _wave,
    "TOUCH": _touch,
    "PUSH": move_things,
    "PUT": move_things,
    "PICK": _pick,
    "GRASP": _grasp,
    "RELEASE": _release,
    "KICK": _kick,
}
