"""The stored walks and degenerate gaits; benchmarks/gait_corpus.py made them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from movlr_jax.biomech.gait import degenerate
from movlr_jax.biomech.gait.analysis import GaitRecording
from movlr_jax.biomech.gait.criteria import GaitCriteria
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.walking.biomechanics import recording
from movlr_jax.tasks.walking.walker import FEET

FILE = Path(__file__).parents[1] / "data" / "gait_corpus.npz"
QUARTER_TURN = 1.5708  # rad, of the stored left_turn
UNIT = 4e-4  # m and rad, resolution of the stored postures


@dataclass(frozen=True)
class Stored:
    """One motion. label: its degenerate pattern, or `walk`."""

    key: str
    task: str
    model: str
    label: str
    time: np.ndarray
    qpos: np.ndarray
    force: np.ndarray
    fell: bool


def motions() -> Iterator[Stored]:
    """Yield all motions of the corpus."""
    with np.load(FILE) as file:
        for key in sorted({name.rpartition("/")[0] for name in file.files}):
            task, model, label, _ = key.split("-")
            parts = [file[f"{key}/{name}"] for name in ("time", "qpos", "force", "fell")]
            yield Stored(key, task, model, label, parts[0], parts[1] * UNIT, parts[2], bool(parts[3]))


def recorded(stored: Stored, task: Task) -> GaitRecording:
    """Return a motion as gait analysis sees it."""
    model, n = task.model, len(stored.time)
    record = EpisodeRecord(
        time=stored.time,
        qpos=stored.qpos.astype(np.float32),
        qvel=np.zeros((n, model.nv), np.float32),
        act=np.zeros((n, model.na), np.float32),
        ctrl=np.zeros((n, model.nu), np.float32),
        touch=stored.force.astype(np.float32),
        touch_names=FEET,
        model=model,
        adapter=task.adapter,
    )
    made = recording(record.replayed(task.layout), task)
    assert made is not None
    return made


@functools.cache
def _task(task: str, model: str) -> Task:
    return build_task(task, model, 10.0, {})


def faults_of(stored: Stored) -> dict[str, str]:
    """Return what the gate says of a motion."""
    turn = QUARTER_TURN if stored.task == "left_turn" else 0.0
    made = recorded(stored, _task(stored.task, stored.model))
    return degenerate.faults(made, GaitCriteria(), fell=stored.fell, turn=turn)
