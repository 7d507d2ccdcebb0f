"""Films of rollouts: one picture for each instant, with captions above and below."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from PIL import Image

from movlr_jax.biomech.world import show_upright
from movlr_jax.errors import UserError
from movlr_jax.film.captions import STRIP, Caption, Display, Reading, Strips
from movlr_jax.film.encoding import as_file, encode
from movlr_jax.film.muscles import MuscleColours, muscle_tendons
from movlr_jax.film.renderer import Canvas, place
from movlr_jax.film.views import Marks, Views
from movlr_jax.tasks.base import Task
from movlr_jax.types import Progress

GAP = 4  # px between films side by side, and between the pictures of a contact sheet
SHEET = "_sheet.png"  # end of the name of a film's contact sheet
PICTURES = 8  # of a contact sheet
_SHEET_WIDTH, _PICTURE_HEIGHT = 1920, 270  # px: of a row of a contact sheet at most, of a picture
_LOST = 1e8  # larger coordinates count as divergence
_LOSS = 25  # crf of H.264: two thirds of the size at 22
_WINDOW_S = 1.0  # over which the speed is the mean
_DETAIL_PX = 1.0  # size of the smallest details of meshes, at the distance at which the camera looks
_THIN_PX = 1.5  # radius of the thinnest muscle, in such details


@dataclass(frozen=True)
class Style:
    """Size and rate of a film."""

    size: tuple[int, int] = (480, 560)  # px, width and height of each view with its captions
    fps: float = 25.0
    samples: int = 0  # of antialiasing per pixel, which multiplies the cost of rendering by software


FULL, PREVIEW = Style(), Style((240, 280), 8.0)


@dataclass(frozen=True)
class Clip:
    """One episode to film: T control steps of `task`."""

    task: Task
    qpos: np.ndarray  # [T, nq] m, rad
    times: np.ndarray  # [T] s, increasing
    caption: Caption
    act: np.ndarray | None = None  # [T, na] muscle activations, shown as colours


@dataclass(frozen=True)
class Film:
    """An mp4, and pictures of it on one page."""

    mp4: bytes
    sheet: bytes  # png


def film(clip: Clip, style: Style = FULL, progress: Progress | None = None) -> Film:
    """Film `clip` in real time with each of the task's cameras. Raises UserError if nothing can be rendered here."""
    return side_by_side([clip], style, progress)


def side_by_side(clips: Sequence[Clip], style: Style = FULL, progress: Progress | None = None) -> Film:
    """Return one film of several clips side by side; a clip that ends earlier holds its last picture."""
    if any(side % 2 for side in style.size):
        raise UserError(f"a film of {style.size[0]} x {style.size[1]} px cannot be encoded; make both numbers even")
    total = max(len(_frame_times(clip.times, style.fps)) for clip in clips)
    kept: list[Image.Image] = []
    with contextlib.ExitStack() as stack:
        films = [frames(clip, style) for clip in clips]
        for pictures in films:
            stack.callback(pictures.close)
        mp4 = encode(_watched(_joined(films), total, kept, progress), style.fps, loss=_LOSS)
    return Film(mp4, _sheet(kept))


def frames(
    clip: Clip, style: Style = FULL, *, captions: bool = True, at: np.ndarray | None = None
) -> Generator[np.ndarray, None, None]:
    """Yield the pictures of a film, each [height, cameras x width, 3] uint8.

    Each shows the time; speed and distance, if the body travels; and the colours of activation, if it has muscles.
    From the first non-finite state on, the film holds the last valid state and says so.

    Args:
        clip: The episode.
        style: Size and rate.
        captions: False omits the instruction and the result, for blind judging.
        at: Times [F] s of the pictures; None for real time.
    """
    clip, lost_s = _until_lost(clip)
    (width, height), cameras = style.size, clip.task.view.cameras
    strip = max(10, round(STRIP * height)) if captions else 0
    times = _frame_times(clip.times, style.fps) if at is None else np.asarray(at, float)
    strips = Strips(clip.caption, width * len(cameras), strip) if captions else None
    view = width, height - 2 * strip
    nearest = min(camera.distance for camera in cameras)
    across = 2 * float(np.tan(np.deg2rad(clip.task.model.vis.global_.fovy) / 2)) / view[1]  # of a pixel 1 m away
    detail = _DETAIL_PX * nearest * across
    with Canvas(clip.task.model, view, len(cameras), samples=style.samples, detail=detail) as canvas:
        model, data = canvas.model, mujoco.MjData(canvas.model)
        muscles = clip.act is not None and len(muscle_tendons(model)[0]) > 0
        colours = MuscleColours(model, clip.task.view.weakened, _THIN_PX * detail) if muscles else None
        display = Display(view[1], width, muscles=muscles, weakened=bool(clip.task.view.weakened))
        views, marks = Views(model, cameras), Marks.of(clip.task)
        readings = _readings(model, data, clip, lost_s, times)
        for reading, i, f in zip(readings, *_steps(clip.times, times), strict=True):
            place(model, data, _between(model, clip.qpos, i, f))
            if colours and clip.act is not None:
                j = min(i + 1, len(clip.act) - 1)
                colours.show((1 - f) * clip.act[i] + f * clip.act[j])
            picture = display.on(canvas.draw(data, views.at(data), marks.add_to), reading)
            yield strips.around(picture) if strips else picture


def _readings(
    model: mujoco.MjModel, data: mujoco.MjData, clip: Clip, lost_s: float | None, times: np.ndarray
) -> list[Reading]:
    """Return what is written into the pictures at `times` [F] s."""
    body = clip.task.view.cameras[0].track  # None if the motion stays in its place
    lost = [None if lost_s is None or time < lost_s else lost_s for time in times]
    if body is None:
        return [Reading(float(t), lost_s=gone) for t, gone in zip(times, lost, strict=True)]
    path = np.empty((len(clip.qpos), 2))
    for i, qpos in enumerate(clip.qpos):
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        show_upright(model, data)
        path[i] = data.body(body).xpos[:2]

    def where(t: np.ndarray) -> np.ndarray:
        return np.stack([np.interp(t, clip.times, path[:, axis]) for axis in range(2)], axis=-1)

    before = np.clip(times - _WINDOW_S / 2, clip.times[0], clip.times[-1])
    # at the start not over what follows, which says nothing of a body at rest
    later = np.clip(times - clip.times[0], np.diff(clip.times[:2]).sum(), _WINDOW_S / 2)
    after = np.clip(times + later, clip.times[0], clip.times[-1])
    speed = np.linalg.norm(where(after) - where(before), axis=-1) / np.maximum(after - before, 1e-6)
    distance = np.linalg.norm(where(times) - path[0], axis=-1)
    return [
        Reading(float(t), float(v), float(d), gone)
        for t, v, d, gone in zip(times, speed, distance, lost, strict=True)
    ]


def _until_lost(clip: Clip) -> tuple[Clip, float | None]:
    """Return the clip with its last valid state held after divergence, and the time of divergence, s, or None."""
    qpos, times, lost_s = np.array(clip.qpos, float), np.asarray(clip.times, float), None
    act = None if clip.act is None else np.clip(np.nan_to_num(np.asarray(clip.act, float)), 0.0, 1.0)
    bad = ~(np.abs(qpos) < _LOST).all(axis=1)  # this form counts NaN as bad
    if bad.any():
        first = int(bad.argmax())
        qpos[first:] = qpos[first - 1] if first else clip.task.model.qpos0
        lost_s = float(times[first])
    return replace(clip, qpos=qpos, times=times, act=act), lost_s


def _frame_times(times: np.ndarray, fps: float) -> np.ndarray:
    """Return the times [F] s of the pictures of a film; the last one shows the last state."""
    count = math.ceil(float(times[-1] - times[0]) * fps - 1e-6) + 1
    return np.minimum(times[0] + np.arange(count) / fps, times[-1])


def _steps(times: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the control step before each of the times `at` [F] s, and the fraction [F] to the next one."""
    position = np.interp(at, times, np.arange(len(times)))
    index = np.minimum(position.astype(int), max(0, len(times) - 2))
    return index, position - index


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


def _watched(
    pictures: Iterable[np.ndarray], total: int, kept: list[Image.Image], progress: Progress | None
) -> Iterator[np.ndarray]:
    """Yield the `total` pictures unchanged, report each one, and keep those of a contact sheet."""
    wanted = {*np.linspace(0, total - 1, min(PICTURES, total)).round().astype(int).tolist()}
    for i, picture in enumerate(pictures):
        if i in wanted:
            height, width = picture.shape[:2]
            small = min(1.0, _PICTURE_HEIGHT / height)
            size = max(1, round(small * width)), max(1, round(small * height))
            kept.append(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))
        yield picture
        if progress:
            progress(i + 1, total)


def _sheet(pictures: Sequence[Image.Image]) -> bytes:
    """Return a contact sheet as a PNG: the pictures in rows."""
    width, height = pictures[0].size
    columns = max(1, min(PICTURES // 2, (_SHEET_WIDTH + GAP) // (width + GAP)))
    rows = -(-len(pictures) // columns)
    columns = min(columns, len(pictures))
    page = Image.new("RGB", (columns * (width + GAP) - GAP, rows * (height + GAP) - GAP), (255, 255, 255))
    for i, picture in enumerate(pictures):
        page.paste(picture, (i % columns * (width + GAP), i // columns * (height + GAP)))
    return as_file(page, "PNG")
