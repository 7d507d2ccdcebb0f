"""The moving pictures of the documentation, from trajectories of searches and evaluations.

    python benchmarks/gallery.py assets/gallery/drink.gif RUN_DIR/gen_00/k02.npz [+task=NAME model=NAME ...]

For a trajectory of a run directory, the settings of the run name the task. Shows at most 3 s, from `--from-s` on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from movlr_jax.engine import environment

environment.prepare_environment()

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402
from quick import read_options, searched  # noqa: E402

from movlr_jax.engine.episodes import EpisodeRequest  # noqa: E402
from movlr_jax.evolution.film import clip_of  # noqa: E402
from movlr_jax.film.captions import Caption  # noqa: E402
from movlr_jax.film.clips import Style, frames  # noqa: E402
from movlr_jax.film.muscles import ACTIVE, REST  # noqa: E402

SIZE, FPS, LONGEST_S = (420, 316), 12.5, 3.0
COLOURS = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gif", type=Path, nargs="?")
    parser.add_argument("trajectory", nargs="?")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--from-s", type=float, default=0.0)
    given = read_options(parser)
    if given.quick:
        with tempfile.TemporaryDirectory() as folder:
            trajectory = searched(Path(folder)) / "gen_00" / "k00.npz"
            draw(Path(folder) / "quick.gif", str(trajectory), [], 0.0)
    elif given.trajectory:
        draw(given.gif, given.trajectory, given.settings, given.from_s)
    else:
        parser.error("GIF TRAJECTORY or --quick is needed")


def draw(gif: Path, trajectory: str, settings: Sequence[str], from_s: float) -> None:
    """Write a moving picture of a trajectory."""
    request = EpisodeRequest(Path(trajectory), settings=settings)
    clip = clip_of(request.task(), Path(trajectory).read_bytes(), Caption(""))
    shown = clip.times <= from_s + LONGEST_S  # from the start, since the camera follows the body
    act = None if clip.act is None else clip.act[shown]
    task = clip.task.replace(cameras=clip.task.view.cameras[:1])
    clip = replace(clip, task=task, qpos=clip.qpos[shown], times=clip.times[shown], act=act)
    pictures = list(frames(clip, Style(SIZE, FPS, samples=4), captions=False))[int(from_s * FPS) :]
    scale = np.linspace(REST, ACTIVE, SIZE[0])[:, :3] * 255  # few pixels have the colours of active muscles
    sample = [*pictures[:: max(1, len(pictures) // 4)], np.tile(scale.astype(np.uint8), (SIZE[1] // 4, 1, 1))]
    palette = Image.fromarray(np.concatenate(sample)).quantize(COLOURS)
    first, *rest = [
        Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures
    ]
    first.save(gif, save_all=True, append_images=rest, duration=round(1000 / FPS), loop=0, optimize=True)
    print(gif, gif.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
