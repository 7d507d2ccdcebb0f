"""What a learner observes, by the settings: for the policies of the package and for environments.

`gait` and `joints` are the same for every walker and direction: they do not contain the position on the ground, the
absolute direction, the height of the ground or the muscles. So a policy trained on one body or ground can be tried on
another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from movlr_jax.biomech.world import up_of
from movlr_jax.control.ppo.config import PolicyConfig
from movlr_jax.errors import UserError
from movlr_jax.models.derived import on_base
from movlr_jax.rewards.state import State, goal_heading
from movlr_jax.tasks.walking.walker import FEET
from movlr_jax.types import Step

if TYPE_CHECKING:
    from movlr_jax.tasks import Task

Observe = Callable[[Step], jax.Array]  # observation [no] of one simulation
OFF = 0.5  # m, bound of the observed distance from a line
_FEET = (*FEET, "left_toes", "right_toes")
# what `gait_view` shows of the body reflected between left and right: entry i is sign[i] x the entry index[i].
# Vectors change their sign across, rotations along and up; loads and the halves of the stride change places.
GAIT_MIRROR = (
    np.array([*range(14), 15, 14, 16, 17, 18]),
    np.array([1, 1, -1, 1, 1, -1, 1, 1, -1, 1, -1, 1, -1, -1, 1, 1, 1, -1, -1], np.float32),
)
_TURN = 1.0  # m before the place of a turn at which it begins


def observation(config: PolicyConfig, task: Task, qpos: np.ndarray) -> Observe:
    """Return a function that concatenates the observations `config.observe` to one vector [no].

    qpos, qvel, act, prev_action; touch: forces in body weights; goal: the goals of the task and, for each
    `<thing>_pos`, the vector from the thing to it. If the task has a heading, the horizontal position of a floating
    base is omitted, since the task is the same anywhere on the ground; of a travel without an end, all of it but
    how far to the left it is. If it has a stride frequency, goal includes sine and cosine of the gait phase. gait,
    joints: see `gait_view` and `joint_view`, relative to the start posture `qpos` [nq].
    """
    model, layout, what = task.model, task.layout, config.observe
    more: dict[str, Observe] = {}
    if "gait" in what:
        more["gait"] = gait_view(task, qpos)
    if "joints" in what:
        more["joints"] = joint_view(model, qpos, config.joints)
    aside = task.scoring.motion.aside if task.scoring.motion else None
    ground = travel(model) if "heading" in task.goals or aside is not None else {}
    kept, place = np.setdiff1d(np.arange(model.nq), list(ground)), np.array(list(ground), int)
    left = np.array([axis @ aside for axis in ground.values()]) if aside is not None else np.zeros(0)
    strays = np.abs(left).max(initial=0.0) > 0.5
    weight = max(float(model.body_mass.sum()) * float(np.linalg.norm(model.opt.gravity)), 1.0)
    parts = [np.array(addresses) for addresses in layout.touch.values()]
    aims = {name: jnp.asarray(value, jnp.float32) for name, value in task.goals.items()}
    ways = [
        (layout.blocks["pos"] + 3 * layout.bodies[thing] if thing in layout.bodies else layout.sites[thing], aim)
        for name, aim in aims.items()
        if (thing := name.removesuffix("_pos")) != name and (thing in layout.bodies or thing in layout.sites)
    ]

    def position(view: Step) -> list[Any]:
        return [view.qpos[kept], *([jnp.clip(view.qpos[place] @ left, -OFF, OFF)[None]] if strays else [])]

    def goal(view: Step) -> list[Any]:
        seen = [*map(jnp.ravel, aims.values()), *(aim - view.sensors[at : at + 3] for at, aim in ways)]
        if "stride_frequency" in aims:
            phase = 2 * jnp.pi * aims["stride_frequency"] * view.time
            seen.append(jnp.stack([jnp.sin(phase), jnp.cos(phase)]))
        return seen

    pieces: dict[str, Callable[[Step], list[Any]]] = {
        "qpos": position,
        "qvel": lambda view: [view.qvel],
        "act": lambda view: [view.act],
        "touch": lambda view: [view.sensors[part].sum()[None] / weight for part in parts],
        "prev_action": lambda view: [view.prev_action],
        "goal": goal,
        **{name: lambda view, see=see: [see(view)] for name, see in more.items()},
    }

    def observe(view: Step) -> jax.Array:
        seen = [jnp.asarray(x, jnp.float32) for name in what for x in pieces[name](view)]
        if not seen:
            raise UserError(
                f"optimizer.ppo.observe=[{','.join(what)}] observes nothing of this model; add qpos and qvel"
            )
        return jnp.concatenate(seen)

    return observe


def travel(model: mujoco.MjModel) -> dict[int, np.ndarray]:
    """Return the qpos addresses and axes [3] of the horizontal position of floating bases (free joints, slides)."""
    addresses: dict[int, np.ndarray] = {}
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    up = up_of(model, data)
    for j in range(model.njnt):
        kind, at = model.jnt_type[j], int(model.jnt_qposadr[j])
        if kind == mujoco.mjtJoint.mjJNT_FREE:
            addresses |= {at + i: np.eye(3)[i] for i in range(3) if abs(up[i]) < 0.5}
        slide = kind == mujoco.mjtJoint.mjJNT_SLIDE and on_base(model, int(model.jnt_bodyid[j]))
        if slide and abs(data.xaxis[j] @ up) < 0.5:
            addresses[at] = data.xaxis[j].copy()
    return addresses


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
