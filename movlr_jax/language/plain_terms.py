"""Reward terms for any model: something is to be somewhere, a body is to move or stand, a posture is to be kept."""

from __future__ import annotations

from movlr_jax.language.term import Term, tuple_of
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import identifier, place_text, reached_by


def plain_terms(task: Task) -> list[Term]:
    """For a task that is about no object and no walker; within a kind the most useful first."""
    terms, reached = [], reached_by(task.layout, task.goals)
    for thing, goal in reached.items():
        terms += _reach_terms(thing, goal, task)
    if "velocity" in task.goals:
        terms += _mover_terms(task.adapter.root)
    if task.adapter.planned_joints and not reached:
        joints = tuple_of(task.adapter.planned_joints)
        moved = f"sum((state.q(j) - state.initial.q(j)) ** 2 for j in {joints})"
        terms.append(Term("posture", "balance", 0.5, f"-{moved}"))
    terms.append(Term("calm", "steady", 0.3, "-jnp.mean(jnp.square(state.qvel))"))
    return terms


def _reach_terms(thing: str, goal: str, task: Task) -> list[Term]:
    name = identifier(thing)
    distance = f'jnp.linalg.norm({place_text(task.layout, thing)} - state.goal("{goal}"))'
    terms = [
        Term(f"{name}_distance", "place", 100.0, f"-shaping.smooth_abs({distance})"),
        Term(f"{name}_arrival", "place", 10.0, f"shaping.gaussian({distance}, 0.05)"),
        Term(f"{name}_nearing", "place", 5.0, f"shaping.gaussian({distance}, 0.3)"),
    ]
    if thing in task.layout.bodies:
        still = f'-shaping.smooth_abs(jnp.linalg.norm(state.vel("{thing}")))'
        terms.append(Term(f"{name}_still", "steady", 2.0, still))
    return terms


def _mover_terms(root: str) -> list[Term]:
    pos, begun = f'state.pos("{root}")', f'state.initial.pos("{root}")'
    turn = f'shaping.rotation_error(state.rot("{root}"), state.initial.rot("{root}"))'
    lost = 'state.com_vel[0] - state.goal("velocity")[0]'
    return [
        Term("speed", "forward", 3.0, f"-shaping.smooth_abs({lost})"),
        Term("height", "height", 10.0, f"-shaping.smooth_abs(({pos} - {begun})[2])"),
        Term("level", "upright", 3.0, f"-shaping.smooth_abs({turn})"),
        Term("drift", "straight", 1.0, f"-shaping.smooth_abs(({pos} - {begun})[1])"),
    ]
