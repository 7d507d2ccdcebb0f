"""Reward terms for a motion that was read from a task description."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from movlr_jax.rewards.term import Term, along, quoted
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
    terms = []
    if motion.way:
        pace, goal = along(velocity, motion.way), 'jnp.linalg.norm(state.goal("velocity"))'
        progress = Term("progress", "forward", 5.0, f"jnp.minimum({pace} / {goal}, 1.0)")
        if motion.exact:  # being too fast is a fault, too
            terms += [Term("speed", "forward", 5.0, f"-shaping.smooth_abs({pace} / {goal} - 1.0)"), progress]
        else:
            terms += [progress, Term("speed", "forward", 3.0, f"-shaping.smooth_abs({pace} - {goal})")]
        if abs(motion.way[2]) < 0.7:
            aside = along(moved, np.cross(UP, motion.way).tolist())
            terms.append(Term("drift", "straight", 1.0, f"-shaping.smooth_abs({aside})"))
    if motion.jump:
        terms += [
            Term("rise", "jump", 3.0 if motion.way else 20.0, f"jnp.maximum({moved}[2], 0.0)"),
            Term("lift", "jump", 2.0, f"jnp.maximum({velocity}[2], 0.0)"),
        ]
    if motion.rise:
        terms.append(Term("raised", "up", 20.0, f"{moved}[2]"))
    if motion.depth:
        share = (
            f" * jnp.sin(jnp.pi * jnp.minimum(state.time / {_CYCLE:g}, 1.0)) ** 2" if motion.returns else ""
        )
        deep = f"-shaping.smooth_abs({moved}[2] + {motion.depth:g}{share})"
        terms.append(Term("depth", "down", 30.0, deep))
    if motion.turn and motion.angle is not None:
        terms.append(Term("heading", "turning", 10.0, f"-shaping.smooth_abs({_off_heading(motion)})"))
    elif motion.turn:
        rate = f"{'-' if motion.turn < 0 else ''}state.angvel({quoted(body)})[2]"
        terms.append(Term("turn_rate", "turning", 3.0, f"jnp.clip({rate}, -2.0, 2.0)"))
    for aim in motion.aims:
        terms += aim.terms()
    if motion.stays:
        terms.append(Term("sway", "steady", 3.0, f"-shaping.smooth_abs(jnp.linalg.norm({velocity}[:2]))"))
    if motion.upright:
        posture = _posture_terms(body, moved, motion.turn != 0)
        terms += [term for term in posture if not (motion.depth and term.kind == "height")]
    return terms


def _off_heading(motion: Motion) -> str:
    """Return the expression for the angle in rad between the heading and the requested one.

    Half a turn to the left and to the right end the same, so for large angles the requested heading turns, too.
    """
    rot = f"(state.rot({quoted(motion.subject)}) @ state.initial.rot({quoted(motion.subject)}).T)"
    yaw, angle = f"jnp.arctan2({rot}[1, 0], {rot}[0, 0])", motion.angle or 0.0
    sign = "-" if motion.turn > 0 else "+"
    if angle <= _AT_ONCE:
        return f"{yaw} {sign} {angle:g}" if angle else yaw
    off = f"{yaw} {sign} jnp.minimum({_RATE:g} * state.time, {angle:g})"
    return f"jnp.arctan2(jnp.sin({off}), jnp.cos({off}))"


def _posture_terms(body: str, moved: str, turns: bool) -> list[Term]:
    rot, begun = f"state.rot({quoted(body)})", f"state.initial.rot({quoted(body)})"
    tilt = f"jnp.arccos(jnp.clip(({rot} @ {begun}.T)[2, 2], -0.999, 0.999))"
    turned = tilt if turns else f"shaping.rotation_error({rot}, {begun})"
    return [
        Term("height", "height", 30.0, f"-shaping.smooth_abs(jnp.minimum({moved}[2], 0.0))"),
        Term("level", "upright", 10.0, f"-shaping.smooth_abs({turned})"),
    ]


def any_way_terms(root: str, ways: Sequence[Sequence[float]]) -> list[Term]:
    """Return terms for all directions in `ways`, for a description that names no direction."""
    return [
        Term(f"along_{_NAMES[axis_text(way)]}", "forward", 3.0, f"jnp.tanh({along('state.com_vel', way)})")
        for way in ways
    ] + _posture_terms(root, f"(state.pos({quoted(root)}) - state.initial.pos({quoted(root)}))", False)
