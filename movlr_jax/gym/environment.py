"""A task as a Gymnasium environment, simulated by C MuJoCo on one core."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from gymnasium.spaces import Box

from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import overrides_of, task_override
from movlr_jax.config.schema import Config
from movlr_jax.control.build import acting
from movlr_jax.control.ppo.actions import action_space
from movlr_jax.control.ppo.observations import observation
from movlr_jax.control.settings import PpoSettings
from movlr_jax.engine.environment import prepare_environment
from movlr_jax.engine.rewards import vetted
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError, unknown_name
from movlr_jax.film.renderer import Canvas, place
from movlr_jax.film.views import Views
from movlr_jax.models.spec import quiet
from movlr_jax.physics.common import clock_sensors, planning_model, whole_substeps
from movlr_jax.rewards.state import State
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import measured
from movlr_jax.types import SimState, Step, Trajectory

_STARTS = 32  # start states from which the action space is made


class TaskEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One simulation of a task.

    Actions in [-1, 1] and observations are those of `optimizer=ppo`; the reward of a step is w . r of a program.
    An episode is terminated when the task says so (a fall) or the simulation diverges, and truncated after episode_s.
    `info` has the `terms` of the reward, and at the end the `metrics` of the task.
    """

    _process: ClassVar[int | None] = None  # the process that runs JAX
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 62}  # noqa: RUF012

    def __init__(
        self,
        task: str | Path,
        *,
        model: str | Path | None = None,
        reward: str | Path = "human",
        settings: str | Sequence[str] = (),
        episode_s: float | None = None,
        sandbox: str = "",
        size: tuple[int, int] = (480, 480),
        render_mode: str | None = None,
    ):
        """Build the task and vet the reward.

        Args:
            task: Name of a task, or path of a Python file that defines one.
            model: Name of a model or path of an MJCF file; None for the task's default.
            reward: `human`, `initial`, path of a file or of a run directory, or the text of a reward program.
            settings: One or more settings as on the command line, as "optimizer.ppo.action=posture" or
                "task.settings.speed_m_s=1.0". "tuned=true" adds those tuned for the policies of the package.
            episode_s: Length of an episode in s; None for the task's default.
            sandbox: `confined` or `process`; empty for the default.
            size: Width and height of pictures, px.
            render_mode: `rgb_array`, or None.

        Raises:
            UserError: For unknown names, settings out of range, a reward program that is rejected, and in a fork of a
                process that has built an environment.
        """
        self._refuse_fork()
        prepare_environment()
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(unknown_name("render_mode", str(render_mode), self.metadata["render_modes"]))
        given = {"model": model, "episode_s": episode_s, "sandbox": sandbox or None}
        self.config, optimizer = _settings(task, given, [settings] if isinstance(settings, str) else settings)
        self.task: Task = acting(optimizer, task_of(self.config))
        starts = self.task.start(np.random.default_rng(0), _STARTS)
        self._space = action_space(optimizer, self.task, starts)
        self._ctrl_dt, self._sim_dt = optimizer.ctrl_dt, optimizer.sim_dt
        self._substeps = whole_substeps(self._sim_dt, self._ctrl_dt)
        self.model = planning_model(self._space.model, self._sim_dt, False)
        self._clocks = clock_sensors(self.model)
        self.data, self._shown = mujoco.MjData(self.model), mujoco.MjData(self.model)
        self.program = vetted(reward, self.task, self.config, self._space.model)
        self._limit = max(1, round(self.task.episode_s / self._ctrl_dt))
        self._goals = {name: jnp.asarray(value, jnp.float32) for name, value in self.task.data.items()}
        self._weights = np.array(list(self.program.weights.values()), np.float32)
        self._observation = observation(optimizer.ppo.policy, self.task, starts[0][0])
        self._see, self._command = jax.jit(self._observation), jax.jit(self._controls)
        self._after = jax.jit(self._outcome)
        self._steps: list[tuple[Step, np.ndarray]] = []
        self._worst: dict[str, float] = {}
        self._canvas: Canvas | None = None
        self.render_mode, self._size = render_mode, size
        self.metadata = {**self.metadata, "render_fps": round(1 / self._ctrl_dt)}
        self._begin(*(x[:1] for x in starts))
        (seen,) = self._see(self._view()).shape
        self.observation_space = Box(-np.inf, np.inf, (seen,), np.float32)
        self.action_space = Box(-1.0, 1.0, (self._space.size,), np.float32)

    def _refuse_fork(self) -> None:
        if TaskEnv._process not in (None, os.getpid()):
            raise UserError(
                "this process is a fork of one that runs JAX, and would wait forever; start it anew, as in "
                "AsyncVectorEnv(..., context='spawn')"
            )
        TaskEnv._process = os.getpid()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode at a random start state of the task."""
        super().reset(seed=seed)
        self._begin(*self.task.start(self.np_random, 1))
        return _numbers(self._see(self._view())), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hold the controls of `action` [size] for ctrl_dt."""
        data, previous = self.data, self._ctrl
        if self.task.course.perturb:
            pushed = self.task.course.perturb(self._state(), self._ctrl_dt)
            data.qpos[:], data.qvel[:] = np.asarray(pushed.qpos)[0], np.asarray(pushed.qvel)[0]
        self._ctrl = np.asarray(self._command(np.asarray(action, np.float32), self._view()), np.float32)
        data.ctrl[:] = self._ctrl
        data.qacc_warmstart[:] = 0  # as rollouts of the package begin each control step
        before = data.time
        data.time += self._ctrl_dt  # so that the time after a reset is never that of a valid step
        with quiet():
            if self._substeps > 1:
                mujoco.mj_step(self.model, data, self._substeps - 1)
            qpos, qvel, act = (x.copy() for x in (data.qpos, data.qvel, data.act))
            time = data.time - self._ctrl_dt
            mujoco.mj_step(self.model, data, 1)
        # MuJoCo resets a diverged simulation, and with it the clock
        self._diverged = abs(data.time - before - 2 * self._ctrl_dt) > 0.5 * self._sim_dt
        data.time = before + self._ctrl_dt
        sensors = data.sensordata.copy()
        sensors[self._clocks] -= self._ctrl_dt
        seen = _single(Step(time, qpos, qvel, act, sensors, previous))
        self._steps.append((seen, self._ctrl))
        values, observed = self._after(seen, self._ctrl, self._initial, self._view())
        values = np.asarray(values)
        terms = self._finite(np.full_like(values, np.nan) if self._diverged else values)
        start = jax.tree.map(lambda x: x[None], self._initial)
        steps = jax.tree.map(lambda x: x[None, None], seen)
        over = self.task.course.over is not None and bool(self.task.course.over(steps, start).any())
        terminated, truncated = over or self._diverged, len(self._steps) >= self._limit
        info: dict[str, Any] = {"terms": terms}
        if terminated or truncated:
            info["metrics"] = measured(self._trajectory(), self.task, self._ctrl_dt)
        reward = float(self._weights @ np.array(list(terms.values()), np.float32))
        return _numbers(observed), reward, terminated, truncated, info

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a picture [height, width, 3] of the first camera of the task, None without render_mode."""
        if self.render_mode is None:
            return None
        self._canvas = self._canvas or Canvas(self.model, self._size)
        return self._canvas.draw(self._shown, self._cameras_at(self.data.qpos)).copy()

    def close(self) -> None:
        """Free the renderer."""
        if self._canvas is not None:
            self._canvas.close()
            self._canvas = None

    def _begin(self, qpos: np.ndarray, qvel: np.ndarray, act: np.ndarray) -> None:
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:], self.data.act[:] = qpos[0], qvel[0], act[0]
        mujoco.mj_forward(self.model, self.data)
        self._ctrl, self._diverged = np.zeros(self.model.nu, np.float32), False
        self._initial = self._view()
        self._steps = []
        self._views = Views(self.model, self.task.view.cameras[:1])
        self._cameras_at(qpos[0])  # the camera follows from here

    def _cameras_at(self, qpos: np.ndarray) -> Sequence[mujoco.MjvCamera]:
        """Put the posture `qpos` [nq] into what is rendered, and return the cameras that show it."""
        place(self.model, self._shown, qpos)
        return self._views.at(self._shown)

    def _controls(self, action: jax.Array, view: Step) -> jax.Array:
        return self._space.controls(jnp.clip(action, -1.0, 1.0), view, self._sim_dt, self._ctrl_dt)

    def _outcome(self, step: Step, ctrl: jax.Array, initial: Step, view: Step) -> tuple[jax.Array, jax.Array]:
        """Return the terms [nr] of a control step, and the observation [no] after it."""
        terms = self.program.reward(State(self.task.layout, step, self._goals, initial), ctrl)
        values = [jnp.asarray(terms[name], jnp.float32) for name in self.program.terms]
        return jnp.stack(values), self._observation(view)

    def _finite(self, values: np.ndarray) -> dict[str, float]:
        """Return the terms of a step; a non-finite one is replaced by its worst value so far."""
        terms: dict[str, float] = {}
        for name, found, weight in zip(self.program.terms, values.tolist(), self._weights, strict=True):
            if np.isfinite(found):
                worse = min if weight >= 0 else max
                self._worst[name] = worse(found, self._worst.get(name, found))
                terms[name] = found
            else:
                terms[name] = self._worst.get(name, 0.0)
        return terms

    def _view(self) -> Step:
        d = self.data
        return _single(Step(d.time, d.qpos, d.qvel, d.act, d.sensordata, self._ctrl))

    def _state(self) -> SimState:
        d = self.data
        now = (x.copy()[None] for x in (d.qpos, d.qvel, d.act, d.sensordata))
        return SimState(np.array([d.time]), *now, prev_action=self._ctrl[None], diverged=np.array([self._diverged]))

    def _trajectory(self) -> Trajectory:
        steps = jax.tree.map(lambda *x: np.stack(x), *(step for step, _ in self._steps))
        actions = np.stack([ctrl for _, ctrl in self._steps])
        final = jax.tree.map(lambda x: x[0], self._state())
        valid = np.asarray(len(actions) - self._diverged)  # the last step is the one that diverged
        return Trajectory(steps=steps, actions=actions, valid=valid, final=final)


def _settings(task: str | Path, given: Mapping[str, Any], settings: Sequence[str]) -> tuple[Config, PpoSettings]:
    """Return all settings, and those of the optimizer that has actions. Raises UserError."""
    names = {word.lstrip("+").partition("=")[0] for word in settings}
    defaults = {"optimizer": "optimizer=ppo", "tuned": "tuned=false"}
    words = [task_override(task), *(word for name, word in defaults.items() if name not in names)]
    words += overrides_of({key: value for key, value in given.items() if value is not None})
    config = compose([*words, *settings])
    if not isinstance(config.optimizer, PpoSettings):
        raise UserError(f"optimizer={config.optimizer.name} has no actions; give optimizer=ppo or optimizer=dynsyn")
    return config, config.optimizer


def _single(step: Step) -> Step:
    """Return a step in single precision, as policies and rewards read it; arrays are copied."""
    return jax.tree.map(lambda x: np.array(x, np.float32), step)


def _numbers(observed: jax.Array) -> np.ndarray:
    """Return an observation [no] with 0 in place of numbers that are not finite."""
    return np.nan_to_num(np.asarray(observed), nan=0.0, posinf=0.0, neginf=0.0)
