"""Replay an episode in three dimensions: in MuJoCo's own viewer, or on a page of this machine."""

from __future__ import annotations

import contextlib
import copy
import html
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np

from movlr_jax.errors import UserError
from movlr_jax.film.meshes import simplify
from movlr_jax.film.muscles import MuscleColours
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import Camera

HOST = "127.0.0.1"
_FPS = 30.0
_SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0)
_SPACE, _RIGHT, _LEFT, _DOWN, _UP = 32, 262, 263, 264, 265  # codes of keys in GLFW
_DETAIL = 0.002  # m, of meshes that are sent to a browser


def has_display() -> bool:
    """Return whether a window can be opened here."""
    return not sys.platform.startswith("linux") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


@dataclass
class Replay:
    """An episode that plays. `model` and `data` are what a viewer shows; muscles have the colours of activation."""

    task: Task
    record: EpisodeRecord
    title: str
    speed: float = 1.0
    playing: bool = True
    step: int = 0
    model: mujoco.MjModel = field(init=False)
    data: mujoco.MjData = field(init=False)

    def __post_init__(self) -> None:
        self.model = copy.copy(self.task.model)
        self.data = mujoco.MjData(self.model)
        self._colours = MuscleColours(self.model, self.task.view.weakened)
        self.times = self.record.time - self.record.time[0]
        self.length = float(self.times[-1])
        self.show(0)

    @property
    def now(self) -> float:
        """Time since the start of the episode, s."""
        return float(self.times[self.step])

    def show(self, step: int) -> None:
        """Put the state of a control step into `data`, with its contacts; the first follows the last."""
        self.step = step % len(self.record.time)
        self._clock = self.now
        self.record.put(self.step, self.data)
        mujoco.mj_forward(self.model, self.data)
        if self.model.na:
            self._colours.show(self.data.act)

    def advance(self, seconds: float) -> bool:
        """Play for `seconds` s of wall time. Return whether the picture changed."""
        if not self.playing:
            return False
        clock = self._clock + seconds * self.speed
        if clock > self.length:
            clock = 0.0
        before = self.step
        self.show(int(np.searchsorted(self.times, clock, side="right")) - 1)
        self._clock = clock
        return self.step != before

    def key(self, code: int) -> None:
        """Obey a key of the window."""
        if code == _SPACE:
            self.playing = not self.playing
        elif code in (_LEFT, _RIGHT):
            self.playing = False
            self.show(self.step + (1 if code == _RIGHT else -1))
        elif code in (_DOWN, _UP):
            place = _SPEEDS.index(self.speed) + (1 if code == _UP else -1)
            self.speed = _SPEEDS[min(max(place, 0), len(_SPEEDS) - 1)]


def _ticks() -> Iterator[float]:
    """Yield the seconds since the last tick, `_FPS` times per second."""
    last = time.monotonic()
    while True:
        time.sleep(1 / _FPS)
        now = time.monotonic()
        yield now - last
        last = now


def in_window(replay: Replay) -> None:
    """Show the replay in MuJoCo's own viewer until it is closed. Raises UserError."""
    import mujoco.viewer

    try:
        handle = mujoco.viewer.launch_passive(replay.model, replay.data, key_callback=replay.key)
    except RuntimeError as error:  # macOS without mjpython
        raise UserError(
            f"MuJoCo's viewer does not open ({error}); on macOS start it as mjmovlr-jax view, or give in=browser"
        ) from None
    with handle:
        camera = replay.task.view.cameras[0]
        with handle.lock():
            handle.cam.lookat[:] = np.asarray(camera.lookat) @ replay.task.layout.world.frame
            handle.cam.distance = camera.distance
            handle.cam.azimuth, handle.cam.elevation = camera.azimuth, camera.elevation
            if camera.track:
                handle.cam.type = mujoco.mjtCamera.mjCAMERA_TRACKING.value
                handle.cam.trackbodyid = replay.model.body(camera.track).id
            handle.opt.sitegroup[:] = 0
        for seconds in _ticks():
            if not handle.is_running():
                return
            with handle.lock():
                replay.advance(seconds)
            text = f"{replay.now:.2f} s of {replay.length:.2f} s, speed {replay.speed:g}"
            handle.set_texts(
                (mujoco.mjtFontScale.mjFONTSCALE_100, mujoco.mjtGridPos.mjGRID_TOPLEFT, replay.title, text)
            )
            handle.sync()


def in_browser(replay: Replay, port: int) -> None:
    """Serve a page with the replay until Ctrl-C. Raises UserError."""
    with contextlib.closing(Page(replay, port)) as page:
        print(f"{replay.title}: look at {page.address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        page.play()


class Page:
    """A page on 127.0.0.1 with the replay in three dimensions, which plays while `play` runs.

    port: 0 for any free one; the next free one is taken if it is in use.
    """

    def __init__(self, replay: Replay, port: int) -> None:
        import mjviser
        import viser

        simplify(replay.model, _DETAIL)
        self._replay, self._lock = replay, threading.Lock()
        self._server = viser.ViserServer(host=HOST, port=port or _free_port(), label=replay.title, verbose=False)
        self._scene = mjviser.ViserMujocoScene(self._server, replay.model, num_envs=1)
        self._scene.show_tendons = True
        self._scene.site_groups_visible[:] = [False] * 6
        self._server.scene.set_up_direction(replay.task.layout.world.up)
        self._server.initial_camera.look_at = self._scene_place(replay.task.view.cameras[0].lookat)
        self._server.initial_camera.position = self._scene_place(eye(replay.task.view.cameras[0]))
        self._controls()
        self._draw()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._server.get_port()}"

    def play(self) -> None:
        """Play until the process is interrupted."""
        for seconds in _ticks():
            with self._lock:
                if self._replay.advance(seconds) or self._scene.needs_update:
                    self._draw()
                    self._time.value = self._replay.now

    def close(self) -> None:
        self._server.stop()

    def _scene_place(self, at: tuple[float, float, float]) -> tuple[float, float, float]:
        """Return a place in the coordinates of the page, whose origin is the body that it follows."""
        replay, body = self._replay, self._scene._tracked_body_id
        return tuple(
            np.asarray(at) @ replay.task.layout.world.frame - (0.0 if body is None else replay.data.xpos[body])
        )

    def _draw(self) -> None:
        self._scene.update_from_mjdata(self._replay.data)
        self._scene.needs_update = False

    def _controls(self) -> None:
        gui, replay = self._server.gui, self._replay
        gui.add_markdown(html.escape(replay.title))
        step = max(round(replay.length / max(len(replay.record.time) - 1, 1), 4), 1e-3)
        self._time = gui.add_slider("time, s", 0.0, round(replay.length, 3), step, 0.0)
        play = gui.add_button("pause")
        speed = gui.add_dropdown("speed", [f"{s:g}" for s in _SPEEDS], initial_value=f"{replay.speed:g}")
        with gui.add_folder("show", expand_by_default=False):
            self._scene.create_overlay_gui()

        @self._time.on_update
        def _(event: Any) -> None:
            if event.client is not None:  # a person, not the replay
                with self._lock:
                    replay.show(int(np.searchsorted(replay.times, self._time.value)))
                    self._draw()

        @play.on_click
        def _(event: Any) -> None:
            replay.playing = not replay.playing
            play.label = "pause" if replay.playing else "play"

        @speed.on_update
        def _(event: Any) -> None:
            replay.speed = float(speed.value)


def eye(camera: Camera) -> tuple[float, float, float]:
    """Return the position [3] m of a camera."""
    turn, rise = np.deg2rad([camera.azimuth, camera.elevation])
    ahead = np.array([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)])
    x, y, z = np.asarray(camera.lookat) - camera.distance * ahead
    return float(x), float(y), float(z)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
