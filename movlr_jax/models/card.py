"""The description of one model that `movlr-jax doctor model=NAME` prints."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import mujoco
import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from movlr_jax.biomech.muscles import enabled_actuators
from movlr_jax.biomech.static_optimisation import joint_equalities
from movlr_jax.errors import UserError
from movlr_jax.models.adapter import ModelAdapter, nominal_qpos
from movlr_jax.models.spec import compile_spec

_SPEED_S = 0.3  # s, duration of the speed measurement
_FALL = 100  # steps between resets of the body, which falls because there is no ground


def model_card(adapter: ModelAdapter) -> Group:
    """Return tables of the model's properties, joints, parts and muscles. Raises UserError if it is not available."""
    try:
        model = compile_spec(adapter.load())
    except ValueError as error:  # for example, a mesh is missing
        raise UserError(f"model {adapter.name!r} does not compile: {' '.join(str(error).split())}") from None
    data = mujoco.MjData(model)
    data.qpos[:] = nominal_qpos(model, adapter)
    mujoco.mj_forward(model, data)
    return Group(
        _facts(adapter, model, data),
        _joints(adapter, model, data),
        _roles(adapter, data),
        _lists("touch parts", ("part", "bodies whose contacts count"), adapter.touch),
        _lists("muscle groups", ("group", "muscles"), adapter.muscle_groups),
        _lists("names for rewards", ("what", "names"), _names(model)),
    )


def steps_per_s(model: mujoco.MjModel, qpos: np.ndarray) -> float:
    """Measure simulation steps per second of C MuJoCo on one core, from the posture `qpos` [nq], without control."""
    data, begun, steps = mujoco.MjData(model), time.perf_counter(), 0
    while time.perf_counter() - begun < _SPEED_S:
        mujoco.mj_resetData(model, data)
        data.qpos[:] = qpos
        mujoco.mj_step(model, data, nstep=_FALL)
        steps += _FALL
    return steps / (time.perf_counter() - begun)


def _facts(adapter: ModelAdapter, model: mujoco.MjModel, data: mujoco.MjData) -> Table:
    muscles = int(np.count_nonzero(model.actuator_gaintype == int(mujoco.mjtGain.mjGAIN_MUSCLE)))
    others = f", {model.nu - muscles} other actuators" if model.nu > muscles else ""
    drivers = model.eq_obj2id[joint_equalities(model)]
    coupled, locked = int(np.count_nonzero(drivers >= 0)), int(np.count_nonzero(drivers < 0))
    files = adapter.info.files() if adapter.info.files else None
    com = data.subtree_com[model.body(adapter.root).id]
    mass = float(model.body_mass[model.body_weldid != 0].sum())  # of what moves
    speed = steps_per_s(model, data.qpos.copy())
    facts = {
        "source": adapter.info.source,
        "licence": adapter.info.licence,
        "files": str(files or "not known"),
        "size": f"nq {model.nq}, nv {model.nv}, {model.nbody - 1} bodies, {muscles} muscles{others}",
        "mass": f"{mass:.1f} kg, centre of mass of {adapter.root} at {_vector(com)} m",
        "frames": f"faces {_axis(adapter.forward)}, up is +z; m, kg, s, rad",
        "joints": f"{len(adapter.planned_joints)} planned, {len(adapter.kept_joints)} kept, {coupled} coupled, "
        f"{locked} locked",
        "step": f"{1000 * model.opt.timestep:g} ms",
        "speed": f"{speed:,.0f} steps/s, {speed * model.opt.timestep:.1f} times real time "
        f"(C MuJoCo, one core{', no contacts' * bool(model.body_weldid[model.geom_bodyid].all())})",
        "sites": ", ".join(adapter.sites) or "none",
    }
    return _table(f"model {adapter.name}", (), facts.items())


def _joints(adapter: ModelAdapter, model: mujoco.MjModel, data: mujoco.MjData) -> Table:
    mates = {joint: f"group {i + 1}" for i, group in enumerate(adapter.synergies) for joint in group}
    rows = []
    for name in (*adapter.planned_joints, *adapter.kept_joints):
        joint = model.joint(name)
        unit = "m" if joint.type[0] == int(mujoco.mjtJoint.mjJNT_SLIDE) else "rad"
        low, high = joint.range
        use = "planned" if name in adapter.planned_joints else "kept"
        at = f"{data.qpos[joint.qposadr[0]]:.3g} {unit}"
        rows.append((name, use, f"{low:.3g} to {high:.3g} {unit}", at, mates.get(name, "")))
    return _table("joints", ("joint", "use", "range", "start", "moves with"), rows)


def _roles(adapter: ModelAdapter, data: mujoco.MjData) -> Table:
    rows = [
        (role, name, _vector((data.site(name) if role.endswith("_site") else data.body(name)).xpos))
        for role, name in adapter.roles.items()
    ]
    return _table("parts that tasks use, in the start posture", ("role", "name in the model", "x y z in m"), rows)


def _names(model: mujoco.MjModel) -> dict[str, list[str]]:
    """Return what a reward can read by name."""
    acts = enabled_actuators(model)
    return {
        "joints": [model.joint(j).name for j in range(model.njnt)],
        "bodies": [model.body(b).name for b in range(1, model.nbody)],
        "actuators": [model.actuator(i).name + ("" if acts[i] else " (disabled)") for i in range(model.nu)],
    }


def _lists(title: str, headings: tuple[str, str], rows: Mapping[str, Iterable[str]]) -> Table:
    return _table(title, headings, ((name, ", ".join(members)) for name, members in rows.items()))


def _table(title: str, headings: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    """Return a table with a heading for each column; without headings, one of names and facts."""
    table = Table(title=title, title_justify="left", show_header=bool(headings))
    if not headings:
        table.add_column(no_wrap=True)
    for heading in headings or ("",):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _vector(values: np.ndarray) -> str:
    return " ".join(f"{value:+.3f}" for value in values)


def _axis(direction: Iterable[float]) -> str:
    """Return `+x` and the like if a direction is an axis, else its components."""
    values = np.asarray(tuple(direction))
    main = int(np.argmax(np.abs(values)))
    if np.isclose(abs(values[main]), 1.0):
        return f"{'+' if values[main] > 0 else '-'}{'xyz'[main]}"
    return _vector(values)
