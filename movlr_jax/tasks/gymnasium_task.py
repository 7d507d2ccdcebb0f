"""Environments of Gymnasium on MuJoCo as tasks, which the environments themselves reset and measure.

The actions of an episode are played again in the environment, from the state in which it began. So its own code gives
reward and termination; a search never reads them in another way.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.tasks.base import Metrics, Task
from movlr_jax.tasks.simple import simple_task
from movlr_jax.types import Trajectory

if TYPE_CHECKING:
    from gymnasium.envs.mujoco import MujocoEnv

# what the environments of Gymnasium reward, in words that are read without a language model
DESCRIPTIONS: Mapping[str, str] = {
    "Ant": "walk forward",
    "HalfCheetah": "run forward",
    "Hopper": "hop forward",
    "Humanoid": "walk forward",
    "HumanoidStandup": "stand up",
    "InvertedDoublePendulum": "balance the pole",
    "InvertedPendulum": "balance the pole",
    "Pusher": "push the object to the goal",
    "Reacher": "touch the target with the fingertip",
    "Swimmer": "swim forward",
    "Walker2d": "walk forward",
}
_EXAMPLE = "env=Ant-v5"


def gymnasium_task(*, episode_s: float, env: str | None = None, description: str | None = None) -> Task:
    """Build the task for an environment of Gymnasium, by its name or as module:Class. Raises UserError.

    description: what the environment rewards, in words, for the proposer and the judge.
    """
    world = open_environment(env)
    name = str(env).rpartition(":")[2]
    words = description or DESCRIPTIONS.get(name.partition("-")[0])
    if not words:
        raise UserError(f'say what env={env} rewards, as in task.settings.description="walk forward"')
    task = simple_task(
        name=name,
        model=_spec_of(world, str(env)),
        description=words,
        start=partial(_reset, world),
        score=_return,
        episode_s=episode_s,
    )
    return replace(
        task,
        measure=partial(replayed, world),
        motion=task.motion and replace(task.motion, decides=False),
        success="",
        notes=(f"{env}: a trial is replayed in this environment, whose rewards are summed",),
    )


def timing(env: str | None) -> dict[str, float]:
    """Return the settings of an optimizer that suit an environment: its control step and its simulation step, s."""
    world = open_environment(env)
    step = float(world.model.opt.timestep)
    return {"ctrl_dt": round(step * world.frame_skip, 9), "sim_dt": step, "plan_dt": step}


def open_environment(env: str | None) -> MujocoEnv:
    """Return the environment `env`, without wrappers. Raises UserError."""
    if not env:
        raise UserError(f"task=gymnasium needs an environment; set env=NAME, as in {_EXAMPLE}")
    with needed("task=gymnasium", "gym"):
        import gymnasium
        from gymnasium.envs.mujoco import MujocoEnv
    module, _, name = env.rpartition(":")
    try:
        own = getattr(importlib.import_module(module), name, None) if module else None
        world = own() if isinstance(own, type) else gymnasium.make(env).unwrapped
    except gymnasium.error.Error as error:
        known = [i for i, spec in gymnasium.registry.items() if "mujoco" in str(spec.entry_point)]
        raise UserError(f"{unknown_name('env', env, known)} ({' '.join(str(error).split())})") from None
    except Exception as error:  # an environment may raise anything
        raise UserError(f"env={env} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(world, MujocoEnv):
        raise UserError(f"env={env} is no environment on MuJoCo (gymnasium.envs.mujoco.MujocoEnv)")
    return world


def replayed(world: MujocoEnv, episode: Trajectory, task: Task) -> Metrics:
    """Return what the environment says of an episode: the sum of its rewards, and whether and when it ended.

    As in the environment, rewards after its end do not count. Numbers that it reports as x_position are a distance.
    """
    assert episode.start is not None
    step = np.diff(np.asarray(episode.steps.time, float))
    if len(step) and not np.allclose(step, world.dt, rtol=1e-3):
        raise UserError(
            f"the environment acts every {world.dt:g} s; leave optimizer.ctrl_dt out, or give it that value"
        )
    world.reset(seed=0)
    world.set_state(np.asarray(episode.start.qpos, float), np.asarray(episode.start.qvel, float))
    begun, total, count, ended, info = float(world.data.qpos[0]), 0.0, 0, False, {}
    for action in np.asarray(episode.actions):
        _, reward, ended, _, info = world.step(action)
        total, count = total + float(reward), count + 1
        if ended:
            break
    metrics = {"return": total, "fell": float(ended)}
    if ended:
        metrics["time_to_fall_s"] = count * world.dt
    if "x_position" in info:
        metrics["distance_m"] = float(info["x_position"]) - begun
    if (done := _success(info)) is not None:
        metrics["success"] = done
    return metrics


def _success(info: Mapping[str, Any]) -> float | None:
    """Return the success that an environment reports; None for one that reports none."""
    found = [info[name] for name in ("success", "is_success", "solved") if name in info]
    return float(bool(found[0])) if found else None


def _return(metrics: Mapping[str, float]) -> float:
    return metrics["return"]


def _reset(world: MujocoEnv, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return n start states that the environment draws."""
    states = []
    for seed in rng.integers(2**31, size=n):
        world.reset(seed=int(seed))
        states.append((world.data.qpos.copy(), world.data.qvel.copy(), world.data.act.copy()))
    qpos, qvel, act = (np.array(part) for part in zip(*states, strict=True))
    return qpos, qvel, act.reshape(n, world.model.na)


def _spec_of(world: MujocoEnv, env: str) -> mujoco.MjSpec:
    """Return the model of the environment. Raises UserError if it is not that of its file."""
    spec = mujoco.MjSpec.from_file(world.fullpath)
    model = spec.compile()
    for array in ("body_mass", "geom_size", "geom_friction", "actuator_gear", "jnt_range", "dof_damping"):
        own, other = getattr(world.model, array), getattr(model, array)
        if own.shape != other.shape or not np.array_equal(own, other):
            raise UserError(f"env={env} changes {array} of its model {world.fullpath}, so it cannot be a task")
    return spec
