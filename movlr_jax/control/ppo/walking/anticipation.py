"""Target angles with which muscles follow a recorded stride, learned by repetition (Arimoto et al., 1984).

Muscles answer late and yield to loads, so joints lag behind their targets. Here the body hangs in the air, held at
its base, and repeats the stride. After each round the targets change by a share of the error, earlier by the delay.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.control.ppo.actions import ActionSpace
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.state import reference_name
from movlr_jax.tasks import Task
from movlr_jax.types import Array, Step

PHASES = 50  # of the stride at which targets are learned
_ROUNDS = 15
_SHARE = 0.5  # of the error by which targets change
_DELAY_S = 0.08
_STRIDES = 3  # per round; the error of the last two counts


def at_phase(table: jax.Array, phase: Array) -> jax.Array:
    """Return the angles [n] of a `table` [PHASES, n] at a phase, which may be any number of strides."""
    at = jnp.mod(phase, 1.0) * PHASES
    row = jnp.floor(at).astype(jnp.int32) % PHASES
    share = at - jnp.floor(at)
    return (1 - share) * table[row] + share * table[(row + 1) % PHASES]


def learned_targets(
    task: Task, space: ActionSpace, held: mujoco.MjModel, qpos: np.ndarray, ctrl_dt: float
) -> tuple[np.ndarray, float]:
    """Return the targets [PHASES, n] rad, and the root mean square error that is left, rad.

    held: the model, held at its base by springs. qpos [nq]: the posture in which it hangs above the ground.
    """
    assert space.targets is not None
    joints, action = space.targets.joints, space.targets.action
    physics = NativePhysics(held, task.layout, sim_dt=held.opt.timestep, ctrl_dt=ctrl_dt)
    frequency = float(task.goals["stride_frequency"])
    grid = np.arange(PHASES) / PHASES
    wanted = np.repeat(np.asarray(space.targets.rest, float)[None], PHASES, axis=0)
    for i, name in enumerate(joints):
        if name in task.layout.references:
            samples = task.reference[reference_name(name)]
            wanted[:, i] = np.interp(grid, np.linspace(0, 1, len(samples)), samples)
    addresses = np.array([held.joint(name).qposadr[0] for name in joints])
    low, high = np.array([held.joint(name).range for name in joints]).T
    start = physics.start(qpos[None], np.zeros((1, held.nv)), np.zeros((1, held.na)))
    steps, key = round(_STRIDES / frequency / ctrl_dt), jax.random.key(0)
    delay = round(_DELAY_S * frequency * PHASES)

    def policy(params: Any, view: Step, key: jax.Array) -> Any:
        return space.controls(action(at_phase(params, frequency * view.time)), view, physics.sim_dt, ctrl_dt)

    def error(table: np.ndarray) -> np.ndarray:
        done = physics.rollout(start, policy, table[None].astype(np.float32), steps=steps, key=key).steps
        phase = np.asarray(done.time)[0] * frequency
        late = phase >= 1.0
        reached = np.asarray(done.qpos)[0, late][:, addresses]
        return wanted - np.stack([np.interp(grid, phase[late], r, period=1.0) for r in reached.T], axis=1)

    targets, best, least = wanted.copy(), wanted, np.inf
    for _ in range(_ROUNDS):
        off = error(targets)
        size = float(np.sqrt(np.square(off).mean()))
        if size < least:
            best, least = targets.copy(), size
        smooth = (np.roll(off, 1, axis=0) + off + np.roll(off, -1, axis=0)) / 3
        targets = np.clip(targets + _SHARE * np.roll(smooth, -delay, axis=0), low, high)
    physics.close()
    return best, least
