"""Evaluate reward programs: optimise control under all K at once, compute metrics and keep the states for films.

No candidate is dropped: K verdicts in, exactly K lists of trials out, in the same order.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from movlr_jax.control.base import Controllers, Optimizer
from movlr_jax.control.episode import by_candidate, episode_ends, episode_of
from movlr_jax.evolution.gates import merit
from movlr_jax.physics.base import Physics
from movlr_jax.records import Trial
from movlr_jax.rewards.program import RewardProgram
from movlr_jax.sandbox.probe import Probe
from movlr_jax.sandbox.vet import Verdict
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import measured
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.walking import biomechanics
from movlr_jax.types import Progress, Step, Trajectory

_CURVE_POINTS = 200  # enough to show the phases of a step in an episode of 10 s


def evaluate(
    optimizer: Optimizer,
    task: Task,
    verdicts: Sequence[Verdict],
    seeds: Sequence[int],
    progress: Progress | None = None,
    folder: Path | None = None,
) -> list[list[Trial]]:
    """Run one trial per verdict and seed, all in one batch.

    A trial is a start state, a stream of noise and, if policies are trained, a training. Its seed decides all three,
    and it is the same for all programs (common random numbers) and whatever else is in the batch.

    The batch always has K x E rows, so that a rejected program causes no recompilation: its rows run an accepted
    program, and their results are discarded.

    Args:
        optimizer: Optimises control under all programs.
        task: The task of the episodes.
        verdicts: K accepted or rejected programs.
        seeds: E seeds, one per trial.
        progress: Called during the optimisation.
        folder: Where an optimizer that trains saves its checkpoints; None saves nothing.

    Returns:
        For each verdict, E trials in the order of `seeds`. Those of rejected programs have a reason and no metrics.
    """
    accepted = [v.program for v in verdicts if v.program]
    if not accepted:
        return [[failed(verdict, seed) for seed in seeds] for verdict in verdicts]
    programs = [v.program or accepted[0] for v in verdicts]
    k, ctrl_dt = len(programs), optimizer.sim_physics.ctrl_dt
    first, controllers, trajectory, timing = _run(optimizer, task, programs, seeds, progress, folder)
    states, actions, initial = jax.tree.map(
        lambda x: by_candidate(x, k), (trajectory.steps, trajectory.actions, first)
    )
    scores, ends = optimizer.scorer(programs, states, actions, initial), episode_ends(trajectory, first, task)

    def trials_of(i: int, verdict: Verdict) -> list[Trial]:
        late = verdict.program and optimizer.scorer.late.get(verdict.program.structure)
        if verdict.program is None or late:
            why = replace(verdict, stage="run", message=late) if late else verdict
            return [failed(why, seed) for seed in seeds]
        nonfinite = scores.nonfinite[i], controllers.nonfinite[i] if controllers.nonfinite else {}
        found = list[Trial]()
        for e, seed in enumerate(seeds):
            row = i * len(seeds) + e
            episode = episode_of(trajectory, row, ends[row])
            terms = {name: of[e, : len(episode.actions)] for name, of in scores.terms[i].items()}
            trial = measure(task, verdict.program, episode, terms, nonfinite, ctrl_dt)
            learning = controllers.learning[row] if controllers.learning else {}
            states = _states(episode, task)
            found.append(replace(trial, seed=seed, timing=timing, learning=learning, states=states))
        return found

    return [trials_of(i, verdict) for i, verdict in enumerate(verdicts)]


def _run(
    optimizer: Optimizer,
    task: Task,
    programs: Sequence[RewardProgram],
    seeds: Sequence[int],
    progress: Progress | None,
    folder: Path | None,
) -> tuple[Step, Controllers, Trajectory, dict[str, float]]:
    """Run one trial per program and seed: their first steps, what controls them, all rows, and the time they took."""
    started, before, dt = time.monotonic(), optimizer.steps_done, optimizer.sim_physics.ctrl_dt
    each = [task.start(np.random.default_rng(seed), 1) for seed in seeds]
    rows = (np.tile(np.concatenate(x), (len(programs), 1)) for x in zip(*each, strict=True))
    start, keys = optimizer.sim_physics.start(*rows), jnp.stack([jax.random.key(seed) for seed in seeds])
    controllers = optimizer.optimise(programs, keys, progress, folder)
    trajectory = controllers.rollout(start, steps=round(task.episode_s / dt), key=keys)
    wall, steps = time.monotonic() - started, trajectory.actions.shape[1]
    done = (optimizer.steps_done - before) / wall
    timing = {"wall_s_per_sim_s": wall / (steps * dt), "physics_steps_per_s": done}
    return start.step, controllers, trajectory, timing


def middle(task: Task, trials: Sequence[Trial]) -> Trial:
    """Return the trial with the middle merit; of an even number, the worse one in the middle.

    It stands for its program where one motion is shown. So a lucky or unlucky start does not decide.
    """
    return sorted(trials, key=lambda trial: merit(task, trial))[(len(trials) - 1) // 2]


def measure(
    task: Task,
    program: RewardProgram,
    episode: Trajectory,
    terms: Mapping[str, np.ndarray],
    nonfinite: tuple[Mapping[str, int], Mapping[str, int]],
    ctrl_dt: float,
) -> Trial:
    """Return the trial of a finished episode under a program, without its seed and its states.

    terms: Values [T] of each term. nonfinite: Counts of non-finite values per term, in the episode and in its plans.
    """
    metrics = measured(episode, task, ctrl_dt)
    series = biomechanics.series(episode, task) | dict(
        task.scoring.series(episode, task) if task.scoring.series else {}
    )
    reason = None
    if bool(episode.diverged):
        reason = "the simulation diverged under this program; reward less violent motion"
    elif not all(math.isfinite(v) for v in metrics.values()):
        reason = "the metrics of the episode are not finite"
    picked = np.linspace(0, len(episode.actions) - 1, min(_CURVE_POINTS, len(episode.actions))).astype(int)
    time_s = np.asarray(episode.steps.time, float)
    return Trial(
        reason=reason,
        stage="run" if reason else None,
        metrics={name: float(f"{value:.9g}") for name, value in metrics.items() if math.isfinite(value)},
        terms={
            name: _term(values, program.weights[name], [counts.get(name, 0) for counts in nonfinite], picked)
            for name, values in terms.items()
        },
        series={name: _curve(values[picked]) for name, values in series.items()},
        curve_time=[round(t, 4) for t in time_s[picked].tolist()],
        faults=dict(task.scoring.faults(episode, task)) if task.scoring.faults and not reason else {},
        gait={} if reason else biomechanics.gait(episode, task),
    )


def _term(values: np.ndarray, weight: float, nonfinite: Sequence[int], picked: np.ndarray) -> dict[str, Any]:
    """Return statistics of one term over an episode, values [T]. The curve is weighted.

    `nonfinite` counts the non-finite values in the episode and in its plans.
    """
    mean = float(values.mean())
    return {
        "mean": mean,
        "weighted_mean": weight * mean,
        "nonfinite": nonfinite[0],
        "nonfinite_planned": nonfinite[1],
        "curve": _curve(weight * values[picked].astype(float)),
    }


def _curve(values: np.ndarray) -> list[float | None]:
    """Round values to six digits; non-finite values become None, because JSON cannot store them."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


def failed(verdict: Verdict, seed: int | None = None) -> Trial:
    """Return the trial of a program that was not run, with the reason of its verdict."""
    return Trial(seed=seed, reason=verdict.message, stage=verdict.stage)


def _states(episode: Trajectory, task: Task) -> bytes:
    """Return an npz with the arrays of an `EpisodeRecord` [T, ...]."""
    buffer, s, read = io.BytesIO(), episode.steps, Readout(task.layout, episode.steps)
    parts = sorted(task.layout.touch)
    touch = np.stack([read.touch(part) for part in parts], axis=-1) if parts else np.zeros((len(s.time), 0))
    np.savez_compressed(
        buffer,
        time=s.time,
        qpos=s.qpos,
        qvel=s.qvel,
        act=s.act,
        ctrl=episode.actions,
        force=read.actuator("force"),
        touch=touch,
        touch_names=np.array(parts, dtype=str),
    )
    return buffer.getvalue()


def make_probe(task: Task, physics: Physics, seed: int, rows: int = 8, steps: int = 12) -> Probe:
    """Return states for vetting: rollouts of random constant controls from start states of the task."""
    rng = np.random.default_rng(seed)
    start = physics.start(*task.start(rng, rows))
    low, high = np.where(task.model.actuator_ctrllimited[:, None], task.model.actuator_ctrlrange, [-1.0, 1.0]).T
    controls = rng.uniform(low, high, (rows, task.model.nu)).astype(np.float32)
    rollout = physics.rollout(start, _hold, controls, steps=steps, key=jax.random.key(seed))
    states, actions, initial = jax.tree.map(np.asarray, (rollout.steps, rollout.actions, start.step))
    return Probe(task.layout, {k: np.asarray(v) for k, v in task.data.items()}, states, actions, initial)


def _hold(params: Any, view: Any, key: jax.Array) -> jax.Array:
    return params
