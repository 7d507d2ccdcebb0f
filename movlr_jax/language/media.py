"""Media for vision models: a motion as a video or as a few pictures, without captions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from movlr_jax.film.clips import Clip, Style, frames
from movlr_jax.film.encoding import as_file, encode
from movlr_jax.language.base import Evaluation
from movlr_jax.language.clients.call import Media
from movlr_jax.language.settings import ShownConfig
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import stem_of
from movlr_jax.tasks import Task

_JPEG_QUALITY = 88
_SAMPLES = 4  # of antialiasing, per pixel
_SMOOTH_FPS = 12.0  # videos with more pictures per second are made for people, and without antialiasing


@dataclass(frozen=True)
class Seen:
    """A motion as it is shown to a model."""

    media: Sequence[Media]  # one video, or several pictures
    seconds: float  # length of the motion from the start of the episode, which may last longer
    times: Sequence[float] = ()  # s from there, as written into the pictures; none for a video


@dataclass(frozen=True)
class MotionMedia:
    """Media of a candidate for one vision model. Rendered once and stored in the run directory."""

    config: ShownConfig
    archive: Archive
    clip: Callable[[Evaluation], Clip]
    every_s: float | None = None  # seconds between frames; replaces config.frames

    @property
    def mode(self) -> str:
        return self.config.media if self.every_s is None else "frames"

    def see(self, candidate: Evaluation) -> Seen:
        """Return the motion as one video or several pictures. Raises UserError if nothing can be rendered."""
        clip, stem = self.clip(candidate), f"{stem_of(candidate)}_seen"
        clip = dataclasses.replace(clip, task=with_views(clip.task, self.config.views))
        seconds = float(clip.times[-1])
        if self.mode == "video":
            return Seen([self._video(f"{stem}.mp4", clip)], seconds)
        times = self.times(clip)
        return Seen(self._pictures(stem, clip, times), seconds, tuple(times.tolist()))

    def _video(self, name: str, clip: Clip) -> Media:
        config, fps = self.config, self.config.fps / self.config.slow
        if not self.archive.has(name):
            style = Style(config.size, config.fps, _SAMPLES if config.fps <= _SMOOTH_FPS else 0)
            self.archive.put(name, encode(frames(clip, style, captions=False), fps))
        return Media("video/mp4", self.archive.read(name), fps=fps)

    def _pictures(self, stem: str, clip: Clip, times: np.ndarray) -> list[Media]:
        """Return the pictures at `times` [n] s."""
        names = [f"{stem}_{i:02d}of{len(times)}.jpg" for i in range(len(times))]
        if not all(self.archive.has(name) for name in names):
            pictures = frames(clip, Style(self.config.size, samples=_SAMPLES), captions=False, at=times)
            for name, picture in zip(names, pictures, strict=True):
                self.archive.put(name, as_file(Image.fromarray(picture), "JPEG", quality=_JPEG_QUALITY))
        return [Media("image/jpeg", self.archive.read(name)) for name in names]

    def times(self, clip: Clip) -> np.ndarray:
        """Return the times [n] s of the pictures, including the first and the last step.

        They are evenly spaced. But where a success must last for the end of an episode (`Task.scoring.hold_s`), the
        last three of four or more show the beginning, the middle and the end of that time.
        """
        first, last = float(clip.times[0]), float(clip.times[-1])
        n = self.config.frames if self.every_s is None else max(1, round((last - first) / self.every_s)) + 1
        hold = clip.task.scoring.hold_s
        if n < 4 or not 0 < 2 * hold < last - first:
            return np.linspace(first, last, n)
        return np.concatenate([np.linspace(first, last - hold, n - 2), [last - hold / 2, last]])


def with_views(task: Task, views: int) -> Task:
    """Return the task with `views` cameras: its own, then its first one turned about its target by 90 deg each.

    Its own are `cameras` and `more_cameras`.
    """
    cameras = [*task.view.cameras, *task.view.more_cameras][:views]
    for i in range(1, views - len(cameras) + 1):
        cameras.append(
            dataclasses.replace(task.view.cameras[0], azimuth=task.view.cameras[0].azimuth + 90.0 * i, shows="")
        )
    return task.replace(cameras=tuple(cameras))
