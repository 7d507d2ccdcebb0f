"""`tracker=tensorboard`: event files in `tensorboard/` of the run directory; nothing needs a network."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from movlr_jax.errors import needed
from movlr_jax.film.encoding import read_frames
from movlr_jax.tracking.base import Ended, Shown, TrackerConfig, reached

FOLDER = "tensorboard"
_FRAMES, _MS = 40, 75  # of a film as GIF, which is what TensorBoard plays


class TensorBoardTracker:
    """Writes scalars, films, the settings and the best program as events."""

    def __init__(self, folder: Path):
        with needed("tracker=tensorboard", "tracking"):
            from tensorboardX import SummaryWriter
        self._folder = folder
        with self._reached():
            self._writer = SummaryWriter(str(folder), flush_secs=10)

    def begin(self, about: Mapping[str, Any], key: str | None) -> str:
        with self._reached():
            self._writer.add_text("settings", f"    {json.dumps(about, indent=1)}".replace("\n", "\n    "), 0)
        return FOLDER

    def generation(self, shown: Shown) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        with self._reached():
            for name, value in shown.numbers.items():
                self._writer.add_scalar(name, value, shown.generation)
            for name, path in shown.films.items():
                image = Summary.Image(encoded_image_string=_gif(path))
                summary = Summary(value=[Summary.Value(tag=f"films/{name}", image=image)])
                self._writer._get_file_writer().add_summary(summary, shown.generation)
            self._writer.flush()

    def finish(self, best: Path, report: Path | None) -> None:
        """Keep the best program. TensorBoard shows no pages: the report is next to its folder."""
        with self._reached():
            self._writer.add_text("best.py", f"```python\n{best.read_text(encoding='utf-8')}\n```", 0)

    def close(self, ended: Ended) -> None:
        with self._reached():
            self._writer.close()

    def _reached(self) -> AbstractContextManager[None]:
        # ffmpeg raises RuntimeError for a film that it cannot read
        return reached("tensorboard", self._folder, "check that folder, and resume", RuntimeError)


def _gif(path: Path) -> bytes:
    """Return a film as an animated GIF of at most `_FRAMES` frames."""
    from PIL import Image

    frames = read_frames(path, _FRAMES)
    first, *rest = [Image.fromarray(frame).quantize(64) for frame in frames]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=rest, duration=_MS, loop=0)
    return buffer.getvalue()


def open_tracker(config: TrackerConfig, root: Path) -> TensorBoardTracker:
    return TensorBoardTracker(root / FOLDER)
