"""Media for vision models: a motion as a video or as a few pictures, without captions."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from movlr_jax.film.clips import Clip, encode, frames
from movlr_jax.language.base import Evaluation
from movlr_jax.language.clients.call import Media
from movlr_jax.language.settings import ModelConfig
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import candidate_path
from movlr_jax.tasks import Task

_JPEG_QUALITY = 88


@dataclass(frozen=True)
class MotionMedia:
    """Media of a candidate for one vision model. Rendered once and stored in the run directory."""

    config: ModelConfig
    archive: Archive
    clip: Callable[[Evaluation], Clip]
    every_s: float | None = None  # seconds between frames; replaces config.frames

    @property
    def mode(self) -> str:
        return self.config.media if self.every_s is None else "frames"

    def see(self, candidate: Evaluation) -> list[Media]:
        """Return one video or several pictures. Raises UserError if nothing can be rendered."""
        stem = candidate_path(candidate.generation, candidate.candidate, "_seen")
        shown = self._shown(self.clip(candidate))
        if self.mode == "video":
            path = f"{stem}.mp4"
            data = self._kept(
                path, lambda: encode(_pictures(shown, self.config), self.config.fps / self.config.slow)
            )
            return [Media("video/mp4", data, fps=self.config.fps / self.config.slow)]
        times = self.times(shown)
        names = [f"{stem}_{i:02d}of{len(times)}.jpg" for i in range(len(times))]
        if not all(self.archive.has(name) for name in names):
            for name, picture in zip(names, _stills(shown, self.config, times), strict=True):
                self.archive.put(name, _jpeg(picture))
        return [Media("image/jpeg", self.archive.read(name)) for name in names]

    def times(self, clip: Clip) -> np.ndarray:
        """Return the times [n] s of the pictures: evenly spaced, including the first and the last step."""
        first, last = float(clip.times[0]), float(clip.times[-1])
        n = self.config.frames if self.every_s is None else max(1, round((last - first) / self.every_s)) + 1
        return np.linspace(first, last, n)

    def _shown(self, clip: Clip) -> Clip:
        return dataclasses.replace(clip, task=with_views(clip.task, self.config.views))

    def _kept(self, path: str, make: Callable[[], bytes]) -> bytes:
        if not self.archive.has(path):
            self.archive.put(path, make())
        return self.archive.read(path)


def with_views(task: Task, views: int) -> Task:
    """Return the task with `views` cameras: its own, then its first one turned about its target by 90 deg each."""
    cameras = list(task.cameras)[:views]
    for i in range(1, views - len(cameras) + 1):
        cameras.append(dataclasses.replace(task.cameras[0], azimuth=task.cameras[0].azimuth + 90.0 * i))
    return dataclasses.replace(task, cameras=tuple(cameras))


def _pictures(clip: Clip, config: ModelConfig) -> Generator[np.ndarray, None, None]:
    return frames(clip, size=config.size, fps=config.fps, captions=False)


def _stills(clip: Clip, config: ModelConfig, times: np.ndarray) -> list[np.ndarray]:
    """Render the pictures at `times` [n] s."""
    index = np.abs(np.asarray(clip.times)[None, :] - times[:, None]).argmin(1)
    picked = dataclasses.replace(
        clip,
        qpos=np.asarray(clip.qpos)[index],
        times=np.arange(
            len(index), dtype=float
        ),  # one second per picture, so that each appears once at 1 fps
        act=None if clip.act is None else np.asarray(clip.act)[index],
    )
    return list(frames(picked, size=config.size, fps=1.0, captions=False))


def _jpeg(picture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()
