"""Verbs of objects: touch, push, lift, put, grasp, release, kick. Each makes clauses of what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from movlr_jax.models.derived import above
from movlr_jax.models.names import side_of
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.parts import Between, Part
from movlr_jax.tasks.words.phrase import WAYS, Context, NotRead, Phrase, Tree, axis_of
from movlr_jax.tasks.words.scene import TOUCH, floats
from movlr_jax.tasks.words.states import (
    FORMS,
    free_of,
    joint,
    near,
    paired,
    placed,
    points,
    raised,
    swung,
    touches,
    within,
)

_MOVES_JOINTS = ("move", "bring", "carry", "pull", "drag", "set")
_PUTS = ("put", "place", "set", "stack")
_AWAY = 0.05  # m between the surfaces of a hand and what it has released
_IN_JAWS = 0.5  # share of the distance at which a thing touches a gripper, at which it is between its jaws


def approach(
    ctx: Context, phrase: Phrase, things: Sequence[Part], must: bool = False, grips: bool = True
) -> list[Clause]:
    """Return that what handles objects is at them and its fingers close; not `must`: only on the way."""
    once = not must and not grips and bool(phrase.has("tool"))  # "push it with the left foot"
    hands = ctx.tools(phrase) or ctx.scene.hands[:1]
    ctx.last = [ctx.movable(thing) for thing in things]
    fingers = ctx.scene.fingers() if grips else ()
    hands = [ctx.scene.grip(hand) for hand in hands] if fingers else hands
    at = [
        (touches if once else near)(ctx, hand, thing).but(must=must or once, once=once)
        for thing in things for hand in hands if hand.place != thing.place
    ]  # fmt: skip
    if not fingers:
        return at
    held = {}
    if len(at) == 1:  # where the fingers should close
        hand, thing, within = (at[0][name] for name in ("part", "other", "within"))
        share = _IN_JAWS if isinstance(hand, Between) else 1.0
        held = {"hand": hand, "thing": thing, "within": round(share * within, 4)}
    return [*at, ctx.clause(c.gripped, fingers=fingers, must=must, **held)]


def _touch(ctx: Context, phrase: Phrase) -> list[Clause]:
    things, tools = ctx.things(phrase), ctx.tools(phrase)
    if not things and tools and (way := phrase.way()):
        return points(ctx, tools, way)
    if not things and (there := within(ctx, phrase, tools or ctx.scene.hands[:1])):
        return there
    if not things and (there := phrase.has("place")) and there.children[0].type in ("ABOVE", "BELOW"):
        return placed(ctx, phrase, tools or ctx.scene.hands[:1])  # "reach 10 cm above the box"
    if places := [part for _, part in ctx.places(phrase, "TO")]:
        tools, things = tools or things, places  # "touch the thumb to the ring finger"
    if not things:
        raise phrase.no("needs what to touch")
    phrase.take("here")
    hands = tools or [hand for hand in ctx.scene.hands if not any(_on_one_arm(ctx, hand, of) for of in things)][:1]
    if not hands:
        raise phrase.no("needs the part that touches, as in touch the head with the right hand")
    if len(things) > 1:  # "touch your toes": each with the hand of its side
        return [touches(ctx, hand, thing) for hand, thing in paired(tools or ctx.scene.hands, things)]
    ctx.last = hands if all(map(ctx.scene.own, things)) else things
    objects = not tools and not any(map(ctx.scene.own, things))
    return [touches(ctx, hand, thing).but(any_part=objects) for hand in hands for thing in things]


def _on_one_arm(ctx: Context, hand: Part, part: Part) -> bool:
    """Return whether a hand cannot reach a part of the body, which is of its own arm or its own finger."""
    model, (hand_body, body) = ctx.scene.model, map(ctx.scene.body_of, (hand, part))
    same_side = side_of(part.words.split()) == side_of(hand.words.split()) != ""
    return hand_body in above(model, body) or (same_side and body in above(model, hand_body))


def _on_line(
    ctx: Context, phrase: Phrase, things: Sequence[Part], slot: Tree, other: Part, sign: int
) -> list[Clause]:
    """Return that things move towards another one, sign 1, or away from it, by what is said or by some."""
    scene, distance, objects = ctx.scene, phrase.number("distance"), not any(map(ctx.scene.own, things))
    made = approach(ctx, phrase, things, grips=False) if objects else list[Clause]()
    word = f"moves {'towards' if sign > 0 else 'away from'} {other.words}"
    for part in things:
        first, then = (part, other)[::sign]
        if not (there := scene.towards(then, first.now(scene.data) - scene.data.body(scene.root).xpos)):
            raise phrase.unread(slot, "has no direction: it is there")
        made.append(ctx.clause(c.shifted, part=part, way=floats(there[0]), amount=distance, word=word))
    return made


def move_things(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that joints, parts or objects move: by an amount, in a direction, or to a place."""
    verb = phrase.verb
    if joints := ctx.joints(phrase) if verb in _MOVES_JOINTS else []:
        return joint(ctx, phrase, joints)
    things = ctx.things(phrase, f"what to {verb}, as in {verb} the cube" + " on the plate" * (verb in _PUTS))
    if verb in _PUTS and not phrase.has("place", "direction"):
        raise phrase.no("needs where to put it, as in put the cube on the plate")
    objects = not any(map(ctx.scene.own, things))
    if objects and verb in _PUTS and not phrase.has("place", "distance") and "down" in phrase.ways(keep=True):
        raise NotRead("down", f"does not say where to {verb} it; say on what, or lower it by 10 cm")
    there = phrase.has("place")
    if objects and there and phrase.has("distance") and str(there.children[0]).startswith("toward"):
        (_, place), *_ = ctx.places(phrase, "TO")
        return _on_line(ctx, phrase, things, there, place, 1)
    if phrase.has("place"):
        ways, data = phrase.ways(), ctx.scene.data
        there = moved_to(ctx, phrase, things) if objects else placed(ctx, phrase, free_of(ctx, things, verb))
        for clause in (clause for clause in there if dict(clause.given).get("other") and ways):
            apart = clause["other"].now(data) - clause["part"].now(data)
            if any(ctx.along(way) @ apart <= 0 for way in ways if way in WAYS):
                raise phrase.no("names a place and another direction")
        return there
    if away := phrase.one("away"):
        before, whole = ctx.last, ctx.scene.parts.of(ctx.scene.root)
        other = ctx.nouns(away.children[1])[0] if len(away.children) > 1 else whole
        ctx.last = before
        return _on_line(ctx, phrase, things, away, other, -1)
    if there := within(ctx, phrase, things if objects else free_of(ctx, things, verb)):
        return [*(approach(ctx, phrase, things) if objects else []), *there]
    if not objects and (there := swung(ctx, phrase, things)):
        return there
    distance = phrase.number("distance")
    if objects and (axis := phrase.one("axis")):
        word, toward = axis_of(phrase, axis)
        made = approach(ctx, phrase, things, grips=bool(toward[2]))
        given = {"way": floats(toward), "amount": distance, "word": f"moves {word}"}
        return [*made, *(ctx.clause(c.shifted, part=part, **given) for part in things)]
    word = phrase.way()
    if objects:
        made = approach(ctx, phrase, things, grips=word in ("up", "down"))
    elif not word:
        raise phrase.no("needs a direction or a place")
    else:
        moves_root = ctx.scene.root in [part.place for part in things]
        if moves_root and not ctx.scene.goes(floats(ctx.along(word))):
            raise NotRead(word, f"is not possible: no joint lets {ctx.scene.root!r} move there")
        made, things = list[Clause](), free_of(ctx, things, verb)
    if word in ("up", "down"):
        sign = 1 if word == "up" else -1
        return [*made, *(raised(ctx, part, sign, distance) for part in things)]
    way, moves = floats(ctx.along(word)) if word else None, f"moves {word}".strip()
    return [*made, *(ctx.clause(c.shifted, part=part, way=way, amount=distance, word=moves) for part in things)]


def moved_to(ctx: Context, phrase: Phrase, things: Sequence[Part]) -> list[Clause]:
    """Return that objects are at a place, on it, above or below it."""
    made = approach(ctx, phrase, things, grips=phrase.verb not in ("push", "shove"))
    there = placed(ctx, phrase, things)
    for clause in there:
        if clause["other"].place == clause["part"].place:
            raise NotRead(clause["other"].words, "is the object itself")
    return [*made, *there]


def _grasp(ctx: Context, phrase: Phrase) -> list[Clause]:
    things = ctx.objects(phrase, "an object")
    made = approach(ctx, phrase, things, must=True)
    if phrase.verb in ("pick up", "take"):
        amount = phrase.number("distance")
        made += [ctx.clause(c.raised, part=part, amount=amount) for part in things]
    return made


def hold(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that objects are in the hand."""
    things = ctx.objects(phrase, "an object to hold")
    phrase.done()
    return approach(ctx, phrase, things, must=True)


def _release(ctx: Context, phrase: Phrase) -> list[Clause]:
    hand, made = ctx.scene.hands[0], list[Clause]()
    before = [part for part in ctx.last if not ctx.scene.own(part)] if phrase.verb == "let go" else []
    for part in before if before and not phrase.has("thing") else ctx.objects(phrase, "an object to release"):
        clause = near(ctx, hand, ctx.movable(part))
        made.append(clause.but(within=clause["within"] + _AWAY, apart=True))
    return made


def _meet(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that any part of the body touches objects, and that it stays there."""
    made, scene = [ctx.clause(c.stay)], ctx.scene
    body = replace(scene.parts.of(scene.root), words="body")
    for thing in ctx.objects(phrase, "an object"):
        shapes = scene.surface, *scene.extent(thing)
        made.append(ctx.clause(c.near, part=body, other=thing, within=TOUCH, once=True, shapes=shapes))
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
        made += [touches(ctx, foot, ctx.movable(thing)).but(must=named, once=named) for foot in feet]
        kicked = f"is kicked {FORMS.get(word, word)}".strip()
        made.append(ctx.clause(c.shifted, part=thing, way=way, amount=distance, word=kicked))
    return made


OBJECT_VERBS: dict[str, Callable[[Context, Phrase], list[Clause]]] = {
    "TOUCH": _touch, "PUSH": move_things, "PUT": move_things, "PICK": _grasp, "GRASP": _grasp, "RELEASE": _release,
    "KICK": _kick, "MEET": _meet,
}  # fmt: skip
