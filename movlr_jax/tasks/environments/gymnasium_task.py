"""Environments of Gymnasium on MuJoCo as tasks."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import mujoco

from movlr_jax._util.resources import resource_dir
from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.tasks.base import Task
from movlr_jax.tasks.environments.replay import Environment, environment_task, matched

if TYPE_CHECKING:
    from gymnasium.envs.mujoco.mujoco_env import MujocoEnv

# what the environments of Gymnasium reward, in words that are read without a language model
DESCRIPTIONS: Mapping[str, str] = {
    "Ant": "walk forward as fast as possible",
    "HalfCheetah": "run forward as fast as possible",
    "Hopper": "hop forward as fast as possible",
    "Humanoid": "walk forward as fast as possible",
    "HumanoidStandup": "stand up",
    "InvertedDoublePendulum": "balance the pole",
    "InvertedPendulum": "balance the pole",
    "Pusher": "push the object to the goal",
    "Reacher": "touch the target with the fingertip",
    "Swimmer": "swim forward as fast as possible",
    "Walker2d": "walk forward as fast as possible",
}
_EXAMPLE = "env=Ant-v5"


def gymnasium_task(*, episode_s: float, env: str | None = None, description: str | None = None) -> Task:
    """Build the task for an environment of Gymnasium, by its name or as module:Class. Raises UserError.

    description: what the environment rewards, in words, for the proposer and the judge.
    """
    environment = Environment(str(env), open_environment(env))
    world = environment.world
    family, _, version = str(env).rpartition(":")[2].partition("-")
    words = description or DESCRIPTIONS.get(family)
    if not words:
        raise UserError(f'say what env={env} rewards, as in task.settings.description="walk forward"')
    spec = matched(mujoco.MjSpec.from_file(world.fullpath), world.model, str(env))
    file = resource_dir("assets") / "rewards" / "gymnasium" / f"{family.lower()}.py"
    own = file.read_text(encoding="utf-8") if version == "v5" and file.is_file() else ""
    return environment_task(environment, spec, description=words, episode_s=episode_s, own_reward=own)


def timing(env: str | None) -> dict[str, float]:
    """Return the settings that suit an environment, by their names."""
    return Environment(str(env), open_environment(env)).timing()


def open_environment(env: str | None) -> MujocoEnv:
    """Return the environment `env`, without wrappers. Raises UserError."""
    if not env:
        raise UserError(f"task=gymnasium needs an environment; set env=NAME, as in {_EXAMPLE}")
    with needed("task=gymnasium", "gym"):
        import gymnasium
        from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
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
