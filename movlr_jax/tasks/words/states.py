"""What it means that parts of a body are in a state or at a place. Verbs make their clauses of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.errors import UserError
from movlr_jax.models.hands import Fingers
from movlr_jax.models.names import side_of
from movlr_jax.models.stance import crouched
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.measure import LEG
from movlr_jax.tasks.words.parts import JOINTS, Part
from movlr_jax.tasks.words.phrase import WAYS, Context, NotRead, Phrase
from movlr_jax.tasks.words.scene import HINGES, TOUCH, floats

UPRIGHT = ("upright", "vertical", "vertically", "balanced")
LEVEL = ("level", "horizontal", "horizontally")
_HIGH, _LOWERED = ("up", "raised", "lifted", "overhead"), ("down", "lowered")
GROUND = {"on": "on the ground", "off": "raised", "from": "raised"}  # of a part that is kept on or off the ground
BENT, STRAIGHT = ("bent", "flexed", "curled"), ("straight", "straightened", "stiff", "locked", "extended")
_OPEN, _CLOSED = ("open", *STRAIGHT), ("closed", *BENT)  # of fingers
_ASIDE = ("sideways", "to side", "aside")
# shares of the height of the centre of mass: by which a leg is up, and up to which more is worth something
_LEG_UP, _LEG_RISES = 0.1, 0.25
_ARMS, _RISES = ("arm", "hand", "palm", "forearm"), 0.2  # share of the way to straight up by which they are raised
_OVERHEAD = 0.8  # share of the way to straight up of what is overhead
_FEET = ("foot", "paw")
_ON = 0.05  # m, distance from its place at which an object lies on another one, or is above it
CROUCHED = 0.3  # as FALLEN, for motions close to the ground
_DEEPEST = 0.9  # share of its height by which a body can go down
_DEPTH = 0.3  # share of its height by which a body goes down that squats
_BENDS = 0.05  # rad, by which a joint of a leg bends that counts
# straight legs have bent by more than a share of their way when the body is lower by some: about the root of it
_SOME, _STRAIGHT = 0.1, 0.25
_REACH = 1.5  # times the length of the body, farther than any part of it can go up
_TURNS = 0.1  # sine of the least angle between a limb and the direction towards which it turns
_FAR = 1e3  # m above a thing, which is no bound
FORMS = {"forwards": "forward", "ahead": "forward", "backwards": "backward", "back": "backward"}
_STEMS = {"backward": "back", "upward": "up", "downward": "down"}


def in_state(ctx: Context, parts: Sequence[Part], word: str) -> list[Clause]:
    """Return that parts are in a state: raised, bent, upright, level, sideways, forward."""
    if all(part.words.split()[-1] == "palm" for part in parts) and _STEMS.get(word, word) in WAYS:
        return points(ctx, parts, word)  # "with the palm down"
    if word in UPRIGHT:
        return upright(ctx, parts)
    if word in (*BENT, *STRAIGHT):
        return bent(ctx, parts) if word in BENT else bent(ctx, parts, -1, to=0.0)
    free, scene = free_of(ctx, parts), ctx.scene
    if len(free) < len(parts) and word not in (*_HIGH, *LEVEL):
        raise NotRead(word, "is no state of the body itself; say lean, squat, or by how many cm it rises")
    on_feet = scene.stands and all(scene.own(part) and part.words.split()[-1] in _FEET for part in parts)
    if word == GROUND["on"] or (word in _LOWERED and on_feet):
        return as_high(ctx, parts)
    if word in LEVEL:
        flat = [(part, scene.flat(part)) for part in parts if part.offset is not None]
        return [ctx.clause(c.pointed, part=part, way=scene.of.up, word="level", axis=axis) for part, axis in flat]
    if word == "overhead" and all(part.words.split()[-1] in _ARMS for part in free):
        return [overhead(ctx, part) for part in free]
    if word == "overhead":
        raise NotRead(word, "is understood of arms and hands alone; say by how many cm")
    if word in _HIGH or word in _LOWERED:
        return [raised(ctx, part, 1 if word in _HIGH else -1) for part in free]
    if word in _ASIDE:
        return [pointed(ctx, part, scene.aside(part), "sideways") for part in free]
    return points(ctx, parts, word)


def kept(ctx: Context, parts: Sequence[Part], word: str) -> list[Clause]:
    """Return that parts are kept in a state: arms and legs that are kept down are not raised."""
    limbs = all(part.words.split()[-1] in (*_ARMS, "leg") for part in parts)
    return as_high(ctx, parts) if limbs and word in _LOWERED else in_state(ctx, parts, word)


def fingers_in_state(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that hands or fingers are open or closed, if that is what is said of them; else none."""
    states = [str(slot.children[0]) for slot in phrase.left if slot.data == "state"]
    fingers = ctx.fingers(phrase) if len(states) == 1 and states[0] in (*_OPEN, *_CLOSED) else []
    phrase.take(*(["state"] if fingers else []))
    share = phrase.share() if fingers else None
    return [closed(ctx, of, opens=states[0] in _OPEN, share=share) for of in fingers]


def closed(ctx: Context, of: Fingers, opens: bool = False, share: float | None = None) -> Clause:
    """Return that fingers or jaws are open or closed; an open hand has its thumb out."""
    digits = of.hand.digits if opens and of.digits == of.hand.fingers else of.digits
    thumbs = [digit for digit in of.hand.digits if digit.name == "thumb" and digit not in digits and not opens]
    thumb = tuple(joint for digit in thumbs for joint in digit.joints)
    joints = tuple(digit.joints for digit in digits if digit.joints)
    return ctx.clause(c.closed, words=of.words, digits=joints, opens=opens, share=share, thumb=thumb)


def points(ctx: Context, parts: Sequence[Part], word: str) -> list[Clause]:
    """Return that parts point in a direction."""
    word = FORMS.get(word, word)
    way = _STEMS.get(word, word)
    if hinges := [part.words for part in parts if part.words.split()[-1] in JOINTS]:
        raise NotRead(
            word, f"is no direction of the {hinges[0]}; say it of the arm or leg, or move it by how many cm"
        )
    if way not in WAYS or any(not ctx.scene.own(part) for part in parts):
        raise NotRead(word, "is no direction of a part" if way not in WAYS else "is not where an object can be kept")
    return [pointed(ctx, part, ctx.along(way), word) for part in free_of(ctx, parts)]


def pointed(ctx: Context, part: Part, way: np.ndarray, word: str) -> Clause:
    """Return that a part points in a direction [3], or that a palm faces there. Raises NotRead."""
    if part.words.split()[-1] == "palm":
        if not (palm := ctx.scene.palm(part)):
            raise NotRead(part.words, "has no fingers that tell where it faces")
        if not ctx.scene.moving(ctx.scene.body_of(palm[0])):
            raise NotRead(part.words, "is fixed: no joint moves it")
        return ctx.clause(c.pointed, part=palm[0], way=floats(way), word=f"facing {word}", axis=palm[1])
    return ctx.clause(c.pointed, part=part, way=floats(way), word=word, axis=ctx.scene.axis(part))


def swung(ctx: Context, phrase: Phrase, parts: Sequence[Part], up: bool = False) -> list[Clause]:
    """Return that limbs turn by an angle from where they point, towards a direction; none if none is said.

    up: whether that should raise them.
    """
    path, scene = phrase.has("path"), ctx.scene
    aside = path is not None and path.children[0].type == "SIDEWAYS"
    if not phrase.has("angle") or not (aside or phrase.has("direction")):
        return []
    phrase.take(*(["path"] if aside else []))
    way, angle = "sideways" if aside else phrase.way(), phrase.number("angle") or 0.0
    if (not aside and way not in WAYS) or angle > np.pi:
        raise NotRead(way, "is no direction in which a limb turns by this angle")
    made = list[Clause]()
    for part in free_of(ctx, parts, phrase.verb):
        if scene.axis(part) is not None:
            raise NotRead(part.words, "is no limb, of which an angle is known; say by how many cm")
        limb = part.limb(scene.data)
        limb, to = limb / np.linalg.norm(limb), scene.aside(part) if aside else ctx.along(way)
        off = to - (to @ limb) * limb
        if (size := float(np.linalg.norm(off))) < _TURNS:
            raise NotRead(way, f"is where {part.words} points already, or the opposite")
        turned = np.cos(angle) * limb + np.sin(angle) * off / size
        if up and (turned - limb) @ np.asarray(scene.of.up) <= 0:
            raise NotRead(way, f"does not raise {part.words} by this angle")
        made.append(ctx.clause(c.pointed, part=part, way=floats(turned), word=FORMS.get(way, way), by=angle))
    return made


def free_of(ctx: Context, parts: Sequence[Part], verb: str = "") -> list[Part]:
    """Return parts without the trunk of a body that can fall, whose posture is its balance.

    Raises NotRead if none is left that the verb could move.
    """
    scene = ctx.scene
    trunk = {scene.root, *(scene.roles.get(role, "") for role in ("trunk", "pelvis"))}
    free = [part for part in parts if part.place not in trunk] if scene.rises else list(parts)
    if verb and not free:
        raise NotRead(parts[0].words, f"cannot be the part to {verb}: it is the body itself")
    held = (part for part in free if scene.own(part) and not scene.moving(scene.body_of(part)))
    if verb and not scene.rises and (part := next(held, None)):
        raise NotRead(part.words, "is fixed: no joint moves it")
    return free


def upright(ctx: Context, parts: Sequence[Part]) -> list[Clause]:
    """Return that limbs are vertical, or the axes of bodies that are so at the start."""
    free, up = free_of(ctx, parts), np.asarray(ctx.scene.of.up)
    trunk = [part for part in parts if part not in free]
    ctx.balance = True if trunk else ctx.balance
    axes = [(part, ctx.scene.axis(part)) for part in free] + [(part, ctx.scene.vertical(part)) for part in trunk]
    return [ctx.clause(c.pointed, part=part, way=floats(up), word="upright", axis=axis) for part, axis in axes]


def in_place(ctx: Context, parts: Sequence[Part]) -> list[Clause]:
    """Return that objects do not move, and that no joint moves a part of the body."""
    made, scene = list[Clause](), ctx.scene
    for part in parts:
        joints = tuple(name for name in scene.moving(scene.body_of(part)) if not scene.slides(name))
        own = scene.own(part)
        if not own or (scene.stands and part.words.split()[-1] in _FEET):  # where they are, not their joints
            one = part if own else ctx.movable(part)
            made += [ctx.clause(c.never, what=ctx.clause(c.shifted, part=one)), *as_high(ctx, [one])]
        elif part.place == scene.root or not joints:
            raise NotRead(part.words, "has no joints that can be kept still")
        else:
            made.append(ctx.clause(c.still, words=part.words, joints=joints))
    return made


def raised(ctx: Context, part: Part, sign: int = 1, amount: float | None = None) -> Clause:
    """Return that a part goes up or down.

    Without an amount, an arm or hand goes up by a share of what it can, a leg on which the body stands by a share of
    its height, and more is worth nothing.
    """
    scene, least = ctx.scene, c.LENGTH
    if amount and scene.own(part) and amount > _REACH * scene.length:
        raise NotRead(quantity(amount, "a_m"), f"is farther than {part.words} can move")
    if sign > 0 and amount is None and part.words.split()[-1] in _ARMS and scene.own(part):
        least = max(least, round(_RISES * _rise(ctx, part), 2))
    stance = scene.stance([part]) if sign > 0 and amount is None else None
    if stance and stance.lifts:
        least, most = (float(f"{share * scene.com_height:.2g}") for share in (_LEG_UP, _LEG_RISES))
        return ctx.clause(c.raised, part=part, least=least, most=most, weight=LEG)
    return ctx.clause(c.raised, part=part, sign=sign, amount=amount, least=least)


def overhead(ctx: Context, part: Part) -> Clause:
    """Return that an arm or a hand is nearly as high as it can be, where the model has no head to compare it with."""
    if part.words.split()[-1] not in _ARMS or not ctx.scene.own(part):
        raise NotRead("overhead", f"is not understood of {part.words}; say by how many cm")
    return ctx.clause(c.raised, part=part, least=round(_OVERHEAD * _rise(ctx, part), 2))


def _rise(ctx: Context, part: Part) -> float:
    """Return how much higher than at the start an arm is when it points up, m."""
    scene, side = ctx.scene, side_of(part.words.split())
    arm = next(iter(scene.known([*([side] if side else []), "arm"])), part)
    up = np.asarray(scene.of.up)
    return float((arm.overhead(scene.data, up) - arm.now(scene.data)) @ up)


def squat(ctx: Context, phrase: Phrase) -> Clause:
    """Return that a body on its feet goes down, by what is said or by some."""
    ctx.lowest, depth = CROUCHED, phrase.number("distance")
    usual, scene = round(depth or _DEPTH * ctx.scene.of.height, 2), ctx.scene
    if usual > _DEEPEST * scene.of.height:
        raise NotRead(quantity(usual, "a_m"), f"is more than {phrase.verb!r} can lower this body")
    down, some = (crouched(scene.model, scene.qpos, share * usual) for share in (1.0, _SOME))
    now = {joint: scene.reach(joint)[2] for joint in down}
    bent = [joint for joint, angle in down.items() if abs(angle - now[joint]) > _BENDS]
    most = max(bent, key=lambda joint: abs(down[joint] - now[joint]), default="")
    first = (some.get(most, now[most]) - now[most]) / (down[most] - now[most]) if most else 0.0
    straight = first > _STRAIGHT  # the first bit of bending hardly lowers the body
    legs = tuple((joint, round(now[joint], 3), round(down[joint], 3)) for joint in bent if straight)
    return ctx.clause(c.squat, depth=usual, exact=depth is not None, legs=legs)


def as_high(ctx: Context, parts: Sequence[Part]) -> list[Clause]:
    """Return that parts stay as high as they are."""
    return [ctx.clause(c.never, what=ctx.clause(c.raised, part=part)) for part in parts]


def as_it_is(ctx: Context, parts: Sequence[Part]) -> list[Clause]:
    """Return that knees and elbows stay as bent as they are, and other parts as high."""
    hinges = {part: bent(ctx, [part]) for part in parts if part.words.split()[-1] in JOINTS and ctx.scene.bends(part)}
    made = [ctx.clause(c.never, what=clause) for found in hinges.values() for clause in found]
    return [*made, *as_high(ctx, [part for part in parts if part not in hinges])]


def bent(
    ctx: Context, parts: Sequence[Part], sign: int = 1, by: float | None = None, to: float | None = None
) -> list[Clause]:
    made = list[Clause]()
    for part in parts:
        if not (bends := ctx.scene.bends(part)):
            raise NotRead(part.words, "does not bend or turn: it is no joint, knee or elbow of this model")
        given = {"sign": sign, "by": by, "to": to, "still": part.words.endswith("elbow")}
        if sign < 0 and to == 0.0 and (least := ctx.scene.bending(part, *bends)[0]) > c.BENT.low:
            given["least"] = round(least, 3)
        if by is not None or to:
            change = None if by is None else sign * by
            _check_range(ctx, part.words, ctx.scene.bending(part, *bends), "a_rad", change, to)
        made.append(ctx.clause(c.bent, part=part, above=bends[0], below=bends[1], **given))
    return made


def straight(ctx: Context, limbs: Sequence[Part]) -> list[Clause]:
    """Return that the elbows and knees of arms and legs are straight."""
    names = [[HINGES.get(word, word) for word in limb.words.split()] for limb in limbs]
    return bent(ctx, [hinge for name in names for hinge in ctx.scene.known(name)], -1, to=0.0)


def bends(ctx: Context, parts: Sequence[Part], phrase: Phrase, sign: int) -> list[Clause]:
    if share := phrase.share():
        made = list[Clause]()
        for part in parts:
            low, high, now = ctx.scene.bending(part, *at) if (at := ctx.scene.bends(part)) else (0.0, 0.0, 0.0)
            # straightened from where it is, if that is known
            before = ctx.at.get(part.words, now) if sign < 0 else None
            of = share if sign > 0 else 1.0 - share
            made += bent(ctx, [part], to=round(low + of * ((high if before is None else before) - low), 3))
        return made
    by, to = phrase.number("angle"), phrase.number("angle_to")
    return bent(ctx, parts, sign, by, 0.0 if sign < 0 and by is to else to)


def joint(ctx: Context, phrase: Phrase, joints: Sequence[str], sign: int = 1) -> list[Clause]:
    if phrase.take("start_place") or (phrase.has("direction") and not phrase.has("angle", "angle_to", "distance")):
        phrase.only("back", "goes back to the start")
        return [moved(ctx, name, 1, None, ctx.scene.reach(name)[2]) for name in joints]
    by, to = phrase.number("angle", signed=True), phrase.number("angle_to", signed=True)
    length = phrase.number("distance", signed=True)
    for name in joints:
        slides = ctx.scene.slides(name)
        if (slides and (by is not None or to is not None)) or (not slides and length is not None):
            kind = "slide, which moves in m" if slides else "hinge, which turns in degrees"
            raise NotRead(name, f"is a {kind}")
    by = length if by is None else by
    return [moved(ctx, name, sign if by is None or by > 0 else -sign, by and abs(by), to) for name in joints]


def moved(ctx: Context, name: str, sign: int, by: float | None, to: float | None = None) -> Clause:
    """Return that a joint changes by an amount in rad or m, or is at one; without one by half of its way at most."""
    ends, slides = ctx.scene.reach(name), ctx.scene.slides(name)
    before = _check_range(ctx, name, ends, "m_m" if slides else "a_rad", by and sign * by, to)
    least, (low, high, now) = (c.SLID if slides else c.BENT).low, ends
    if by is None and to is None:
        now = now if before is None else before
        ways = {1: high - now, -1: now - low}
        sign = -sign if ways[sign] < min(least, ways[-sign]) else sign
        least = float(f"{min(least, 0.5 * ways[sign]):.2g}")
    return ctx.clause(c.joint, name=name, sign=sign, by=by, to=to, slides=slides, least=least)


def _check_range(
    ctx: Context, name: str, ends: Sequence[float], metric: str, by: float | None, to: float | None
) -> float | None:
    """Return the value before of what goes from ends[0] to ends[1] and begins at ends[2], if it is known.

    Raises NotRead if it cannot be at, or change by, an amount in rad or m after the clauses before.
    """
    (low, high, now), slack = ends, 0.02 if metric == "a_rad" else 1e-3
    before = ctx.at.get(name, now)
    end = to if to is not None else None if by is None or before is None else before + by
    ctx.at[name] = end
    if end is not None and not low - slack <= end <= high + slack:
        between = f"{quantity(low, metric)} to {quantity(high, metric)}"
        raise NotRead(name, f"reaches {between}, so {quantity(end, metric)} is out of its range")
    return before


def arranged(ctx: Context, phrase: Phrase, parts: Sequence[Part], but: str = "") -> list[Clause]:
    """Return that parts are at a place, or point in a direction other than `but`; none if nothing is said of them."""
    way, paths = phrase.way(), phrase.take("path")
    kinds, at, made = {path.children[0].type for path in paths}, placed(ctx, phrase, parts), list[Clause]()
    if paths and not kinds <= {"SIDEWAYS", "STRAIGHT"}:
        raise phrase.unread(paths[0])
    if kinds == {"STRAIGHT"} and not way and phrase.verb not in ("stretch", "extend"):
        raise phrase.unread(paths[0], "does not say where to; say straight up, or straight forward")
    if "STRAIGHT" in kinds and all(part.words.split()[-1] in HINGES for part in parts):  # "raise the arm straight up"
        made, but = straight(ctx, parts), ""
    if "SIDEWAYS" in kinds:
        return [*in_state(ctx, parts, "sideways"), *made, *at]
    return [*(points(ctx, parts, way) if way and way != but else []), *made, *at]


def placed(ctx: Context, phrase: Phrase, parts: Sequence[Part]) -> list[Clause]:
    """Return that parts are at the place that is said, above or below it; none if none is said."""
    slot = phrase.has("place")
    if not slot or not (places := ctx.places(phrase, "TO", "ON", "ABOVE", "BELOW", "LEVEL")):
        return []
    prep, scene = slot.children[0], ctx.scene
    pairs = paired(parts, [place for _, place in places])
    if prep.type == "LEVEL" or len(slot.children) > 2:
        return [ctx.clause(c.above, part=part, other=place, amount=0.0) for part, place in pairs]
    if prep.type in ("TO", "ON"):
        on = [prep.startswith("on") and not scene.own(part) and not scene.own(place) for part, place in pairs]
        at = [touches if scene.own(part) and not scene.own(to) and scene.fixed(to) else near for part, to in pairs]
        return [over(ctx, *pair) if lies else way(ctx, *pair) for pair, lies, way in zip(pairs, on, at, strict=True)]
    sign, amount, up = 1 if prep.type == "ABOVE" else -1, phrase.number("distance"), np.asarray(scene.of.up)
    if not all(scene.own(place) for _, place in places):
        return [over(ctx, part, place, sign, amount) for part, place in pairs]
    least = {place: 0.0 if place.words.split()[-1] in JOINTS else scene.extends(place, up) for _, place in places}
    given = {"sign": sign, "amount": amount}
    return [ctx.clause(c.above, part=part, other=at, least=round(least[at], 3), **given) for part, at in pairs]


def over(ctx: Context, part: Part, other: Part, sign: int = 1, amount: float | None = 0.0) -> Clause:
    """Return that a part is on another one, or above or below it: by an amount in m, or by some at least."""
    gaps = (2 * c.LENGTH, _FAR) if amount is None else (amount, amount)
    at, low, high = ctx.scene.over(part, other, sign, gaps, slack=_ON)
    word = "below" if sign < 0 else "on" if amount == 0.0 else "above"
    within = min(_ON, 0.5 * amount) if amount else _ON
    given = {"at": at, "low": low, "high": high, "within": within, "gap": amount, "word": word}
    return ctx.clause(c.over, part=part, other=other, **given)


def paired(parts: Sequence[Part], others: Sequence[Part]) -> list[tuple[Part, Part]]:
    """Return each part with the other one of its side, or all with the only one. Raises NotRead."""
    if len(others) == 1:
        return [(part, others[0]) for part in parts]
    sides = [side_of(other.words.split()) for other in others]
    pairs = [(part, other) for other, side in zip(others, sides, strict=True) for part in parts
             if side and side == side_of(part.words.split())]  # fmt: skip
    if len(pairs) != len(others) or len(pairs) != len(parts):
        raise NotRead(others[1].words, "is a second place; say which is first, with 'then'")
    return pairs


def near(ctx: Context, part: Part, other: Part) -> Clause:
    """Return that a part touches another one. Raises NotRead."""
    if part.place == other.place:
        raise NotRead(other.words, "cannot touch itself")
    return ctx.clause(c.near, part=part, other=other, within=ctx.scene.touching(part, other))


def within(ctx: Context, phrase: Phrase, parts: Sequence[Part]) -> list[Clause]:
    """Return that parts come so near to other ones as is said, between their surfaces; none if nothing is said."""
    if not (slot := phrase.has("within")):
        return []
    before = ctx.last, ctx.it
    others, amount = ctx.nouns(slot.children[-1]), phrase.number("within") or 0.0
    ctx.last, ctx.it = before if any(before) else (ctx.last, ctx.it)
    there = [touches(ctx, *pair) for pair in paired(parts, others)]
    return [cl.but(within=round(cl["within"] - TOUCH + amount, 4), gap=amount) for cl in there]


def touches(ctx: Context, part: Part, thing: Part) -> Clause:
    """Return that a part touches a thing, by their surfaces if they are known."""
    clause, surface = near(ctx, part, thing), ctx.scene.surface_of(part)
    try:
        shapes = surface, *ctx.scene.extent(thing)
    except UserError:
        return clause
    return clause.but(part=ctx.scene.grip(part), within=TOUCH, shapes=shapes) if surface else clause
