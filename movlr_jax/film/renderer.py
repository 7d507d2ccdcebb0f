"""Offscreen rendering: choice of an OpenGL backend, and a canvas that renders a model.

MuJoCo selects OpenGL by MUJOCO_GL when it is first imported, and a process cannot recover from a failed EGL. Backends
are therefore tested in child processes, and a canvas imports the context class of a working backend by name. Only
`set_aside_unusable` changes an environment variable. This module imports MuJoCo late, because importing MuJoCo fails
for an unknown MUJOCO_GL, and this module reports that.
"""

from __future__ import annotations

import copy
import ctypes.util
import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from movlr_jax.errors import UserError

if TYPE_CHECKING:
    import mujoco

PROBE_DEADLINE_S = 30.0
ADVICE = "apt-get install libegl1 libgl1-mesa-dri libopengl0 installs EGL, apt-get install libosmesa6 installs OSMesa"
MAX_GEOMS = 20000  # a whole body with 700 muscles has about 8000

_OFF = ("disable", "disabled", "off", "false", "0")
_ON = ("enable", "enabled", "on", "true", "1")  # MuJoCo's values for the platform's default
_DEFAULTS = {"linux": ("egl", "osmesa"), "darwin": ("cgl",), "win32": ("glfw",)}
_KNOWN = {"linux": ("egl", "osmesa", "glfw", "glx"), "darwin": ("cgl", "glfw"), "win32": ("wgl", "glfw")}
# the MUJOCO_GL that this process was started with, if MuJoCo could not be imported with it
_set_aside: list[str] = []
_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}
_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 32, 32) as renderer:
    renderer.update_scene(data)
    if not renderer.render().any():
        raise SystemExit("rendering works, but the picture is black")
"""


@dataclass(frozen=True)
class RenderBackend:
    """An OpenGL backend that works here, or None, with the reason."""

    name: str | None  # egl, osmesa, ...: the module of `mujoco` that creates its context
    reason: str


def set_aside_unusable() -> None:
    """Make MuJoCo importable if MUJOCO_GL is a value that it rejects or whose library is missing. For commands only.

    The value is remembered, so that `renderer` can report why it does not work.
    """
    requested = os.environ.get("MUJOCO_GL", "").lower().strip()
    if requested in ("", *_ON, *_OFF):
        return
    library = _LIBRARIES.get(requested)
    if requested not in _KNOWN.get(sys.platform, ("glfw",)) or (library and not ctypes.util.find_library(library)):
        _set_aside.append(requested)
        os.environ["MUJOCO_GL"] = _OFF[0]


def renderer() -> RenderBackend:
    """Return the backend of this process: EGL, else OSMesa; or only the one that MUJOCO_GL requests.

    Tests them in child processes, which takes about a second; the result is cached in this process.
    """
    return _choose(_set_aside[-1] if _set_aside else os.environ.get("MUJOCO_GL", "").lower().strip())


@functools.cache
def _choose(requested: str) -> RenderBackend:
    """Return the backend for MUJOCO_GL=`requested`, "" if it is not set."""
    if requested in _OFF:
        return RenderBackend(None, f"MUJOCO_GL={requested} disables rendering; unset it to get films")
    defaults = _DEFAULTS.get(sys.platform, ("glfw",))
    candidates = defaults if requested in ("", *_ON) else (requested,)
    failures = []
    for name in candidates:
        failure = _probe(name)
        if failure is None:
            reason = f"requested by MUJOCO_GL={requested}" if requested else "the first that works here"
            return RenderBackend(name, "; ".join([reason, *failures]))
        failures.append(f"{name} failed: {failure}")
    if requested not in ("", *_ON, *defaults):
        failures.append(f"unset MUJOCO_GL, which is {requested!r}, or set it to {' or '.join(defaults)}")
    elif sys.platform == "linux":
        failures.append(ADVICE)
    return RenderBackend(None, "; ".join(failures))


def _probe(name: str) -> str | None:
    """Render one ball in a child process. Returns why it failed, or None if it worked."""
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
        return f"it did not finish within {PROBE_DEADLINE_S:.0f} s"
    if done.returncode == 0:
        return None
    library = _LIBRARIES.get(name)
    if library and ctypes.util.find_library(library) is None:
        return f"the library lib{library} is not installed"  # PyOpenGL reports this as an AttributeError
    if done.returncode < 0:
        return f"the process that tested it was killed by signal {-done.returncode}"
    return (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1][:300]


class Canvas:
    """An offscreen renderer of one model, fast enough with software OpenGL. Close it, or use it as a context manager.

    Its views are side by side, each `size` = (width, height) px. It shows geom groups 0-2 without sites and
    shadows. detail: size in m of the details of meshes that may be lost, for speed. Raises UserError if rendering is
    not possible here.
    """

    def __init__(
        self, model: mujoco.MjModel, size: tuple[int, int], views: int = 1, *, samples: int = 0, detail: float = 0.0
    ) -> None:
        import mujoco

        from movlr_jax.film.meshes import simplify

        backend = renderer()
        if backend.name is None:
            raise UserError(f"no film: {backend.reason}")
        self._size, self._views = size, views
        width, height = views * size[0], size[1]
        self.model = copy.copy(model)  # which software OpenGL renders twenty times faster with these settings
        quality, buffer = self.model.vis.quality, self.model.vis.global_
        quality.shadowsize, quality.offsamples = 0, samples
        quality.numslices, quality.numstacks = 8, 4
        buffer.offwidth, buffer.offheight = width, height
        if detail:
            simplify(self.model, detail)
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

    def draw(
        self,
        data: mujoco.MjData,
        cameras: Sequence[mujoco.MjvCamera],
        add: Callable[[mujoco.MjvScene, mujoco.MjData], None] | None = None,
    ) -> np.ndarray:
        """Render `data` to a picture [height, views x width, 3] uint8, with one camera per view.

        Call `place` on `data` first. `add` may add geoms to the scene of each view.
        """
        import mujoco

        self._gl.make_current()  # another canvas may be current
        width, height = self._size
        for i, camera in enumerate(cameras):
            mujoco.mjv_updateScene(
                self.model, data, self._option, None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, self._scene
            )
            if add:
                add(self._scene, data)
            mujoco.mjr_render(mujoco.MjrRect(i * width, 0, width, height), self._scene, self._context)
        picture = np.empty((height, self._views * width, 3), np.uint8)
        whole = mujoco.MjrRect(0, 0, self._views * width, height)
        mujoco.mjr_readPixels(picture, None, whole, self._context)
        return picture[::-1]  # OpenGL's first row is the bottom row

    def close(self) -> None:
        """Free the OpenGL context; Python's garbage collection frees it too late."""
        self._gl.make_current()
        self._context.free()
        self._gl.free()

    def __enter__(self) -> Canvas:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def place(model: mujoco.MjModel, data: mujoco.MjData, qpos: np.ndarray) -> None:
    """Compute the positions of all that is rendered (bodies, lights, flexes, tendons) at the posture `qpos` [nq].

    They are in the frame in which z is up, as the cameras.
    """
    import mujoco

    from movlr_jax.biomech.world import show_upright

    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)
    mujoco.mj_flex(model, data)
    mujoco.mj_tendon(model, data)
    show_upright(model, data)
