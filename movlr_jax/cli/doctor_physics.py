"""Show how plans see a model, and what physics=mjx changes in it: a part of `doctor model=NAME`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import jax
import mujoco
import numpy as np
from rich.table import Table
from rich.text import Text

from movlr_jax.cli.doctor_control import control_lines
from movlr_jax.control.build import build_optimizer
from movlr_jax.control.mpc.planner import Planner
from movlr_jax.control.optimizers import Mpc2
from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter
from movlr_jax.physics.mjx import MjxPhysics
from movlr_jax.rewards.term import identifier
from movlr_jax.tasks import Task, build_task, simple_task

# tasks in whose scenes plans are simulated and contacts are counted
_SCENES = ("flat_walk", "bottle_pour", "ostrich_walk")
_STEP = Mpc2.plan_dt  # s
_FINE, _STEPS = 0.001, (0.004, _STEP)  # s, the time step that others are compared with, and these
_HELD_S = 0.32  # s, how long the start posture is held
_CLOSE_DEG = 5.0  # a smaller difference does no harm


def physics_cards(adapter: ModelAdapter) -> Iterator[Table]:
    """Yield a table about plans, for muscles about their time step, and one about MJX."""
    task = _scene(adapter)
    if task is not None and (task.model.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE).all():
        yield _card("optimizer.plan_dt, the time step of plans", _time_steps(task))
    elif task is not None:
        yield _card("optimizer=mppi, plans", control_lines(task))
    yield _card("physics=mjx, plans only", _changes(task))


def _card(title: str, lines: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(Text(line))
    return table


def _time_steps(task: Task) -> list[str]:
    """Return one row per time step: how far joints end from where steps of 1 ms bring them."""
    exact = held(task, _FINE)
    apart = {step: float(np.rad2deg(np.abs(held(task, step) - exact).max())) for step in _STEPS}
    lines = [
        f"steps of {1000 * step:g} ms: within {_HELD_S:g} s of holding the start posture, joints depart by up to "
        f"{angle:.1f} deg from steps of {1000 * _FINE:g} ms"
        for step, angle in apart.items()
    ]
    if apart[_STEP] > _CLOSE_DEG:
        finer = max((step for step, angle in apart.items() if angle <= _CLOSE_DEG), default=_FINE)
        lines.append(f"plans with the default step would be misled: set optimizer.plan_dt={finer:g} for this model")
    return lines


def held(task: Task, step: float) -> np.ndarray:
    """Return the angles [nz] rad of the planned joints after a plan that holds the start posture, in C MuJoCo.

    step: s, time step of the physics.
    """
    config = replace(Mpc2(), plan_dt=step, sim_dt=_FINE)
    planner = build_optimizer(config, task, "native")
    assert isinstance(planner, Planner)
    start = planner.sim_physics.start(*task.start(np.random.default_rng(0), 1))
    params = planner.space.params(planner.physics, start, np.asarray(planner.space.held(start))[:, None])
    rollout = planner.physics.rollout(
        start, planner.plan_policy, params, steps=round(_HELD_S / config.ctrl_dt), key=jax.random.key(0)
    )
    return np.asarray(rollout.final.qpos)[0, planner.space.qpos]


def _changes(task: Task | None) -> list[str]:
    """Return one row per change, or the reason why MJX cannot use the model. Episodes use the unmodified model."""
    if task is None:
        return ["there is no task with this model"]
    try:
        physics = MjxPhysics(task.model, task.layout, sim_dt=_STEP, ctrl_dt=_STEP, coarse=True)
    except UserError as error:
        return [str(error)]
    size = physics.simulator(1).template._impl
    return [
        *(physics.changes or ("no changes",)),
        f"in the scene of {task.name}: {size.ncon} contacts, {size.nefc} constraint rows per simulation",
        "physics=warp uses the unmodified model",
    ]


def _scene(adapter: ModelAdapter) -> Task | None:
    """Return a task with this body: a built-in one, or that of the model's own file."""
    for name in _SCENES:
        try:
            return build_task(name, adapter.name, 1.0, {})
        except UserError:
            continue
    file = Path(adapter.name).absolute()
    if not file.is_file():
        return None
    try:
        return simple_task(name=identifier(file.stem), model=file, description="hold the posture")
    except UserError:  # such as a model without actuators
        return None
