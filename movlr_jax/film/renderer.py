"""Drawing without a display: which OpenGL works here, and a canvas to draw a model on.

MuJoCo picks its OpenGL from MUJOCO_GL when it is first imported, and a failed EGL cannot be undone in a
process. So backends are tried in child processes, and a canvas takes the context class of the one that
works by name: only `set_aside_unusable` changes an environment variable. It imports MuJoCo late, because MuJoCo
refuses to be imported under a MUJOCO_GL that it does not know, and somebody has to say so.
"""

from __future__ import annotations

import copy
import ctypes.util
import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from movlr_jax.errors import UserError

if TYPE_CHECKING:
    import mujoco

PROBE_DEADLINE_S = 30.0
ADVICE = "apt-get install libegl1 libgl1-mesa-dri brings EGL, apt-get install libosmesa6 brings OSMesa"
MAX_GEOMS = 20000  # a whole body of 700 muscles draws about 8000

_OFF = ("disable", "disabled", "off", "false", "0")
_ON = ("enable", "enabled", "on", "true", "1")  # MuJoCo's words for the default of the platform
_DEFAULTS = {"linux": ("egl", "osmesa"), "darwin": ("cgl",), "win32": ("glfw",)}
_KNOWN = {"linux": ("egl", "osmesa", "glfw", "glx"), "darwin": ("cgl", "glfw"), "win32": ("wgl", "glfw")}
_set_aside: list[
    str
] = []  # the MUJOCO_GL that this process was started with, where MuJoCo could not be imported
_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}
_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    if not renderer.render().any():
        raise SystemExit("it draws, but the picture is black")
"""


@dataclass(frozen=True)
class RenderBackend:
    """An OpenGL that draws here, or None, and why."""

    name: str | None  # egl, osmesa, ...: the module of `mujoco` that makes its context
    reason: str


def set_aside_unusable() -> None:
    """Lets MuJoCo be imported under a MUJOCO_GL that it refuses, or whose library is missing. Commands only.

    What was asked for is remembered, and why it draws nothing is `renderer`'s to say.
    """
    wanted = os.environ.get("MUJOCO_GL", "").lower().strip()
    if wanted in ("", *_ON, *_OFF):
        return
    library = _LIBRARIES.get(wanted)
    if wanted not in _KNOWN.get(sys.platform, ("glfw",)) or (
        library and not ctypes.util.find_library(library)
    ):
        _set_aside.append(wanted)
        os.environ["MUJOCO_GL"] = _OFF[0]


def renderer() -> RenderBackend:
    """What this process can draw with: EGL, else OSMesa, or only what MUJOCO_GL asks for.

    Tries them in child processes, which takes about a second; the answer is kept for the process.
    """
    return _choose(_set_aside[-1] if _set_aside else os.environ.get("MUJOCO_GL", "").lower().strip())


@functools.cache
def _choose(wanted: str) -> RenderBackend:
    """The backend for MUJOCO_GL=`wanted`, "" when it is not set."""
    if wanted in _OFF:
        return RenderBackend(None, f"MUJOCO_GL={wanted} switches drawing off; unset it to have films")
    defaults = _DEFAULTS.get(sys.platform, ("glfw",))
    candidates = defaults if wanted in ("", *_ON) else (wanted,)
    failures = []
    for name in candidates:
        failure = _probe(name)
        if failure is None:
            asked = f"MUJOCO_GL={wanted} asks for it" if wanted else "the first that works here"
            return RenderBackend(name, "; ".join([asked, *failures]))
        failures.append(f"{name} failed: {failure}")
    return RenderBackend(None, "; ".join([*failures, *_remedy(wanted, defaults)]))


def _remedy(wanted: str, defaults: Sequence[str]) -> list[str]:
    """What the person can do when nothing draws."""
    if wanted not in ("", *_ON, *defaults):
        return [f"unset MUJOCO_GL, which is {wanted!r}, or set it to {' or '.join(defaults)}"]
    return [ADVICE] if sys.platform == "linux" else []


def _probe(name: str) -> str | None:
    """Draws one ball in a child process; why that failed, or None when it worked."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env={**os.environ, "MUJOCO_GL": name},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {PROBE_DEADLINE_S:.0f} s"
    if done.returncode == 0:
        return None
    library = _LIBRARIES.get(name)
    if library and ctypes.util.find_library(library) is None:
        return f"the library lib{library} is not installed"  # PyOpenGL says this as an AttributeError
    if done.returncode < 0:
        return f"the process that tried it died of signal {-done.returncode}"
    return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1][:300]


class Canvas:
    """An offscreen picture of one model, cheap enough for software OpenGL. Close it, or use it as a context.

    Its views stand side by side, each `size` = (width, height) px. Shows what is in groups 0-2, no sites, no
    shadows. Raises UserError when nothing draws here.
    """

    def __init__(
        self, model: mujoco.MjModel, size: tuple[int, int], views: int = 1, *, samples: int = 0
    ) -> None:
        import mujoco

        backend = renderer()
        if backend.name is None:
            raise UserError(f"no film: {backend.reason}")
        self._size, self._views = size, views
        width, height = views * size[0], size[1]
        self.model = _cheap(model, width, height, samples)
        self._gl = importlib.import_module(f"mujoco.{backend.name}").GLContext(width, height)
        self._gl.make_current()
        self._context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene = mujoco.MjvScene(self.model, maxgeom=MAX_GEOMS)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = 0
        self._option = mujoco.MjvOption()
        self._option.geomgroup[:] = [1, 1, 1, 0, 0, 0]
        self._option.sitegroup[:] = 0
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = 0

    def draw(self, data: mujoco.MjData, cameras: Sequence[mujoco.MjvCamera]) -> np.ndarray:
        """A picture [height, views x width, 3] uint8 of `data`, one camera a view.

        `data` must have gone through `place`.
        """
        import mujoco

        self._gl.make_current()  # another canvas may have drawn since
        width, height = self._size
        for i, camera in enumerate(cameras):
            mujoco.mjv_updateScene(
                self.model, data, self._option, None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, self._scene
            )
            mujoco.mjr_render(mujoco.MjrRect(i * width, 0, width, height), self._scene, self._context)
        picture = np.empty((height, self._views * width, 3), np.uint8)
        whole = mujoco.MjrRect(0, 0, self._views * width, height)
        mujoco.mjr_readPixels(picture, None, whole, self._context)
        return picture[::-1]  # OpenGL counts rows from below

    def close(self) -> None:
        """Frees the OpenGL context, which Python's own clean-up does too late."""
        self._gl.make_current()
        self._context.free()
        self._gl.free()

    def __enter__(self) -> Canvas:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def place(model: mujoco.MjModel, data: mujoco.MjData, qpos: np.ndarray) -> None:
    """Puts all that is drawn (bodies, lights, tendons) where the posture `qpos` [nq] has it."""
    import mujoco

    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)
    mujoco.mj_tendon(model, data)


def _cheap(model: mujoco.MjModel, width: int, height: int, samples: int) -> mujoco.MjModel:
    """A copy of `model` that software OpenGL draws twenty times faster."""
    model = copy.copy(model)
    quality, buffer = model.vis.quality, model.vis.global_
    quality.shadowsize, quality.offsamples = 0, samples
    quality.numslices, quality.numstacks = 8, 4
    buffer.offwidth, buffer.offheight = width, height
    return model
