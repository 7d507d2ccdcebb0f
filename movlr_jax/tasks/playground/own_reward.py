"""The reward of an environment of MuJoCo Playground, from its own code.

Its step is called with the states that our physics recorded in place of those that it would simulate: one of its
simulation steps before the end of each control step. MJX in float32 and MuJoCo in float64 part ways at contacts, so a
replay of the actions alone would reward another motion.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.tasks.base import Metrics
from movlr_jax.tasks.environments.replay import ActionMap, check_steps
from movlr_jax.types import Step, Trajectory


@dataclass(frozen=True)
class OwnReward:
    """The reward, metrics and end of an environment.

    Attributes:
        env: An environment of Playground.
        module: Its module `mjx_env`, whose step simulates.
        name: The name of the environment.
        seed: Seed of the reset that draws commands and targets.
    """

    env: Any
    module: Any
    name: str
    seed: int

    @property
    def ctrl_dt(self) -> float:
        return float(self.env.dt)

    def measure(self, episode: Trajectory) -> Metrics:
        """Return the sum of the rewards of an episode, whether it was ended, and the means of the metrics.

        The first call compiles the step of the environment, for seconds on a CPU. Rewards after its end do not count.
        """
        check_steps(episode, self.ctrl_dt)
        controls = np.asarray(episode.actions, np.float32)
        total, ended, reported = 0.0, False, []
        state = self._begun
        for t, action in enumerate(self._actions.actions(controls).astype(np.float32)):
            state = self._step(
                state, action, controls[t], jax.tree.map(lambda x, t=t: np.asarray(x)[t], episode.steps)
            )
            total += float(state.reward)
            reported.append({name.rpartition("/")[2]: float(value) for name, value in state.metrics.items()})
            if ended := bool(state.done):
                break
        means = {f"environment_{name}": float(np.mean([m[name] for m in reported])) for name in sorted(reported[0])}
        return {"environment_return": total, "environment_terminated": float(ended)} | means

    @cached_property
    def _begun(self) -> Any:
        """The state after the reset, without a simulation, which the first step replaces."""
        from mujoco import mjx  # slow to import

        key = jax.random.key(self.seed)

        @jax.jit
        def reset(key: jax.Array) -> Any:  # XLA removes what these do not need
            state = self.env.reset(key)
            return state.info, state.metrics, state.reward, state.done, state.data.mocap_pos, state.data.mocap_quat

        info, metrics, reward, done, position, quaternion = reset(key)
        shapes = jax.eval_shape(self.env.reset, key)
        data = mjx.make_data(self.env.mj_model, impl=self.env.mjx_model.impl.value)
        data = data.replace(mocap_pos=position, mocap_quat=quaternion)
        obs = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes.obs)
        return _strong(shapes.replace(data=data, obs=obs, reward=reward, done=done, metrics=metrics, info=info))

    @cached_property
    def _actions(self) -> ActionMap:
        """How the environment makes controls of actions, from a few."""
        nu = self.env.action_size
        rng = np.random.default_rng(0)
        # small ones, of which targets of joints are not clipped
        given = 0.1 * np.array([-np.ones(nu), np.ones(nu), *rng.uniform(-1, 1, (3, nu))], np.float32)
        made = np.array([self._controls(action) for action in given])
        names = [self.env.mj_model.actuator(i).name for i in range(self.env.mj_model.nu)]
        try:
            fitted = ActionMap.fitted(given.astype(float), made.astype(float), names, self.name)
        except UserError as error:
            raise UserError(f"{error}, so its reward is not known; set task.settings.measured_by=task") from None
        return ActionMap(fitted.sigmoid, fitted.offset, fitted.gain, np.full(nu, -np.inf), np.full(nu, np.inf))

    def _controls(self, action: np.ndarray) -> np.ndarray:
        """Return the controls [nu] for the first action [nu] after the reset."""

        def seen(model: Any, data: Any, control: jax.Array, n_substeps: int = 1) -> Any:
            raise _Seen(np.asarray(control))

        try:
            with _stepping(self.module, seen):
                self.env.step(jax.tree.map(lambda x: x, self._begun), action)  # a copy: a step may change its info
        except _Seen as made:
            return made.args[0]
        raise UserError(f"env={self.name} does not simulate by mjx_env.step")

    @cached_property
    def _step(self) -> Callable[..., Any]:
        """The compiled step of the environment, with the state that was recorded before its last simulation step."""

        from mujoco import mjx

        @jax.jit
        def step(state: Any, action: jax.Array, control: jax.Array, recorded: Step) -> Any:
            def placed(model: Any, data: Any, given: jax.Array, n_substeps: int = 1) -> Any:
                data = data.replace(
                    time=recorded.time, qpos=recorded.qpos, qvel=recorded.qvel, act=recorded.act, ctrl=control
                )
                return mjx.step(model, data)

            with _stepping(self.module, placed):
                return _strong(self.env.step(state, action))

        return step


class _Seen(Exception):
    """Carries the controls that an environment would simulate."""


def _strong(state: Any) -> Any:
    """Return a tree without weak types, which would make a second call compile again."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype) if _number(x) else x, state)


def _number(x: Any) -> bool:
    return not jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)


@contextlib.contextmanager
def _stepping(module: Any, step: Callable[..., Any]) -> Iterator[None]:
    """Let environments simulate by `step`."""
    kept, module.step = module.step, step
    try:
        yield
    finally:
        module.step = kept
