"""Reward terms for bodies that stand and walk: posture, balance, progress and gait."""

from __future__ import annotations

from movlr_jax.rewards.term import Term, quoted, tuple_of
from movlr_jax.tasks import Task

_GOALS = ("velocity", "heading", "slope")
_NEEDED = ("pelvis", "head", "left_foot", "right_foot", "left_toes", "right_toes")


def gait_terms(task: Task) -> list[Term]:
    """Return the terms, the most useful of each kind first; none if the task has no walker or no goal velocity."""
    if any(goal not in task.goals for goal in _GOALS) or any(role not in task.roles for role in _NEEDED):
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
