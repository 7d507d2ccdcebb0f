"""Verbs of parts of the body, of joints and of hands. Each makes clauses of what is said of it."""

from __future__ import annotations

from collections.abc import Callable

import lark
import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.models.hands import fingers_of, spreads
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words import states as st
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.parts import JOINTS
from movlr_jax.tasks.words.phrase import WAYS, Context, NotRead, Phrase, Tree, span
from movlr_jax.tasks.words.scene import HINGES, floats
from movlr_jax.tasks.words.verbs_objects import approach, moved_to

_BOWS = ("bow", "bend over")
_MOST_LEAN = np.deg2rad(50.0)  # of a body that should not fall
_ENDS = ("foot", "paw", "heel", "toe", "knee", "elbow")  # parts that do not point anywhere
_SLACK = np.deg2rad(5.0)  # by which a limb may be asked to go beyond straight up or down
_WAVE = 0.25  # how far a part that waves swings to either side, as a share of its distance from the trunk


def turn_things(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return the clauses of joints, or of knees and elbows, that are turned."""
    palms = all(words[-1] in ("palm", "palms") for words in ctx.named(phrase))
    if palms and phrase.has("direction") and not phrase.has("angle", "angle_to"):  # "turn the palm up"
        return st.arranged(ctx, phrase, ctx.things(phrase))
    if joints := ctx.joints(phrase):
        return st.joint(ctx, phrase, joints)
    if (ways := phrase.ways(keep=True)) and len(ways) == 1 and ways[0] in ("left", "right"):
        up = np.asarray(ctx.scene.of.up) * (1 if ways[0] == "left" else -1)
        if about := ctx.hinges(phrase, up):
            phrase.ways()
            by = phrase.number("angle")
            return [st.moved(ctx, name, sign, by) for name, sign in about]
    return st.bends(ctx, ctx.things(phrase), phrase, 1)


def _bend(ctx: Context, phrase: Phrase, sign: int = 1) -> list[Clause]:
    scene = ctx.scene
    if joints := ctx.joints(phrase):  # knees and elbows by the angle between segments
        words = [[word for word in scene.joints[joint] if word != "joint"] for joint in joints]
        hinges = [scene.find(of) if of and of[-1] in HINGES.values() else [] for of in words]
        if not all(hinges) or phrase.negative("angle", "angle_to"):  # that is the joint's angle
            return st.joint(ctx, phrase, joints, sign)
        ctx.last = [part for parts in hinges for part in parts]
        return st.bends(ctx, ctx.last, phrase, sign)
    if fingers := ctx.fingers(phrase):
        by, share = phrase.number("angle"), phrase.share()
        if share or (sign < 0 and by is None):
            return [st.closed(ctx, of, opens=sign < 0, share=share) for of in fingers]
        joints = [joint for of in fingers for joint in of.joints]
        if by is None:  # a joint that is bent already stays so
            joints = [one for one in joints if abs(one[2] - scene.reach(one[0])[2]) > c.BENT.low] or joints
        return [st.moved(ctx, name, sign if b > a else -sign, by) for name, a, b in joints]
    if sign > 0 and phrase.has("direction"):
        axis = np.cross(ctx.scene.of.up, ctx.along(way)) if (way := phrase.ways(keep=True)[0]) in WAYS else None
        waist = axis is not None and [words[-1] for words in ctx.named(phrase)] in (["waist"], ["neck"])
        if waist and (about := ctx.hinges(phrase, axis)):
            phrase.way()  # there is no other
            by = phrase.number("angle")
            return [st.moved(ctx, name, of, by) for name, of in about]
        return lean(ctx, phrase)
    if about := ctx.hinges(phrase):
        return st.joint(ctx, phrase, [name for name, _ in about], sign)
    return st.bends(ctx, ctx.things(phrase, "a joint, as in bend the knee", hinge=True), phrase, sign)


def _anatomical(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that hips or other joints turn to the outside (abduct), or ankles so that the toes rise (dorsiflex)."""
    ahead, left, _ = ctx.scene.around
    outward, sign = phrase.verb in ("abduct", "adduct"), -1 if phrase.verb in ("adduct", "dorsiflex") else 1
    if not (joints := ctx.hinges(phrase, ahead if outward else left)):
        raise phrase.no("needs a joint, as in abduct the left hip, or dorsiflex the right ankle")
    by, made = phrase.number("angle"), list[Clause]()
    for name, turns in joints:
        part = ctx.scene.parts.of(ctx.scene.model.body(int(ctx.scene.model.joint(name).bodyid[0])).name)
        side = float(np.sign(ctx.scene.aside(part) @ left)) if outward else 1
        made.append(st.moved(ctx, name, int(sign * side * turns), by))
    return made


def _raise(ctx: Context, phrase: Phrase, sign: int = 1) -> list[Clause]:
    things, made = ctx.things(phrase, "what to raise or lower"), list[Clause]()
    way, opposite = ("up", "down") if sign > 0 else ("down", "up")
    if opposite in phrase.ways(keep=True):
        raise NotRead(opposite, f"does not go with {phrase.verb!r}")
    if not any(map(ctx.scene.own, things)):
        if phrase.has("place"):
            return moved_to(ctx, phrase, things)
        phrase.only(way, f"goes {way}; say move for other directions")
        made = [] if phrase.excluded else approach(ctx, phrase, things)
    elif (state := phrase.has("state")) and str(state.children[0]) in (
        *st.BENT,
        *st.LEVEL,
        *(st.UPRIGHT if sign > 0 else ()),
    ):
        made = st.in_state(ctx, st.free_of(ctx, things, phrase.verb), *phrase.words("state")[:1])
        if str(state.children[0]) not in st.BENT:  # "raise the arm until it is level"
            return made
    elif state and str(state.children[0]) == "overhead" and sign > 0:
        phrase.only(way, f"goes {way}")
        phrase.take("state")
        path = phrase.one("path")  # "straight overhead"
        if path and path.children[0].type != "STRAIGHT":
            raise phrase.unread(path)
        limbs = [part for part in things if path and part.words.split()[-1] in HINGES]
        made = st.straight(ctx, limbs)
        return [*(st.overhead(ctx, part) for part in st.free_of(ctx, things, phrase.verb)), *made]
    elif (
        ctx.scene.stands and [part.place for part in things] == [ctx.scene.root] and not phrase.has("place", "angle")
    ):
        phrase.only(way, f"goes {way}")
        if height := phrase.number("height"):  # "lower the trunk to 20 cm above the ground"
            if sign * (height - ctx.scene.of.height) <= 0:
                raise NotRead(quantity(height, "a_m"), f"is not {way} from where {ctx.scene.root!r} is")
            ctx.lowest = st.CROUCHED
            word = f"{phrase.verb} to {quantity(height, 'a_m')}"
            return [ctx.clause(c.at_height, body=ctx.scene.root, amount=round(height, 3), word=word)]
        return [st.squat(ctx, phrase)] if sign < 0 else [ctx.clause(c.risen, amount=phrase.number("distance"))]
    elif sign > 0 and way not in phrase.ways(keep=True) and (there := st.swung(ctx, phrase, things, up=True)):
        return there  # "raise the arm forward by 45 degrees"
    elif angle := phrase.number("angle"):  # "raise the arm by 45 degrees"
        phrase.only(way, f"goes {way} by an angle; say raise it by so much, or to which side it points")
        if blunt := [part for part in things if ctx.scene.axis(part) is not None]:
            raise NotRead(blunt[0].words, "is no limb, of which an angle is known; say by how many cm")
        for part in things:
            limb = part.limb(ctx.scene.data)
            slope = float(np.arcsin(np.clip(limb @ ctx.scene.around[2] / np.linalg.norm(limb), -1.0, 1.0)))
            if abs(slope + sign * angle) > np.pi / 2 + _SLACK:
                raise NotRead(part.words, f"cannot go {way} by {np.rad2deg(angle):.0f} degrees from where it points")
        return [ctx.clause(c.elevated, part=part, sign=sign, angle=angle) for part in things]
    elif (
        phrase.has("direction") and all(part.words.split()[-1] in _ENDS for part in things) and not phrase.has("path")
    ):
        aside = phrase.way()  # "raise the foot forward"
        if not aside or sign < 0:
            raise phrase.no("names two directions, which can be any way; say move it, or by how many cm")
        if aside != way:
            made = [
                ctx.clause(c.shifted, part=part, way=floats(ctx.along(aside)), word=f"moves {aside}")
                for part in things
            ]
    elif sign < 0 and (other := {*phrase.ways(keep=True)} - {way, opposite}):
        raise NotRead(other.pop(), f"does not go with {phrase.verb!r}; say point or move for other directions")
    elif there := st.arranged(ctx, phrase, things, but=way):
        return there
    else:
        things = st.free_of(ctx, things, phrase.verb)
    amount = phrase.number("distance")
    return [*made, *(st.raised(ctx, part, sign, amount) for part in things)]


def _point(ctx: Context, phrase: Phrase) -> list[Clause]:
    said = [word for words in ctx.named(phrase) for word in words[-1:]]
    said = [part.words.split()[-1] for part in ctx.last] if said == ["it"] else said
    joint = bool(phrase.has("angle")) and {*said} <= {*JOINTS}
    if phrase.verb == "extend" and said and (joint or {*said} <= {*HINGES.values()}):
        return _bend(ctx, phrase, -1)
    if (phrase.verb == "swing" or phrase.has("angle", "angle_to")) and (joints := ctx.joints(phrase)):
        return st.joint(ctx, phrase, joints)
    if not phrase.has("direction", "place", "path"):  # "point with the index finger", "extend the thumb"
        fingers = ctx.fingers(phrase) or ctx.fingers(phrase, "tool")
        others = [of.others for of in fingers if phrase.verb == "point"]
        if fingers:
            return [st.closed(ctx, of, opens=True) for of in fingers] + [st.closed(ctx, of) for of in others]
    things = ctx.things(phrase) or ctx.tools(phrase)
    if not things:
        raise phrase.no("needs the part that points")
    if phrase.verb == "point" and (place := ctx.place(phrase, "TO", "ON")):
        if blunt := [part for part in things if part.place == part.base and not any(part.offset or (1,))]:
            raise NotRead(blunt[0].words, "has no direction in which it points")
        return [st.pointed(ctx, part, np.zeros(3), f"points to {place[1].words}").but(at=place[1]) for part in things]
    if there := st.swung(ctx, phrase, things) or st.arranged(ctx, phrase, things):
        return there
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
        made.append(ctx.clause(c.waves, part=scene.on_body(part), trunk=trunk, left=left, far=far, times=times))
    return made


def keep_things(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that parts or objects stay in a state, at a place, or in the hand."""
    if made := st.fingers_in_state(ctx, phrase):
        return made
    if angle := phrase.has("angle_to"):
        states = phrase.words("state")
        if not {*states} <= {*st.BENT} or (not states and any(words[-1] in HINGES for words in ctx.named(phrase))):
            raise phrase.unread(angle)
        return _bend(ctx, phrase)
    if phrase.has("here") or [str(slot.children[-1]) for slot in phrase.left if slot.data == "state"] == ["still"]:
        return in_place(ctx, phrase)
    bare = not phrase.has("state", "place", "direction", "path", "extent") and ctx.it
    if bare and ctx.fingers(phrase):  # "make a fist and hold it"
        return list(ctx.closed) * ctx.begins
    if bare and (joints := ctx.joints(phrase)):
        return [ctx.clause(c.never, what=ctx.clause(c.joint, name=joint)) for joint in joints] * ctx.begins
    before, states = list(ctx.last), phrase.words("state")
    if states == ["straight"] and phrase.has("direction"):  # "hold the arm straight up"
        phrase.left.append(lark.Tree("path", [lark.Token("STRAIGHT", "straight")]))
        return st.arranged(ctx, phrase, ctx.things(phrase))
    for slot in phrase.take("extent"):
        if (word := ctx.span(slot).split()[0]) not in st.GROUND:
            raise phrase.unread(slot)
        states.append(st.GROUND[word])
    things = ctx.things(phrase, hinge=bool({*states} & {*st.BENT, *st.STRAIGHT}))
    if states and (place := phrase.has("place")):
        raise phrase.unread(place)
    if phrase.has("path") and phrase.has("place"):  # "hold the arm to the side at shoulder height"
        return st.arranged(ctx, phrase, things)
    if at := st.placed(ctx, phrase, things):
        return at
    states += phrase.ways() + [ctx.span(slot) for slot in phrase.take("path")]
    if not states and before == things:  # "... and hold it there"
        return st.as_it_is(ctx, things) * ctx.begins
    if states:
        return [clause for state in states for clause in st.kept(ctx, things, state)]
    if any(map(ctx.scene.own, things)):
        raise NotRead(things[0].words, "is held in no way that is understood; say up, level, bent, ...")
    return approach(ctx, phrase, things, must=True)


def in_place(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that joints, parts or objects do not move; an object that is held still is in the hand."""
    here = phrase.take("here") or phrase.verb in ("leave", "move")
    phrase.take("state")
    named = {joint for words in ctx.it for joint in ctx.scene.joint(words)}
    others = [[word for word in words if word not in ("all", "the")] for words in ctx.named(phrase)]
    if named and others in ([["others"]], [["other", "joints"]]):
        phrase.take("thing")
        joints = tuple(name for name in ctx.scene.joints if name not in named and not ctx.scene.slides(name))
        return [ctx.clause(c.still, words="other joints", joints=joints)]
    if joints := ctx.joints(phrase):
        return [ctx.clause(c.still, words=f"joint {name}", joints=(name,)) for name in joints]
    things = ctx.things(phrase)
    held = not here and not any(map(ctx.scene.own, things))
    return approach(ctx, phrase, things, must=True) if held else st.in_place(ctx, things)


def posture(ctx: Context, tree: Tree) -> list[Clause]:
    """Return the clauses of "with straight knees"."""
    nouns, state = sorted(tree.children, key=lambda child: child.data != "nouns")
    word, before = ctx.span(state), ctx.last
    if tree.children[0] is state and ctx.verb is not None and ctx.verb.type in ("TOUCH", "PUSH", "KICK"):
        raise NotRead(word, f"says nothing that is understood of {ctx.verb!s}", span(state, ctx.text)[1])
    made = keep_things(ctx, Phrase(ctx.text, word, [lark.Tree("thing", [nouns]), state]))
    ctx.last = before or ctx.last
    return made


def _close(ctx: Context, phrase: Phrase, opens: bool = False) -> list[Clause]:
    """Return that hands, grippers or fingers are open or closed; a hand makes a fist."""
    fists = phrase.verb.endswith(("fist", "fists"))
    fingers = ctx.fingers(phrase, "tool" if fists else "thing")
    if fists and not fingers:
        fingers = fingers_of(ctx.scene.fingered, ["both"] * phrase.verb.endswith("fists") + ["fist"])
        ctx.last, ctx.it = [], [of.words.split() for of in fingers]
    if not fingers:
        things = ctx.things(phrase)
        why = "needs a hand with fingers" if fists else f"needs a hand or gripper, as in {phrase.verb} the hand"
        raise NotRead(things[0].words, "does not open or close") if things else phrase.no(why)
    share = phrase.share()
    ctx.closed = [st.closed(ctx, of, opens, share) for of in fingers]
    return ctx.closed


def _spread(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that the fingers of hands are apart, or that arms point sideways."""
    share, fingers = phrase.has("share"), ctx.fingers(phrase)
    if phrase.share() == 0.5:
        raise phrase.unread(share)
    if not fingers:
        things = ctx.things(phrase, "what to spread, as in spread the fingers")
        if any(part.words.split()[-1] != "arm" for part in things):
            raise NotRead(things[0].words, "does not spread; say point it sideways")
        if (path := phrase.one("path")) and path.children[0].type != "SIDEWAYS":
            raise phrase.unread(path)
        return st.in_state(ctx, things, "sideways")
    made = list[Clause]()
    for hand in dict.fromkeys(of.hand for of in fingers):  # of both hands, or the index and the middle finger of one
        digits = [digit for of in fingers if of.hand == hand for digit in of.digits]
        words = " and ".join(of.words for of in fingers if of.hand == hand)
        if len(digits) < 2 or hand.jaws:
            raise NotRead(words, "is not several fingers, which can be apart")
        if not any(spreads(ctx.scene.model, digit) for digit in digits):
            raise NotRead(words, "has no joint that spreads its fingers")
        made.append(ctx.clause(c.spread, words=words, tips=tuple(ctx.scene.tip(hand, digit) for digit in digits)))
    return made


def lean(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that the trunk, or another body, is tilted."""
    scene = ctx.scene
    trunk = scene.roles.get("trunk", scene.root if scene.rises else "")
    named = ctx.things(phrase)
    parts = named or ([scene.parts.of(trunk)] if trunk else [])
    way, made = phrase.way() or ("forward" if phrase.verb in _BOWS else ""), list[Clause]()
    if not parts:
        raise phrase.no("needs a part of the body that leans, as in lean the trunk forward")
    if not way and phrase.excluded:  # "without leaning"
        return [
            ctx.clause(c.pointed, part=part, way=floats(scene.of.up), axis=scene.vertical(part)) for part in parts
        ]
    if way not in ("forward", "back", "left", "right"):
        raise phrase.no("needs a direction, as in lean forward") if way in ("", "up") else NotRead(way, "is no side")
    if limbs := [
        part.words for part in named if phrase.verb == "bend" and part.words.split()[-1] in (*HINGES, *_ENDS)
    ]:
        hinge = HINGES.get(limbs[0].split()[-1], "")
        raise NotRead(way, f"is no way to bend the {limbs[0]}" + f", which bends at its {hinge}" * bool(hinge))
    angle, toward = phrase.number("angle"), ctx.along(way)
    for part in parts:
        body = part.place if part.offset is not None and scene.own(part) else ""
        axis = np.cross(scene.of.up, toward)
        leans = scene.tilts(body, axis) or (body == scene.root and scene.goes(floats(axis), turning=True))
        if not body or not leans:
            why = f"is not possible: no joint lets {part.words!r} tilt {st.FORMS.get(way, way)}"
            raise NotRead(part.words if named else phrase.verb, why)
        if angle and body == scene.root and scene.stands and angle > _MOST_LEAN:
            raise phrase.no(f"by {np.rad2deg(angle):.0f} degrees is a fall of this body")
        axes = {"way": floats(toward @ scene.rot(body)), "upright": scene.vertical(part)}
        made.append(ctx.clause(c.leaned, part=part, word=st.FORMS.get(way, way), angle=angle, **axes))
    ctx.moved.leaned = made
    return made


PART_VERBS: dict[str, Callable[[Context, Phrase], list[Clause]]] = {
    "RAISE": _raise, "LOWER": lambda ctx, phrase: _raise(ctx, phrase, -1), "POINT": _point, "WAVE": _wave,
    "BEND": _bend, "STRAIGHTEN": lambda ctx, phrase: _bend(ctx, phrase, -1), "LEAN": lean,
    "SPREAD": _spread, "ANATOMICAL": _anatomical,
    "CLOSE": _close, "OPEN": lambda ctx, phrase: _close(ctx, phrase, opens=True),
}  # fmt: skip
