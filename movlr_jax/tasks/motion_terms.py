"""Reward terms for a motion that was read from a task description."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from movlr_jax.biomech.world import World
from movlr_jax.rewards.term import Term, along, entry, quoted
from movlr_jax.tasks.aims import UP
from movlr_jax.tasks.base import Motion, axis_text

# the initial program has the best term of each of these kinds
FIRST = ("forward", "jump", "up", "down", "turning", "steady", "height", "upright")
_AT_ONCE = 2.5  # rad, greatest angle to turn by for which the requested heading does not move
_RATE = 1.5  # rad/s, of a requested heading that moves
_CYCLE = 2.0  # s, in which a body goes down and comes up
_NAMES = {"+x": "x", "-x": "minus_x", "+y": "y", "-y": "minus_y", "+z": "z", "-z": "minus_z"}


def motion_terms(motion: Motion, root: str) -> list[Term]:
    """Return the terms for `motion`, the most useful of each kind first."""
    body = motion.subject
    velocity = "state.com_vel" if body == root else f"state.vel({quoted(body)})"
    moved = f"(state.pos({quoted(body)}) - state.initial.pos({quoted(body)}))"
    up, (ahead, left, _) = motion.up, frame_of(motion.up)
    rose = _risen(body, moved, motion.up, motion.level)
    terms = []
    if motion.way:
        pace, goal = along(velocity, motion.way), 'jnp.linalg.norm(state.goal("velocity"))'
        progress = Term("progress", "forward", 5.0, f"jnp.minimum({pace} / {goal}, 1.0)")
        if motion.exact:  # being too fast is a fault, too
            terms += [Term("speed", "forward", 5.0, f"-shaping.smooth_abs({pace} / {goal} - 1.0)"), progress]
        else:
            terms += [progress, Term("speed", "forward", 3.0, f"-shaping.smooth_abs({pace} - {goal})")]
        if abs(np.dot(motion.way, up)) < 0.7:
            aside = along(moved, np.cross(up, motion.way).tolist())
            terms.append(Term("drift", "straight", 1.0, f"-shaping.smooth_abs({aside})"))
    if motion.jump:
        terms += [
            Term("rise", "jump", 3.0 if motion.way else 20.0, f"jnp.maximum({along(moved, up)}, 0.0)"),
            Term("lift", "jump", 2.0, f"jnp.maximum({along(velocity, up)}, 0.0)"),
        ]
    if motion.rise:
        terms.append(Term("raised", "up", 20.0, rose))
    if motion.depth:
        share = (
            f" * jnp.sin(jnp.pi * jnp.minimum(state.time / {_CYCLE:g}, 1.0)) ** 2" if motion.returns else ""
        )
        deep = f"-shaping.smooth_abs({rose} + {motion.depth:g}{share})"
        terms.append(Term("depth", "down", 30.0, deep))
    if motion.turn and motion.angle is not None:
        terms.append(Term("heading", "turning", 10.0, f"-shaping.smooth_abs({_off_heading(motion)})"))
    elif motion.turn:
        rate = along(f"state.angvel({quoted(body)})", [motion.turn * c for c in up])
        terms.append(Term("turn_rate", "turning", 3.0, f"jnp.clip({rate}, -2.0, 2.0)"))
    for aim in motion.aims:
        terms += aim.terms()
    if motion.stays:
        level = f"jnp.linalg.norm({velocity}[:2])"
        if up != UP:
            level = f"jnp.hypot({along(velocity, ahead)}, {along(velocity, left)})"
        terms.append(Term("sway", "steady", 3.0, f"-shaping.smooth_abs({level})"))
    if motion.upright:
        posture = _posture_terms(body, rose, motion.turn != 0, up)
        terms += [term for term in posture if not (motion.depth and term.kind == "height")]
    return terms


def _off_heading(motion: Motion) -> str:
    """Return the expression for the angle in rad between the heading and the requested one.

    Half a turn to the left and to the right end the same, so for large angles the requested heading turns, too.
    """
    rot = f"(state.rot({quoted(motion.subject)}) @ state.initial.rot({quoted(motion.subject)}).T)"
    ahead, left, _ = frame_of(motion.up)
    yaw, angle = f"jnp.arctan2({entry(rot, left, ahead)}, {entry(rot, ahead, ahead)})", motion.angle or 0.0
    sign = "-" if motion.turn > 0 else "+"
    if angle <= _AT_ONCE:
        return f"{yaw} {sign} {angle:g}" if angle else yaw
    off = f"{yaw} {sign} jnp.minimum({_RATE:g} * state.time, {angle:g})"
    return f"jnp.arctan2(jnp.sin({off}), jnp.cos({off}))"


def frame_of(up: Sequence[float]) -> np.ndarray:
    """Return the horizontal axes and up [3, 3] of a world with this `up` [3], as rows."""
    return World(np.asarray(up)).frame


def _risen(body: str, moved: str, up: Sequence[float], level: bool) -> str:
    """Return the expression for how far a body is higher above the ground than at the start, m.

    moved: the expression for the change of its position. level: whether the ground is level everywhere.
    """
    return (
        along(moved, up)
        if level
        else f"(state.height({quoted(body)}) - state.initial.height({quoted(body)}))"
    )


def _posture_terms(body: str, rose: str, turns: bool, up: Sequence[float]) -> list[Term]:
    rot, begun = f"state.rot({quoted(body)})", f"state.initial.rot({quoted(body)})"
    tilt = f"jnp.arccos(jnp.clip({entry(f'({rot} @ {begun}.T)', up, up)}, -0.999, 0.999))"
    turned = tilt if turns else f"shaping.rotation_error({rot}, {begun})"
    return [
        Term("height", "height", 30.0, f"-shaping.smooth_abs(jnp.minimum({rose}, 0.0))"),
        Term("level", "upright", 10.0, f"-shaping.smooth_abs({turned})"),
    ]


def any_way_terms(root: str, ways: Sequence[Sequence[float]], world: World) -> list[Term]:
    """Return terms for all directions in `ways`, for a description that names no direction."""
    moved, up = f"(state.pos({quoted(root)}) - state.initial.pos({quoted(root)}))", world.up.tolist()
    return [
        Term(f"along_{_NAMES[axis_text(way)]}", "forward", 3.0, f"jnp.tanh({along('state.com_vel', way)})")
        for way in ways
    ] + _posture_terms(root, _risen(root, moved, up, world.level is not None), False, up)
