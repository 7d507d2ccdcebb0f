"""Helpers for MjSpec, without MuJoCo's warnings, which are meant for the authors of a model."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from movlr_jax.errors import MissingModel, UserError

BONE = (0.93, 0.90, 0.84, 1.0)  # rgba of skeletons in films


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence Python's and MuJoCo's warnings; MuJoCo would also write MUJOCO_LOG.TXT in the working folder."""
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(handler)


@contextlib.contextmanager
def compiled_specs() -> Iterator[list[mujoco.MjSpec]]:
    """Yield a list of the specs that are compiled meanwhile, the last one last."""
    compile_, made = mujoco.MjSpec.compile, []

    def recorded(spec: mujoco.MjSpec, *args: Any) -> mujoco.MjModel:
        made.append(spec)
        return compile_(spec, *args)

    mujoco.MjSpec.compile = recorded
    try:
        yield made
    finally:
        mujoco.MjSpec.compile = compile_


def compile_spec(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """Compile `spec` without warnings; errors still raise."""
    with quiet():
        return spec.compile()


def read_spec(path: Path, text: str | None = None) -> mujoco.MjSpec:
    """Return the spec of an MJCF file, or of `text` in its place. Raises UserError with MuJoCo's message."""
    try:
        with quiet():
            if text is None:
                return mujoco.MjSpec.from_file(str(path))
            spec = mujoco.MjSpec.from_string(text)
            spec.modelfiledir = str(path.parent)
            return spec
    except (ValueError, mujoco.FatalError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from None


def strip(spec: mujoco.MjSpec, geoms: Iterable[mujoco.MjsGeom]) -> None:
    """Remove `geoms` (of a floor or a room), lights, cameras and keyframes from `spec`."""
    for element in (*geoms, *spec.lights, *spec.cameras, *spec.keys):
        spec.delete(element)
    spec.nkey = 0  # otherwise an empty keyframe remains


def place(spec: mujoco.MjSpec, poses: Mapping[str, np.ndarray]) -> None:
    """Move children of the world: body -> pose [7] in the world, m and quaternion; `<frame>`s around them stay."""
    framed = [name for name in poses if spec.body(name).frame is not None]
    for name, pose in poses.items():
        body = spec.body(name)
        body.pos, body.quat = (np.zeros(3), np.array([1.0, 0, 0, 0])) if name in framed else (pose[:3], pose[3:])
        body.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT  # euler or axisangle would override quat
    if not framed:
        return
    model = compile_spec(spec)  # in which these bodies have the poses of the frames around them
    for name in framed:
        inverse, local, frame = np.zeros(7), np.zeros(7), model.body(name)
        mujoco.mju_negPose(inverse[:3], inverse[3:], frame.pos, frame.quat)
        mujoco.mju_mulPose(local[:3], local[3:], inverse[:3], inverse[3:], poses[name][:3], poses[name][3:])
        spec.body(name).pos, spec.body(name).quat = local[:3], local[3:]


def bare_bones(spec: mujoco.MjSpec) -> None:
    """Give every mesh the colour of bone and no material, for films."""
    for geom in spec.geoms:
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
            geom.rgba, geom.material = BONE, ""


def face_forward(body: mujoco.MjsBody) -> None:
    """Rotate a body that faces -y to face +x, and move it above the origin."""
    body.pos, body.quat = [0.0, 0.0, body.pos[2]], [0.5**0.5, 0.0, 0.0, 0.5**0.5]


def package_folder(module: str, package: str) -> Path:
    """Return the folder of a package of models without importing it. Raises MissingModel if it is not installed."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise missing_package(package)
    return Path(found.origin).parent


def missing_package(package: str) -> MissingModel:
    """Return the error for a package of models that is not installed."""
    return MissingModel(f"this model is part of the package {package}, which is not installed; pip install {package}")
