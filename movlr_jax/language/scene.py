"""The start of an episode in words: where bodies are, how large and heavy objects are, which forces act."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np

from movlr_jax.tasks import Task

_TOUCH_N = 0.5  # smaller contact forces are not told


def scene_facts(task: Task) -> list[str]:
    """Return sentences about one start state, by C MuJoCo. Positions are in the world frame."""
    model, data = task.model, mujoco.MjData(task.model)
    qpos, qvel, act = task.start(np.random.default_rng(0), 1)
    data.qpos[:], data.qvel[:], data.act[:] = qpos[0], qvel[0], act[0]
    mujoco.mj_forward(model, data)
    gravity = float(np.linalg.norm(model.opt.gravity))
    names = [name for name in dict.fromkeys(task.roles.values()) if name in task.layout.bodies]
    placed = {"Positions": [(name, data.body(name).xpos) for name in names]}
    placed["Sites"] = [(name, data.site(name).xpos) for name in task.layout.sites]
    facts = [
        f"{kind}: {', '.join(f'`{name}` {_vector(at)}' for name, at in found)}."
        for kind, found in placed.items()
        if found
    ]
    root = model.body(task.adapter.root).rootid[0]
    facts.append(f"The whole body weighs {gravity * model.body_subtreemass[root]:.0f} N.")
    for joint in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
        body = int(model.jnt_bodyid[joint])
        if model.body_rootid[body] != root:
            facts.append(_thing(model, data, body, gravity))
    forces = {
        part: float(sum(data.sensordata[i] for i in sensors)) for part, sensors in task.layout.touch.items()
    }
    pressed = [f"`{part}` {force:.0f} N" for part, force in forces.items() if force > _TOUCH_N]
    facts.append(f"Contact forces at that instant: {', '.join(pressed) or 'none'}.")
    low, high = model.actuator_ctrlrange.T
    kind = "excitations of muscles" if model.na else "commands of motors"
    span = (
        f"from {low[0]:g} to {high[0]:g}"
        if np.ptp(low) < 1e-9 and np.ptp(high) < 1e-9
        else f"between {low.min():.3g} and {high.max():.3g}, with a range of its own for each actuator"
    )
    return [*facts, f"`action` holds {kind}, {span}."]


def _thing(model: mujoco.MjModel, data: mujoco.MjData, body: int, gravity: float) -> str:
    """Return size, weight, position and axes of a free body."""
    corners = []
    for geom in np.flatnonzero(
        (model.geom_bodyid == body) & (model.geom_contype | model.geom_conaffinity != 0)
    ):
        rotation = np.empty(9)
        mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
        centre, half = model.geom_aabb[geom, :3], model.geom_aabb[geom, 3:]
        signs = np.array(list(itertools.product((-1, 1), repeat=3)))
        corners.append(model.geom_pos[geom] + (centre + signs * half) @ rotation.reshape(3, 3).T)
    name, axes = model.body(body).name, data.xmat[body].reshape(3, 3)
    text = f"`{name}` weighs {gravity * model.body_mass[body]:.1f} N and is at {_vector(data.xpos[body])}"
    if corners:
        low, high = np.concatenate(corners).min(axis=0), np.concatenate(corners).max(axis=0)
        sizes = " x ".join(f"{100 * size:.1f}" for size in high - low)
        text += (
            f"; along its x, y and z axes it measures {sizes} cm, with its centre at {_vector((low + high) / 2)} m "
            "from its origin"
        )
    ways = ", ".join(f"{axis} {_vector(axes[:, i], 2)}" for i, axis in enumerate("xyz"))
    return f"{text}. Its axes point to: {ways}."


def _vector(values: np.ndarray, digits: int = 3) -> str:
    return f"[{', '.join(f'{v + 0.0:.{digits}f}' for v in np.round(values, digits))}]"
