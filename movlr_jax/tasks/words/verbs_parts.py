"""Verbs of parts of the body, of joints and of objects. Each makes clauses of what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lark
import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.models.names import side_of
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.hands import Fingers, fingers_of
from movlr_jax.tasks.words.parts import JOINTS, Between, Part
from movlr_jax.tasks.words.phrase import WAYS, Context, NotRead, Phrase, Tree, span
from movlr_jax.tasks.words.scene import HINGES, floats

UPRIGHT = ("upright", "vertical", "vertically", "balanced")
_LEVEL = ("level", "horizontal", "horizontally")
_HIGH, _LOWERED = ("up", "raised", "lifted", "overhead"), ("down", "lowered")
_GROUND = {"on": "on the ground", "off": "raised", "from": "raised"}  # of a part that is kept on or off the ground
_BENT, _STRAIGHT = ("bent", "flexed"), ("straight", "straightened", "stiff", "locked", "extended")
_OPEN, _CLOSED = ("open", *_STRAIGHT), ("closed", *_BENT)  # of fingers
_ASIDE = ("sideways", "to side", "aside")
_BOWS = ("bow", "bend over")
_MOST_LEAN = np.deg2rad(50.0)  # of a body that should not fall
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
    word = _GROUND.get(word.split()[0], word) if state.data == "extent" else word
    if tree.children[0] is state and ctx.verb is not None and ctx.verb.type in ("TOUCH", "PUSH", "KICK"):
        raise NotRead(word, f"says nothing that is understood of {ctx.verb!s}", span(state, ctx.text)[1])
    phrase = Phrase(ctx.text, word, [lark.Tree("thing", [nouns]), state])
    if (made := _fingers_in_state(ctx, phrase)) or state.data == "place":
        return made or _at(ctx, phrase, ctx.things(phrase))
    parts = ctx.nouns(nouns, hinge=word in (*_BENT, *_STRAIGHT))
    ctx.last = before or parts
    return _in_state(ctx, parts, word, span(tree, ctx.text)[1])


def _in_state(ctx: Context, parts: Sequence[Part], word: str, at: int = 0) -> list[Clause]:
    """Return that parts are in a state: raised, bent, upright, level, sideways, forward."""
    if word in UPRIGHT:
        return upright(ctx, parts)
    if word in (*_BENT, *_STRAIGHT):
        return _bent(ctx, parts, to=None if word in _BENT else 0.0)
    if word == _GROUND["on"]:
        return as_high(ctx, parts)
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


def _fingers_in_state(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that hands or fingers are open or closed, if that is what is said of them; else none."""
    states = [str(slot.children[0]) for slot in phrase.left if slot.data == "state"]
    fingers = ctx.fingers(phrase) if len(states) == 1 and states[0] in (*_OPEN, *_CLOSED) else []
    phrase.take(*(["state"] if fingers else []))
    return [_closed(ctx, of, opens=states[0] in _OPEN) for of in fingers]


def _closed(ctx: Context, of: Fingers, opens: bool = False) -> Clause:
    """Return that fingers or jaws are open or closed; an open hand has its thumb out."""
    digits = of.hand.digits if opens and of.digits == of.hand.fingers else of.digits
    return ctx.clause(c.closed, words=of.words, joints=replace(of, digits=digits).joints, opens=opens)


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
    """Check that a joint can be at, or change by, a value in rad or m, after the clauses before. Raises NotRead."""
    model, before = ctx.scene.model, ctx.at.get(joint, float(ctx.scene.data.joint(joint).qpos[0]))
    end = value if not change else None if value is None or before is None else value + before
    ctx.at[joint] = end
    low, high = model.joint(joint).range
    if end is not None and model.joint(joint).limited and not low - 0.02 <= end <= high + 0.02:
        why = f"reaches {low:.3g} to {high:.3g} rad or m, so {end:.3g} is out of its range"
        raise NotRead(joint, why)


def turn_things(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return the clauses of joints, or of knees and elbows, that are turned."""
    if joints := ctx.joints(phrase):
        return _joint(ctx, phrase, joints)
    return _bends(ctx, ctx.things(phrase, hinge=True), phrase, 1)


def _bend(ctx: Context, phrase: Phrase, sign: int = 1) -> list[Clause]:
    scene = ctx.scene
    if joints := ctx.joints(phrase):  # knees and elbows by the angle between segments
        words = [[word for word in scene.joints[joint] if word != "joint"] for joint in joints]
        hinges = [scene.find(of) if of and of[-1] in HINGES.values() else [] for of in words]
        if not all(hinges) or phrase.negative("angle", "angle_to"):  # that is the joint's angle
            return _joint(ctx, phrase, joints, sign)
        ctx.last = [part for parts in hinges for part in parts]
        return _bends(ctx, ctx.last, phrase, sign)
    if fingers := ctx.fingers(phrase):
        by = phrase.number("angle")
        if sign < 0 and by is None:
            return [_closed(ctx, of, opens=True) for of in fingers]
        joints = [joint for of in fingers for joint in of.joints]
        return [ctx.clause(c.joint, name=name, sign=sign if b > a else -sign, by=by) for name, a, b in joints]
    if sign > 0 and phrase.has("direction"):
        return lean(ctx, phrase)
    return _bends(ctx, ctx.things(phrase, "a joint, as in bend the knee", hinge=True), phrase, sign)


# Parts.


def _arranged(ctx: Context, phrase: Phrase, parts: Sequence[Part], but: str = "") -> list[Clause]:
    """Return that parts are at a place, or point in a direction other than `but`; none if nothing is said of them."""
    way, aside = phrase.way(), phrase.one("path")
    if at := _at(ctx, phrase, parts):
        return at
    if aside:
        return _in_state(ctx, parts, "sideways")
    return _points(ctx, parts, way) if way and way != but else []


def _at(ctx: Context, phrase: Phrase, parts: Sequence[Part]) -> list[Clause]:
    """Return that parts are at the place that is said, above or below it; none if none is said."""
    slot = phrase.has("place")
    if not slot or not (places := ctx.places(phrase, "TO", "ON", "ABOVE", "BELOW", "LEVEL")):
        return []
    prep, scene = slot.children[0], ctx.scene
    pairs = _pairs(parts, [place for _, place in places])
    if prep.type in ("TO", "ON", "LEVEL"):
        if prep.type != "LEVEL" and len(slot.children) < 3:
            return [near(ctx, part, place) for part, place in pairs]
        return [ctx.clause(c.above, part=part, other=place, amount=0.0) for part, place in pairs]
    sign, amount, up = 1 if prep.type == "ABOVE" else -1, phrase.number("distance"), np.asarray(scene.of.up)
    if all(scene.own(place) for _, place in places):
        half = {place: 0.0 if place.words.split()[-1] in JOINTS else scene.size(place, up) for _, place in places}
        given = {"sign": sign, "amount": amount}
        return [ctx.clause(c.above, part=part, other=at, least=round(half[at], 3), **given) for part, at in pairs]
    if amount is None:
        raise phrase.unread(slot, f"does not say how far, as in 10 cm {prep} the {places[0][1].words}")
    word = f"{quantity(amount, 'm_m')} {prep}"
    return [near(ctx, part, place).but(within=_ON, above=sign * amount, word=word) for part, place in pairs]


def _pairs(parts: Sequence[Part], others: Sequence[Part]) -> list[tuple[Part, Part]]:
    """Return each part with the other one of its side, or all with the only one. Raises NotRead."""
    if len(others) == 1:
        return [(part, others[0]) for part in parts]
    sides = [side_of(other.words.split()) for other in others]
    pairs = [(part, other) for other, side in zip(others, sides, strict=True) for part in parts
             if side and side == side_of(part.words.split())]  # fmt: skip
    if len(pairs) != len(others) or len(pairs) != len(parts):
        raise NotRead(others[1].words, "is a second place; say which is first, with 'then'")
    return pairs


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
    if (phrase.verb == "swing" or phrase.has("angle", "angle_to")) and (joints := ctx.joints(phrase)):
        return _joint(ctx, phrase, joints)
    if not phrase.has("direction", "place", "path"):  # "point with the index finger", "extend the thumb"
        fingers = ctx.fingers(phrase) or ctx.fingers(phrase, "tool")
        others = [of.others for of in fingers if phrase.verb == "point"]
        if fingers:
            return [_closed(ctx, of, opens=True) for of in fingers] + [_closed(ctx, of) for of in others]
    things = ctx.things(phrase) or ctx.tools(phrase)
    if not things:
        raise phrase.no("needs the part that points")
    if phrase.verb == "point" and (place := ctx.place(phrase, "TO", "ON")):
        if blunt := [part for part in things if part.place == part.base and not any(part.offset or (1,))]:
            raise NotRead(blunt[0].words, "has no direction in which it points")
        return [_pointed(ctx, part, np.zeros(3), f"points to {place[1].words}").but(at=place[1]) for part in things]
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
    if made := _fingers_in_state(ctx, phrase):
        return made
    if not phrase.has("state", "place", "direction", "path", "extent") and ctx.it and (joints := ctx.joints(phrase)):
        return [ctx.clause(c.never, what=ctx.clause(c.joint, name=joint)) for joint in joints] * ctx.begins
    before, states = list(ctx.last), [str(s.children[0]) for s in phrase.left if s.data == "state"]
    things = ctx.things(phrase, hinge=bool({*states} & {*_BENT, *_STRAIGHT}))
    if states and (place := phrase.has("place")):
        raise phrase.unread(place)
    if at := _at(ctx, phrase, things):
        return at
    phrase.take("state", "here")
    states += phrase.ways() + [ctx.span(slot) for slot in phrase.take("path")]
    for slot in phrase.take("extent"):
        if (word := ctx.span(slot).split()[0]) not in _GROUND:
            raise phrase.unread(slot)
        states.append(_GROUND[word])
    if not states and before == things:  # "... and hold it there"
        return as_high(ctx, things) * ctx.begins
    if states and states != ["still"]:
        return [clause for state in states for clause in _in_state(ctx, things, state)]
    if any(map(ctx.scene.own, things)):
        raise NotRead(things[0].words, "is held in no way that is understood; say up, level, bent, ...")
    return _approach(ctx, phrase, things, must=True)


def as_high(ctx: Context, parts: Sequence[Part]) -> list[Clause]:
    """Return that parts stay as high as they are."""
    return [ctx.clause(c.never, what=ctx.clause(c.raised, part=part)) for part in parts]


# Objects.


def near(ctx: Context, part: Part, other: Part, must: bool = True) -> Clause:
    """Return that a part touches another one."""
    return ctx.clause(c.near, part=part, other=other, within=ctx.scene.touching(part, other), must=must)


def _approach(
    ctx: Context, phrase: Phrase, things: Sequence[Part], must: bool = False, grips: bool = True
) -> list[Clause]:
    """Return that what handles objects is at them and its fingers close; not `must`: only on the way."""
    once = not must and not grips and bool(phrase.has("tool"))  # "push it with the left foot"
    hands = ctx.tools(phrase) or ctx.scene.hands[:1]
    ctx.last = [ctx.movable(thing) for thing in things]
    fingers = ctx.scene.fingers() if grips else ()
    hands = [ctx.scene.grip(hand) for hand in hands] if fingers else hands
    at = [
        near(ctx, hand, thing, must or once).but(once=once)
        for thing in things for hand in hands if hand.place != thing.place
    ]  # fmt: skip
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
        return [near(ctx, hand, thing) for hand, thing in _pairs(tools or ctx.scene.hands, things)]
    ctx.last = hands if all(map(ctx.scene.own, things)) else things
    objects = not tools and not any(map(ctx.scene.own, things))
    return [near(ctx, hand, thing).but(any_part=objects) for hand in hands for thing in things]


def move_things(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that joints, parts or objects move: by an amount, in a direction, or to a place."""
    verb = phrase.verb
    if joints := ctx.joints(phrase) if verb in _MOVES_JOINTS else []:
        return _joint(ctx, phrase, joints)
    things = ctx.things(phrase, f"what to {verb}, as in {verb} the cube" + " on the plate" * (verb in _PUTS))
    if verb in _PUTS and not phrase.has("place", "direction"):
        raise phrase.no("needs where to put it, as in put the cube on the plate")
    objects = not any(map(ctx.scene.own, things))
    if phrase.has("place"):
        ways, data = phrase.ways(), ctx.scene.data
        there = _moved_to(ctx, phrase, things) if objects else _at(ctx, phrase, _free(ctx, things, verb))
        for clause in (clause for clause in there if dict(clause.given).get("other") and ways):
            apart = clause["other"].now(data) - clause["part"].now(data)
            if any(ctx.along(way) @ apart <= 0 for way in ways if way in WAYS):
                raise phrase.no("names a place and another direction")
        return there
    distance = phrase.number("distance")
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


def _moved_to(ctx: Context, phrase: Phrase, things: Sequence[Part]) -> list[Clause]:
    """Return that objects are at a place, on it, above or below it."""
    made = _approach(ctx, phrase, things, grips=phrase.verb not in ("push", "shove"))
    on, scene, up = str(phrase.left[0].children[0]).startswith(("on", "at")), ctx.scene, np.asarray(ctx.scene.of.up)
    there = _at(ctx, phrase, things)
    for i, clause in enumerate(there):
        thing, target = clause["part"], clause["other"]
        if target.place == thing.place:
            raise NotRead(target.words, "is the object itself")
        if on and clause.row is c.near and not scene.own(target):
            above = round(scene.size(thing, up) + scene.size(target, up), 3)
            there[i] = clause.but(within=_ON, above=above)
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


def _close(ctx: Context, phrase: Phrase, opens: bool = False) -> list[Clause]:
    """Return that hands, grippers or fingers are open or closed; a hand makes a fist."""
    fists = phrase.verb.endswith(("fist", "fists"))
    fingers = ctx.fingers(phrase, "tool" if fists else "thing")
    if fists and not fingers:
        fingers = fingers_of(ctx.scene.fingered, ["both"] * phrase.verb.endswith("fists") + ["fist"])
    if not fingers:
        things = ctx.things(phrase)
        why = "needs a hand with fingers" if fists else f"needs a hand or gripper, as in {phrase.verb} the hand"
        raise NotRead(things[0].words, "does not open or close") if things else phrase.no(why)
    return [_closed(ctx, of, opens) for of in fingers]


def lean(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that the trunk, or another body, is tilted."""
    scene = ctx.scene
    trunk = scene.roles.get("trunk", scene.root if scene.rises else "")
    parts = ctx.things(phrase) or ([scene.parts.of(trunk)] if trunk else [])
    way, made = phrase.way() or ("forward" if phrase.verb in _BOWS else ""), list[Clause]()
    if not parts:
        raise phrase.no("needs a part of the body that leans, as in lean the trunk forward")
    if way not in ("forward", "back", "left", "right"):
        raise phrase.no("needs a direction, as in lean forward") if way in ("", "up") else NotRead(way, "is no side")
    angle, toward = phrase.number("angle"), ctx.along(way)
    for part in parts:
        body = part.place if part.offset is not None and scene.own(part) else ""
        moves = body and (
            scene.tilts(body, np.cross(scene.of.up, toward)) or (scene.rises and body in (trunk, scene.root))
        )
        if not moves:
            raise NotRead(part.words, "cannot lean there: no joint lets it tilt")
        if angle and body == scene.root and scene.stands and angle > _MOST_LEAN:
            raise phrase.no(f"by {np.rad2deg(angle):.0f} degrees is a fall of this body")
        axes = {"way": floats(toward @ scene.rot(body)), "upright": scene.vertical(part)}
        made.append(ctx.clause(c.leaned, part=part, word=_FORMS.get(way, way), angle=angle, **axes))
    ctx.leaned = made
    return made


def _kick(ctx: Context, phrase: Phrase) -> list[Clause]:
    things = ctx.objects(phrase, "an object to kick")
    named = bool(phrase.has("tool"))
    feet = ctx.tools(phrase) or ctx.scene.known(["foot"], "right")
    if not feet:
        raise phrase.no("needs a foot, and no body of this model is named so")
    word, distance = phrase.way(), phrase.number("distance")
    way, made = floats(ctx.along(word)) if word else None, list[Clause]()
    for thing in things:
        made += [near(ctx, foot, ctx.movable(thing), must=named).but(once=named) for foot in feet]
        kicked = f"is kicked {_FORMS.get(word, word)}".strip()
        made.append(ctx.clause(c.shifted, part=thing, way=way, amount=distance, word=kicked))
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
    "CLOSE": _close,
    "OPEN": lambda ctx, phrase: _close(ctx, phrase, opens=True),
    "LEAN": lean,
}
