"""Texts of all messages: one template per file in prompts/, filled from the task and from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from movlr_jax.language.base import Critique, Evaluation
from movlr_jax.resources import resource_text
from movlr_jax.rewards import shaping
from movlr_jax.rewards.state import state_table
from movlr_jax.sandbox import facade, graph
from movlr_jax.tasks import Task

if TYPE_CHECKING:
    from movlr_jax.language.media import MotionMedia

WEIGHT_CAP, VELOCITY_CAP = 50, 15  # MoVLR's upper bounds on the weights of an edit
REFLECTION_POINTS = 10  # values of each term that Eureka's reflection shows
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


def system(task: Task) -> str:
    """Return the system message for program writers: format, allowed code, state, shaping functions and names."""
    return fill(
        "system",
        example=EXAMPLE,
        state_table=[
            row
            for row in state_table()
            if task.layout.references or not row[0].startswith("state.reference(")
        ],
        builtins=facade.BUILTINS,
        modules=facade.offered(),
        attributes=facade.ATTRIBUTES.items(),
        entries=f"{facade.MAX_ENTRIES:,}",
        equations=f"{graph.MAX_EQUATIONS:,}",
        turns=f"{graph.MAX_TURNS:,}",
        elements=f"{graph.MAX_ELEMENTS:,}",
        shaping=[_documented(name, function) for name, function in shaping.PUBLIC.items()],
        names=names(task),
        sizes=task.layout.sizes,
    )


def names(task: Task) -> str:
    """Return the list of names of the model and scene that a program may use."""
    layout, model, adapter = task.layout, task.model, task.adapter
    planned = [joint for joint in adapter.planned_joints if joint in layout.joints]
    others = [joint for joint in layout.joints if joint and joint not in planned]
    goals = [
        (name, list(np.shape(value)), np.round(np.asarray(value, float), 3).tolist())
        for name, value in task.goals.items()
    ]
    return fill(
        "names",
        model=adapter.name,
        sizes=layout.sizes,
        roles=list(task.roles.items()),
        bodies=_listed(layout.bodies),
        joints=_listed(
            f"{joint} ({_range(model, joint)})" if joint in planned else joint for joint in planned + others
        ),
        muscles=_listed(layout.muscles) if (np.asarray(layout.activations) >= 0).any() else "",
        groups=[(name, _listed(members)) for name, members in adapter.muscle_groups.items()],
        touch=_listed(layout.touch),
        sites=_listed(layout.sites),
        sensors=_listed(layout.sensors),
        goals=goals,
        references=_listed(layout.references),
        reference_by=layout.reference_by,
    )


def task_text(task: Task) -> str:
    return fill("task", description=task.description, focus=task.focus, episode_s=f"{task.episode_s:g}")


def shown(media: MotionMedia, task: Task, count: int, pictures: int) -> str:
    """Describe how `count` motions are shown: as videos, or as `pictures` pictures each."""
    common = {"count": count, "seconds": f"{task.episode_s:g}", "views": media.config.views}
    if media.mode == "video":
        return fill("shown_video", slow=media.config.slow, **common)
    step = f"{task.episode_s / max(1, pictures - 1):.2g}"
    return fill("shown_frames", frames=pictures, step=step, **common)


def reflection(task: Task, candidate: Evaluation) -> str:
    """Return Eureka's feedback text: term statistics and task score of a candidate, or why it failed."""
    success = candidate.metrics.get("success")
    return fill(
        "eureka_reflection",
        ran=not candidate.failed,
        reason=candidate.reason,
        length_s=f"{task.episode_s:g}",
        terms=statistics(candidate),
        score="none" if candidate.failed else f"{task.score(dict(candidate.metrics)):.3g}",
        success=None if success is None else bool(success),
    )


def statistics(candidate: Evaluation) -> list[dict[str, Any]]:
    """Return one row of strings per term: samples, maximum, mean and minimum of its weighted values."""
    rows = []
    for name, term in candidate.terms.items():
        curve = np.array([v for v in term.get("curve", []) if v is not None], float)
        if not len(curve):
            curve = np.array([term.get("weighted_mean", 0.0)], float)
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


def critique_text(critique: Critique) -> str:
    return fill("critique_text", critique=critique, author=critique.author)


def _documented(name: str, function: Any) -> tuple[str, str]:
    parameters = [
        p.name if p.default is p.empty else f"{p.name}={p.default}"
        for p in inspect.signature(function).parameters.values()
    ]
    return f"{name}({', '.join(parameters)})", (inspect.getdoc(function) or "").split("\n")[0]


def _listed(values: Iterable[str] | Mapping[str, Any]) -> str:
    kept: Sequence[str] = [v for v in values if v]
    more = f" and {len(kept) - _MOST_NAMES} more" if len(kept) > _MOST_NAMES else ""
    return (
        ", ".join(
            f"`{v}`" if " (" not in v else "`{}` ({}".format(*v.split(" (", 1)) for v in kept[:_MOST_NAMES]
        )
        + more
    )


def _range(model: Any, joint: str) -> str:
    info = model.joint(joint)
    low, high = info.range
    return f"{low:.2f} to {high:.2f}" if model.jnt_limited[info.id] else "no limit"
