"""What it means that parts of a body are in a state or at a place. Verbs make their clauses of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import lark
import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.models.names import side_of
from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.hands import Fingers
from movlr_jax.tasks.words.parts import JOINTS, Part
from movlr_jax.tasks.words.phrase import WAYS, Context, NotRead, Phrase, Tree, span
from movlr_jax.tasks.words.scene import floats

UPRIGHT = ("upright", "vertical", "vertically", "balanced")
_LEVEL = ("level", "horizontal", "horizontally")
_HIGH, _LOWERED = ("up", "raised", "lifted", "overhead"), ("down", "lowered")
GROUND = {"on": "on the ground", "off": "raised", "from": "raised"}  # of a part that is kept on or off the ground
BENT, STRAIGHT = ("bent", "flexed"), ("straight", "straightened", "stiff", "locked", "extended")
_OPEN, _CLOSED = ("open", *STRAIGHT), ("closed", *BENT)  # of fingers
_ASIDE = ("sideways", "to side", "aside")
_ON = 0.05  # m, distance from its place at which an object lies on another one
FORMS = {"forwards": "forward", "ahead": "forward", "backwards": "backward", "back": "backward"}
_STEMS = {"backward": "back", "upward": "up", "downward": "down"}


def posture(ctx: Context, tree: Tree) -> list[Clause]:
    """Return the clauses of "with straight knees"."""
    nouns, state = sorted(tree.children, key=lambda child: child.data != "nouns")
    word, before = ctx.span(state), ctx.last
    word = GROUND.get(word.split()[0], word) if state.data == "extent" else word
    if tree.children[0] is state and ctx.verb is not None and ctx.verb.type in ("TOUCH", "PUSH", "KICK"):
        raise NotRead(word, f"says nothing that is understood of {ctx.verb!s}", span(state, ctx.text)[1])
    phrase = Phrase(ctx.text, word, [lark.Tree("thing", [nouns]), state])
    if (made := fingers_in_state(ctx, phrase)) or state.data == "place":
        return made or placed(ctx, phrase, ctx.things(phrase))
    parts = ctx.nouns(nouns, hinge=word in (*BENT, *STRAIGHT))
    ctx.last = before or parts
    return in_state(ctx, parts, word, span(tree, ctx.text)[1])


def in_state(ctx: Context, parts: Sequence[Part], word: str, at: int = 0) -> list[Clause]:
    """Return that parts are in a state: raised, bent, upright, level, sideways, forward."""
    if word in UPRIGHT:
        return upright(ctx, parts)
    if word in (*BENT, *STRAIGHT):
        return bent(ctx, parts) if word in BENT else bent(ctx, parts, -1, to=0.0)
    if word == GROUND["on"]:
        return as_high(ctx, parts)
    free, scene = free_of(ctx, parts), ctx.scene
    if word in _LEVEL:
        free = [part for part in free if part.offset is not None]
        return [
            ctx.clause(c.pointed, part=part, way=scene.of.up, word="level", axis=scene.vertical(part))
            for part in free
        ]
    if word in _HIGH or word in _LOWERED:
        return [ctx.clause(c.raised, part=part, sign=1 if word in _HIGH else -1) for part in free]
    if word in _ASIDE:
        return [pointed(ctx, part, scene.aside(part), "sideways") for part in free]
    return points(ctx, parts, word, at)


def fingers_in_state(ctx: Context, phrase: Phrase) -> list[Clause]:
    """Return that hands or fingers are open or closed, if that is what is said of them; else none."""
    states = [str(slot.children[0]) for slot in phrase.left if slot.data == "state"]
    fingers = ctx.fingers(phrase) if len(states) == 1 and states[0] in (*_OPEN, *_CLOSED) else []
    phrase.take(*(["state"] if fingers else []))
    return [closed(ctx, of, opens=states[0] in _OPEN) for of in fingers]


def closed(ctx: Context, of: Fingers, opens: bool = False) -> Clause:
    """Return that fingers or jaws are open or closed; an open hand has its thumb out."""
    digits = of.hand.digits if opens and of.digits == of.hand.fingers else of.digits
    return ctx.clause(c.closed, words=of.words, joints=replace(of, digits=digits).joints, opens=opens)


def points(ctx: Context, parts: Sequence[Part], word: str, at: int = 0) -> list[Clause]:
    """Return that parts point in a direction."""
    word = FORMS.get(word, word)
    way = _STEMS.get(word, word)
    if way not in WAYS:
        raise NotRead(word, "is no direction of a part", at)
    return [pointed(ctx, part, ctx.along(way), word) for part in free_of(ctx, parts)]


def pointed(ctx: Context, part: Part, way: np.ndarray, word: str) -> Clause:
    return ctx.clause(c.pointed, part=part, way=floats(way), word=word, axis=ctx.scene.axis(part))


def free_of(ctx: Context, parts: Sequence[Part], verb: str = "") -> list[Part]:
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
    free = free_of(ctx, parts)
    if len(free) < len(parts):
        ctx.balance = True
    return [pointed(ctx, part, np.asarray(ctx.scene.of.up), "upright") for part in free]


def as_high(ctx: Context, parts: Sequence[Part]) -> list[Clause]:
    """Return that parts stay as high as they are."""
    return [ctx.clause(c.never, what=ctx.clause(c.raised, part=part)) for part in parts]


def bent(
    ctx: Context, parts: Sequence[Part], sign: int = 1, by: float | None = None, to: float | None = None
) -> list[Clause]:
    made = list[Clause]()
    for part in parts:
        if not (bends := ctx.scene.bends(part)):
            raise NotRead(part.words, "does not bend or turn: it is no joint, knee or elbow of this model")
        still = part.words.endswith("elbow")
        made.append(
            ctx.clause(c.bent, part=part, above=bends[0], below=bends[1], sign=sign, by=by, to=to, still=still)
        )
    return made


def bends(ctx: Context, parts: Sequence[Part], phrase: Phrase, sign: int) -> list[Clause]:
    by, to = phrase.number("angle"), phrase.number("angle_to")
    return bent(ctx, parts, sign, by, 0.0 if sign < 0 and by is to else to)


def joint(ctx: Context, phrase: Phrase, joints: Sequence[str], sign: int = 1) -> list[Clause]:
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


def arranged(ctx: Context, phrase: Phrase, parts: Sequence[Part], but: str = "") -> list[Clause]:
    """Return that parts are at a place, or point in a direction other than `but`; none if nothing is said of them."""
    way, aside = phrase.way(), phrase.one("path")
    if at := placed(ctx, phrase, parts):
        return at
    if aside:
        return in_state(ctx, parts, "sideways")
    return points(ctx, parts, way) if way and way != but else []


def placed(ctx: Context, phrase: Phrase, parts: Sequence[Part]) -> list[Clause]:
    """Return that parts are at the place that is said, above or below it; none if none is said."""
    slot = phrase.has("place")
    if not slot or not (places := ctx.places(phrase, "TO", "ON", "ABOVE", "BELOW", "LEVEL")):
        return []
    prep, scene = slot.children[0], ctx.scene
    pairs = paired(parts, [place for _, place in places])
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


def near(ctx: Context, part: Part, other: Part, must: bool = True) -> Clause:
    """Return that a part touches another one."""
    return ctx.clause(c.near, part=part, other=other, within=ctx.scene.touching(part, other), must=must)
