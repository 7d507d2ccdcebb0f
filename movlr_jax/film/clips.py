"""Films of rollouts: H.264 with captions above and below the picture."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from movlr_jax.errors import UserError
from movlr_jax.film.renderer import Canvas, place
from movlr_jax.tasks.base import Camera, Task
from movlr_jax.types import Progress

SIZE = (480, 360)  # px, width and height of one view with its caption
FPS = 25.0
GAP = 4  # px between films side by side

_REST, _ACTIVE = np.array([0.62, 0.27, 0.28, 1.0]), np.array([1.0, 0.08, 0.05, 1.0])  # rgba of a muscle
_STRIP, _TEXT, _FAINT, _ALARM = (30, 36, 45), (245, 247, 250), (165, 174, 186), (255, 120, 100)
_LOST = 1e8  # larger coordinates count as divergence


@dataclass(frozen=True)
class Caption:
    """Texts above and below a film; the clock is added."""

    title: str  # see `title`
    measure: str = ""  # the success measure, formatted by the task
    note: str = ""  # small text: the proposer and the judge


@dataclass(frozen=True)
class Clip:
    """One episode to film: T control steps of `task`."""

    task: Task
    qpos: np.ndarray  # [T, nq] m, rad
    times: np.ndarray  # [T] s, increasing
    caption: Caption
    act: np.ndarray | None = None  # [T, na] muscle activations, shown as colours


def title(task: str, generation: int, candidate: int) -> str:
    """Return the caption of a candidate of a search."""
    return f"{task} · generation {generation} · candidate {candidate}"


def film(
    clip: Clip,
    *,
    size: tuple[int, int] = SIZE,
    fps: float = FPS,
    samples: int = 0,
    progress: Progress | None = None,
) -> bytes:
    """Return an mp4 of `clip` in real time, `size` = (width, height) px for each of the task's cameras.

    samples > 0 enables antialiasing, which halves the speed of software rendering. Raises UserError if rendering is
    not possible here.
    """
    return side_by_side([clip], size=size, fps=fps, samples=samples, progress=progress)


def side_by_side(
    clips: Sequence[Clip],
    *,
    size: tuple[int, int] = SIZE,
    fps: float = FPS,
    samples: int = 0,
    progress: Progress | None = None,
) -> bytes:
    """Return one mp4 of several clips side by side; a clip that ends earlier holds its last picture."""
    if any(side % 2 for side in size):
        raise UserError(f"a film of {size[0]} x {size[1]} px cannot be encoded; make both numbers even")
    total = max(_frame_count(clip.times, fps) for clip in clips)
    with contextlib.ExitStack() as stack:
        films = [frames(clip, size=size, fps=fps, samples=samples) for clip in clips]
        for pictures in films:
            stack.callback(pictures.close)
        return encode(_counted(_joined(films), total, progress), fps)


def frames(
    clip: Clip, *, size: tuple[int, int] = SIZE, fps: float = FPS, samples: int = 0, captions: bool = True
) -> Generator[np.ndarray, None, None]:
    """Yield the pictures of a film, each [height, cameras x width, 3] uint8, in real time at `fps`.

    captions=False omits all texts, for blind judging. From the first non-finite state on, the film holds the last
    valid state and shows a message.
    """
    clip, lost_s = _until_lost(clip)
    (width, height), cameras = size, clip.task.cameras
    strip = max(10, round(0.07 * height)) if captions else 0
    frame_times, index, fraction = _resample(clip.times, fps)
    written = _Captions(clip.caption, width * len(cameras), strip, lost_s) if captions else None
    with Canvas(clip.task.model, (width, height - 2 * strip), len(cameras), samples=samples) as canvas:
        model, data = canvas.model, mujoco.MjData(canvas.model)
        views = _Views(model, cameras)
        for time, i, f in zip(frame_times, index, fraction, strict=True):
            place(model, data, _between(model, clip.qpos, i, f))
            if clip.act is not None:
                j = min(i + 1, len(clip.act) - 1)
                colour_muscles(model, (1 - f) * clip.act[i] + f * clip.act[j])
            picture = canvas.draw(data, views.at(data))
            yield written.around(picture, time) if written else picture


def encode(pictures: Iterable[np.ndarray], fps: float) -> bytes:
    """Encode pictures [height, width, 3] uint8 as an mp4 that browsers play (H.264, yuv420p)."""
    import imageio_ffmpeg
    import mediapy  # both are slow to import

    try:
        mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        raise UserError(f"no film: {error}; pip install imageio-ffmpeg installs ffmpeg") from error
    pictures = iter(pictures)
    first = next(pictures)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        args = "-preset veryfast -movflags +faststart"  # index first: playback can begin before the end
        try:
            with mediapy.VideoWriter(path, first.shape[:2], fps=fps, crf=22, ffmpeg_args=args) as writer:
                for picture in itertools.chain([first], pictures):
                    writer.add_image(picture)
            return path.read_bytes()
        except (OSError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UserError(
                f"no film: {reason}; free space in {tempfile.gettempdir()}, or set TMPDIR to another folder"
            ) from error


def read_frames(path: Path, most: int) -> list[np.ndarray]:
    """Return at most `most` frames [height, width, 3] of an mp4 file, evenly spaced."""
    import imageio_ffmpeg
    import mediapy

    mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())
    pictures = mediapy.read_video(path)
    return [pictures[i] for i in np.linspace(0, len(pictures) - 1, min(most, len(pictures))).astype(int)]


def colour_muscles(model: mujoco.MjModel, act: np.ndarray) -> None:
    """Colour the muscles of `model` by activations `act` [na]: dull at rest, bright when active."""
    muscle = (model.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON) & (model.actuator_actadr >= 0)
    amount = np.clip(act[model.actuator_actadr[muscle]], 0.0, 1.0)[:, None]
    model.tendon_rgba[model.actuator_trnid[muscle, 0]] = (1 - amount) * _REST + amount * _ACTIVE


class _Views:
    """The task's cameras. One that tracks a body follows it horizontally; `rise` and `vertical` say how it rises."""

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[Camera]) -> None:
        self._specs, self._cameras = cameras, [mujoco.MjvCamera() for _ in cameras]
        self._bodies = [None if c.track is None else model.body(c.track).id for c in cameras]
        self._origins: list[np.ndarray] | None = None
        for view, camera in zip(self._cameras, cameras, strict=True):
            view.type = mujoco.mjtCamera.mjCAMERA_FREE.value
            view.distance, view.azimuth = camera.distance, camera.azimuth
            view.elevation = camera.elevation

    def at(self, data: mujoco.MjData) -> list[mujoco.MjvCamera]:
        """Return the cameras for the state in `data`. Their `lookat` applies to the first state of the film."""
        places = [
            np.zeros(3) if body is None else data.xpos[body] * [1, 1, camera.vertical]
            for body, camera in zip(self._bodies, self._specs, strict=True)
        ]
        if self._origins is None:
            self._origins = places
        for view, camera, here, origin in zip(self._cameras, self._specs, places, self._origins, strict=True):
            view.lookat[:] = np.asarray(camera.lookat) + here - origin
            view.lookat[2] += camera.rise * (here - origin)[0]
        return self._cameras


class _Captions:
    """A strip above the picture with the title and the clock, and one below with the measure and the note."""

    def __init__(self, caption: Caption, width: int, strip: int, lost_s: float | None) -> None:
        self._width, self._strip, self._lost_s = width, strip, lost_s
        self._margin, self._size = strip // 3, max(7, round(0.62 * strip))
        longest = "000.00 s" if lost_s is None else self._clock(np.inf)[0]
        self._clock_room = min(width // 2, round(_font(self._size, False).getlength(longest)))
        head = Image.new("RGB", (width, strip), _STRIP)
        foot = head.copy()
        room = width - 2 * self._margin
        self._write(head, caption.title, _TEXT, room - self._clock_room - self._margin, bold=True)
        used = self._write(foot, caption.measure, _TEXT, room)
        small = max(6, round(0.78 * self._size))
        self._write(foot, caption.note, _FAINT, room - used - self._margin, size=small, right=True)
        self._head, self._foot = head, np.asarray(foot)

    def around(self, picture: np.ndarray, time: float) -> np.ndarray:
        """Return `picture` [rows, width, 3] uint8 with the strips and the clock at `time` s."""
        head = self._head.copy()
        self._write(head, *self._clock(time), self._clock_room, right=True)
        return np.concatenate([np.asarray(head), picture, self._foot])

    def _clock(self, time: float) -> tuple[str, tuple[int, int, int]]:
        if self._lost_s is not None and time >= self._lost_s:
            return f"diverged at {self._lost_s:.2f} s", _ALARM
        return f"{time:.2f} s", _TEXT

    def _write(
        self,
        strip: Image.Image,
        text: str,
        colour: tuple[int, int, int],
        room: int,
        *,
        size: int | None = None,
        bold: bool = False,
        right: bool = False,
    ) -> int:
        """Write one line into `strip`, truncated to `room` px. Returns its width, px."""
        font = _font(size or self._size, bold)
        text = _fitted(text, font, room)
        x = self._width - self._margin if right else self._margin
        draw = ImageDraw.Draw(strip)
        draw.text((x, self._strip / 2), text, fill=colour, font=font, anchor="rm" if right else "lm")
        return round(font.getlength(text))


@cache
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    import matplotlib  # its font has degree signs on every platform

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def _fitted(text: str, font: ImageFont.FreeTypeFont, room: int) -> str:
    """Return `text` on one line, truncated to `room` px."""
    text = " ".join(text.split())
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(text + "…") > room:
        text = text[:-1]
    return text + "…" if text else ""


def _until_lost(clip: Clip) -> tuple[Clip, float | None]:
    """Return the clip with its last valid state held after divergence, and the time of divergence, s, or None."""
    qpos, times = np.array(clip.qpos, float), np.asarray(clip.times, float)
    nq, act = clip.task.model.nq, clip.act
    if qpos.ndim != 2 or qpos.shape[1] != nq or times.shape != qpos.shape[:1] or not len(times):
        raise ValueError(
            f"a clip has qpos {qpos.shape} and times {times.shape}; expected [T, {nq}] and [T], T > 0"
        )
    act = None if act is None else np.clip(np.nan_to_num(np.asarray(act, float)), 0.0, 1.0)
    bad = ~(np.abs(qpos) < _LOST).all(axis=1)  # this form counts NaN as bad
    lost_s = None
    if bad.any():
        first = int(bad.argmax())
        qpos[first:] = qpos[first - 1] if first else clip.task.model.qpos0
        lost_s = float(times[first])
    return Clip(clip.task, qpos, times, clip.caption, act), lost_s


def _frame_count(times: np.ndarray, fps: float) -> int:
    return round(float(times[-1] - times[0]) * fps) + 1


def _resample(times: np.ndarray, fps: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return frame times [F] s, the control step before each frame [F], and the fraction to the next step [F]."""
    frame_times = np.minimum(times[0] + np.arange(_frame_count(times, fps)) / fps, times[-1])
    position = np.interp(frame_times, times, np.arange(len(times)))
    index = np.minimum(position.astype(int), max(0, len(times) - 2))
    return frame_times, index, position - index


def _between(model: mujoco.MjModel, qpos: np.ndarray, i: int, fraction: float) -> np.ndarray:
    """Interpolate the posture [nq] at `fraction` from step i to the next; rotations take the shortest path."""
    here = qpos[i].copy()
    if fraction > 0:
        change = np.zeros(model.nv)
        mujoco.mj_differentiatePos(model, change, 1.0, here, qpos[i + 1])
        mujoco.mj_integratePos(model, here, change, fraction)
    return here


def _joined(films: Sequence[Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    """Yield pictures of all films side by side until the longest film ends."""
    last: list[np.ndarray] = []
    for pictures in itertools.zip_longest(*films):
        last = [old if new is None else new for new, old in zip(pictures, last or pictures, strict=True)]
        gap = np.full((len(last[0]), GAP, 3), 255, np.uint8)
        yield np.concatenate([part for picture in last for part in (gap, picture)][1:], axis=1)


def _counted(pictures: Iterable[np.ndarray], total: int, progress: Progress | None) -> Iterator[np.ndarray]:
    for done, picture in enumerate(pictures, 1):
        yield picture
        if progress:
            progress(done, total)
