"""Episodes of random controls for tests of environments that replay them."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import mujoco
import numpy as np

from movlr_jax.control.episode import episode_of
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.tasks import Task
from movlr_jax.types import Step, Trajectory

STEPS = 40


def _held(params: jax.Array, view: Step, key: jax.Array) -> jax.Array:
    return params


def random_episode(
    task: Task, timing: Mapping[str, float], qpos: np.ndarray | None = None, count: int = STEPS
) -> tuple[Trajectory, np.ndarray]:
    """An episode of random controls in our physics, and the states [count, nq] after each of them.

    It begins with a start state of the task, or at rest at `qpos` [nq].
    """
    physics = NativePhysics(task.model, task.layout, sim_dt=timing["sim_dt"], ctrl_dt=timing["ctrl_dt"])
    low, high = task.model.actuator_ctrlrange.T
    controls = np.random.default_rng(0).uniform(low, high, (count, task.model.nu)).astype(np.float32)
    given = task.start(np.random.default_rng(1), 1)
    begun = state = physics.start(*given if qpos is None else (qpos[None], 0 * given[1], 0 * given[2]))
    parts = []
    for control in controls:
        part = physics.rollout(state, _held, control[None], steps=1, key=jax.random.key(0))
        parts.append(part)
        state = part.final
    physics.close()
    after = np.array([part.final.qpos[0] for part in parts])
    joined = jax.tree.map(
        lambda *x: np.concatenate(x, axis=1), *[p.replace(valid=p.valid[:, None], final=None) for p in parts]
    )
    whole = joined.replace(valid=np.array([count]), final=state, start=begun)
    return episode_of(whole, 0, count), after


def totals(task: Task, qpos: np.ndarray, qvel: np.ndarray, act: np.ndarray, controls: np.ndarray):
    """Totals [N] of the environment's reward as a program, at states [N, ...] as MuJoCo measures them after 1 s."""
    data, sensors = mujoco.MjData(task.model), []
    for row in zip(qpos, qvel, act, controls, strict=True):
        data.qpos[:], data.qvel[:], data.act[:], data.ctrl[:] = row
        mujoco.mj_forward(task.model, data)
        sensors.append(data.sensordata.copy())
    states = Step(np.ones(len(qpos)), qpos, qvel, act, np.array(sensors), controls)
    steps = jax.tree.map(lambda x: np.asarray(x, np.float32)[None], states)
    initial = jax.tree.map(lambda x: x[:, 0], steps.replace(time=0 * steps.time))
    program = load(parse(task.rewards.environment))
    steps, initial, controls = jax.tree.map(
        lambda x: np.asarray(x, np.float32)[None], (steps, initial, controls[None])
    )
    return Scorer(task.layout, task.goals)([program], steps, controls, initial).totals[0, 0]
