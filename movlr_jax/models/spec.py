"""MjSpec without chatter: what a model's authors are warned of, its users need not read."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import mujoco

from movlr_jax.errors import UserError

BONE = (0.93, 0.90, 0.84, 1.0)  # of every skeleton in films


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences Python's and MuJoCo's warnings; MuJoCo would also write MUJOCO_LOG.TXT in the working folder."""
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(handler)


def compile_spec(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """The compiled model of `spec`; what is wrong with it still raises."""
    with quiet():
        return spec.compile()


def read_spec(path: Path) -> mujoco.MjSpec:
    """The spec of an MJCF file. Raises UserError with MuJoCo's words on one line."""
    try:
        with quiet():
            return mujoco.MjSpec.from_file(str(path))
    except (ValueError, mujoco.FatalError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from None


def strip(spec: mujoco.MjSpec, geoms: Iterable[mujoco.MjsGeom]) -> None:
    """Takes `geoms` (of a floor or a room), lights, cameras and keyframes out of `spec`."""
    for element in (*geoms, *spec.lights, *spec.cameras, *spec.keys):
        spec.delete(element)
    spec.nkey = 0  # else an empty keyframe comes back


def bare_bones(spec: mujoco.MjSpec) -> None:
    """Gives every mesh the colour of bone, without shine, for films."""
    for geom in spec.geoms:
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:
            geom.rgba, geom.material = BONE, ""


def face_forward(body: mujoco.MjsBody) -> None:
    """Turns a body that is built facing -y to face +x, above the origin."""
    body.pos, body.quat = [0.0, 0.0, body.pos[2]], [0.5**0.5, 0.0, 0.0, 0.5**0.5]


def package_folder(module: str, package: str) -> Path:
    """Where an installed package of models lies. Raises UserError when it is missing; nothing is imported."""
    found = find_spec(module)
    if found is None or found.origin is None:
        raise missing_package(package)
    return Path(found.origin).parent


def missing_package(package: str) -> UserError:
    """What to say of a package of models that is not there."""
    return UserError(
        f"this model comes with the package {package}, which is not installed here; pip install {package}"
    )
