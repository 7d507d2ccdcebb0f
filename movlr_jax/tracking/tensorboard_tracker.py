"""`tracker=tensorboard`: event files in `tensorboard/` of the run directory; nothing needs a network."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from movlr_jax.film.encoding import as_file, read_frames
from movlr_jax.tracking.base import Ended, Shown, TrackerConfig, reached

FOLDER = "tensorboard"
_FRAMES, _MS = 40, 75  # of a film as GIF, which is what TensorBoard plays


class TensorBoardTracker:
    """Writes scalars, films, the settings and the best program as events.

    Each is written at once: the thread of tensorboardX's SummaryWriter ends when the disk is full, and the writer
    then waits for ever.
    """

    def __init__(self, config: TrackerConfig, root: Path):
        from tensorboardX import summary
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import RecordWriter

        self._folder, self._summary, self._event = root / FOLDER, summary, Event
        with self._reached():
            self._folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}"
            self._writer = RecordWriter(str(self._folder / name))
            self._write(file_version="brain.Event:2")

    def begin(self, about: Mapping[str, Any], begun: Mapping[str, Any]) -> dict[str, Any]:
        with self._reached():
            self._text("settings", f"    {json.dumps(about, indent=1)}".replace("\n", "\n    "))
        return {"key": FOLDER}

    def generation(self, shown: Shown) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        with self._reached():
            for name, value in shown.numbers.items():
                self._write(summary=self._summary.scalar(name, value), step=shown.generation)
            for name, path in shown.films.items():
                image = Summary.Image(encoded_image_string=_gif(path))
                summary = Summary(value=[Summary.Value(tag=f"films/{name}", image=image)])
                self._write(summary=summary, step=shown.generation)
            self._writer.flush()

    def finish(self, best: Path, report: Path | None) -> None:
        """Keep the best program. TensorBoard shows no pages: the report is next to its folder."""
        with self._reached():
            self._text("best.py", f"```python\n{best.read_text(encoding='utf-8')}\n```")

    def close(self, ended: Ended) -> None:
        with self._reached():
            self._writer.close()

    def _text(self, name: str, text: str) -> None:
        self._write(summary=self._summary.text(name, text), step=0)
        self._writer.flush()

    def _write(self, **event: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **event).SerializeToString())

    def _reached(self) -> AbstractContextManager[None]:
        # ffmpeg raises RuntimeError for a film that it cannot read
        return reached("tensorboard", self._folder, "check that folder, and resume", RuntimeError)


def _gif(path: Path) -> bytes:
    """Return a film as an animated GIF of at most `_FRAMES` frames."""
    from PIL import Image

    first, *rest = [Image.fromarray(frame).quantize(64) for frame in read_frames(path, _FRAMES)]
    return as_file(first, "GIF", save_all=True, append_images=rest, duration=_MS, loop=0)


open_tracker = TensorBoardTracker
