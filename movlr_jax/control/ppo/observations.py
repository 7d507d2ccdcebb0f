"""Observations of walking policies that are the same for every walker and direction.

They do not contain the position on the ground, the absolute direction, the height of the ground or the muscles. So a
policy trained on one body or ground can be tried on another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.control.ppo.actions import OFF, Observe
from movlr_jax.errors import UserError
from movlr_jax.rewards.state import State, goal_heading
from movlr_jax.tasks.walking.walker import FEET
from movlr_jax.types import Step

if TYPE_CHECKING:
    from movlr_jax.tasks import Task

_FEET = (*FEET, "left_toes", "right_toes")
# what `gait_view` shows of the body reflected between left and right: entry i is sign[i] x the entry index[i].
# Vectors change their sign across, rotations along and up; loads and the halves of the stride change places.
GAIT_MIRROR = (
    np.array([*range(14), 15, 14, 16, 17, 18]),
    np.array([1, 1, -1, 1, 1, -1, 1, 1, -1, 1, -1, 1, -1, -1, 1, 1, 1, -1, -1], np.float32),
)
_TURN = 1.0  # m before the place of a turn at which it begins


def joint_view(model: mujoco.MjModel, qpos: np.ndarray, names: Sequence[str]) -> Observe:
    """Observe joint angles relative to the posture `qpos` [nq], rad, and joint velocities, rad/s: [2 n]."""
    joints = [model.joint(name) for name in names]
    q, v = (np.array([adr[0] for adr in adrs]) for adrs in ([j.qposadr for j in joints], [j.dofadr for j in joints]))
    posture = np.asarray(qpos[q], np.float32)
    return lambda view: jnp.concatenate([view.qpos[q] - posture, view.qvel[v]])


def gait_view(task: Task, qpos: np.ndarray) -> Observe:
    """Observe the gait [19] in the frame of the current goal heading. qpos [nq]: posture of the start.

    Height of the pelvis above the lowest foot, relative to the start, m; directions of the pelvis axes that pointed
    ahead and up at the start; pelvis velocity, m/s, and angular velocity, rad/s; lateral distance from the line of
    the walk, m, 0 in a turn at a time; load on each foot in body weights; goal speed, m/s; sine and cosine of the
    gait phase. Raises UserError.
    """
    if "heading" not in task.goals or "stride_frequency" not in task.goals:
        raise UserError(
            f"optimizer.ppo.observe: `gait` needs a walking task, but {task.name} has no heading or no "
            "stride_frequency; use qpos, qvel and goal instead"
        )
    model, layout, adapter = task.model, task.layout, task.adapter
    goals = {name: jnp.asarray(value, jnp.float32) for name, value in task.goals.items()}
    pelvis = adapter.role("pelvis")
    feet = [adapter.role(name) for name in _FEET if name in adapter.roles]
    weight = float(model.body_mass.sum()) * float(np.linalg.norm(model.opt.gravity))
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    began = data.body(pelvis).xmat.reshape(3, 3).astype(np.float32)
    height = float(data.body(pelvis).xpos[2] - min(data.body(foot).xpos[2] for foot in feet))

    def see(view: Step) -> jax.Array:
        state = State(layout, view, goals, view)
        at = state.pos(pelvis)
        if "turn_pos" in goals:  # the turn is at a place: before it along x, after it through the place
            place = goals["turn_pos"][0]
            turned = jnp.clip((at[0] - place) / _TURN + 1.0, 0.0, 1.0)
            heading = turned * goals["heading"]
            aside = (1.0 - turned) * at[1] + turned * (place - at[0]) * jnp.sign(goals["heading"])
        else:
            heading = goal_heading(goals, view.time)
            aside = jnp.where(heading == 0, at[1], 0.0)  # a turn at a time has no line
        cos, sin, zero, one = jnp.cos(heading), jnp.sin(heading), jnp.zeros(()), jnp.ones(())
        ahead = jnp.stack([jnp.stack([cos, sin, zero]), jnp.stack([-sin, cos, zero]), jnp.stack([zero, zero, one])])
        facing = ahead @ state.rot(pelvis) @ began.T
        phase = 2 * jnp.pi * goals["stride_frequency"] * view.time
        seen = [
            at[2] - jnp.min(jnp.stack([state.pos(foot)[2] for foot in feet])) - height,
            facing[:, 0],
            facing[:, 2],
            ahead @ state.vel(pelvis),
            ahead @ state.angvel(pelvis),
            jnp.clip(aside, -OFF, OFF),
            *(state.touch(part) / weight for part in FEET),
            jnp.linalg.norm(goals["velocity"]),
            jnp.sin(phase),
            jnp.cos(phase),
        ]
        return jnp.concatenate([jnp.ravel(jnp.asarray(x, jnp.float32)) for x in seen])

    return see
