"""Show how a planner moves a model, and how long that takes: a part of `doctor model=NAME`."""

from __future__ import annotations

from collections import Counter

import mujoco

from movlr_jax.config.compose import compose
from movlr_jax.control.build import build_planner, close
from movlr_jax.control.mpc.autosize import replan_seconds
from movlr_jax.control.optimizers import Mppi
from movlr_jax.control.suited import facts_of
from movlr_jax.evolution.trials import TrialPlan
from movlr_jax.models.actuators import muscles, servos
from movlr_jax.models.motors import motors
from movlr_jax.tasks import Task

_TRIAL_S = 4.0  # s, of the trial whose time is predicted
_AT_MOST_S = 120.0  # s that such a trial may take with the suggested number of samples
_SIZES = tuple(2**i for i in range(9, 2, -1))


def control_lines(task: Task) -> list[str]:
    """Return what `optimizer=mppi` does with the model of a task, one line each."""
    said: list[str] = []
    config = Mppi().suited(task)
    planner = build_planner(config, task, "native", said.append)
    facts, rules = facts_of(task), planner.config
    samples = rules.mppi.samples
    took = replan_seconds(planner, 1, samples) or 0.0
    steps = samples * planner.horizon * round(rules.ctrl_dt / rules.plan_dt)
    trial = took * _TRIAL_S / (rules.ctrl_dt * rules.replan_every)
    close(planner)
    suggested = next((n for n in _SIZES if trial * n / samples <= _AT_MOST_S), _SIZES[-1])
    settings = compose([f"model={task.adapter.name}", "instruction=hold the posture"])
    trials = (plan := TrialPlan.of(settings)).search(settings.candidates, settings.generations) + plan.confirm
    base = {"free": "travels through the world", "fixed": "fixed to the world"}[facts.base]
    return [
        f"base: {task.adapter.root}, {base}; centre of mass {facts.height_m:.2f} m above its lowest point",
        f"feet: {_parts(task, 'foot', 'shank')}; hands: {_parts(task, 'hand')}",
        f"actuators: {_kinds(task.model)}",
        *said,
        f"plans: horizon {rules.horizon_s:.3g} s in steps of {1000 * rules.plan_dt:g} ms, {rules.knots} knots, "
        f"{samples} samples, a plan every {1000 * rules.ctrl_dt * rules.replan_every:g} ms, each sample moves "
        f"{_share(rules.mppi.density)}",
        f"speed: {steps / max(took, 1e-9):,.0f} steps/s in plans; a trial of {_TRIAL_S:g} s takes about "
        f"{trial:.0f} s with {samples} samples; optimizer.mppi.samples={suggested} takes at most "
        f"{_AT_MOST_S:g} s",
        f"search: about {trials} trials with its defaults, {trials * trial / 60:.0f} min",
        *task.origin.warnings,
    ]


def _share(density: float) -> str:
    return "all controls" if density == 1.0 else f"{100 * density:.0f} % of the controls"


def _parts(task: Task, *parts: str) -> str:
    """Return the bodies with roles such as foot or left_foot, by role, of the first of `parts` that has any."""
    of = [
        [f"{name} ({role})" for role, name in task.roles.items() if f"_{role}".endswith(f"_{part}")] for part in parts
    ]
    return ", ".join(next(filter(None, of), [])) or "none found"


def _kinds(model: mujoco.MjModel) -> str:
    kinds = {"muscles": muscles(model), "position servos": servos(model), "motors without servos": motors(model)}
    of = [next((kind for kind, which in kinds.items() if which[i]), "others") for i in range(model.nu)]
    return ", ".join(f"{count} {kind}" for kind, count in Counter(of).items())
