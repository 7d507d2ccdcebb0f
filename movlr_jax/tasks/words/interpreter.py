"""From a parse to the clauses of its phases."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import lark
import numpy as np

from movlr_jax.tasks.words import clauses as c
from movlr_jax.tasks.words.clauses import Clause
from movlr_jax.tasks.words.measure import Goal, Stance
from movlr_jax.tasks.words.phrase import Context, NotRead, Phrase, Tree, span
from movlr_jax.tasks.words.scene import Scene, floats
from movlr_jax.tasks.words.sentence import Sentence
from movlr_jax.tasks.words.verbs_body import BODY_VERBS, SAME_WAY, get_up
from movlr_jax.tasks.words.verbs_objects import OBJECT_VERBS, hold
from movlr_jax.tasks.words.verbs_parts import PART_VERBS, in_place, posture

_VERBS: dict[str, Callable[[Context, Phrase], list[Clause]]] = {**BODY_VERBS, **PART_VERBS, **OBJECT_VERBS}
# verbs that may be left out the next time: "raise the left arm and the right foot"
_GOES_ON = ("TRAVEL", "TURN", "STEP", "RAISE", "LOWER", "BEND", "STRAIGHTEN", "WAVE", "TOUCH", "POINT", "KEEP",
            "JUMP", "CLOSE", "OPEN", "LEAN", "PUT", "MOVE", "PUSH")  # fmt: skip
_MAY_SAY_NOTHING = ("STAY", "KEEP", "STAND")
_NEVER = (
    c.turn, c.jump, c.bent, c.raised, c.waves, c.near, c.over, c.joint, c.squat, c.leaned, c.pointed, c.risen,
)  # fmt: skip
_AMOUNTS = ("by", "to", "amount", "angle", "times")
_AMOUNT_SLOTS = ("distance", "angle", "angle_to", "times", "height")
_LEAST = ("at least", "more than", "no less than", "not less than")
# verbs that go as high, as far or as fast as they can if no amount is said
_EXTENTS = {
    **dict.fromkeys(("high", "as high as possible"), ("RAISE", "JUMP", "WAVE")),
    "as far as possible": ("POINT", "PUSH", "KICK"),
    "as fast as possible": (),
    **dict.fromkeys(("off ground", "off floor", "from ground", "from floor"), ("RAISE", "JUMP", "PICK", "RISE")),
    **dict.fromkeys(
        ("on ground", "on floor"),
        ("TRAVEL", "STEP", "TURN", "STAND", "SQUAT", "LIE", "KNEEL", "SIT", "FALL", "DESCEND"),
    ),
}
# measures that set the same as another one; a phase can have only one value of each
_SETS = {"progress_m_s": "distance_m", "raised_m": "height_m", "lowered_m": "height_m"}
_OPPOSITE = {
    "_lowered_m": "_raised_m", "_lean_right_": "_lean_left_", "_lean_backward_": "_lean_forward_",
    "_at_m": "_moved_m", "_at_rad": "_turned_rad", "_bent_rad": "_angle_rad", "_straightened_rad": "_angle_rad",
}  # fmt: skip
_ONCE = (c.turn, c.travel, c.risen)  # twice is more than once
# verbs of which the second undoes the first
_UNDONE = (("CLOSE", "OPEN"), ("RAISE", "LOWER"), ("BEND", "STRAIGHTEN"), ("PICK", "PUT"), ("RAISE", "PUT"),
           ("GRASP", "RELEASE"), ("LOWER", "RISE"), ("SQUAT", "RISE"))  # fmt: skip
_SAYS_WORD = (c.travel, c.face, c.risen, c.at_height, c.leaned)
_OF_LEGS = ("knee", "foot", "leg", "thigh", "paw", "toe")
_ENDLESS = (c.stay, c.steps, c.never, c.still, c.untouched)  # they are so all the time
_BEATS = (c.waves, c.jump)
_GENTLE, _PRESSES = ("gently", "softly", "carefully"), ("TOUCH", "PUSH", "GRASP", "KICK", "PICK")
_IN_AIR = ("hover", "fly", "glide", "take off")
_WHOLE_BODY = ("TRAVEL", "TURN", "JUMP", "SQUAT", "LEAN", "STEP")
_ON_LEGS = ("STEP", "JUMP", "SQUAT", "SIT", "LIE", "KNEEL")
_SETTLES = ("SIT", "LIE", "KNEEL")  # "walk 2 m and sit down": who sits has walked
_GOING = {c.travel, c.turn, c.around, c.jump}
_OFF_ITS_FEET = {c.travel, c.around, c.jump, c.steps}
_LIFTING = (c.raised, c.elevated, c.bent, c.pointed, c.near, c.over, c.shifted, c.waves)
_REPEATED = (c.squat, c.raised, c.elevated, c.bent, c.joint, c.closed, c.leaned)
_SLOWLY_S, _QUICKLY_S = 2.0, 1.0  # s, what a limb takes at least, or at most
_SPARE = 1.2  # times the mean speed that is needed to be somewhere in time
_SOME_S = 1.4  # s, of a travel without an amount before or after another phase, at its speed, at least
_LONGEST = 1000.0  # s
_OF_WORLD = ("to ", "along ")  # how words for directions begin that do not turn with the body
_ASIDE = 0.3  # of the direction of a travel that is to one side
_LEVEL = 0.1  # m, by which a body may rise or sink that should keep its height
_HIGH = 0.1  # m, of steps "lifting the knees high"


def meaning(scene: Scene, text: str, tree: Tree) -> Sentence:
    """Return what a parse of a text means on a model. Raises NotRead."""
    ctx, phases = Context(scene, text), list[list[Clause]]()
    for i, phase in enumerate(tree.children):
        for found in _groups(ctx, phase, last=i == len(tree.children) - 1):
            down = next((n for n, before in enumerate(reversed(phases), 1) if _goes_down(scene, before)), 0)
            up = ctx.up and [cl.row for cl in found] == [c.stay]
            if up and down == 1 and c.squat in _rows(phases[-1]) and c.lasts not in _rows(phases[-1]):
                phases[-1] = _consistent(ctx, [*phases[-1], *found])  # "squat, then stand up"
            else:
                phases.append(get_up(ctx) if up and down else found)
            ctx.up = False
    if len(phases) > 1:
        phases = [_with_amounts(phase) for phase in _throughout(tree, phases)]
    phases = [[*phase, *_paces(ctx, phase)] for phase in phases]
    balance = scene.stands if ctx.balance is None else ctx.balance and scene.rises
    every = [clause for phase in phases for clause in phase]
    keeps_place = balance and scene.stands and c.never not in _rows(every)
    if every and keeps_place and not any(_goes(scene, clause) for clause in every):
        phases[-1].append(ctx.clause(c.stay, at=(0.0, 0.0, 0.0)))
    if not every and not balance:
        raise NotRead(text, "asks for nothing that can be measured")
    kept = tuple(tuple(dict.fromkeys(phase)) for phase in phases if phase)
    stances = tuple(_stance(scene, phase) if balance else None for phase in kept)
    sentence = Sentence(text, scene.of, kept, balance, ctx.lowest, stances)
    if sentence.seconds > _LONGEST:
        raise NotRead(text, f"takes about {sentence.seconds:.0f} s, and {_LONGEST:.0f} s at most are simulated")
    return sentence


def _stance(scene: Scene, phase: Sequence[Clause]) -> Stance | None:
    """Return on which feet the body stands; None where it travels on them, or in the air."""
    moved = [cl for cl in phase if cl.row in _LIFTING and dict(cl.given).get("sign", 1) > 0]
    return None if _rows(phase) & _OFF_ITS_FEET else scene.stance([part for cl in moved for part in cl.measure.parts])


def _throughout(tree: Tree, phases: list[list[Clause]]) -> list[list[Clause]]:
    """Return phases that all have what is excluded at the end, behind a comma: "a, then b, without c"."""
    *_, before, end = [None, None, *tree.children[-1].children]
    if not isinstance(before, lark.Token) or before.type != "COMMA" or not isinstance(end, lark.Tree):
        return phases
    never = [clause for clause in phases[-1] if clause.row is c.never and _negated(end)]
    return [
        [*phase, *(clause for clause in never if not _excluded([clause]) & _metrics(phase))] for phase in phases[:-1]
    ] + phases[-1:]


def _rows(clauses: Sequence[Clause]) -> set[object]:
    return {clause.row for clause in clauses}


def _goes(scene: Scene, clause: Clause) -> bool:
    """Return whether a body may leave its place for a clause."""
    to_object = clause.row in (c.near, c.over) and not all(map(scene.own, clause.measure.parts))
    return to_object or clause.measure.changes in ("place", "heading") or clause.row in (c.jump, c.shifted)


def _goes_down(scene: Scene, phase: Sequence[Clause]) -> bool:
    """Return whether a body on its feet is lower after a phase, and has to rise to stand as before."""
    lower = (cl for cl in phase if cl.row is c.at_height and not (cl["low"] or cl["least"]))
    return c.squat in _rows(phase) or any(cl["amount"] < scene.of.height for cl in lower)


def _climbs(scene: Scene, clause: Clause) -> bool:
    """Return whether a clause changes the height of the body, so that to hover comes after it."""
    vertical = clause.row is c.travel and abs(float(np.dot(clause["way"], scene.of.up))) > 0.7
    return vertical or clause.row in (c.risen, c.at_height)


def _with_amounts(phase: list[Clause]) -> list[Clause]:
    """Give a travel without an amount one: what comes before or after another phase has an end."""
    if c.lasts in _rows(phase):
        return phase
    if any(clause.row is c.travel and clause["fastest"] for clause in phase):
        raise NotRead("as fast as possible", "has no end before or after another phase; say how far, or for how long")
    return [
        replace(clause.but(distance=float(f"{_SOME_S * clause['speed']:.2g}")), bound=1)
        if clause.row is c.travel and clause["distance"] is None
        else clause
        for clause in phase
    ]


def _paces(ctx: Context, phase: list[Clause]) -> list[Clause]:
    """Return the speeds that the sentence gives to travels of which the distance is the measure."""
    far = [cl for cl in phase if cl.row is c.travel and cl["distance"] and not cl["turns"]]
    told = [cl for cl in far if cl["exact"] or cl["tempo"] != 1.0]
    return [ctx.clause(c.pace, way=cl["way"], speed=cl["speed"], tempo=cl["tempo"]) for cl in told]


def _groups(ctx: Context, tree: Tree, last: bool) -> list[list[Clause]]:
    """Return the clauses of a phase; several for "pick it up and put it", "climb and hover", "a, b, then c"."""
    done, group, together, apart, waited = list[list[Clause]](), list[Clause](), False, False, False
    _one_after_another(tree, last)

    def next_one() -> list[Clause]:
        done.extend([_placed(ctx, _consistent(ctx, group))] * bool(group))
        ctx.stops = ""
        return []

    for child in tree.children:
        if isinstance(child, lark.Token):  # a comma
            apart, together = not last and child.type != "WHILE", child.type == "WHILE"
            continue
        picked, lifted = ctx.verb in ("pick up", "take"), {cl["part"] for cl in group if cl.row is c.raised}
        verb = child.children[0]
        flies = isinstance(verb, lark.Token) and verb.type in ("RISE", "DESCEND", "HOVER") and ctx.verb != verb
        flies &= ctx.verb != "hover" or c.lasts in _rows(group)
        if flies and ctx.verb is not None:  # up and down together makes no sense
            flies = {ctx.verb.type, verb.type} != {"RISE", "DESCEND"}
        comes = verb in ("return", "come") or any(child.find_data("start_place"))
        climbs = flies and any(_climbs(ctx.scene, clause) for clause in group)
        settles = isinstance(verb, lark.Token) and verb.type in _SETTLES and bool(_rows(group) & _GOING)
        settles |= verb == "land" and bool(_rows(group) & (_GOING - {c.jump}))
        climbs |= verb == "hover" and bool(list(child.find_data("place"))) and c.travel in _rows(group)
        if not together and (climbs or settles or (comes and c.travel in _rows(group))):
            group = next_one()
        apart |= waited and not together and child.data == "clause" and isinstance(verb, lark.Token)
        ctx.begins, low = apart or not group, ctx.moved.low
        made = _clause(ctx, child)
        waited = _rows(made) == {c.lasts} or (verb in ("wait", "pause") and c.lasts in _rows(made))
        if not together and ctx.up and {c.squat, c.lasts} <= _rows(group):  # "squat, wait 2 s and stand up"
            made, apart, ctx.up = get_up(ctx), True, False
        apart &= _rows(made) != {c.lasts}  # "squat, hold for 2 s, then stand up"
        if apart or (low and not ctx.moved.low and not together):
            group, apart = next_one(), False
        if ctx.verb is not None and ctx.verb.type == "STAY" and c.travel in _rows(made):  # "and stop short of it"
            group, made = _cut_short(ctx, group, made[0]), []
        arrives = any(cl.row is c.travel and (cl["distance"] or ctx.stops == "stop") for cl in group)
        if not (together or _negated(child)) and arrives and c.stay in _rows(made):  # it travels, then stops
            ctx.stops, picked = "", True
        else:  # "lift it and put it there"
            put = [cl for cl in made if cl.row is c.over or (cl.row is c.near and cl["must"])]
            picked = not together and any(picked or cl["part"] in lifted for cl in put)
        group = next_one() if picked else group
        if _excluded(group) & _metrics(made) or _excluded(made) & _metrics(group):
            raise NotRead(str(ctx.verb), "is both asked for and excluded")
        group, together = group + made, False
    next_one()
    return done


def _one_after_another(tree: Tree, last: bool) -> None:
    """Raise NotRead for "turn around, walk 2 m and crouch": they are hardly all at once."""
    verbs = [child.children[0] for child in tree.children if isinstance(child, lark.Tree) and child.data == "clause"]
    whole = [verb for verb in verbs if isinstance(verb, lark.Token) and verb.type in _WHOLE_BODY]
    if last and len(whole) > 2 and len({verb.type for verb in whole}) > 2:
        why = "can come after what is before, or at the same time; say then, or while"
        raise NotRead(str(whole[-1]), why, whole[-1].start_pos or 0)


def _cut_short(ctx: Context, group: list[Clause], there: Clause) -> list[Clause]:
    """Return clauses of which the travel ends where another one does. Raises NotRead."""
    for i, cl in enumerate(group):
        same = cl.row is c.travel and not cl["turns"] and np.dot(cl["way"], there["way"]) > SAME_WAY
        if same and (cl["distance"] is None or cl["word"] == f"to {there['word'].partition(' of ')[2]}"):
            told = cl.but(way=there["way"], word=there["word"], distance=there["distance"])
            return [*group[:i], told, *group[i + 1 :]]
    raise NotRead(str(ctx.verb), "needs a travel there before, as in walk forward and stop short of the ball")


def _metrics(clauses: Sequence[Clause]) -> set[tuple[str, int]]:
    return {(clause.measure.metric, dict(clause.given).get("sign", 1)) for clause in clauses}


def _excluded(clauses: Sequence[Clause]) -> set[tuple[str, int]]:
    never = [clause for clause in clauses if clause.row is c.never and not clause["most"]]
    one = _metrics([clause["what"] for clause in never])
    return one | {(metric, -sign) for metric, sign in _metrics([cl["what"] for cl in never if cl["both"]])}


def _consistent(ctx: Context, phase: list[Clause]) -> list[Clause]:
    """Return the clauses of a phase, if they can hold together. Raises NotRead."""
    phase = _highest(phase)
    near = any(cl.row is c.stay and cl["within"] for cl in phase)
    phase = [cl for cl in phase if cl.row is not c.stay or bool(cl["within"]) is near]
    asked = dict[str, Clause]()
    for clause in (clause for clause in phase if clause.measure.goal != Goal() and clause.row is not c.gripped):
        before = asked.setdefault(_sets(clause), clause)
        if before is not clause and (before != clause or clause.row in _ONCE):
            word = clause["word"] if clause.row in _SAYS_WORD else str(ctx.verb)
            word = c.side(clause["sign"]) if clause.row is c.turn else word
            word = clause["part"].words if clause.row is c.raised else word
            word = clause["word"].split()[-1] if clause.row is c.shifted else word
            why = f"contradicts {before.measure.text!r} at the same time; say which is first, with 'then'"
            raise NotRead(word, why, len(ctx.text))
    up = (cl["what"] for cl in phase if cl.row is c.never and cl["what"].row is c.raised)
    if c.jump in _rows(phase) and any(cl["part"].words.split()[-1] in _OF_LEGS for cl in up):
        raise NotRead("jump", "is both asked for and excluded: the feet leave the ground", len(ctx.text))
    lifted = {cl["part"] for cl in phase if cl.row is c.raised and cl["sign"] > 0 and cl.measure.goal != Goal()}
    if on := next((cl for cl in phase if cl.row is c.over and cl["word"] == "on" and cl["part"] in lifted), None):
        why = f"contradicts that {on['part'].words} is lifted at the same time; say which is first, with 'then'"
        raise NotRead(f"on the {on['other'].words}", why, len(ctx.text))
    _stands_on(ctx, phase, {part.place for part in lifted})
    kept = {clause["thing"] for clause in phase if clause.row is c.untouched}
    if any(clause.row is c.near and clause["other"] in kept for clause in phase):
        raise NotRead(str(ctx.verb), "is both asked for and excluded")
    if c.turn in _rows(phase):
        left = ctx.scene.around[1]
        to_side = (cl for cl in phase if cl.row is c.travel and not cl["turns"] and abs(left @ cl["way"]) > _ASIDE)
        for cl in (cl for cl in to_side if not cl["word"].startswith(_OF_WORLD)):
            why = "can mean two ways while it turns; say which is first, with 'then'"
            raise NotRead(cl["word"].split()[-1], why, len(ctx.text))
    closes = {name: cl for cl in phase if cl.row is c.closed for digit in cl["digits"] for name, _, _ in digit}
    for cl in (cl for cl in phase if cl.row is c.joint and cl["name"] in closes):
        why = f"contradicts {closes[cl['name']].measure.text!r} at the same time; say which is first, with 'then'"
        raise NotRead(str(ctx.verb), why, len(ctx.text))
    if {c.around, c.travel} <= _rows(phase) or (ctx.up and {c.squat, c.lasts} <= _rows(phase)):
        raise NotRead(str(ctx.verb), "contradicts what is before; say which is first, with 'then'", len(ctx.text))
    if c.squat in _rows(phase) and c.stay in _rows(phase) and ctx.up:
        phase = [cl.but(returns=True) if cl.row is c.squat else cl for cl in phase if cl.row is not c.stay]
    if c.lasts in _rows(phase) and any(cl.row is c.travel and cl["distance"] for cl in phase):
        raise NotRead("for", "lasts, and a distance ends; say which is first, with 'then'", len(ctx.text))
    if c.travel in _rows(phase):
        _may_travel(ctx, phase)
        phase = [clause for clause in phase if clause.row is not c.stay]
    if c.steps in _rows(phase):  # "lifting the knees high" is how it steps
        lifted = [cl for cl in phase if cl.row is c.raised and cl["part"].words.split()[-1] in _OF_LEGS]
        high = {"high": _HIGH} if lifted else {}
        phase = [cl.but(**high) if cl.row is c.steps else cl for cl in phase if cl not in lifted]
    if len({cl["thing"] for cl in phase if cl.row is c.gripped}) > 1:  # what the fingers touch is open
        phase = [cl.but(hand=None, thing=None, within=0.0) if cl.row is c.gripped else cl for cl in phase]
    alone = _rows(phase) == {c.bent}
    return [cl.but(still=cl["still"] and alone) if cl.row is c.bent else cl for cl in phase]


def _highest(phase: list[Clause]) -> list[Clause]:
    """Return clauses of which one says how high a part goes: "raise the arms overhead and keep them up"."""
    said = dict[tuple[object, int], tuple[bool, float]]()

    def much(cl: Clause) -> tuple[bool, float]:
        return cl["amount"] is not None, cl["least"]

    for cl in (cl for cl in phase if cl.row is c.raised):
        at = cl["part"], cl["sign"]
        said[at] = max(said.get(at, much(cl)), much(cl))
    return [cl for cl in phase if cl.row is not c.raised or cl["amount"] or much(cl) == said[cl["part"], cl["sign"]]]


def _may_travel(ctx: Context, phase: Sequence[Clause]) -> None:
    """Raise NotRead if something else in a phase keeps the body, or its legs, from a travel."""
    if ctx.stops:
        raise NotRead(ctx.stops, "contradicts a travel at the same time; say which is first, with 'then'")
    kept = [cl["words"] for cl in phase if cl.row is c.still] + [
        cl["what"]["part"].words for cl in phase if cl.row is c.never and cl["what"].row is c.shifted
    ]
    if any(words.split()[-1] in _OF_LEGS for words in kept) and ctx.scene.stands:
        raise NotRead("legs", "have to move for a travel", len(ctx.text))


def _stands_on(ctx: Context, phase: Sequence[Clause], lifted: set[str]) -> None:
    """Raise NotRead where all that the body stands on should be up, and it does not jump."""
    for kind in ("feet", "legs") if ctx.scene.stands and c.jump not in _rows(phase) else ():
        every = {part.place for part in ctx.scene.known(["all", kind]) if ctx.scene.own(part)}
        if len(every) > 1 and every <= lifted:
            raise NotRead(kind, "cannot all be up, as the body stands on them; say jump", len(ctx.text))


def _sets(clause: Clause) -> str:
    """Return the name of what a clause sets: that of its measure, or of the opposite one."""
    metric = _SETS.get(clause.measure.metric, clause.measure.metric)
    return next((metric.replace(end, other) for end, other in _OPPOSITE.items() if end in metric), metric)


def _placed(ctx: Context, phase: list[Clause]) -> list[Clause]:
    """Turn the ways of a phase into the world, from where and how the body should be when it begins."""
    turns, up = c.turn in _rows(phase), np.asarray(ctx.scene.of.up)
    placed = list[Clause]()
    for clause in phase:
        if clause.row is c.travel:
            if not clause["word"].startswith(_OF_WORLD):
                seen, way = turns or ctx.moved.yaw is None, np.asarray(clause["way"])
                way = way if seen else ctx.scene.turned(way, ctx.moved.yaw or 0.0)
                clause = clause.but(way=floats(way), turns=bool(seen and abs(float(way @ up)) < 0.7))
            clause = clause.but(begun=floats(ctx.moved.travelled), leads=ctx.moved.leads)
            ctx.moved.leads = False
        if clause.row is c.stay and (ctx.moved.yaw is not None or not ctx.moved.travelled.any()):
            clause = clause.but(at=floats(ctx.moved.travelled))
        if clause.row is c.turn and ctx.moved.yaw is not None:
            clause = clause.but(begun=ctx.moved.yaw)
        placed.append(clause)
    for clause in placed:
        if clause.row is c.travel:
            ctx.moved.measured &= clause["distance"] is not None
            distance = clause["distance"] if clause["distance"] is not None else 1.5 * clause["speed"]
            ctx.moved.travelled = ctx.moved.travelled + distance * np.asarray(clause["way"])
            ctx.moved.risen = (ctx.moved.risen or 0.0) + distance * float(clause["way"] @ up)
        if clause.row is c.turn:
            known = clause["angle"] is not None and ctx.moved.yaw is not None
            ctx.moved.yaw = (ctx.moved.yaw or 0.0) + clause["sign"] * clause["angle"] if known else None
        if clause.row is c.face:
            ctx.moved.yaw = clause["angle"]
    return placed


def _negated(tree: Tree) -> bool:
    """Return whether a clause says what should not happen."""
    return isinstance(tree.children[0], lark.Token) and tree.children[0].type in ("NOT", "WITHOUT")


def _clause(ctx: Context, tree: Tree) -> list[Clause]:
    """Return the clauses of a verb and what is said of it. Raises NotRead."""
    if tree.data == "posture":
        return posture(ctx, tree)
    children = list(tree.children)
    negated = _negated(tree)
    children = children[1:] if negated else children
    while isinstance(children[0], lark.Tree) and children[0].data in ("tempo", "share") and len(children) > 1:
        children.append(children.pop(0))  # "slowly turn left"
    if tree.data == "elided":
        if ctx.verb is None and [child.data for child in children[:1]] == ["thing"] and _is_posture(children[1:]):
            return posture(ctx, lark.Tree("posture", [children[0].children[0], children[1]]))
        children = _going_on(ctx, tree, children)
    elif isinstance(children[0], lark.Tree):
        return posture(ctx, children[0])
    else:
        ctx.verb, *children = children
    verb, named = ctx.verb, ctx.last if tree.data == "elided" and not ctx.begins else []
    assert verb is not None
    slots = [slot for slot in children if isinstance(slot, lark.Tree)]
    ctx.thing = next((slot for slot in slots if slot.data == "thing"), None)
    if negated:
        return _excluding(ctx, verb, slots)
    phrase = Phrase(ctx.text, str(verb), [slot for slot in slots if not _as_it_is(slot, verb)])
    _gently(phrase, verb)
    undone = {other for pair in _UNDONE if verb.type in pair for other in pair if other != verb.type}
    repeats = verb.type in ctx.verbs and phrase.has("distance", "angle")
    if undone & ctx.verbs or repeats:  # "make a fist, then open the hand again", "..., then walk 1 m again"
        phrase.left = [slot for slot in phrase.left if slot.data != "times" or slot.children[0] != "again"]
    ctx.verbs.add(verb.type)
    seconds, taking = _time(phrase), phrase.has("taking")
    taken, over = phrase.number("taking"), taking is not None and taking.children[0] == "over"
    if taken and (tempo := phrase.has("tempo")) and str(tempo.children[0]).startswith("slow") == over:
        phrase.take("tempo")  # "slowly over 3 seconds"
    made = _made(ctx, verb, phrase)
    tempo, often = phrase.one("tempo"), phrase.has("times")
    times = phrase.times()
    phrase.done()
    ctx.last = [*named, *(part for part in ctx.last if part not in named)]  # "touch the box and the ball"
    made = [_bounded(phrase, clause) for clause in made] if phrase.bound else made
    if several := [slot for slot in (taking, tempo, often) if slot is not None][1:]:
        raise phrase.unread(several[0])
    if taken:
        if not made or any(cl.row in _ENDLESS or (cl.row is c.travel and not cl["distance"]) for cl in made):
            raise phrase.unread(taking, f"needs what ends, and {phrase.verb!r} does not here; say for how long")
        made = _taking(ctx, made, taken, over)
    elif times is not None:  # "squat twice"
        if not made or not all(_repeats(clause, times) for clause in made):
            raise phrase.unread(often)
        made = [ctx.clause(c.repeated, what=clause, times=times) for clause in made]
    elif tempo:  # of a limb, a hand or an object
        if not made or any(cl.row in (*_ENDLESS, *_BEATS, c.travel) for cl in made):
            raise phrase.unread(tempo)
        slow = str(tempo.children[0]).startswith("slow")
        made = _taking(ctx, made, _SLOWLY_S if slow else _QUICKLY_S, slow, "slowly" if slow else "quickly")
    if seconds:
        made = [*made, ctx.clause(c.lasts, s=seconds)]
    if not made and verb.type not in _MAY_SAY_NOTHING:
        raise NotRead(str(verb), "asks for nothing that can be measured here", verb.start_pos or 0)
    return made


def _gently(phrase: Phrase, verb: lark.Token) -> None:
    """Take "gently" as "slowly", but of what presses on something: no measure knows how hard. Raises NotRead."""
    slow = lark.Tree("tempo", [lark.Token("TEMPO", "slowly")])
    for i, slot in enumerate(phrase.left):
        if slot.data == "tempo" and str(slot.children[0]) in _GENTLE:
            if verb.type in _PRESSES:
                raise phrase.unread(slot, "says how hard, which is not measured; say slowly")
            phrase.left[i] = slow


def _time(phrase: Phrase) -> float | None:
    """Take for how many seconds it lasts; None if it is not said."""
    seconds = phrase.number("duration")
    if phrase.bound and phrase.bound not in _LEAST:
        raise NotRead(phrase.bound, "says nothing that is understood of a time", len(phrase.text))
    phrase.lasts, phrase.bound = seconds is not None, ""
    return seconds


def _made(ctx: Context, verb: lark.Token, phrase: Phrase) -> list[Clause]:
    if verb.type in _ON_LEGS and ctx.scene.limbless and not (verb.type == "STEP" and ctx.scene.flies):
        raise phrase.no("needs legs, and this body has no joints but those of wheels or propellers")
    if verb in _IN_AIR and ctx.scene.stands and not ctx.scene.flies:
        raise phrase.no("is not possible: no motors of this body carry it through the air")
    stops = verb.type == "STAY" and verb not in ("stay", "remain") and not ctx.begins
    goes = phrase.has("gap", "within") and (verb.type == "STAND" or stops)
    return _VERBS["TRAVEL" if goes else verb.type](ctx, phrase)  # "stand in front of the ball"


def _excluding(ctx: Context, verb: lark.Token, slots: list[Tree]) -> list[Clause]:
    """Return the clauses of what should not happen: "without turning", or by more than 10 degrees."""
    if verb.type == "MOVE" and [slot.data for slot in slots] == ["thing"]:  # "do not move the arms"
        return in_place(ctx, Phrase(ctx.text, str(verb), slots))
    if verb.type == "RELEASE":  # "without dropping it"
        return hold(ctx, Phrase(ctx.text, str(verb), slots))
    amounts = [slot for slot in slots if slot.data in _AMOUNT_SLOTS]
    most = Phrase(ctx.text, str(verb), amounts)
    allowed = most.number("distance", "angle")
    if most.left or (amounts and most.bound != "more than"):
        raise NotRead(str(verb), "cannot be excluded by an amount", verb.start_pos or 0)
    sided = any(slot.data == "direction" for slot in slots)
    slots = [slot for slot in slots if slot not in amounts and not _as_it_is(slot, verb)]
    phrase, balance, lowest = Phrase(ctx.text, str(verb), slots, excluded=True), ctx.balance, ctx.lowest
    ctx.verbs.add(verb.type)
    seconds, made = _time(phrase), _made(ctx, verb, phrase)
    phrase.done()
    ctx.balance, ctx.lowest, ctx.moved.leaned = (True if verb.type == "FALL" else balance), lowest, []
    degrees = any(slot.data == "angle" for slot in amounts)
    if allowed and any(clause.measure.metric.endswith("_rad") != degrees for clause in made):
        raise NotRead(
            str(verb), "cannot be excluded by this amount: its measure has another unit", verb.start_pos or 0
        )
    made = [] if verb.type == "FALL" else [_never(ctx, clause, verb, sided, allowed) for clause in made]
    return [*made, ctx.clause(c.lasts, s=seconds)] if seconds else made


def _going_on(ctx: Context, tree: Tree, said: list[Tree]) -> list[Tree]:
    """Return what is said of the verb before, with the thing it acted on if no other one is. Raises NotRead."""
    if ctx.verb is None or ctx.verb.type not in _GOES_ON:
        raise NotRead(ctx.span(tree), "has no verb", span(tree, ctx.text)[1])
    if ctx.verb.type == "PUT" and len(said) < 2:
        raise NotRead(ctx.span(tree), "is a second place, or has none", span(tree, ctx.text)[1])
    if ctx.thing is not None and not any(child.data == "thing" for child in said):
        return [ctx.thing, *said]  # "rotate joint1 by 30 degrees, then by 10 degrees"
    return said


def _taking(ctx: Context, made: list[Clause], s: float, over: bool, tempo: str = "") -> list[Clause]:
    """Return clauses that should be done within `s` seconds, or take about so long, with a tempo so long at least."""
    changes = tuple(cl for cl in made if cl.row is not c.travel and cl.measure.goal != Goal())
    for i, cl in enumerate(made):
        if cl.row is c.travel and (over or cl["distance"] / s > cl["speed"] / _SPARE):
            made[i] = cl.but(speed=float(f"{cl['distance'] / s * (1.0 if over else _SPARE):.2g}"))
    return [*made, ctx.clause(c.takes, s=s, over=over, tempo=tempo, what=changes)]


def _repeats(clause: Clause, times: int) -> bool:
    """Return whether something can be done and undone several times."""
    known = dict(clause.given)
    return clause.row in _REPEATED and times > 1 and known.get("to") is None and not known.get("opens")


def _bounded(phrase: Phrase, clause: Clause) -> Clause:
    """Return a clause of which the amount is a bound. Raises NotRead."""
    goal = clause.measure.goal
    if clause.row in (c.stay, c.near, c.gripped):
        return clause
    if not (goal.low > 0 and np.isfinite(goal.high)):
        raise NotRead(phrase.bound, f"says nothing that is understood of {phrase.verb!r}", len(phrase.text))
    return replace(clause, bound=1 if phrase.bound in _LEAST else -1)


def _is_posture(said: Sequence[Tree]) -> bool:
    """Return whether what is said of a thing without a verb is a posture: "hands above the head", not "face left"."""
    sideways = len(said) == 1 and said[0].data == "direction" and str(said[0].children[-1]) in ("left", "right")
    return len(said) == 1 and said[0].data in ("state", "direction", "path", "place", "extent") and not sideways


def _as_it_is(slot: Tree, verb: lark.Token) -> bool:
    """Return whether a slot asks for what the verb does anyway: to raise something high, or off the ground."""
    if slot.data == "extent" and verb.type in ("KEEP", "STAY"):
        return False
    said = re.sub(r" (?:the|a|its) ", " ", str(slot.children[0])) if slot.data == "extent" else ""
    return verb.type in _EXTENTS.get(said, ()) and (verb.type != "DESCEND" or verb == "land")


def _never(ctx: Context, clause: Clause, verb: lark.Token, sided: bool, most: float | None) -> Clause:
    """Return that a clause should not be so; most: how much of it is allowed, in rad or m."""
    if clause.row is c.travel:
        ctx.stops = str(verb)
        return ctx.clause(c.stay, within=most)
    if most and (clause.row not in _NEVER or clause.row in (c.near, c.over, c.waves)):
        raise NotRead(str(verb), "cannot be excluded by an amount", verb.start_pos or 0)
    if clause.row is c.near and clause["any_part"]:
        shapes = ctx.scene.surface, *ctx.scene.extent(clause["other"])
        return ctx.clause(c.untouched, thing=clause["other"], shapes=shapes)
    said = dict(clause.given)
    if clause.row is c.bent and clause["sign"] < 0 and not clause["to"]:  # "without straightening the knee"
        return ctx.clause(c.never, what=clause.but(to=None), both=False, most=most)
    if any(said.get(name) is not None for name in _AMOUNTS) or said.get("exact"):
        raise NotRead(str(verb), "cannot be excluded by an amount", verb.start_pos or 0)
    if clause.row not in _NEVER:
        raise NotRead(str(verb), "cannot be excluded", verb.start_pos or 0)
    both = clause.row is c.joint or (clause.row is c.turn and not sided)
    if str(verb) == "change height":
        both, most = True, _LEVEL
    return ctx.clause(c.never, what=clause, both=both, most=most)
