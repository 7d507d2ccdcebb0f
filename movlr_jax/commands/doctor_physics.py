"""Show what physics=mjx changes in a model: a part of `doctor model=NAME`."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from movlr_jax.errors import UserError
from movlr_jax.models import ModelAdapter
from movlr_jax.tasks import Task, build_task

_SCENES = ("flat_walk", "bottle_pour", "ostrich_walk")  # tasks whose scenes the contacts are counted in
_STEP = 0.008  # s, the time step of plans


def physics_card(adapter: ModelAdapter) -> Table:
    """Return one row per change, or the reason why MJX cannot use the model. Episodes use the unmodified model."""
    table = Table(title="physics=mjx, plans only", title_justify="left", show_header=False)
    table.add_column(overflow="fold")
    for line in _lines(adapter):
        table.add_row(Text(line))
    return table


def _lines(adapter: ModelAdapter) -> list[str]:
    task = _scene(adapter)
    if task is None:
        return ["no built-in task has a scene for this model"]
    try:
        from movlr_jax.physics.mjx import MjxPhysics
    except ImportError:
        return ["mujoco-mjx is not installed: pip install 'movlr-jax[mjx]'"]
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
    for name in _SCENES:
        try:
            return build_task(name, adapter.name, 1.0, {})
        except UserError:
            continue
    return None
