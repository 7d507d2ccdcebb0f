"""Reward terms for any model: reach a target position, move or stand, keep a posture."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np

from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.biomech.world import EARTH
from movlr_jax.language.scene import names_in
from movlr_jax.models.derived import travels
from movlr_jax.rewards.term import Term, along, axis_text, identifier, quoted, tuple_of
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import place_text, reached_by
from movlr_jax.tasks.words.measure import Subject, distance_terms, upright_terms

_MOST_JOINTS = 12  # joints with terms, if the description names none
_MOST_PLACES = 3  # with terms for the distance of each two
_LOAD = 0.25  # contact force scale, as a fraction of the model's weight


def plain_terms(task: Task) -> list[Term]:
    """Return the terms of a task without object and walker, the most useful of each kind first."""
    terms, reached = [], reached_by(task.layout, task.goals)
    for thing, goal in reached.items():
        terms += _reach_terms(thing, goal, task)
    motion = task.scoring.motion
    moves = bool(motion and motion.moves)
    if motion and motion.asks:
        terms += motion.terms()
    elif not reached and (ways := _ways(task)):
        world, root = task.layout.world, task.adapter.root
        of = Subject(root, tuple(world.up.tolist()), level=world.level is not None)
        terms += [*map(_way_term, ways), *upright_terms(of, turns=False)]
    if not reached:
        terms += _between_terms(task)
    if task.adapter.planned_joints and not reached:
        joints = tuple_of(task.adapter.planned_joints)
        moved = f"sum((state.q(j) - state.initial.q(j)) ** 2 for j in {joints})"
        terms.append(Term("posture", "balance", 0.1 if moves else 0.5, f"-{moved}"))
    # a small weight for moving tasks, since motion needs fast joints
    terms.append(Term("calm", "steady", 0.01 if moves else 0.3, "-jnp.mean(jnp.square(state.qvel))"))
    return terms if reached else terms + _joint_terms(task) + _contact_terms(task)


def named_joints(task: Task) -> list[str]:
    """Return the driven joints whose names appear in the description."""
    driven = _driven(task)
    said = names_in(task.description, driven)
    return [joint for joint in driven if joint in said]


def named_places(task: Task) -> list[str]:
    """Return the bodies and sites whose names appear in the description, in its order, without parts that should do
    something else; at least two, or none."""
    names = names_in(task.description, (*task.layout.bodies, *task.layout.sites))
    parts = task.scoring.motion.parts if task.scoring.motion else []
    left = [name for name in names if name not in {part.place for part in parts}]
    return left[:_MOST_PLACES] if len(left) > 1 else []


def _between_terms(task: Task) -> list[Term]:
    """Return terms for the distance of each two places that the description names."""
    terms = []
    for a, b in itertools.combinations(named_places(task), 2):
        places = place_text(task.layout, a), place_text(task.layout, b)
        terms += distance_terms(f"{identifier(a)}_to_{identifier(b)}", *places)
    return terms


def _ways(task: Task) -> list[list[float]]:
    """Return the unit vectors [3] along which the root can travel."""
    ways = np.concatenate([np.eye(3), -np.eye(3)]).tolist()
    return [way for way in ways if travels(task.model, task.adapter.root, way)]


def _way_term(way: list[float]) -> Term:
    """Return the term of travel along a way, for a description that names no direction."""
    axis = axis_text(way).removeprefix("+").replace("-", "minus_")
    return Term(f"along_{axis}", "forward", 3.0, f"jnp.tanh({along('state.com_vel', way)})")


def _driven(task: Task) -> list[str]:
    """Return the joints with one coordinate that are planned joints or that a motor acts on."""
    model = task.model
    on_joint = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT) & enabled_actuators(model)
    driven = [model.joint(int(j)).name for j in model.actuator_trnid[on_joint, 0]]
    places = {joint: place for joint, (place, _) in task.layout.joints.items()}
    single = [j for j in (*task.adapter.planned_joints, *driven) if places[j].stop - places[j].start == 1]
    return list(dict.fromkeys(single))


def _joint_terms(task: Task) -> list[Term]:
    """Return terms for the angle of each joint in both directions and for its speed.

    Their kind is "joint" for joints named in the description, else "spare".
    """
    named = named_joints(task)
    terms = []
    for joint in named or _driven(task)[:_MOST_JOINTS]:
        kind, name = "joint" if named else "spare", identifier(joint)
        turned = f"jnp.tanh(state.q({quoted(joint)}) - state.initial.q({quoted(joint)}))"
        rate = f"jnp.tanh(0.2 * state.qd({quoted(joint)}))"
        terms += [
            Term(f"{name}_high", kind, 2.0, turned),
            Term(f"{name}_low", kind, 2.0, f"-{turned}"),
            Term(f"{name}_fast", kind, 1.0, f"jnp.abs({rate})"),
            Term(f"{name}_calm", kind, 1.0, f"-jnp.square({rate})"),
        ]
    return terms


def _contact_terms(task: Task) -> list[Term]:
    """Return terms that reward or penalise the contact force of each part that can touch something."""
    model = task.model
    weight = _LOAD * float(model.body_mass.sum()) * (task.layout.world.gravity or EARTH)
    able = {model.body(b).name for b in np.unique(model.geom_bodyid[_meets(model)])}
    parts = [part for part in task.layout.touch if able.intersection(task.adapter.touch.get(part, (part,)))]
    terms = []
    for part in parts[:_MOST_JOINTS]:
        load = f"jnp.tanh(state.touch({quoted(part)}) / {weight:.3g})"
        terms += [
            Term(f"{identifier(part)}_down", "spare", 1.0, load),
            Term(f"{identifier(part)}_off", "spare", 1.0, f"-{load}"),
        ]
    return terms


def _meets(model: mujoco.MjModel) -> np.ndarray:
    """Return [ngeom] whether a geom can touch one of another body that is neither parent nor child."""
    weld = model.body_weldid[model.geom_bodyid]
    parent = model.body_weldid[model.body_parentid[weld]]
    one_way = (model.geom_contype[:, None] & model.geom_conaffinity) != 0
    related = (weld[:, None] == weld) | ((parent[:, None] == weld) & (weld != 0))
    meets = ((one_way | one_way.T) & ~(related | related.T)).any(axis=1)
    meets[np.concatenate([model.pair_geom1, model.pair_geom2]).astype(int)] = True
    return meets


def _reach_terms(thing: str, goal: str, task: Task) -> list[Term]:
    name = identifier(thing)
    distance = f"jnp.linalg.norm({place_text(task.layout, thing)} - state.goal({quoted(goal)}))"
    terms = [
        Term(f"{name}_distance", "place", 100.0, f"-shaping.smooth_abs({distance})"),
        Term(f"{name}_arrival", "place", 10.0, f"shaping.gaussian({distance}, 0.05)"),
        Term(f"{name}_nearing", "place", 5.0, f"shaping.gaussian({distance}, 0.3)"),
    ]
    if thing in task.layout.bodies:
        still = f"-shaping.smooth_abs(jnp.linalg.norm(state.vel({quoted(thing)})))"
        terms.append(Term(f"{name}_still", "steady", 2.0, still))
    return terms
