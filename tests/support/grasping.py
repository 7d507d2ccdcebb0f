"""What the tests of grasping tasks share: made-up episodes of an object, and tasks on models that may not be here."""

from __future__ import annotations

from functools import cache

import jax
import mujoco
import numpy as np

from movlr_jax.control import muscle_controllers as laws
from movlr_jax.control.mpc.mpc2 import PostureSpace
from movlr_jax.physics.native import NativePhysics
from movlr_jax.tasks import Task, build_task
from movlr_jax.types import SimState, Step, Trajectory

CTRL_DT = 0.016
MODELS = ("myoarm_r", "ms_human_700_manipulation")


@cache
def built(name: str, model: str) -> Task:
    """The task with its defaults, built once in a run of the tests."""
    return build_task(name, model, 3.0, {})


def turned(task: Task, degrees: float, axis=(0.0, 0.0, 1.0)) -> np.ndarray:
    """The target's orientation, turned by `degrees` about an axis of the world."""
    turn, result = np.empty(4), np.empty(4)
    mujoco.mju_axisAngle2Quat(turn, np.array(axis) / np.linalg.norm(axis), np.deg2rad(degrees))
    mujoco.mju_mulQuat(result, turn, np.asarray(task.goals["object_quat"], float))
    return result


def episode(task: Task, pos: np.ndarray, quat: np.ndarray, act: float = 0.0) -> Trajectory:
    """T steps in which the object is at pos [T, 3] with orientation quat [T, 4]; nothing else moves."""
    steps, m = len(pos), task.model
    sensors = np.zeros((steps, m.nsensordata), np.float32)
    row, blocks = task.layout.bodies[task.roles["object"]], task.layout.blocks
    sensors[:, blocks["pos"] + 3 * row : blocks["pos"] + 3 * row + 3] = pos
    sensors[:, blocks["quat"] + 4 * row : blocks["quat"] + 4 * row + 4] = quat
    step = Step(
        time=(CTRL_DT * (1 + np.arange(steps))).astype(np.float32),
        qpos=np.tile(m.qpos0, (steps, 1)).astype(np.float32),
        qvel=np.zeros((steps, m.nv), np.float32),
        act=np.full((steps, m.na), act, np.float32),
        sensors=sensors,
        prev_action=np.zeros((steps, m.nu), np.float32),
    )
    final = SimState(**{k: v[-1] for k, v in vars(step).items()}, diverged=np.False_)
    actions = np.zeros((steps, m.nu), np.float32)
    return Trajectory(steps=step, actions=actions, valid=np.asarray(steps), final=final)


def still(task: Task, offset=(0.0, 0.0, 0.0), degrees: float = 0.0, axis=(0.0, 0.0, 1.0), steps: int = 100):
    """An episode that ends as it began: `offset` m and `degrees` off the target."""
    pos = np.tile(np.asarray(task.goals["object_pos"], float) + offset, (steps, 1))
    return pos, np.tile(turned(task, degrees, axis), (steps, 1))


def sound_starts(task: Task, count: int) -> None:
    """Asserts that starts differ, are at rest, in range, and that nothing is 1 mm or more inside anything."""
    model, data = task.model, mujoco.MjData(task.model)
    qpos, qvel, act = task.start(np.random.default_rng(0), count)
    assert not qvel.any()
    assert ((act >= 0) & (act <= 1)).all()
    assert len(np.unique(qpos, axis=0)) == count
    thing = task.roles["object"]
    limited = model.jnt_limited.astype(bool)
    low, high = model.jnt_range[limited].T
    for q in qpos:
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        touching = (model.geom_bodyid[data.contact.geom] == model.body(thing).id).any(axis=1)
        assert np.all(data.contact.dist[touching] > -1e-3)
        at = q[model.jnt_qposadr[limited]]
        assert ((at > low - 1e-6) & (at < high + 1e-6)).all()


def held(task: Task, rows: int) -> tuple[SimState, SimState]:
    """States at the start, and after half a second in which the muscles hold the posture of the start."""
    physics = NativePhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=CTRL_DT, threads=2)
    space = PostureSpace(laws.Linear(), task.model, task.layout, task.adapter.planned_joints)
    start = state = physics.start(*task.start(np.random.default_rng(0), rows))
    policy, target = space.policy(physics), space.held(start)[:, None]
    for _ in range(16):
        params = space.params(physics, state, target)
        state = physics.rollout(state, policy, params, steps=2, key=jax.random.key(0)).final
    physics.close()
    assert float(state.time[0]) > 0.5
    assert not state.diverged.any()
    return start, state


def triangles(model: mujoco.MjModel, geom) -> np.ndarray:
    """The triangles [n, 3, 3] m of a mesh geom, in the frame of its body."""
    mesh, turn = geom.dataid[0], np.empty(9)
    mujoco.mju_quat2Mat(turn, geom.quat)
    faces = model.mesh_face[model.mesh_faceadr[mesh] :][: model.mesh_facenum[mesh]]
    return model.mesh_vert[model.mesh_vertadr[mesh] + faces] @ turn.reshape(3, 3).T + geom.pos
