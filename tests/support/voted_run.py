"""Run directories to vote on, made without a simulation: candidates with films, and what a judge said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from movlr_jax.film.captions import STRIP
from movlr_jax.film.encoding import encode
from movlr_jax.records import Evaluation
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.events import written
from movlr_jax.storage.layout import candidate_path

JUDGE = "gemini some-model"
SOURCE = '"""Kick."""\n\nWEIGHTS = {"near": 2.0, "calm": 0.5}\n'


def make_run(
    root: Path,
    n: int,
    *,
    film: Callable[[int], bytes] = lambda k: b"film %d" % k,
    said: Sequence[tuple[int, int, str]] = (),
    description: str = "kick the ball",
    terms: Sequence[str] = ("near", "calm"),
    cameras: Sequence[str] = (),
) -> Path:
    """Make a run with n candidates. said: first, second and winner of each comparison of its judge."""
    names = [f"g00k{k:02d}" for k in range(n)]
    weights = dict.fromkeys(terms, 2.0)
    with Archive.create(root, "{}\n") as archive:
        about = {
            "task": "kick",
            "description": description,
            "backends": {"judge": JUDGE},
            "settings": {},
            "cameras": [*cameras],
        }
        archive.record("run", about)
        for k in range(n):
            archive.put(candidate_path(0, k, ".mp4"), film(k))
            means = {name: {"mean": 0.25, "curve": []} for name in terms}
            archive.record("evaluated", written(Evaluation(0, k, SOURCE, weights=weights, terms=means)), 0, k)
        comparisons = [
            {"first": names[i], "second": names[j], "winner": winner, "reason": "it looks better"}
            for i, j, winner in said
        ]
        strengths = [0.0] * n
        archive.record(
            "ranked",
            {
                "names": names, "strengths": strengths, "p_best": strengths, "flip_rate": 0.0, "best": names[0],
                "comparisons": comparisons,
            },
            0,
        )  # fmt: skip
    return root


def moving_bar(k: int, views: int = 2, seconds: float = 1.0) -> bytes:
    """A film that a browser plays: a bar of colour k moves through each view."""
    width, fps = 160, 25
    height = round(width / (1 - 2 * STRIP))  # as films are: square views between strips with texts
    colour = np.random.default_rng(k).integers(80, 255, 3)

    def picture(t: int) -> np.ndarray:
        view = np.full((height, width, 3), 30, np.uint8)
        view[:, 4 * t % width : 4 * t % width + 12] = colour
        return np.concatenate([view] * views, axis=1)

    return encode((picture(t) for t in range(round(seconds * fps))), fps)
