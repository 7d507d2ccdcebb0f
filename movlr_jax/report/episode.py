"""The recorded episodes of a run for its report: the 3-D scene, muscle activations and joint angles over time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
from markupsafe import Markup

from movlr_jax.biomech.static_optimisation import joint_equalities
from movlr_jax.errors import UserError
from movlr_jax.evolution.final_training import STEM
from movlr_jax.models.actuators import muscles
from movlr_jax.report import charts as report_charts
from movlr_jax.report.data import FIRST, Run
from movlr_jax.report.scene import Episode, export_scene
from movlr_jax.storage.inside import read_inside
from movlr_jax.storage.layout import candidate_path
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task

SCENE_BYTES = 10 * 2**20
_POINTS = 200  # of a curve
_MOST_JOINTS = 48
_TRAJECTORY_BYTES = 2**26
# kind of a joint with one axis -> factor to the unit of its curve, the unit, and the least range that is drawn
_AXES = {
    int(mujoco.mjtJoint.mjJNT_HINGE): (180 / np.pi, "deg", 1.0),
    int(mujoco.mjtJoint.mjJNT_SLIDE): (1.0, "m", 0.002),
}


@dataclass(frozen=True)
class Staged:
    """What a report shows of the recorded episodes; `missing` says why there is no scene."""

    scene: Mapping[str, Any] | None = None
    curves: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""


def staged(run: Run, task: Task | None, missing: str = "") -> Staged:
    """Return the scene and the curves of the best and the first program. `missing` says why there is no task."""
    if run.best is None:
        return Staged()
    if task is None:
        return Staged(missing=missing)
    curves: dict[str, Any] = {}
    try:
        shown = _episodes(run, task)
        if not shown:
            return Staged(missing="the 3-D view, because the trajectories are not in the run directory")
        best = shown[0]
        first = next((e for e in shown if e.name == FIRST and e is not best), None)
        curves = {"muscles": _muscles(best), "joints": _joints(best, first)}
        data = export_scene(task, shown)
    except Exception as error:  # a page is written whatever a run holds
        why = error if isinstance(error, UserError) else f"of {type(error).__name__}: {error}"
        return Staged(None, curves, f"the 3-D view, because {why}")
    if len(data) > SCENE_BYTES:
        return Staged(None, curves, f"the 3-D view, because it would have {len(data) / 1e6:.0f} MB")
    text = Markup(base64.b64encode(data).decode())
    return Staged({"data": text, "episodes": shown}, curves)


def _episodes(run: Run, task: Task) -> list[Episode]:
    """Return the episodes of the best program, the first one and the final training, as far as they are there."""
    best, first, found = run.best, run.candidates.get(FIRST), []
    assert best
    wanted = [(best.name, "Best", candidate_path(best.generation, best.candidate, ".npz"))]
    if first and first is not best and not first.failed:
        wanted.append((FIRST, "First program", candidate_path(0, 0, ".npz")))
    if run.full and not run.full.failed:
        wanted.append((run.full.name, "After the final training", f"{STEM}.npz"))
    for name, label, path in wanted:
        if states := read_inside(run.root, path, _TRAJECTORY_BYTES):
            found.append(Episode(name, label, EpisodeRecord.read(states, task.model, task.adapter)))
    return found


def _picked(record: EpisodeRecord) -> np.ndarray:
    return np.linspace(0, len(record.time) - 1, min(_POINTS, len(record.time))).astype(int)


def _muscles(e: Episode) -> dict[str, Any] | None:
    """Return names, times and activations (a byte each, base64) of all muscles, the most active first."""
    model, record = e.record.model, e.record
    found = np.flatnonzero(muscles(model) & (model.actuator_actnum > 0))
    if not len(found):
        return None
    rows = _picked(record)
    values = np.clip(np.nan_to_num(record.act[np.ix_(rows, model.actuator_actadr[found])].T), 0.0, 1.0)
    order = np.argsort(-values.mean(axis=1), kind="stable")
    return {
        "names": [model.actuator(found[i]).name or str(found[i]) for i in order],
        "times": report_charts.short(record.time[rows]),
        "values": base64.b64encode(np.rint(255 * values[order]).astype(np.uint8).tobytes()).decode(),
    }


def _joints(best: Episode, first: Episode | None) -> list[dict[str, Any]]:
    """Return title and chart of each joint that moves, the largest range first; the first program is dotted."""
    model, sizes = best.record.model, dict[int, float]()
    driven = model.eq_obj1id[joint_equalities(model)].tolist()
    for j in range(model.njnt):
        if j not in driven and int(model.jnt_type[j]) in _AXES:
            _, _, least = _AXES[int(model.jnt_type[j])]
            _, values = _course(best, j)
            size = float(np.nanmax(values) - np.nanmin(values)) if np.isfinite(values).any() else 0.0
            if size >= least:
                sizes[j] = size / least
    shown = []
    for j in sorted(sizes, key=lambda j: (-sizes[j], j))[:_MOST_JOINTS]:
        name, (scale, unit, _) = model.joint(j).name or str(j), _AXES[int(model.jnt_type[j])]
        time, values = _course(best, j)
        reference = (first.name, *_course(first, j)) if first else None
        label = f"{name} against time"
        chart = report_charts.motion_chart(label, unit, time, {best.name: values}, reference, clock=True)
        low, high = scale * model.jnt_range[j]
        limits = f"{low:.3g} to {high:.3g}" if model.jnt_limited[j] else ""
        shown.append({"title": name, "range": limits, "chart": chart})
    return shown


def _course(e: Episode, j: int) -> tuple[list[float], list[float]]:
    """Return the times [n] s of the points of a curve, and the values [n] of a joint then, in its unit."""
    rows, model = _picked(e.record), e.record.model
    scale, _, _ = _AXES[int(model.jnt_type[j])]
    values = scale * e.record.qpos[rows, model.jnt_qposadr[j]].astype(float)
    return e.record.time[rows].tolist(), values.tolist()
