"""The table of clauses: what a sentence can ask for, and how each is said, measured, judged and rewarded.

A row is a function: its arguments are the body and what the words give, its `Measure` is all the rest, in this order:
the words, the name of the measure and the quantity; the goal and the terms; how the values of a phase count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from itertools import chain, pairwise
from typing import Any, Concatenate, ParamSpec

import numpy as np

from movlr_jax._util.quantities import quantity
from movlr_jax.biomech.world import World
from movlr_jax.rewards.term import Term, along, array_of, identifier, quoted, tuple_of
from movlr_jax.tasks.words.measure import (
    ANGLE,
    LENGTH,
    NEAR,
    SHARE,
    UP,
    Goal,
    Measure,
    Subject,
    Vector,
    about,
    as_it_is,
    distance_terms,
    error,
    integral,
    per_second,
    swings,
    unwrapped,
)  # fmt: skip
from movlr_jax.tasks.words.parts import Part

P = ParamSpec("P")
Row = Callable[Concatenate[Subject, P], Measure]
Surface = tuple[tuple[str, tuple[Vector, ...]], ...]  # bodies with balls (x, y, z, radius) m that fill their shapes
Shapes = tuple[Surface, Vector, float]  # of a body, and half the size [3] m and the radius in m of a thing
Travels = tuple[tuple[str, float, float], ...]  # of joints
VELOCITY = "state.com_vel"  # expression of that of the body [3] m/s
OFF = np.deg2rad(20.0)  # tolerance of a direction
AT_ONCE = 2.5  # rad, greatest angle to turn by for which the requested heading does not move
RATE = 1.5  # rad/s, of a requested heading that moves
_FASTEST = 5.0  # times the usual speed, from which "as fast as possible" scores no more
_SLOWING_S = 1.0  # s before the end of a travel in which it slows down
_BACK = 2.0  # 1/s, of a body that strays: speed of its way back per m
_ASIDE_M, _ASIDE = 0.3, 0.1  # m, or share of the distance, that a travel may end beside its place
_STAYS = 0.3  # m, a body that stays in place is within
CYCLE_S = 2.0  # in which a body goes down and comes up
WAVES_HZ, STEPS_HZ = 1.0, 2.0
JUMPED = 0.05  # m, height of a jump that counts
FAR = Goal(0.1, best=0.5)  # m, of a motion without an amount
# tolerances of a mean speed, as shares: of a travel, in which it starts, and over a distance, after which it stops
SPEED, PACE = 0.2, 0.25
LEANS = np.deg2rad(10.0)  # of a body that leans without an amount
LEAN = "lean"  # what a body changes that tilts as a whole
CLOSED, OPEN = 0.7, 0.2  # shares of their way at which fingers or jaws count as closed, and as open or straight
_SPREAD = 0.01  # m, by which the tips of fingers are farther apart that spread
BENT = Goal(0.35, best=1.5, scale=0.5)  # rad, of a joint without an amount
_AMOUNT = re.compile(r"(\d[\d.]*(?:°| (?:m|cm|mm|rad)\b(?!/)))")
_AMOUNTS = ("by", "to", "amount", "angle", "distance", "depth")  # arguments of rows
SLID = Goal(0.05, best=0.2)  # m, of a slide


@dataclass(frozen=True)
class Clause:
    """What a part of a sentence asks for: a row of the table, and the arguments that the words give."""

    of: Subject
    row: Callable[..., Measure]
    given: tuple[tuple[str, Any], ...] = ()
    bound: int = 0  # 1: its amount is the least that counts, -1: the most

    def __getitem__(self, name: str) -> Any:
        return dict(self.given)[name]

    def but(self, **changes: Any) -> Clause:
        """Return the clause with other arguments."""
        return replace(self, given=tuple({**dict(self.given), **changes}.items()))

    @cached_property
    def measure(self) -> Measure:
        """What it is measured by. Its terms aim beyond a bound, so that noise does not decide."""
        told = self.row(self.of, **dict(self.given))
        if not self.bound:
            return told
        aim = {name: value * (1.0 + self.bound * SHARE) for name, value in self.given if name in _AMOUNTS and value}
        beyond = self.row(self.of, **{**dict(self.given), **aim})
        amount = 0.5 * (told.goal.low + told.goal.high)
        goal = Goal(low=amount) if self.bound > 0 else Goal(SHARE * amount, amount)
        text = _AMOUNT.sub(rf"\1 or {'more' if self.bound > 0 else 'less'}", told.text, count=1)
        return replace(told, text=text, goal=replace(goal, scale=told.goal.scale), terms=beyond.terms)


def clause(of: Subject, row: Row[P], *none: P.args, **given: P.kwargs) -> Clause:
    """Return a clause of a row, with arguments by name."""
    arguments = signature(row).bind(of, **given)
    arguments.apply_defaults()
    return Clause(of, row, tuple(arguments.arguments.items())[1:])


def side(sign: float) -> str:
    return "left" if sign > 0 else "right"


def _by(amount: float | None, metric: str = "m_m", word: str = "by") -> str:
    return "" if amount is None else f" {word} {quantity(amount, metric)}"


def _degrees(angle: float | None, word: str = "by") -> str:
    return "" if angle is None else f" {word} {np.rad2deg(angle):.0f}°"


def _signed(sign: int, expression: str) -> str:
    return expression if sign > 0 else f"-{expression}"


def _counted(times: int, more: float) -> Goal:
    return Goal(times - 0.5, times + more, scale=float(times))


def _grow(name: str, kind: str, amount: float | None, grown: str, weights: tuple[float, float]) -> Term:
    """Return the term of what should grow: to an amount, with the first weight, or as far as it can."""
    if amount is None:
        return Term(name, kind, weights[1], grown)
    return Term(name, kind, weights[0], error(f"{grown} - {amount:.4g}"))


# The whole body.


def travel(
    of: Subject,
    way: Vector,  # unit vector [3] in the world; with `turns` at the start, from where it turns with the body
    speed: float,  # m/s
    word: str,  # "forward", "to the post"
    exact: bool = False,  # whether the sentence gives the speed
    fastest: bool = False,  # as fast as possible, at least at about half of `speed`
    distance: float | None = None,  # m
    turns: bool = False,  # whether `way` turns with the body
    begun: Vector = (0.0, 0.0, 0.0),  # [3] m, where it should be when this phase begins, for its terms
    leads: bool = False,  # whether its velocity is the goal of the task
    tempo: float = 1.0,  # of the usual speed; a success is nearer to it than to the usual one
    gait: str = "",  # the verb, if it says how the limbs move, which no measure knows
) -> Measure:
    """Mean speed along a direction, or the distance covered, less what it ends too far to the side of its place."""
    value = along(of.moved, way)
    covered, fast = integral if turns else as_it_is, _of_tempo(speed, tempo)
    fast = replace(fast, best=_FASTEST * speed) if fastest else fast
    pace = f"jnp.dot({VELOCITY}, {of.turned} @ {array_of(way)})" if turns else along(VELOCITY, way)
    goal = 'jnp.linalg.norm(state.goal("velocity"))' if leads else f"{speed:g}"
    if distance is not None and not turns:
        terms = _arrival_terms(of, way, speed, pace, goal, distance + float(np.dot(begun, way)))
    elif fastest:
        terms = [Term("progress", "forward", 5.0, f"{pace} / {goal}")]
    else:
        terms = [Term("progress", "forward", 5.0, f"jnp.minimum({pace} / {goal}, 1.0)")]
        if exact or tempo < 1.0:  # being too fast is a fault, too
            terms.insert(0, Term("speed", "forward", 5.0, error(f"{pace} / {goal} - 1.0")))
        else:
            terms.append(Term("speed", "forward", 3.0, error(f"{pace} - {goal}")))
    if abs(np.dot(way, of.up)) < 0.7 and not turns:
        aside = np.cross(of.up, way)
        off, moved = float(np.dot(begun, aside)), along(of.moved, aside.tolist())
        strayed = f"({moved} - {off:.4g})" if off else moved
        if distance is None:
            terms.append(Term("drift", "straight", 1.0, error(strayed)))
        else:  # it should arrive there, not only as far away
            aside_speed = along(VELOCITY, aside.tolist())
            terms.append(Term("drift", "place", 5.0, error(f"{aside_speed} + {_BACK:g} * {strayed}")))
            # measured from where the phase begins
            value += f" - jnp.maximum(jnp.abs({moved}) - {max(_ASIDE_M, _ASIDE * distance):g}, 0.0)"
    amount = "" if distance is None else f" {distance:.3g} m"
    frame = ", seen from the body as it turns" if turns else ""
    pacing = "as fast as possible" if fastest else f"at about {speed:.2g} m/s"
    unmeasured = f" ({gait}: read as a speed, the gait is not measured)" if gait else ""
    return Measure(
        f"move {word}{amount} {pacing}{frame}{unmeasured}",
        "progress_m_s" if distance is None else "distance_m", pace if turns else value,
        about(speed, SPEED * speed, fast) if exact and distance is None else about(distance, LENGTH, fast),
        tuple(terms), kind="forward", curve=per_second(covered) if distance is None else covered, counts="end",
        changes="place", state_tells=distance is not None and not turns,
        seconds=1.5 if distance is None else 1.5 * distance / speed + 0.5,  # it has to start and stop
        limit=0.1 if distance is None else 0.3,
    )  # fmt: skip


def pace(of: Subject, way: Vector, speed: float, tempo: float = 1.0) -> Measure:
    """Greatest mean speed in m/s since the beginning of a travel over a distance."""
    asked = Goal((1.0 - PACE) * speed, (1.0 + PACE) * speed, scale=speed)
    slow = Goal(high=_of_tempo(speed, tempo).high, scale=speed)
    return Measure(
        f"mean speed about {speed:.2g} m/s", "pace_m_s", along(of.moved, way),
        asked if tempo == 1.0 else slow if tempo < 1.0 else _of_tempo(speed, tempo),
        kind="forward", curve=per_second(as_it_is), counts="largest",
    )  # fmt: skip


def _of_tempo(speed: float, tempo: float) -> Goal:
    between = 0.5 * (1.0 + 1.0 / tempo) * speed
    low, high = (between, np.inf) if tempo > 1.0 else (0.5 * speed, between if tempo < 1.0 else np.inf)
    return Goal(low, high, best=speed if tempo >= 1.0 else -np.inf, scale=speed)


def _arrival_terms(of: Subject, way: Vector, speed: float, pace: str, goal: str, distance: float) -> list[Term]:
    """Return the terms of a travel that should end at a distance from the start: it slows down in the last second."""
    left = f"({distance:.4g} - {along(of.moved, way)})"
    slowing = f"jnp.clip({pace} / {goal}, -1.0, 1.0) * jnp.tanh({left} / 0.15)"
    wanted = f"jnp.clip({left} / {_SLOWING_S * speed:g}, -1.0, 1.0)"
    return [
        Term("approach", "forward", 5.0, error(f"{pace} / {goal} - {wanted}")),
        Term("progress", "forward", 5.0, slowing),
        Term("remaining", "forward", 10.0, error(left)),
    ]


def turn(of: Subject, sign: int = 1, angle: float | None = None, begun: float = 0.0) -> Measure:
    """Angle in rad about the vertical to one side (1 left, -1 right).

    begun: how far to the left it should have turned when this phase begins, for its terms.
    """
    if angle is None:
        rate = along(f"state.angvel({quoted(of.name)})", [sign * c for c in of.up])
        term = Term("turn_rate", "turning", 3.0, f"jnp.clip({rate}, -2.0, 2.0)")
    else:
        term = Term("heading", "turning", 10.0, error(heading(of, begun + sign * angle)))
    return Measure(
        f"turn {side(sign)}{_degrees(angle)}", "turned_rad", _signed(sign, of.yaw),
        about(angle, np.deg2rad(10.0), Goal(1.0, best=3.0, scale=1.0)), (term,),
        kind="turning", curve=unwrapped, counts="end", changes="heading",
        state_tells=(angle or 0.0) <= AT_ONCE, seconds=1.5 if angle is None else angle / RATE + 0.5,
    )  # fmt: skip


def heading(of: Subject, wanted: float) -> str:
    """Return the expression of the angle in rad between the heading and the requested one, left of the start.

    Half a turn to the left and to the right end the same, so for large angles the requested heading turns, too.
    """
    sign, angle = ("-" if wanted > 0 else "+"), abs(wanted)
    if angle <= AT_ONCE:
        return f"{of.yaw} {sign} {angle:g}" if angle else of.yaw
    off = f"{of.yaw} {sign} jnp.minimum({RATE:g} * state.time, {angle:g})"
    return f"jnp.arctan2(jnp.sin({off}), jnp.cos({off}))"


def face(of: Subject, angle: float, word: str, at: Part | None = None, ahead: Vector = ()) -> Measure:
    """Angle between the heading and a direction, in rad left of the one at the start, or that to a part.

    ahead: unit vector [3] in which the body faces, in its frame; with `at`.
    """
    if at is not None:
        (x, y, _), to = World(np.asarray(of.up)).frame, f"({at.text()} - state.pos({quoted(of.name)}))"
        faced = f"(state.rot({quoted(of.name)}) @ {array_of(ahead)})"
        (a, b), (c, d) = ((along(vector, x), along(vector, y)) for vector in (faced, to))
        off = f"jnp.arctan2({a} * {d} - {b} * {c}, {a} * {c} + {b} * {d})"
        return Measure(
            f"face {word}", "heading_error_rad", f"jnp.abs({off})", Goal(high=OFF, scale=1.0),
            (Term("heading", "turning", 10.0, error(off)),),
            kind="turning", changes="heading", parts=(at,),
        )  # fmt: skip
    off = f"({of.yaw} - {angle:g})" if angle else of.yaw
    return Measure(
        f"face {word} ({_degrees(angle, '').strip()} left)" if angle else "keep its heading",
        "heading_error_rad", f"jnp.abs(jnp.arctan2(jnp.sin({off}), jnp.cos({off})))",
        Goal(high=OFF, scale=1.0), (Term("heading", "turning", 10.0, error(heading(of, angle))),),
        kind="turning", changes="heading",
    )  # fmt: skip


def around(of: Subject, part: Part, sign: int, turns: float, speed: float, radius: float) -> Measure:
    """Angle in rad about the vertical by which the body has gone around a part, 1 counterclockwise, -1 clockwise."""
    (ahead, left, _), now = World(np.asarray(of.up)).frame, f"(state.pos({quoted(of.name)}) - {part.text()})"
    aside = f"{sign} * jnp.cross({array_of(of.up)}, {now}) / ({of.horizontal(now)} + 0.1)"
    return Measure(
        f"go {'counter' * (sign > 0)}clockwise around {part.words}" + f" {turns:g} times" * (turns != 1.0),
        f"around_{part.name}_rad",
        _signed(sign, f"jnp.arctan2({along(now, left)}, {along(now, ahead)})"),
        about(2 * np.pi * turns, ANGLE, Goal()),
        (Term("around", "forward", 5.0, f"jnp.clip(jnp.dot({VELOCITY}, {aside}) / {speed:g}, -1.0, 1.0)"),
         Term("radius", "place", 5.0, error(f"{of.horizontal(now)} - {radius:g}"))),
        kind="forward", curve=unwrapped, counts="end", changes="place", state_tells=False, parts=(part,),
        seconds=3 * np.pi * turns * radius / speed + 0.5,
    )  # fmt: skip


def stay(of: Subject, at: Vector | None = None, within: float | None = None) -> Measure:
    """Greatest horizontal distance from where it began.

    at: [3] m from the start of the episode, where it should stay, for its terms; None if that is not known. within:
    what the distance may be, m.
    """
    if at is None:
        sway = Term("sway", "steady", 3.0, error(of.horizontal(VELOCITY)))
    else:
        strayed = f"({of.moved} - {array_of(at)})" if any(at) else of.moved
        sway = Term("sway", "steady", 6.0, error(of.horizontal(f"({VELOCITY} + {_BACK:g} * {strayed})")))
    return Measure(
        f"stay in place{_by(within, word='within')}", "drift_error_m", of.horizontal(of.moved),
        Goal(high=within or _STAYS, scale=within or _STAYS), (sway,),
        kind="steady", counts="worst", changes="place",
    )  # fmt: skip


def jump(of: Subject, amount: float | None = None, times: int | None = None) -> Measure:
    """Greatest height in m above the start, or how often it jumped.

    An amount is that of each jump, of which those by 90 % of it or more count.
    """
    rose, low = along(of.moved, of.up), JUMPED if amount is None else 0.9 * amount
    rise = f"jnp.maximum({rose}, 0.0)"
    if times is None:
        lift = Term("lift", "jump", 2.0, f"jnp.maximum({along(VELOCITY, of.up)}, 0.0)")
        high = rise if amount is None else f"jnp.minimum({rise}, {amount:g})"
        terms = (Term("rise", "jump", 20.0, high), lift)
    else:
        beat = f"{amount or 0.2:g} * jnp.maximum(jnp.sin({2 * np.pi:.4g} * state.time), 0.0)"
        terms = (Term("rise", "jump", 20.0, error(f"{rise} - {beat}")),)
    return Measure(
        f"leave the ground{_by(amount)}" + ("" if times is None else f" {times} times"),
        "rise_m" if times is None else "jumps",
        # not by walking uphill, nor off a ledge
        rose if of.level else f"jnp.minimum({rose}, {of.risen})",
        about(amount, LENGTH, FAR) if times is None else _counted(times, 0.5), terms,
        kind="jump", curve=as_it_is if times is None else swings(low, up=True), counts="largest",
        changes="height",
    )  # fmt: skip


def risen(of: Subject, sign: int = 1, amount: float | None = None, word: str = "get up") -> Measure:
    """Height in m above the ground that is gained or lost."""
    gained = _signed(sign, of.risen)
    return Measure(
        f"{word}{_by(amount)}", "raised_m" if sign > 0 else "lowered_m", gained,
        about(amount, LENGTH, FAR), (_grow("raised", "up", amount, gained, (20.0, 20.0)),),
        kind="up", changes="height",
    )  # fmt: skip


def at_height(of: Subject, body: str, amount: float, word: str, low: bool = False, least: bool = False) -> Measure:
    """Height in m of a body above the ground.

    low, least: whether `amount` m is the most or the least that it may be, else about what it should be.
    """
    name, height = f"{identifier(body)}_height", f"state.height({quoted(body)})"
    scale, off = max(amount, 0.1), f"{height} - {amount:.4g}"
    most, missed = Goal(high=amount, scale=scale), f"jnp.{'minimum' if least else 'maximum'}({off}, 0.0)"
    return Measure(
        word, "height_m" if body == of.name else f"{name}_m", height,
        most if low else Goal(amount, scale=scale) if least else about(amount, LENGTH, most),
        (Term(name, "height", 20.0, error(missed if low or least else off)),),
        kind="height", changes="height",
    )  # fmt: skip


def squat(
    of: Subject, depth: float, returns: bool = False, exact: bool = False, legs: Travels = (), repeats: int = 1
) -> Measure:
    """How far in m it goes down, or down and up again, the smaller one.

    exact: whether the sentence gives the depth. legs: joints of straight legs with their values in rad at the start
    and down there. repeats: how often it returns, for its terms.
    """
    swing = f" * jnp.sin(jnp.pi * jnp.minimum(state.time / {CYCLE_S:g}, {repeats:.1f})) ** 2" * returns
    bends = ", ".join(f"state.q({quoted(name)}) - {a:.3g} - {b - a:.3g}{swing}" for name, a, b in legs)
    return Measure(
        f"go down by {100 * depth:.0f} cm{' and come up again' * returns}",
        "down_and_up_m" if returns else "down_m", f"-{of.risen}",
        about(depth if exact else None, LENGTH, Goal(0.7 * depth, best=depth, scale=depth)),
        (Term("depth", "down", 30.0, error(f"{of.risen} + {depth:g}{swing}")),
         *([Term("legs", "joint", 3.0, f"-jnp.mean(jnp.abs(jnp.array([{bends}])))")] * bool(legs))),
        kind="down", counts="returned" if returns else "held", changes="height",
    )  # fmt: skip


def steps(of: Subject, left: Part, right: Part, high: float = 0.05) -> Measure:
    """How often per second one of the feet is lifted.

    high: m; a lower step does not count.
    """
    apart = along(f"({left.text()} - {right.text()})", of.up)
    swing = f"{1.5 * high:.3g} * jnp.sin({np.pi * STEPS_HZ:.4g} * state.time)"
    return Measure(
        "lift the feet in turn", "steps_hz", apart,
        Goal(0.5 * STEPS_HZ, best=STEPS_HZ, scale=STEPS_HZ),
        (Term("steps", "part", 20.0, error(f"{apart} - {swing}")),),
        curve=per_second(swings(1.6 * high)), counts="end", parts=(left, right),
    )  # fmt: skip


def lasts(of: Subject, s: float) -> Measure:
    """Longest time in s in which what should be held in a phase, as a posture or a height, is so without a break."""
    goal = Goal(0.95 * s, scale=s)
    return Measure(f"for {s:g} s", "lasted_s", "state.time", goal, kind="steady", counts="largest", seconds=s)


def takes(of: Subject, s: float, over: bool, tempo: str = "", what: tuple[Clause, ...] = ()) -> Measure:
    """Time in s after which a phase is first as it should be.

    over: whether it should take about so long, or with a `tempo` at least; at most otherwise. what: clauses that
    change evenly, for its terms, in the first phase.
    """
    terms, share = list[Term](), f"jnp.minimum(state.time / {s:g}, 1.0)"
    for each in (clause.measure for clause in what if over):
        begin = re.sub(r"\bstate\.(?!initial)", "state.initial.", each.quantity)
        ends = [end for end in (each.goal.low, each.goal.high) if np.isfinite(end)]
        if ends and each.state_tells:
            late = f"{each.quantity} - {begin} * (1.0 - {share}) - {sum(ends) / len(ends):.4g} * {share}"
            terms.append(Term(f"{each.terms[0].name}_pace", each.kind, 40.0, error(late)))
    about_so = Goal(s, scale=s) if tempo else Goal((1.0 - PACE) * s, (1.0 + PACE) * s, scale=s)
    said = f"over {s:g} s{' or more' * bool(tempo)}" if over else f"within {s:g} s"
    said = f"{tempo}, {said}" if tempo else said
    return Measure(
        said, "took_s", "state.time", about_so if over else Goal(high=s, scale=s), tuple(terms),
        kind="steady", counts="end", seconds=s,
    )  # fmt: skip


# Parts, joints and objects.


def raised(
    of: Subject,
    part: Part,
    sign: int = 1,
    amount: float | None = None,  # m
    least: float = LENGTH,  # m, without an amount
    most: float = np.inf,  # m; more does not count for the terms
    weight: float = 20.0,  # of the term without an amount
) -> Measure:
    """Height in m that a part has gained or lost."""
    way, done = ("up", "raised") if sign > 0 else ("down", "lowered")
    height = along(part.moved, [sign * c for c in of.up])
    grown = height if np.isinf(most) else f"jnp.minimum({height}, {most:g})"
    return Measure(
        f"{part.words} {way}{_by(amount)}", f"{part.name}_{done}_m", height,
        about(amount, NEAR, Goal(least, best=min(max(0.5, 2 * least), most), scale=0.2)),
        (_grow(f"{part.name}_{way}", "part", amount, grown, (100.0, weight)),),
        changes=part.name, parts=(part,),
    )  # fmt: skip


def elevated(of: Subject, part: Part, sign: int, angle: float) -> Measure:
    """Angle in rad by which a limb points higher, or lower, than at the beginning."""
    way, done = ("up", "elevated") if sign > 0 else ("down", "lowered")

    def slope(state: str) -> str:
        limb = f"({part.text(state)} - {state}.pos({quoted(part.base)}))"
        return f"jnp.arcsin(jnp.clip({along(limb, of.up)} / (jnp.linalg.norm({limb}) + 1e-6), -1.0, 1.0))"

    turned = _signed(sign, f"({slope('state')} - {slope('state.initial')})")
    return Measure(
        f"{part.words} {way}{_degrees(angle)}", f"{part.name}_{done}_rad", turned,
        about(angle, ANGLE, Goal()), (Term(f"{part.name}_{done}", "part", 10.0, error(f"{turned} - {angle:.4g}")),),
        changes=part.name, parts=(part,),
    )  # fmt: skip


def bent(
    of: Subject,
    part: Part,
    above: str,  # body at whose origin the segment above the joint begins
    below: Vector,  # [3] m, along the segment below the joint, in the frame of its body
    sign: int = 1,
    by: float | None = None,  # rad
    to: float | None = None,  # rad
    still: bool = False,  # whether the segment above should not turn
    least: float = 0.0,  # rad, to which it can be straightened
) -> Measure:
    """Angle in rad by which a knee or elbow is bent, or straightened, or its angle, 0 if it is straight.

    It is straight, sign -1 and to 0, where it is bent by less than what counts as bent, or as near to the end of its
    range, `least`.
    """

    def angle(state: str) -> str:
        up = f"({state}.pos({quoted(above)}) - {state}.pos({quoted(part.place)}))"
        down = f"({state}.rot({quoted(part.place)}) @ {array_of(below)})"
        return f"jnp.arctan2(jnp.linalg.norm(jnp.cross({up}, {down})), -jnp.dot({up}, {down}))"

    way, done = ("bent", "bent") if sign > 0 else ("straight", "straightened")
    straight = sign < 0 and to == 0.0
    asked = by if to is None else least if straight else to
    now = angle("state") if to is not None else _signed(sign, f"({angle('state')} - {angle('state.initial')})")
    term = _grow(f"{part.name}_{way}", "part", asked, now, (10.0, 10.0))
    if still:
        turned = f"shaping.rotation_error(state.rot({quoted(above)}), state.initial.rot({quoted(above)}))"
        kept = f"{term.expression} - 0.5 * shaping.smooth_abs({turned})"
        term = Term(term.name, term.kind, term.weight, kept)
    return Measure(
        f"{part.words} {way}{_degrees(by) or ('' if straight else _degrees(to, 'to'))}",
        f"{part.name}_{done if to is None else 'angle'}_rad", now,
        Goal(high=least + BENT.low, scale=0.5) if straight else about(asked, ANGLE, BENT), (term,),
        changes=part.name, parts=(part,),
    )  # fmt: skip


def joint(
    of: Subject,
    name: str,
    sign: int = 1,
    by: float | None = None,
    to: float | None = None,
    slides: bool = False,
    least: float = 0.0,  # rad or m, without an amount
) -> Measure:
    """Angle or way in rad or m by which a hinge or slide has moved, or its value."""
    now, asked = f"state.q({quoted(name)})", by if to is None else to
    how, word = ("at", "to") if to is not None else ("moved" if slides else "turned", "by")
    moved = now if to is not None else _signed(sign, f"({now} - state.initial.q({quoted(name)}))")
    lower = " to lower values" if sign < 0 and asked is None else ""
    metric = f"{identifier(name)}_{how}_{'m' if slides else 'rad'}"
    amount, free = _by(None if asked is None else sign * asked, metric, word), SLID if slides else BENT
    free = replace(free, low=least or free.low)
    return Measure(
        f"joint {name} {'moves' if slides else 'turns'}{amount}{lower}", metric, moved,
        about(asked, NEAR if slides else ANGLE, free),
        (_grow(f"{identifier(name)}_turned", "joint", asked, moved, (20.0, 5.0)),),
        kind="joint", changes=name,
    )  # fmt: skip


def still(of: Subject, words: str, joints: tuple[str, ...]) -> Measure:
    """Greatest angle in rad by which one of several hinges has moved."""
    moved = (f"state.q({quoted(name)}) - state.initial.q({quoted(name)})" for name in joints)
    name, most = identifier(words), f"jnp.max(jnp.abs(jnp.array([{', '.join(moved)}])))"
    return Measure(
        f"{words} still", f"{name}_still_error_rad", most,
        Goal(high=0.2, scale=0.2), (Term(f"{name}_still", "joint", 10.0, error(most)),),
        kind="joint", counts="worst",
    )  # fmt: skip


def pointed(
    of: Subject,
    part: Part,
    way: Vector = UP,
    word: str = "upright",
    axis: Vector | None = None,
    at: Part | None = None,
    by: float | None = None,
) -> Measure:
    """Angle in rad between a direction in the world, or that to another part, and a limb or an axis of a body.

    axis: [3], in the frame of the body; None for a limb, which is level by its angle to the horizontal. by: rad, of
    the turn from the start that brings a limb to `way`.
    """
    name = f"{part.name}_{word.replace(' ', '_')}"
    if axis is None:  # from where the limb begins to its end
        limb = f"({part.text()} - state.pos({quoted(part.base)}))"
        size = f"(jnp.linalg.norm({limb}) + 1e-6)"
    else:
        limb, size = f"(state.rot({quoted(part.place)}) @ {array_of(axis)})", ""
    there = f"({at.text()} - state.pos({quoted(part.base)}))" if at else ""
    reached = f"jnp.dot({limb}, {there}) / (jnp.linalg.norm({there}) + 1e-6)" if at else along(limb, way)
    cosine, level = f"jnp.clip({f'{reached} / {size}' if size else reached}, -1.0, 1.0)", word == "level" and not axis
    off = f"jnp.abs(jnp.arcsin({cosine}))" if level else f"jnp.arccos({cosine})"
    near = OFF if by is None else about(by, ANGLE, Goal()).high - by
    return Measure(
        f"{part.words} {word}{_degrees(by)}",
        f"{part.name}_{'tilt' if word in ('upright', 'level') else 'direction'}_error_rad", off,
        Goal(high=near, scale=0.5),
        (Term(name, "part", 10.0, error(off)) if axis or level or by else Term(name, "part", 20.0, reached),),
        changes=part.name, parts=(part, at) if at else (part,),
    )  # fmt: skip


def near(
    of: Subject,
    part: Part,
    other: Part,
    within: float,  # m, so that they touch
    must: bool = True,  # False: only on the way to something else
    apart: bool = False,
    once: bool = False,
    any_part: bool = False,  # whether the words say no part, so that none touches it where they exclude that
    shapes: Shapes | None = None,  # of a part with what hangs on it, and of the other one
    gap: float | None = None,  # m between their surfaces, if the words say how near
) -> Measure:
    """Distance in m between a part and another one, or between their surfaces.

    apart: whether it should be greater than `within`. once: whether the least distance of the phase counts.
    """
    word = "to" if not must else "away from" if apart else "meets" if once else "at"
    word = word if gap is None else f"within {quantity(gap, 'gap_m')} of"
    name, distance = f"{part.name}_to_{other.name}", f"jnp.linalg.norm({part.text()} - {other.text()})"
    terms = [Term(f"{name}_apart", "place", 20.0, f"jnp.minimum({distance}, {within:g})")]
    terms = terms if apart else distance_terms(name, part.text(), other.text())
    goal = Goal(within, scale=0.1) if apart else Goal(high=within, scale=0.2)
    return Measure(
        f"{part.words} {word} {other.words}",
        f"{name}_{'gap' if shapes else 'distance' if apart else 'error'}_m",
        _gap(other, *shapes) if shapes else distance, goal if must else Goal(), tuple(terms),
        kind="place", changes=part.name, parts=(part, other), limit=within, counts="least" if once else "held",
    )  # fmt: skip


def over(
    of: Subject,
    part: Part,
    other: Part,
    at: Vector,  # [3] m from the other one, for its terms
    low: Vector,  # [3] m, the least from the other one
    high: Vector,
    within: float,  # m
    gap: float | None = 0.0,  # m between their surfaces, less than 0 below; None if no amount is said
    word: str = "on",
) -> Measure:
    """Distance in m between a part and the nearest place on, above or below another one."""
    apart, name = f"({part.text()} - {other.text()})", f"{part.name}_{word}_{other.name}"
    distance = f"jnp.linalg.norm({apart} - jnp.clip({apart}, {array_of(low)}, {array_of(high)}))"
    return Measure(
        f"{part.words} {_by(abs(gap), word='').strip() + ' ' if gap else ''}{word} {other.words}",
        f"{name}_error_m", distance, Goal(high=within, scale=0.2),
        tuple(distance_terms(name, part.text(), f"({other.text()} + {array_of(at)})")),
        kind="place", changes=part.name, parts=(part, other), limit=within,
    )  # fmt: skip


def _gap(thing: Part, surface: Surface, half: Vector, radius: float) -> str:
    """Return the expression of the least distance in m between the surfaces of bodies and of a thing.

    half: [3] m, half the size of a box, 0 of a ball, which has a radius in m.
    """
    gaps, turned = list[str](), f" @ state.rot({quoted(thing.place)})"
    for body, balls in surface:
        centres = f"jnp.array([{', '.join(array_of(ball[:3]) for ball in balls)}])"
        at = f"(state.pos({quoted(body)}) + {centres} @ state.rot({quoted(body)}).T - {thing.text()})"
        if any(half):
            at = f"jnp.maximum(jnp.abs({at}{turned}) - {array_of(half)}, 0.0)"
        gaps.append(f"jnp.min(jnp.linalg.norm({at}, axis=-1) - {array_of([ball[3] for ball in balls])})")
    return f"(jnp.min(jnp.array([{', '.join(gaps)}])) - {radius:.4g})"


def untouched(of: Subject, thing: Part, shapes: Shapes) -> Measure:
    """Least distance in m at any time between the surface of a body and that of a thing.

    The term knows only the frames of the bodies, for a program that can be read.
    """
    surface, half, radius = shapes
    apart, wide = f"jnp.linalg.norm(state.pos(body) - {thing.text()})", radius + max(half) + 0.1
    near_it = f"-sum(shaping.gaussian({apart}, {wide:.3g}) for body in {tuple_of([body for body, _ in surface])})"
    return Measure(
        f"never touch {thing.words}", f"{thing.name}_gap_m", _gap(thing, *shapes),
        Goal(0.0, scale=0.1), (Term(f"{thing.name}_gap", "place", 10.0, near_it),),
        kind="place", counts="worst", parts=(thing,),
    )  # fmt: skip


def above(
    of: Subject, part: Part, other: Part, sign: int = 1, amount: float | None = None, least: float = 0.0
) -> Measure:
    """Height in m of a part above another one, or below it, wherever they are.

    amount: 0 for the same height. least: that counts where no amount is said, to be above the top of the other one.
    """
    higher = along(f"({part.text()} - {other.text()})", [sign * c for c in of.up])
    word, level = "above" if sign > 0 else "below", amount == 0.0
    wanted = least + LENGTH if amount is None else amount
    off = f"{higher} - {wanted:.4g}"
    reach = error(f"jnp.minimum({off}, 0.0)" if amount is None else off)
    where = "at the height of" if level else f"{_by(amount, word='').strip()} {word}".strip()
    return Measure(
        f"{part.words} {where} {other.words}", f"{part.name}_{word}_{other.name}_m", higher,
        about(amount, 2 * LENGTH if level else LENGTH, Goal(least, best=wanted, scale=0.2)),
        (Term(f"{part.name}_{word}", "part", 20.0, reach),),
        changes=part.name, parts=(part, other),
    )  # fmt: skip


def leaned(
    of: Subject,
    part: Part,
    word: str,  # "forward"
    way: Vector,  # unit vector [3] that points there at the start, in the frame of the body
    upright: Vector,  # unit vector [3] that is vertical at the start, in the frame of the body
    angle: float | None = None,  # rad
) -> Measure:
    """Angle in rad by which a body is tilted to one side of where it faces, against gravity; 0 at the start."""
    rot = f"state.rot({quoted(part.place)})"
    sunk, rises = (along(f"({rot} @ {array_of(axis)})", of.up) for axis in (way, upright))
    tilt = f"jnp.arctan2(-{sunk}, {rises})"
    return Measure(
        f"{part.words} upright again" if angle == 0.0 else f"{part.words} leans {word}{_degrees(angle)}",
        f"{part.name}_lean_{word}_rad", tilt,
        about(angle, ANGLE, Goal(LEANS, best=0.6, scale=0.5)),
        (_grow(f"{part.name}_lean", "part", angle, tilt, (40.0, 20.0)),),
        changes=LEAN if part.place == of.name else f"{part.name}_lean", parts=(part,),
    )  # fmt: skip


def closed(
    of: Subject,
    words: str,
    digits: tuple[Travels, ...],
    opens: bool = False,
    share: float | None = None,
    thumb: Travels = (),  # that keeps out of the way of a fist
) -> Measure:
    """Least share of their way to a fist that fingers have bent, or jaws have closed; greatest of a joint if open.

    digits: of each, the joints with values in rad or m where it is straight, or the jaw open, and where it is closed.
    share: how far of its way it opens or closes; None: it counts as open or closed.
    """

    def shares_of(joints: Travels) -> str:
        return f"jnp.array([{', '.join(f'(state.q({quoted(n)}) - {a:.4g}) / {b - a:.4g}' for n, a, b in joints)}])"

    name, every = identifier(words), shares_of(tuple(chain.from_iterable(digits)))
    fingers = ", ".join(f"jnp.mean({shares_of(joints)})" for joints in digits)
    end = "closed" if not opens else "open" if words.endswith(("hand", "gripper")) else "straight"
    wanted = float(not opens) if share is None else 1.0 - share if opens else share
    low, high = (SHARE, 1.0 - SHARE) if share else (OPEN, CLOSED)
    half = 0.0 < wanted < 1.0
    goal = Goal(high=low, scale=1.0) if opens else Goal(high, best=1.0, scale=1.0)
    worst = f"[jnp.argmax(jnp.abs({every} - {wanted:g}))]"
    return Measure(
        f"{words} {'halfway ' if half else 'fully ' * bool(share)}{end}", f"{name}_closed_fraction",
        f"{every}{worst}" if half else f"jnp.max({every})" if opens else f"jnp.min(jnp.array([{fingers}]))",
        Goal(wanted - SHARE, wanted + SHARE, scale=1.0) if half else goal,
        (Term(f"{name}_closed", "joint", 20.0, f"-jnp.mean(jnp.abs({every} - {wanted}))"),
         *([Term(f"{name}_thumb_out", "joint", 5.0, f"-jnp.mean(jnp.abs({shares_of(thumb)}))")] * bool(thumb))),
        kind="joint", changes=name,
    )  # fmt: skip


def spread(of: Subject, words: str, tips: tuple[Part, ...]) -> Measure:
    """Least of how much farther apart in m than at the start the tips of neighbouring fingers are."""

    def apart(a: Part, b: Part, state: str = "state") -> str:
        return f"jnp.linalg.norm({a.text(state)} - {b.text(state)})"

    gaps = ", ".join(f"{apart(a, b)} - {apart(a, b, 'state.initial')}" for a, b in pairwise(tips))
    name, least = identifier(words), f"jnp.min(jnp.array([{gaps}]))"
    return Measure(
        f"fingers of {words} spread", f"{name}_spread_m", least, Goal(_SPREAD, best=3 * _SPREAD, scale=_SPREAD),
        (Term(f"{name}_spread", "joint", 20.0, f"jnp.tanh({least} / {2 * _SPREAD:g})"),),
        kind="joint", changes=f"{name}_spread", parts=tips,
    )  # fmt: skip


def shifted(
    of: Subject, part: Part, way: Vector | None = None, amount: float | None = None, word: str = "moves"
) -> Measure:
    """Distance in m by which a part or object has moved along a direction, or horizontally in any."""
    moved = along(part.moved, way) if way else of.horizontal(part.moved)
    return Measure(
        f"{part.words} {word}{_by(amount)}", f"{part.name}_moved_m", moved,
        about(amount, NEAR, FAR), (_grow(f"{part.name}_moved", "place", amount, moved, (50.0, 20.0)),),
        kind="place", changes=part.name, parts=(part,),
    )  # fmt: skip


def gripped(
    of: Subject,
    fingers: tuple[str, ...],
    must: bool = True,
    hand: Part | None = None,
    thing: Part | None = None,
    within: float = 0.0,  # m between them, so that it is in the hand
) -> Measure:
    """How many fingers touch something. At least two should, or all of one or two.

    must: False if they only close on the way to something else. thing: what they should touch; fingers that close
    elsewhere, as on each other, do not count.
    """
    grip = f"sum(jnp.tanh(state.touch(finger) / 5.0) for finger in {tuple_of(fingers)}) / {len(fingers)}"
    count = " + ".join(f"1.0 * (state.touch({quoted(finger)}) > 0.05)" for finger in fingers)
    if hand and thing:
        apart = f"jnp.linalg.norm({hand.text()} - {thing.text()})"
        grip, count = f"shaping.gaussian({apart}, {within:g}) * {grip}", f"({apart} < {2 * within:g}) * ({count})"
    return Measure(
        "fingers in contact" if must else "fingers closing", "fingers_in_contact", count,
        Goal(min(2, len(fingers)) - 0.5, scale=1.0) if must else Goal(),
        (Term("grip", "hold", 3.0, grip),),
        kind="hold",
    )  # fmt: skip


def waves(of: Subject, part: Part, trunk: str, left: Vector, far: float = 0.1, times: int | None = None) -> Measure:
    """How often a part has swung to either side and back relative to the trunk, in all or per second."""
    now, begin = (f"({part.text(s)} - {s}.pos({quoted(trunk)}))" for s in ("state", "state.initial"))
    aside, swung = along(f"({now} - {begin})", left), swings(far, each=0.5)  # there and back is one
    rate, speed = 2 * np.pi * WAVES_HZ, along(f"({part.velocity} - state.vel({quoted(trunk)}))", left)
    swing = f"{far * rate:.3g} * jnp.cos({rate:.4g} * state.time)"  # by its speed, as it may swing anywhere
    often = Goal(0.5 * WAVES_HZ, best=WAVES_HZ, scale=WAVES_HZ)
    return Measure(
        f"{part.words} waves" + ("" if times is None else f" {times} times"),
        f"{part.name}_waves{'_hz' if times is None else ''}", aside,
        often if times is None else _counted(times, 0.75),
        (Term(f"{part.name}_waves", "part", 10.0, error(f"{speed} - {swing}")),),
        curve=per_second(swung) if times is None else swung, counts="end",
        seconds=1.5 if times is None else times / WAVES_HZ + 0.5, parts=(part,),
    )  # fmt: skip


def repeated(of: Subject, what: Clause, times: int) -> Measure:
    """How often something was done and undone again: a squat, an arm that rises, a joint that bends."""
    other = what.measure
    between = np.isfinite(other.goal.high)  # an amount
    most = 0.5 * (other.goal.low + other.goal.high) if between else max(other.goal.low, min(other.goal.best, 1.0))
    swing = f"{most:.4g} * jnp.sin(jnp.pi * jnp.minimum(state.time / {CYCLE_S:g}, {times})) ** 2"
    term = Term(f"{other.terms[0].name}_times", other.kind, 30.0, error(f"{other.quantity} - {swing}"))
    return Measure(
        f"{other.text} and back, {times} times", f"{other.metric.rpartition('_')[0]}_times", other.quantity,
        _counted(times, 0.75), what.but(returns=True, repeats=times).measure.terms if what.row is squat else (term,),
        kind=other.kind, curve=swings(other.goal.low, each=0.5), counts="end", seconds=CYCLE_S * times + 0.5,
        parts=other.parts,
    )  # fmt: skip


def never(of: Subject, what: Clause, both: bool = True, most: float | None = None) -> Measure:
    """Greatest value of the measure of what should not happen at any time of a phase.

    both: whether the other way counts, too: to the right, or down. most: how much of it is allowed; None: what counts
    as none.
    """
    other, apart = what.measure, what.row in (near, over)
    sided: Callable[[np.ndarray], np.ndarray] = np.abs if both else lambda x: np.maximum(x, 0.0)
    limit = most or other.limit or {"m": LENGTH, "rad": 0.2}.get(other.metric.rpartition("_")[2], 0.1)
    far, beyond = f"jnp.abs({other.quantity})" if both else other.quantity, f" - {most:g}" if most else ""
    wanted = error(other.quantity if both and not most else f"jnp.maximum({far}{beyond}, 0.0)")
    weight, text = 10.0, "never turn" if both and what.row is turn else f"never {other.text}"
    if what.row is pointed:
        text = f"never {what['part'].words} tilted"
    if apart:
        wanted, weight = f"jnp.minimum({other.quantity}, {2 * limit:g})", 20.0
    return Measure(
        text if not most else f"{text} by more than {quantity(most, other.metric)}",
        f"never_{other.metric}", other.quantity,
        Goal(limit, scale=0.1) if apart else Goal(high=limit, scale=max(limit, 0.1)),
        (Term(f"never_{other.terms[0].name}", other.kind, weight, wanted),),
        kind=other.kind,
        curve=other.curve if apart else lambda values, time: sided(other.curve(values, time)),
        counts="worst", parts=other.parts,
    )  # fmt: skip


# name of the measure of each row, where part, other and joint stand for names of the model
TABLE: dict[str, Callable[..., Measure]] = {
    "progress_m_s or distance_m": travel,
    "pace_m_s": pace,
    "turned_rad": turn,
    "heading_error_rad": face,
    "around_OTHER_rad": around,
    "drift_error_m": stay,
    "rise_m or jumps": jump,
    "raised_m or lowered_m": risen,
    "height_m or BODY_height_m": at_height,
    "down_m or down_and_up_m": squat,
    "steps_hz": steps,
    "lasted_s": lasts,
    "took_s": takes,
    "PART_raised_m or PART_lowered_m": raised,
    "PART_elevated_rad or PART_lowered_rad": elevated,
    "PART_bent_rad, PART_straightened_rad or PART_angle_rad": bent,
    "JOINT_turned_rad, JOINT_moved_m, JOINT_at_rad or JOINT_at_m": joint,
    "PART_still_error_rad": still,
    "PART_direction_error_rad or PART_tilt_error_rad": pointed,
    "PART_to_OTHER_error_m, PART_to_OTHER_distance_m or PART_to_OTHER_gap_m": near,
    "PART_on_OTHER_error_m, PART_above_OTHER_error_m or PART_below_OTHER_error_m": over,
    "OTHER_gap_m": untouched,
    "PART_above_OTHER_m or PART_below_OTHER_m": above,
    "PART_lean_WAY_rad": leaned,
    "PART_closed_fraction": closed,
    "PART_moved_m": shifted,
    "fingers_in_contact": gripped,
    "PART_waves_hz or PART_waves": waves,
    "MEASURE_times": repeated,
    "never_MEASURE": never,
}


def measures() -> list[str]:
    """Return a line for each clause: the name of its measure, and what it is."""
    return [f"{name}: {' '.join(str(row.__doc__).split('.')[0].split())}" for name, row in TABLE.items()]
