"""Texts of all messages: one template per file in prompts/, filled from the task and from the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from movlr_jax._util.quantities import ENDS, early
from movlr_jax._util.resources import resource_text
from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.film.muscles import muscle_tendons
from movlr_jax.language.base import Critique, Evaluation, Loss, ProposalRequest
from movlr_jax.language.media import MotionMedia, Seen, with_views
from movlr_jax.language.scene import actuator_facts, joint_facts, scene_facts, start_of, varied_starts
from movlr_jax.models.actuators import muscles
from movlr_jax.records import Trial
from movlr_jax.rewards import shaping
from movlr_jax.rewards.state import state_table
from movlr_jax.rewards.term import axis_text
from movlr_jax.sandbox import facade, graph, limits
from movlr_jax.tasks import Task
from movlr_jax.tasks.words.clauses import measures

# MoVLR's upper bounds on the weights of an edit; of the factor of a change, and of the number of new terms
LIMITS = {"weight_cap": 50, "velocity_cap": 15, "factor": "three", "new_terms": "one or two"}
REFLECTION_POINTS = 10  # values of each term that Eureka's reflection shows
_COURSE = 5  # values of each term that an edit shows
_ANCESTORS = 4  # earlier programs whose weights an edit shows
_DOCSTRING = re.compile(r'\s*[rR]?("""|\'\'\'|"|\')(.*?)\1', re.DOTALL)
_MOST_IDEA = 300  # characters
_TRAVEL = "the time, the speed over the ground and the distance from the start"  # written into pictures
_MOST_NAMES = 80  # of each kind in a message

EXAMPLE = '''"""Stand up straight and bring the right hand to the target."""

WEIGHTS = {"reach": 10.0, "upright": 2.0, "effort": 0.5}


def reward(state, action):
    offset = state.pos("right_hand") - state.goal("target_pos")
    return {
        "reach": -shaping.smooth_abs(jnp.linalg.norm(offset)),
        "upright": state.rot("torso")[2, 2],
        "effort": -jnp.mean(jnp.square(action)),
    }'''

_environment = Environment(
    loader=FunctionLoader(lambda name: resource_text("prompts", name)),
    undefined=StrictUndefined,
    autoescape=False,
    trim_blocks=True,
    lstrip_blocks=True,
)


def fill(template: str, **values: Any) -> str:
    """Render prompts/<template>.md with `values`. Raises jinja2.UndefinedError if a value is missing."""
    return _environment.get_template(f"{template}.md").render(**values).strip()


def system(task: Task, looks_ahead_s: float | None = None, control_s: float | None = None) -> str:
    """Return the system message for program writers: format, allowed code, state, shaping functions and names.

    looks_ahead_s: how far the optimiser plans; control_s: duration of a control step; None: left out.
    """
    return fill(
        "system",
        example=EXAMPLE,
        looks_ahead_s=looks_ahead_s,
        control_s=control_s,
        state_table=[row for row in state_table() if not _without_use(row[0], task)],
        builtins=facade.BUILTINS,
        modules=facade.offered(),
        attributes=facade.ATTRIBUTES.items(),
        entries=f"{limits.MAX_ENTRIES:,}",
        equations=f"{graph.MAX_EQUATIONS:,}",
        turns=f"{graph.MAX_TURNS:,}",
        elements=f"{graph.MAX_ELEMENTS:,}",
        shaping=[_documented(name, function) for name, function in shaping.PUBLIC.items()],
        names=names(task),
        z_up=task.layout.world.z_up,
        sizes=task.layout.sizes,
    )


def names(task: Task) -> str:
    """Return the list of names of the model and scene that a program may use."""
    layout, model, adapter = task.layout, task.model, task.adapter
    start = start_of(task)
    planned = joint_facts(task, start)
    travel = task.scoring.motion and task.scoring.motion.travel
    usual = {"velocity"} if travel and not travel["exact"] else set[str]()
    goals = [
        (name, list(np.shape(value)), np.round(np.asarray(value, float), 3).tolist(), name in usual)
        for name, value in task.goals.items()
    ]
    acts = enabled_actuators(model)
    muscle = muscles(model)
    parts = ((int((acts & muscle).sum()), "muscles"), (int((acts & ~muscle).sum()), "motors"))
    driven = " and ".join(f"{count} {kind}" for count, kind in parts if count)
    return fill(
        "names",
        model=adapter.name,
        body=f"{adapter.info.body or 'a body'} with {driven or 'no actuators'}",
        up=_up(task),
        faces=axis_text(adapter.forward) if adapter.info.body else "",
        sizes=layout.sizes,
        roles=list(task.roles.items()),
        bodies=_listed(layout.bodies),
        joints=_listed([f"{j} ({planned[j]})" if j in planned else j for j in layout.joints if j]),
        actuators=_listed(actuator_facts(task, start)),
        muscles=_listed(layout.muscles) if (np.asarray(layout.activations) >= 0).any() else "",
        groups=[(name, _listed(members)) for name, members in adapter.muscle_groups.items()],
        touch=_listed(layout.touch),
        sites=_listed(layout.sites),
        sensors=_listed(layout.sensors),
        goals=goals,
        references=_listed(layout.references),
        reference_by=layout.reference_by,
        varied=varied_starts(task),
        scene=scene_facts(task, start),
    )


def _up(task: Task) -> str:
    """Return the sentence on what is up in the world of a task."""
    way = axis_text(task.layout.world.up.tolist()).removeprefix("+")
    return f"The world's {way} axis points up" if len(way) < 3 else f"Up, against gravity, is {way} in the world"


def _without_use(call: str, task: Task) -> bool:
    """Return whether a row of the state table means nothing in this task."""
    layout = task.layout
    activated = bool((np.asarray(layout.activations) >= 0).any())
    world = layout.world
    needed = {
        "state.up": not world.z_up,
        "state.height(": not (world.z_up and world.level == 0.0),  # else it is a coordinate
        "state.reference(": layout.references,
        "state.gait_phase": "stride_frequency" in task.goals,
        "state.goal_heading": "heading" in task.goals,
        "state.capture_point": "left_foot" in layout.touch,
        "state.touch(": layout.touch,
        "state.site(": layout.sites,
        "state.sensor(": layout.sensors,
        **dict.fromkeys(("state.activation(", "state.force(", "state.length(", "state.muscles"), activated),
    }
    return any(call.startswith(name) and not present for name, present in needed.items())


def task_text(task: Task) -> str:
    scoring = task.scoring
    return fill(
        "task",
        description=task.description,
        focus=scoring.focus,
        success=scoring.success,
        episode_s=f"{task.episode_s:g}",
    )


def measures_text(task: Task) -> str:
    """Return by what a motion from words is measured, empty for other tasks."""
    motion = task.scoring.motion
    if motion is None or not motion.decides:
        return ""
    unread = () if motion.whole else motion.unread or (task.description,)
    asked = [(name, text, success) for _, text, name, success in motion.table()] if motion.asks else []
    return fill("measures", asked=asked, unread=unread, all=measures())


def shown(media: MotionMedia, task: Task, *motions: Seen) -> str:
    """Describe how the motions are shown, as videos or as pictures, and how long each is."""
    config = media.config
    lengths = [
        {
            # digits as in the pictures
            "seconds": f"{round(motion.seconds, 2):g}",
            "times": ", ".join(f"{round(time, 2):g}" for time in motion.times[:-1]),
            "early": motion.seconds < 0.98 * task.episode_s,
        }
        for motion in motions
    ]
    return fill(
        "shown",
        video=media.mode == "video",
        slow=config.slow,
        views=config.views,
        cameras=[camera.shows for camera in with_views(task, config.views).view.cameras],
        written=_TRAVEL if task.view.cameras[0].track else "the time",
        coloured=len(muscle_tendons(task.model)[0]) > 0,
        weakened=bool(task.view.weakened),
        pictures=[len(motion.media) for motion in motions],
        motions=lengths,
        episode_s=f"{task.episode_s:g}",
    )


def reflection(task: Task, candidate: Evaluation) -> str:
    """Return Eureka's feedback text: term statistics and task score of a candidate, or why it failed."""
    success = candidate.metrics.get("success")
    return fill(
        "eureka_reflection",
        ran=not candidate.failed,
        reason=candidate.reason,
        length_s=f"{task.episode_s:g}",
        terms=statistics(candidate),
        score="none" if candidate.failed else f"{task.scoring.score(dict(candidate.metrics)):.3g}",
        success=None if success is None else bool(success),
    )


def feedback(request: ProposalRequest) -> dict[str, Any]:
    """Return what the request for an edit says: critique and terms of the parent, its ancestors and the others."""
    parent, critique = request.parent, request.critique
    assert parent is not None
    of = {candidate.name: candidate for candidate in request.history}
    ancestors, name = [], parent.parent
    while name in of and len(ancestors) < _ANCESTORS:
        ancestors.append(of[name])
        name = of[name].parent
    return {
        "feedback": (
            critique_text(critique, parent, several=len(request.trials) > 1)
            if critique
            else "Nothing is known about its motion."
        ),
        **trials(request, {"This motion": parent}),
        "ancestors": [_weights(a) for a in reversed(ancestors)],
        "losses": [
            (_idea(loss), _weights(c), loss.reason, labels(c), c.description.get("alignment"))
            for loss in request.losses
            for c in [loss.candidate]
        ],
    }


def trials(request: ProposalRequest, instead: Mapping[str, Trial] | None = None) -> dict[str, Any]:
    """Return what requests say of the trials of a program: terms and measures of the poorest and of the best one.

    instead: motions that are shown where no trials are known, by what they are called.
    """
    told = dict(instead or {})
    if request.trials:
        told = {"The poorest of its trials": request.trials[0], "The best of its trials": request.trials[-1]}
    motions = [{"label": label, **_motion(trial)} for label, trial in told.items()][: max(1, len(request.trials))]
    return {"result": request.result, "ends": _ends(request.trials), "motions": motions}


def _ends(trials: Sequence[Trial]) -> list[tuple[str, str]]:
    """Return when trials ended early, and the range of each measure of the motion at that time."""
    ended = [(trial, trial.metrics[name]) for trial in trials for name in ENDS if name in trial.metrics]
    if not ended:
        return []
    rows: list[tuple[str, Sequence[float | None]]] = [("time_s", [at for _, at in ended])]
    for name in ended[0][0].series:
        curves = [(trial.series.get(name, ()), _until(trial, at)) for trial, at in ended]
        rows.append((name, [curve[last - 1] for curve, last in curves if last <= len(curve)]))
    known = [(name, [v for v in values if v is not None]) for name, values in rows]
    return [(name, f"{min(values):.3g} to {max(values):.3g}") for name, values in known if values]


def _motion(trial: Trial) -> dict[str, Any]:
    """Return the terms and measures of a motion at a few times, and when it ended early."""
    counted = _counted(trial)
    times = trial.curve_time[:counted]
    picked = np.linspace(0, len(times) - 1, _COURSE).round().astype(int) if len(times) else []
    return {
        "times": [f"{times[i]:.2g}" for i in picked],
        "terms": _courses({name: term.get("curve", [])[:counted] for name, term in trial.terms.items()}),
        "measured": _courses({name: curve[:counted] for name, curve in trial.series.items()}),
        "early": early(trial.metrics),
    }


def _counted(trial: Trial) -> int | None:
    """Return how many samples of the curves of a motion come before its environment ended it; None: all."""
    end = trial.metrics.get("terminated_s")
    return None if end is None or not len(trial.curve_time) else _until(trial, end)


def _until(trial: Trial, seconds: float) -> int:
    """Return how many samples of the curves of a motion come until a time, at least one."""
    return max(sum(time <= seconds for time in trial.curve_time), 1)


def _courses(curves: Mapping[str, Sequence[float | None]]) -> list[tuple[str, str]]:
    """Return _COURSE values of each curve, its least, mean and largest one; of those without values nothing."""
    rows = []
    for name, curve in curves.items():
        if known := [value for value in curve if value is not None]:
            picked = [curve[i] for i in np.linspace(0, len(curve) - 1, _COURSE).round().astype(int)]
            course = ", ".join("-" if value is None else f"{value:.3g}" for value in picked)
            rows.append((name, f"{course} ({min(known):.3g}, {np.mean(known):.3g}, {max(known):.3g})"))
    return rows


def direction(generation: int, i: int, n: int) -> str:
    """Return what makes the i-th of n programs that are written in parallel unlike the others."""
    return fill("direction", first=generation == 0, i=i, n=n)


def weight_range(low: float, high: float) -> str:
    return fill("weight_range", low=f"{low:g}", high=f"{high:g}")


def _weights(candidate: Evaluation) -> str:
    return ", ".join(f"`{name}` {weight:g}" for name, weight in candidate.weights.items())


def labels(candidate: Evaluation) -> list[str]:
    """Return the descriptors of a motion with their confidences."""
    seen = candidate.description.get("descriptors", [])
    return [f"{d['region']}: {d['label']} ({d['confidence']:g})" for d in seen]


def _idea(loss: Loss) -> str:
    """Return what the writer of a program said of it, or else how its docstring begins; empty without either."""
    found = _DOCSTRING.match(loss.candidate.source)
    said = " ".join((loss.note or (found[2] if found else "")).split())
    return shorten(said if loss.note else said.partition(". ")[0], _MOST_IDEA, placeholder=" ...").rstrip(".")


def statistics(candidate: Evaluation) -> list[dict[str, Any]]:
    """Return one row of strings per term: samples, maximum, mean and minimum of its weighted values."""
    rows = []
    for name, term in candidate.terms.items():
        known = [v for v in term.get("curve", [])[: _counted(candidate)] if v is not None]
        curve = np.array(known or [term.get("weighted_mean", 0.0)], float)
        picked = curve[np.linspace(0, len(curve) - 1, REFLECTION_POINTS).round().astype(int)]
        rows.append(
            {
                "name": name,
                "course": [f"{v:.3g}" for v in picked],
                "most": f"{curve.max():.3g}",
                "mean": f"{curve.mean():.3g}",
                "least": f"{curve.min():.3g}",
            }
        )
    return rows


def critique_text(critique: Critique, motion: Evaluation, several: bool = False) -> str:
    """Return what a critique says of `motion`; whether it is a success where a critic saw it or a measure says.

    It is empty where the critic found nothing. Advice for a problem that is told already names terms of the scripted
    proposer, which the reader does not have. several: whether the program had other trials, too.
    """
    decided = critique.success or bool(critique.observation) or "success" in motion.metrics
    if not (decided or critique.problems or critique.advice):
        return ""
    advice = [a for a in critique.advice if a.reason not in critique.problems]
    return fill(
        "critique_text", critique=critique, advice=advice, author=critique.author, decided=decided, several=several
    )


def described(best: Evaluation, author: str) -> Critique:
    """Return MotionVL's critique of a motion, from its description and the statistics of its terms."""
    seen = best.description
    success = bool(seen.get("success", best.metrics.get("success", 0.0)))
    problems = [seen["problem"]] if "problem" in seen else labels(best)
    text = fill("descriptors_text", seen=seen, statistics=statistics(best))
    return Critique(success, problems, (), author, text, alignment=seen.get("alignment"))


def _documented(name: str, function: Any) -> tuple[str, str]:
    parameters = [
        p.name if p.default is p.empty else f"{p.name}={p.default}"
        for p in inspect.signature(function).parameters.values()
    ]
    return f"{name}({', '.join(parameters)})", (inspect.getdoc(function) or "").split("\n")[0]


def _listed(values: Iterable[str]) -> str:
    """Return names, each perhaps followed by " (facts)", as a list of at most _MOST_NAMES."""
    kept = [value.partition(" (") for value in values if value]
    more = f" and {len(kept) - _MOST_NAMES} more" if len(kept) > _MOST_NAMES else ""
    return ", ".join(f"`{name}`{bracket}{facts}" for name, bracket, facts in kept[:_MOST_NAMES]) + more
