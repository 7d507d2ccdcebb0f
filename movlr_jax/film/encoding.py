"""Pictures to an mp4 that browsers play, and back."""

from __future__ import annotations

import functools
import io
import itertools
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from movlr_jax.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image


@functools.cache
def ffmpeg_version() -> str:
    """Return the version of ffmpeg, which writes the films. Raises UserError where it does not run."""
    import imageio_ffmpeg

    fix = "pip install imageio-ffmpeg installs ffmpeg; IMAGEIO_FFMPEG_EXE, if it is set, must be a path of it"
    try:
        program = imageio_ffmpeg.get_ffmpeg_exe()
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise UserError(f"ffmpeg does not run: {error}; {fix}") from None
    return " ".join(done.stdout.split()[:3])


def encode(pictures: Iterable[np.ndarray], fps: float, *, loss: int = 22) -> bytes:
    """Encode pictures [height, width, 3] uint8 as an mp4 that browsers play (H.264, yuv420p); `loss` is its crf."""
    import imageio_ffmpeg
    import mediapy  # both are slow to import

    ffmpeg_version()
    mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())
    pictures = iter(pictures)
    first = next(pictures)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        args = "-preset veryfast -movflags +faststart"  # index first: playback can begin before the end
        try:
            with mediapy.VideoWriter(path, first.shape[:2], fps=fps, crf=loss, ffmpeg_args=args) as writer:
                for picture in itertools.chain([first], pictures):
                    writer.add_image(picture)
            return path.read_bytes()
        except (OSError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UserError(
                f"no film: {reason}; free space in {tempfile.gettempdir()}, or set TMPDIR to another folder"
            ) from error


def as_file(picture: Image, kind: str, **options: Any) -> bytes:
    """Return a picture as the bytes of a file of `kind`: PNG, JPEG or GIF. `options` are those of PIL."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def read_frames(path: Path, most: int) -> list[np.ndarray]:
    """Return at most `most` frames [height, width, 3] of an mp4 file, evenly spaced."""
    import imageio_ffmpeg
    import mediapy

    mediapy.set_ffmpeg(imageio_ffmpeg.get_ffmpeg_exe())
    pictures = mediapy.read_video(path)
    return [pictures[i] for i in np.linspace(0, len(pictures) - 1, min(most, len(pictures))).astype(int)]


def still(path: Path) -> bytes | None:
    """Return the picture 1 s before the end of an mp4 file as a JPEG 480 px wide, or None."""
    import imageio_ffmpeg

    source = ["-v", "error", "-nostdin", "-threads", "1", "-sseof", "-1", "-i"]
    picture = ["-frames:v", "1", "-vf", "scale=480:-2", "-q:v", "5", "-f", "image2pipe", "-c:v", "mjpeg", "-"]
    try:
        command = [imageio_ffmpeg.get_ffmpeg_exe(), *source, str(path), *picture]
        done = subprocess.run(command, capture_output=True, timeout=20, check=True)
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None
    return done.stdout or None
