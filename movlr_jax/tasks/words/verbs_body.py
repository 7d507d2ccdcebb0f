"""Verbs of the whole body: travel, turns, jumps, heights and postures. Each makes clauses of what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lark
import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.rewards.term import axis_text
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.parts import Part
from movlr_jax.tasks.words.phrase import WAYS, Context, NotRead, Phrase, axis_of
from movlr_jax.tasks.words.scene import floats
from movlr_jax.tasks.words.states import UPRIGHT, as_high, placed, raised, squat, upright
from movlr_jax.tasks.words.verbs_objects import move_things
from movlr_jax.tasks.words.verbs_parts import keep_things, lean, turn_things

_SIT = 0.6  # share of its height at which a body sits, most
_STANDS = 0.9  # share of its height at the start at which a body stands that has lain or sat, least
_LIE, _LOW = 0.35, 0.3  # share of its height, or of the length of one that does not stand, at which it lies, most
_UP_ON = {"back": "forward", "belly": "back", "stomach": "back"}  # lying on it -> what points up
_LANDED = 0.03  # m above the height at which it rests on the ground, most, of a body that has landed
_IN_AIR = 0.1  # m above the height at which it rests on the ground, least, of a body that hovers somewhere
_KNEES = 0.15  # m above the ground, most, of a body that kneels
_ASIDE = 0.1  # of a direction that is to one side
SAME_WAY = np.cos(np.deg2rad(20.0))  # between two directions that are about the same
_TOP = 30.0  # times its usual speed of running: more is not asked for in earnest
_JUMPS = 3.0  # times its size
_IN_PLACE = ("walk", "march", "run", "jog", "step", "trot", "sprint")
_PACES = {
    **dict.fromkeys(("run", "jog", "gallop", "sprint", "dash", "bound", "canter"), "run"),
    **dict.fromkeys(("crawl", "roll", "slide", "swim", "slither", "creep", "wriggle", "fly", "glide"), "low"),
}
_ON_GROUND = ("crawl", "roll", "slide", "swim", "slither", "creep", "wriggle")  # to be low is no fall
_GAITS = (*_ON_GROUND, "trot", "amble", "skip", "gallop", "bound", "canter")  # they say more than a speed
_TEMPO = {"fast": 1.5, "quickly": 1.5, "slowly": 0.5, "slow": 0.5}
_PART_TURNS = {"half": np.pi, "around": np.pi, "round": np.pi, "quarter": np.pi / 2, "full": 2 * np.pi,
               "whole": 2 * np.pi}  # fmt: skip
_HEADINGS = {"forward": 0.0, "ahead": 0.0, "left": np.pi / 2, "right": -np.pi / 2, "back": np.pi}
_TURNS = {"left": 1, "counterclockwise": 1, "anticlockwise": 1, "right": -1, "clockwise": -1}


def _travel(ctx: Context, phrase: Phrase) -> list[Clause]:
    if phrase.verb == "roll" and phrase.has("thing"):  # "roll the body to the right by 15 degrees"
        return lean(ctx, phrase)
    if here := phrase.has("here"):
        if phrase.verb in _IN_PLACE:
            return _step(ctx, phrase)
        raise phrase.unread(here)
    if phrase.take("start_place") or phrase.verb == "return" or (phrase.verb == "come" and phrase.has("direction")):
        return _return(ctx, phrase)
    back = any(str(slot.children[-1]) == "back" for slot in phrase.left if slot.data == "direction")
    if back and (ctx.moved.turned or ctx.moved.travelled.any()):
        raise NotRead("back", "can mean backward or to the start; say walk backward, or return to the start")
    if phrase.verb in _ON_GROUND and ctx.scene.flies:
        raise phrase.no("is a motion on the ground, and this body flies; say fly, or lean")
    place, up_down = phrase.has("place"), {*phrase.ways(keep=True)} & {"up", "down"}
    if up_down and ctx.scene.stands and not ctx.scene.flies:
        raise NotRead(up_down.pop(), "is no way of a body on its feet; say jump, squat, or stand up")
    if phrase.has("height") and up_down:  # "fly up to 3 m"
        return _rise(ctx, phrase, 1 if "up" in up_down else -1)
    if place and place.children[0].type == "AROUND":
        return _around(ctx, phrase)
    if place and place.children[0] == "above" and ctx.scene.flies:
        ctx.moved.risen = None  # it is not known
        return placed(ctx, phrase, [ctx.scene.parts.of(ctx.scene.root)])
    ways, path = phrase.ways(), phrase.one("path")
    kind = path.children[0].type if path else ""
    if phrase.verb in _ON_GROUND:
        ctx.balance = False
    pace, distance = _pace(ctx, phrase), phrase.number("distance")
    if phrase.has("place", "gap", "within") and distance is not None:
        raise phrase.no("names a place and a distance")
    if kind == "SIDEWAYS" and not ({*ways} and {*ways} <= {"left", "right"}):
        raise phrase.unread(path, "does not say to which side; say left or right")
    if kind == "CIRCLE":
        return _circle(ctx, phrase, ways, distance, pace)
    word, direction, far = _direction(ctx, phrase, ways, kind == "DIAGONALLY")
    way = floats(direction)
    if not ctx.scene.goes(way):
        why = f"is not possible: no joint lets {ctx.scene.root!r} move along {axis_text(way)}"
        raise NotRead(word if ways or path else phrase.verb, why)
    if ways and ctx.scene.wheels and abs(ctx.scene.around[1] @ direction) > _ASIDE:
        raise NotRead(word, "is no way that its wheels roll; turn first, as in turn left, then drive forward")
    extent = phrase.one("extent")  # in an episode of a given length, as far is as fast
    if extent and str(extent.children[0]) not in ("as far as possible", "as fast as possible"):
        raise phrase.unread(extent)
    if extent and (pace["exact"] or far or distance):
        raise phrase.unread(extent, "contradicts an amount or a place")
    return [ctx.clause(c.travel, way=way, word=word, distance=far or distance, fastest=extent is not None, **pace)]


def _pace(ctx: Context, phrase: Phrase) -> dict[str, Any]:
    """Take how fast a body travels: what `c.travel` is given of its speed and gait. Raises NotRead."""
    given, tempo = phrase.number("speed"), 1.0
    speed = given or ctx.scene.speed(_PACES.get(phrase.verb, "walk"))
    if speed > _TOP * ctx.scene.speed("run"):
        raise NotRead(f"{speed:g} m/s", "is faster than a body of this size moves")
    if not given and (slot := phrase.one("tempo")):
        tempo = _TEMPO[str(slot.children[0])]
    gait = phrase.verb if phrase.verb in _GAITS else ""
    return {"speed": float(f"{speed * tempo:.2g}"), "exact": given is not None, "tempo": tempo, "gait": gait}


def _circle(
    ctx: Context, phrase: Phrase, ways: Sequence[str], distance: float | None, pace: dict[str, Any]
) -> list[Clause]:
    """Return that a body goes around once, as far as is said or as a circle of this size is long."""
    way = floats(ctx.scene.around[0] * (-1 if "back" in ways else 1))
    if not ctx.scene.goes(way):
        raise phrase.no(f"is not possible: no joint lets {ctx.scene.root!r} move along {axis_text(way)}")
    if size := phrase.has("radius"):
        if distance:
            raise phrase.unread(size, "contradicts a distance")
        across = 2.0 if str(size.children[0]) == "radius" else 1.0
        distance = round(np.pi * across * (phrase.number("radius") or 0.0), 3)
    sign = _side(phrase, [way for way in ways if way not in ("forward", "back")]) or 1
    circle = ctx.clause(c.travel, way=way, word="in a circle", turns=True, distance=distance, **pace)
    return [circle, *_turning(ctx, phrase, sign, 2 * np.pi)]


def _around(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that the body goes around an object, at its distance at the start."""
    _, part = ctx.place(phrase, "AROUND") or ("", ctx.scene.parts.of(ctx.scene.root))
    if ctx.scene.own(part) or not ctx.scene.goes(floats(ctx.scene.around[0])) or not ctx.moved.measured:
        raise NotRead(part.words, "is nothing to go around here")
    if (ways := phrase.ways()) and ways[0] in WAYS:
        raise NotRead(ways[0], "can mean two ways around; say clockwise or counterclockwise")
    given = {"sign": _side(phrase, ways) or 1, "turns": phrase.times(whole=False) or 1}
    speed, apart = ctx.scene.speed(_PACES.get(phrase.verb, "walk")), part.now(ctx.scene.data)[:2]
    ctx.moved.measured, ctx.moved.yaw = False, None
    far = float(np.linalg.norm((ctx.scene.data.body(ctx.scene.root).xpos + ctx.moved.travelled)[:2] - apart))
    return [ctx.clause(c.around, part=part, speed=float(f"{speed:.2g}"), radius=round(far, 2), **given)]


def _return(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return the way back to where the body was at the start."""
    phrase.only("back", "goes back to the start")
    far, speed = float(np.linalg.norm(ctx.moved.travelled)), ctx.scene.speed(_PACES.get(phrase.verb, "walk"))
    if ctx.moved.yaw is None or not far or not ctx.moved.measured:
        raise phrase.no("needs ways before by distances, that it can undo, as in walk forward 2 m")
    back, speed = floats(-ctx.moved.travelled / far), float(f"{speed:.2g}")
    return [ctx.clause(c.travel, way=back, speed=speed, word="to the start", distance=round(far, 3))]


def _direction(ctx: Context, phrase: Phrase, ways: list[str], diagonal: bool) -> tuple[str, np.ndarray, float | None]:
    """Return the words for a direction, the direction [3], and how far it is to a place in m."""
    place, axis, away = ctx.place(phrase, "TO"), phrase.one("axis"), phrase.one("away")
    short = phrase.has("gap", "within")
    if sum(map(bool, (ways, place, axis, short, away))) > 1 + bool(len(ways) == 1 and (place or short)):
        raise NotRead(ctx.text, "names several directions")
    if axis:
        return (*axis_of(phrase, axis), None)
    if away:
        if len(away.children) < 2:
            raise phrase.unread(away, "does not say from what")
        other = ctx.nouns(away.children[1])[0]
        return f"away from {other.words}", -_towards(ctx, other)[0], None
    if found := [place[1]] if place else ctx.nouns(short.children[-1]) if short else []:
        other, gap = found[0], phrase.number("gap", "within")
        direction, far = _towards(ctx, other, gap)
        if any(way not in WAYS or ctx.along(way) @ direction < SAME_WAY for way in ways):
            raise NotRead(ways[0], f"is not where {other.words} is")
        just = "just" if gap is None else quantity(gap, "gap_m")
        near = {"within": f"within {just} of ", "gap": f"{just} short of "}[short.data] if short else ""
        return f"to {near}{other.words}", direction, far
    if len(ways) > 1 or diagonal:
        found = [ctx.along(way) for way in ways if way in WAYS]
        if len(ways) != 2 or len(found) != 2 or abs(found[0] @ found[1]) > 0.5:
            word = ways[-1] if len(ways) > 1 else "diagonally"
            two = f"contradicts {ways[0]!r}" if len(ways) > 1 else "needs two, as in diagonally forward left"
            raise NotRead(word, two, len(ctx.text))
        return " and ".join(ways), (found[0] + found[1]) / np.sqrt(2.0), None
    way = ways[0] if ways else "forward"
    if way not in WAYS:
        raise NotRead(way, f"does not go with {phrase.verb!r}")
    return "backward" if way == "back" else way, ctx.along(way), None


def _towards(ctx: Context, part: Part, gap: float | None = None) -> tuple[np.ndarray, float]:
    """Return the direction [3] and the distance in m to a place, or to a gap in m before it. Raises NotRead."""
    if not (towards := ctx.scene.towards(part, ctx.moved.travelled, gap)) or towards[1] <= 0:
        raise NotRead(part.words, "is nearer already" if towards else "is where the body is")
    return towards


def _step(ctx: Context, phrase: Phrase) -> list[Clause]:
    phrase.take("here")
    if phrase.verb in ("sidestep", "strafe") and not {*phrase.ways(keep=True)} & {"left", "right"}:
        raise phrase.no("does not say to which side; say left or right")
    if phrase.verb in ("step", "sidestep", "strafe") and phrase.has("direction", "place", "distance"):
        return _travel(ctx, phrase)
    feet = ctx.scene.known(["both", "feet"])
    if len(feet) < 2:
        raise phrase.no("in place needs feet, and no bodies of this model are named so")
    ctx.balance = True if ctx.balance is None and ctx.scene.rises else ctx.balance
    return [ctx.clause(c.steps, left=feet[0], right=feet[1]), ctx.clause(c.stay)]


def _turning(ctx: Context, phrase: Phrase, sign: int, angle: float | None) -> list[Clause]:
    if not ctx.scene.goes(ctx.scene.of.up, turning=True):
        raise phrase.no(f"is not possible: no joint lets {ctx.scene.root!r} turn about the vertical")
    ctx.moved.turned = True
    return [ctx.clause(c.turn, sign=sign, angle=angle)]


def _turn(ctx: Context, phrase: Phrase) -> list[Clause]:
    if phrase.has("thing") and phrase.verb != "make":
        return turn_things(ctx, phrase)
    if (place := phrase.has("place")) and place.children[0].type == "TO":
        return _face(ctx, phrase)
    here = _here(ctx, phrase)
    if (axis := phrase.one("axis")) and str(axis.children[-1])[0] not in "vz":
        raise phrase.unread(axis)
    spins, slot = phrase.verb in ("spin", "rotate", "pivot"), None
    if spins and len([slot for slot in phrase.left if slot.data == "part_turn"]) > 1:  # "spin around one full turn"
        phrase.left = [slot for slot in phrase.left if str(slot.children[-1]) not in ("around", "round")]
    slot = phrase.one("part_turn")
    part = str(slot.children[-1]).split()[0] if slot else ""
    by_part = part and not (spins and part in ("around", "round"))
    if part in ("around", "round") and not spins and phrase.has("times"):
        raise phrase.unread(phrase.left[0], "can mean half a turn or a whole one; say which")
    angle = _PART_TURNS[part] if by_part else phrase.number("angle")
    sign, times = _side(phrase, phrase.ways()), phrase.times(whole=False)
    if angle is None and not part and phrase.verb in ("make", "twist"):
        raise phrase.no("needs what to make, as in make half a turn")
    if times and angle is None and not spins:
        why = "does not say by how much; give the angle, or say spin"
        raise NotRead(ctx.text.split()[-1], why, len(ctx.text))
    angle = 2 * np.pi if times and angle is None else angle
    if angle is not None and not sign and not part and angle < 2 * np.pi - 0.1:
        raise phrase.no("does not say to which side; say left or right")
    return [*_turning(ctx, phrase, sign or 1, None if angle is None else float(angle * (times or 1))), *here]


def _here(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Take "in place", and return that the body stays there."""
    if not phrase.take("here") or not ctx.scene.rises:
        return []
    ctx.stops = "in place"
    return [ctx.clause(c.stay)]


def _side(phrase: Phrase, ways: Sequence[str]) -> int:
    """Return the sign of a turn: 1 left, -1 right, 0 not said."""
    signs = {_TURNS.get(way.replace(" ", ""), 0) for way in ways}
    if 0 in signs or len(signs) > 1:
        why = f"does not go with {phrase.verb!r}" if 0 in signs else f"contradicts {ways[0]!r}"
        raise NotRead(ways[-1], why, len(phrase.text))
    return signs.pop() if signs else 0


def _face(ctx: Context, phrase: Phrase) -> list[Clause]:
    at: Part | None = None
    places = ctx.things(phrase) or [part for _, part in ctx.places(phrase, "TO", "ON")]
    if len(places) > 1:
        raise NotRead(places[1].words, "cannot be faced at the same time")
    if places:
        angle, word, at = ctx.scene.yaw(_towards(ctx, places[0])[0]), places[0].words, places[0]
        if ctx.verb and ctx.verb.type == "TURN" and (sign := _side(phrase, phrase.ways())):  # "turn left to the post"
            angle = sign * (angle - (ctx.moved.yaw or 0.0)) % (2 * np.pi)
            if ctx.moved.yaw is None or angle < c.OFF:
                raise NotRead(word, "is where it faces already, or at no known angle")
            return _turning(ctx, phrase, sign, float(angle))
    else:
        ways = phrase.ways()
        if len(ways) != 1 or ways[0] not in _HEADINGS:
            raise phrase.no("needs one direction or place")
        angle, word = _HEADINGS[ways[0]], ways[0]
        if angle and ctx.moved.yaw is None:
            raise NotRead(word, "is not known after a turn without an angle", len(ctx.text))
        angle += (ctx.moved.yaw or 0.0) if angle else 0.0
    if angle:
        _turning(ctx, phrase, 1, None)
    ahead = floats(ctx.scene.around[0] @ ctx.scene.rot(ctx.scene.root)) if at else ()
    return [ctx.clause(c.face, angle=angle, word=word, at=at, ahead=ahead)]


def _jump(ctx: Context, phrase: Phrase) -> list[Clause]:
    here = _here(ctx, phrase)
    times, ways = phrase.times(), {*phrase.ways(keep=True)} - {"up"}
    ctx.must_rise(phrase, "leave the ground")
    if "down" in ways:
        raise NotRead("down", f"does not go with {phrase.verb!r}")
    extent = phrase.has("extent")
    far = extent is not None and "far" in ctx.span(extent)
    if ways or far or phrase.has("place", "axis"):
        return [*_travel(ctx, phrase), ctx.clause(c.jump, times=times)]
    phrase.ways()
    high = phrase.number("distance")
    if high and high > _JUMPS * max(ctx.scene.of.height, ctx.scene.length):
        raise NotRead(quantity(high, "a_m"), "is higher than a body of this size jumps")
    return [ctx.clause(c.jump, amount=high, times=times), *here]


def _stand(ctx: Context, phrase: Phrase) -> list[Clause]:
    scene, lies = ctx.scene, ctx.lies
    if phrase.verb == "balance" and (things := ctx.things(phrase)):
        return upright(ctx, things)
    phrase.take("here")
    leaned, ctx.moved.leaned = (ctx.moved.leaned, []) if ctx.begins else ([], ctx.moved.leaned)
    for slot in phrase.take("state", "times"):  # "stand up again"
        if str(slot.children[-1]) == "still":
            ctx.stops = phrase.verb
        if str(slot.children[-1]) not in (*UPRIGHT, "still", "straight", "again"):
            raise phrase.unread(slot)
    if pose := phrase.take("on_pose"):
        raise phrase.unread(pose[0], "cannot be measured")
    if scene.rises and not lies:
        ctx.balance = True
    if phrase.take("on_leg"):
        return _on_leg(ctx, "left")
    if on := phrase.has("place"):
        words = ctx.span(on.children[1]).split()
        one_of_four = {*words} & {"front", "rear", "hind", "back"}
        if words[-1] not in ("leg", "foot", "paw", "legs", "feet") or one_of_four:
            raise phrase.unread(on, "cannot be stood on here")
        parts = [part for _, part in ctx.places(phrase, "ON")]
        if len(parts) == 2 and words[0] == "both":
            return [*as_high(ctx, parts), ctx.clause(c.stay)]
        if len(parts) == 1:
            return _on_leg(ctx, next((w for w in ("left", "right") if w in parts[0].words.split()), ""))
    if lies:
        return get_up(ctx)
    ctx.up = phrase.verb.endswith("up")
    return [ctx.clause(c.stay), *(cl.but(angle=0.0) for cl in leaned)]


def get_up(ctx: Context) -> list[Clause]:
    """Return that a body that lies, sits or kneels is as it stood at the start; higher, if it lay then."""
    scene, ctx.balance, ctx.moved.low = ctx.scene, bool(ctx.balance), False
    if scene.lies:
        return [ctx.clause(c.risen)]
    height, trunk = round(_STANDS * scene.of.height, 3), scene.parts.of(scene.root)
    up = {"part": trunk, "way": floats(scene.of.up), "axis": scene.vertical(trunk)}
    high = ctx.clause(c.at_height, body=scene.root, amount=height, word="stand up", least=True)
    return [high, ctx.clause(c.pointed, **up)]


def _on_leg(ctx: Context, side: str) -> list[Clause]:
    """Return what it means to stand on one leg: the other foot is up."""
    other = "right" if side == "left" else "left"
    feet = [foot for foot in ctx.scene.known([other, "foot"]) if other in foot.words.split()]
    if not feet or ctx.scene.limbless:
        raise NotRead(f"{side} leg".strip(), "needs two feet, and no bodies of this model are named so")
    return [*(raised(ctx, foot) for foot in feet), ctx.clause(c.stay)]


def _stay(ctx: Context, phrase: Phrase) -> list[Clause]:
    if ctx.scene.flies and (place := phrase.has("place")) and place.children[0].type == "ABOVE":
        return _hover(ctx, phrase)  # "stay 1 m above it"
    if phrase.verb in ("stay", "remain") and (slot := phrase.has("extent")):
        if ctx.span(slot).split()[0] != "on":
            raise phrase.unread(slot)
        phrase.take("extent")
        return [ctx.clause(c.never, what=ctx.clause(c.risen, word="leave the ground"), both=False)]
    phrase.take("here")
    states = phrase.words("state")
    if any(state not in (*UPRIGHT, "still") for state in states):
        raise NotRead(states[0], f"says nothing that is understood of {phrase.verb!r}")
    if {*states} & {*UPRIGHT}:
        ctx.balance = True
    held = not ctx.scene.rises and bool(ctx.last)  # "touch the ball and stay there"
    if held or (states and "still" not in states):
        return []
    ctx.stops = phrase.verb
    return [ctx.clause(c.stay)]


def _rise(ctx: Context, phrase: Phrase, sign: int = 1) -> list[Clause]:
    way = "up" if sign > 0 else "down"
    if phrase.verb == "change height":
        if not phrase.excluded:
            raise phrase.no("does not say whether up or down")
        return [ctx.clause(c.risen, word=phrase.verb)]
    phrase.only(way, f"goes {way}; say walk or fly for other directions")
    ctx.lowest = 0.0 if sign < 0 else ctx.lowest
    ctx.must_rise(phrase, "rise")
    if phrase.has("height"):
        return _height(ctx, phrase)
    lands = phrase.verb == "land" or (sign < 0 and bool(phrase.take("extent")))  # "descend to the ground"
    if phrase.has("speed") or (phrase.has("tempo") and not lands):
        phrase.left.append(lark.Tree("direction", [lark.Token("WAY", way)]))
        return _travel(ctx, phrase)
    if lands:
        if ctx.scene.stands:  # it ends upright
            phrase.take("on_feet")
        back = bool(phrase.take("start_place"))
        made = [] if not back else _return(ctx, phrase) if ctx.moved.travelled.any() else [ctx.clause(c.stay)]
        ctx.moved.risen = round(ctx.scene.resting - ctx.scene.of.height, 3)
        high = round(ctx.scene.resting + _LANDED, 3)
        return [*made, ctx.clause(c.at_height, body=ctx.scene.root, amount=high, word="land on the ground", low=True)]
    amount = phrase.number("distance")
    if phrase.verb == "rise" and amount is None and not ctx.scene.flies:
        ctx.up = not ctx.lies
        return get_up(ctx) if ctx.lies else [ctx.clause(c.stay)]
    if ctx.lies and sign > 0:
        ctx.balance = ctx.moved.low = False
    ctx.moved.risen = None if amount is None or ctx.moved.risen is None else ctx.moved.risen + sign * amount
    return [ctx.clause(c.risen, sign=sign, amount=amount, word=phrase.verb)]


def _hover(ctx: Context, phrase: Phrase) -> list[Clause]:
    if phrase.take("here"):
        ctx.stops = "in place"
    if (place := phrase.has("place")) and place.children[0].type == "ABOVE":  # "hover 50 cm above the tower"
        ctx.moved.risen = None
        return placed(ctx, phrase, [ctx.scene.parts.of(ctx.scene.root)])
    unknown = not phrase.has("height") and ctx.moved.risen is None
    if unknown and ctx.scene.flies:  # "take off, then hover"
        high = round(ctx.scene.resting + _IN_AIR, 3)
        up = ctx.clause(c.at_height, body=ctx.scene.root, amount=high, word="hover in the air", least=True)
        return [up, ctx.clause(c.stay)]
    if unknown:
        raise phrase.no("does not say at which height")
    return [*_height(ctx, phrase), ctx.clause(c.stay)]


def _height(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that the body is at the height that is said, or at that of the clauses before."""
    ctx.must_rise(phrase, "rise")
    height = phrase.number("height") or ctx.scene.of.height + (ctx.moved.risen or 0.0)
    ctx.moved.risen = height - ctx.scene.of.height
    word = f"{phrase.verb} at {height:.3g} m"
    return [ctx.clause(c.at_height, body=ctx.scene.root, amount=round(height, 3), word=word)]


def _squat(ctx: Context, phrase: Phrase) -> list[Clause]:
    phrase.only("down", "goes down; say walk for other directions")
    phrase.take("here")
    ctx.must_rise(phrase, "sink")
    return [squat(ctx, phrase)]


def _low(ctx: Context, body: str, most: float, word: str) -> Clause:
    ctx.balance, ctx.moved.low = False, True
    return ctx.clause(c.at_height, body=body, amount=round(most, 3), word=word, low=True)


def _lie(ctx: Context, phrase: Phrase) -> list[Clause]:
    phrase.take("here")
    for slot in phrase.take("state"):
        if str(slot.children[0]) != "still":
            raise phrase.unread(slot)
    ctx.must_rise(phrase, "sink")
    scene, made = ctx.scene, list[Clause]()
    for slot in phrase.take("on_pose"):
        if (side := ctx.span(slot).split()[-1]) not in _UP_ON:
            raise phrase.unread(slot)
        way, axis = floats(scene.of.up), floats(ctx.along(_UP_ON[side]) @ scene.rot(scene.root))
        made.append(ctx.clause(c.pointed, part=scene.parts.of(scene.root), way=way, word=f"on its {side}", axis=axis))
    most = _LIE * scene.of.height if scene.stands else _LOW * scene.length
    return [_low(ctx, scene.root, most, "lie down"), *made]


def _kneel(ctx: Context, phrase: Phrase) -> list[Clause]:
    knees = ctx.scene.known(["both", "knees"])
    if len(knees) < 2:
        raise phrase.no("needs knees, and no bodies of this model are named so")
    if place := phrase.has("place"):  # "kneel on one knee"
        on = [part for _, part in ctx.places(phrase, "ON")] if "one" not in ctx.span(place).split() else knees[:1]
        if not {part.place for part in on} <= {knee.place for knee in knees}:
            raise phrase.unread(place)
        phrase.take("place")
        knees = on
    return [_low(ctx, knee.place, _KNEES, f"{knee.words} on the ground") for knee in knees[:2]]


def _move(ctx: Context, phrase: Phrase) -> list[Clause]:
    if phrase.has("thing"):
        return move_things(ctx, phrase)
    if phrase.verb != "move":
        raise phrase.no("needs what to move")
    return _travel(ctx, phrase)


def _keep(ctx: Context, phrase: Phrase) -> list[Clause]:
    it = not (ctx.last or ctx.it) and any(ctx.span(slot) == "it" for slot in phrase.left)
    if it and (ctx.moved.leaned or (phrase.lasts and len(ctx.verbs) > 1)):  # "lean back and hold it"
        phrase.take("thing")
        return []
    if phrase.verb == "leave" and not phrase.has("state", "place", "direction", "path", "here"):
        raise phrase.no("needs how or where, as in leave the arms up, or where they are")
    if phrase.has("thing"):
        return keep_things(ctx, phrase)
    if not phrase.has("state"):
        if phrase.lasts:  # "lean back and hold for 3 s"
            return []
        raise phrase.no("needs what to keep")
    return _stay(ctx, phrase)


BODY_VERBS = {
    "TRAVEL": _travel, "STEP": _step, "TURN": _turn, "FACE": _face, "JUMP": _jump, "STAND": _stand, "STAY": _stay,
    "RISE": _rise, "DESCEND": lambda ctx, phrase: _rise(ctx, phrase, -1), "HOVER": _hover,
    "SIT": lambda ctx, phrase: [_low(ctx, ctx.scene.root, _SIT * ctx.scene.of.height, "sit down")],
    "SQUAT": _squat, "LIE": _lie, "KNEEL": _kneel,
    "FALL": lambda ctx, phrase: _lie(ctx, phrase) if ctx.scene.rises else [], "MOVE": _move, "KEEP": _keep,
}  # fmt: skip
