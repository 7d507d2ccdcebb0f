"""The library of reward terms from which the scripted proposer composes programs.

Each term is one expression over `State`, written for the parts and goals of the task.
"""

from __future__ import annotations

import numpy as np

from movlr_jax.evolution.scripted.plain_terms import named_joints, named_places, plain_terms
from movlr_jax.models.actuators import control_scale
from movlr_jax.rewards.term import Term, along, quoted, tuple_of
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import as_share

_OF_MOTION = ("velocity", "heading", "slope", "stride_frequency")  # goals that come with a motion
_GOALS_OF_GAIT = ("velocity", "heading", "slope")
_PARTS_OF_GAIT = ("pelvis", "head", "left_foot", "right_foot", "left_toes", "right_toes")
FINGERS = ("thumb", "index", "middle", "ring", "little")


def library(task: Task) -> dict[str, Term]:
    """Return all terms that the task's model and goals allow, by name."""
    terms: list[Term] = []
    if "object" in task.roles and "object_pos" in task.goals:
        terms += _object_terms(task.roles["object"], task)
    terms += _gait_terms(task)
    if not terms:
        terms += plain_terms(task)
    own = {term.name for term in terms}
    terms += [term for term in (task.scoring.motion.terms() if task.scoring.motion else ()) if term.name not in own]
    terms += _reference_terms(task)
    if len(task.layout.activations) and (task.layout.activations >= 0).all():
        terms.append(Term("effort", "economy", 1.0, "-jnp.mean(jnp.square(state.muscles))"))
    elif task.rewards.controls:  # as in the first program
        terms.append(Term("control", "economy", 1.0, f"-jnp.mean(jnp.square({task.rewards.controls}))"))
    terms.append(Term("smooth", "economy", 1.0, f"-jnp.mean(jnp.square({_changed(task)}))"))
    return {term.name: term for term in terms}


def _changed(task: Task) -> str:
    """Return the expression for the change of the controls, as shares of their range."""
    changed = "action - state.prev_action"
    scale = control_scale(task.model, task.resting(task.start(np.random.default_rng(0), 1)[0][0]))
    return changed if np.allclose(scale, 1.0) else as_share(f"({changed})", scale)


def reading(task: Task) -> str:
    """Return a sentence on how the library interprets the task's description; empty if the goals define the task."""
    motion, who = task.scoring.motion, "the scripted proposer"
    if motion is None:
        return ""
    unknown = f"{who} knows no term for {task.description!r}"
    if motion.asks:
        left = [*motion.unread, *_unread_goals(task)]
        ignored = (
            f"; it has no term for {' and '.join(map(repr, left))}; give a program that has one (reward=...)"
            if left
            else ""
        )
        return f"{who} reads the description as: {motion.text()}{ignored}"
    places, joints = named_places(task), named_joints(task)
    tried = [f"distances between {' and '.join(places)}"] if places else []
    tried += [f"angles and speeds of the joints {', '.join(joints)}"] if joints else []
    if tried:
        return f"{who} tries what the description names: {'; '.join(tried)}"
    return (
        f"{unknown} and tries what the model can do, at random; use llm=..., or in a task of your own write a reward "
        "program (reward= of simple_task) or set a goal '<body>_pos' or 'velocity' (docs/write_a_task.md)"
    )


def _unread_goals(task: Task) -> list[str]:
    """Return the goals of the task that no term of its first program reads."""
    own = [name for name in task.goals if name not in _OF_MOTION]
    return [name for name in own if quoted(name) not in task.rewards.initial]


def _reference_terms(task: Task) -> list[Term]:
    """Return the terms that compare the motion with a recorded one; none without one."""
    joints = [joint for joint, shape in task.layout.references.items() if len(shape) == 1]
    planned = [joint for joint in joints if joint in task.adapter.planned_joints] or joints
    if not planned:
        return []
    near = "shaping.gaussian(state.q(j) - state.reference(j), 0.3)"
    return [Term("recorded", "gait", 20.0, f"sum({near} for j in {tuple_of(planned)}) / {len(planned)}")]


def _object_terms(thing: str, task: Task) -> list[Term]:
    pos, offset = f"state.pos({quoted(thing)})", f'state.pos({quoted(thing)}) - state.goal("object_pos")'
    up = task.layout.world.up.tolist()
    climb = along(f'(state.goal("object_pos") - state.initial.pos({quoted(thing)}))', up)
    rotation = f'shaping.rotation_error(state.rot({quoted(thing)}), state.goal("object_rot"))'
    terms = [  # the most useful of each kind first: the critic advises them in this order
        Term("position", "place", 100.0, f"-shaping.smooth_abs(jnp.linalg.norm({offset}), 0.02)"),
        Term("arrival", "place", 10.0, f"shaping.gaussian(jnp.linalg.norm({offset}), 0.05)"),
        Term(
            "lift",
            "place",
            5.0,
            f"shaping.tolerance({along(f'({offset})', up)}, margin=jnp.maximum(jnp.abs({climb}), 0.05))",
        ),
        Term(  # below zero for a turn above 1.5 rad: it should not arrive first and be turned then
            "pose",
            "turn",
            20.0,
            f"shaping.gaussian(jnp.linalg.norm({offset}), 0.05) * (1.5 - shaping.smooth_abs({rotation}))",
        ),
        Term("orientation", "turn", 10.0, f"-shaping.smooth_abs({rotation})"),
        Term("alignment", "turn", 5.0, f"shaping.gaussian({rotation}, 0.3)"),
        Term("still", "steady", 2.0, f"-shaping.smooth_abs(jnp.linalg.norm(state.vel({quoted(thing)})))"),
        Term("spin", "steady", 0.3, f"-shaping.smooth_abs(jnp.linalg.norm(state.angvel({quoted(thing)})))"),
    ]
    if "palm_site" in task.roles:
        palm = f"state.site({quoted(task.roles['palm_site'])}) - {pos}"
        terms.append(Term("grasp", "hold", 100.0, f"-shaping.smooth_abs(jnp.linalg.norm({palm}), 0.02)"))
    touching = [finger for finger in FINGERS if finger in task.layout.touch]
    if touching:
        grip = f"sum(jnp.tanh(state.touch(finger) / 5.0) for finger in {tuple_of(touching)})"
        terms.append(Term("grip", "hold", 3.0, f"{grip} / {len(touching)}"))
    tips = [task.roles[f"{finger}_site"] for finger in FINGERS if f"{finger}_site" in task.roles]
    if tips:
        reach = f"sum(jnp.linalg.norm(state.site(tip) - {pos}) for tip in {tuple_of(tips)})"
        terms.append(Term("fingers", "hold", 20.0, f"-{reach} / {len(tips)}"))
    return terms


def _gait_terms(task: Task) -> list[Term]:
    """Return the terms, the most useful of each kind first; none if the task has no walker or no goal velocity."""
    if not ({*_GOALS_OF_GAIT} <= {*task.goals} and {*_PARTS_OF_GAIT} <= {*task.roles}):
        return []
    role = task.roles
    pelvis, head = role["pelvis"], role["head"]
    feet = [role[part] for part in ("left_foot", "left_toes", "right_foot", "right_toes")]
    middle = " + ".join(f"state.pos({quoted(foot)})" for foot in feet)
    start = " + ".join(f"state.initial.pos({quoted(foot)})" for foot in feet)
    turned = f"(state.rot({quoted(pelvis)}) @ state.initial.rot({quoted(pelvis)}).T)"
    climb = f'state.goal("slope") * (state.pos({quoted(head)}) - state.initial.pos({quoted(head)}))[0]'
    sunk = f"(state.initial.pos({quoted(head)}) - state.pos({quoted(head)}))[2] + {climb}"
    stance = f"(state.capture_point - state.initial.com[:2] - (({middle}) / 4.0 - ({start}) / 4.0)[:2])"
    ahead = 'jnp.stack([jnp.cos(state.goal("heading")), jnp.sin(state.goal("heading"))])'
    aside = 'jnp.stack([-jnp.sin(state.goal("heading")), jnp.cos(state.goal("heading"))])'
    bent = f"sum((state.q(j) - state.initial.q(j)) ** 2 for j in {tuple_of(task.adapter.planned_joints)})"
    terms = [
        Term("upright", "upright", 200.0, f"-shaping.smooth_abs(1.0 - {turned}[2, 2])"),
        Term("height", "height", 200.0, f"-shaping.smooth_abs({sunk})"),
        # never negative: with penalties alone, a policy learns to fall early
        Term("standing", "height", 200.0, f"shaping.gaussian({sunk}, 0.2)"),
        Term("balance", "balance", 100.0, f"-shaping.smooth_abs(jnp.linalg.norm({stance}))"),
        Term("posture", "upright", 10.0, f"-0.5 * {bent}"),
        Term(
            "sway",
            "steady",
            30.0,
            '-shaping.smooth_abs(jnp.linalg.norm(state.com_vel[:2] - state.goal("velocity")[:2]))',
        ),
        Term(
            "heading",
            "straight",
            20.0,
            f'-shaping.smooth_abs(jnp.arctan2({turned}[1, 0], {turned}[0, 0]) - state.goal("heading"))',
        ),
        Term("lateral", "straight", 30.0, f"-shaping.smooth_abs((state.com - state.initial.com)[:2] @ {aside})"),
    ]
    if float(abs(task.goals["velocity"]).max()) > 0:
        terms += [
            Term(
                "forward",
                "forward",
                100.0,
                f'-shaping.smooth_abs(jnp.linalg.norm(state.vel({quoted(pelvis)})[:2] - state.goal("velocity")[:2]))',
            ),
            Term(
                "progress",
                "forward",
                100.0,
                f'jnp.minimum(state.com_vel[:2] @ {ahead}, jnp.linalg.norm(state.goal("velocity")))',
            ),
        ]
        terms += _step_terms(task, aside)
    return terms


def _step_terms(task: Task, aside: str) -> list[Term]:
    """Return the terms of how the feet move. aside: the direction to the left, as an expression."""
    toes = [task.roles["left_toes"], task.roles["right_toes"]]
    left, right = (f"state.pos({quoted(foot)})" for foot in toes)
    width = Term("width", "gait", 30.0, f"-shaping.smooth_abs(({left} - {right})[:2] @ {aside} - 0.17)")
    if "stride_frequency" not in task.goals:
        return [width]
    rest = f"state.initial.pos({quoted(toes[0])})[2]"
    lift = "0.08 * jax.nn.relu(jnp.sin(2.0 * jnp.pi * state.gait_phase[{side}]))"
    heights = [(left, lift.format(side=0)), (right, lift.format(side=1))]
    swing = " + ".join(f"shaping.smooth_abs({foot}[2] - {rest} - {high}, 0.02)" for foot, high in heights)
    swinging = "jnp.clip(jnp.sin(2.0 * jnp.pi * state.gait_phase[side]) / 0.4, 0.0, 1.0)"
    loaded = "jnp.tanh(state.touch(foot) / 100.0)"
    legs = 'for side, foot in ((0, "left_foot"), (1, "right_foot"))'
    matched = f"1.0 - 0.5 * sum(jnp.abs({swinging} + {loaded} - 1.0) {legs})"
    return [Term("swing", "gait", 50.0, f"-({swing})"), Term("stance", "gait", 50.0, matched), width]
