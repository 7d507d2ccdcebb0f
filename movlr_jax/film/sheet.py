"""Contact sheets: pictures of a motion at evenly spaced times, on one page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from PIL import Image

from movlr_jax.film.encoding import as_file

PICTURES = 8
_WIDTH, _HEIGHT = 1920, 270  # px: of a row at most, of a picture
_GAP = 4  # px


class ContactSheet:
    """Collects pictures of a film of `total` pictures while they pass."""

    def __init__(self, total: int) -> None:
        self._wanted = {*np.linspace(0, total - 1, min(PICTURES, total)).round().astype(int).tolist()}
        self._kept: list[Image.Image] = []

    def watch(self, pictures: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the `pictures` [height, width, 3] uint8 unchanged."""
        for i, picture in enumerate(pictures):
            if i in self._wanted:
                height, width = picture.shape[:2]
                small = min(1.0, _HEIGHT / height)
                size = max(1, round(small * width)), max(1, round(small * height))
                self._kept.append(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS))
            yield picture

    def png(self) -> bytes:
        width, height = self._kept[0].size
        columns = max(1, min(PICTURES // 2, (_WIDTH + _GAP) // (width + _GAP)))
        rows = -(-len(self._kept) // columns)
        columns = min(columns, len(self._kept))
        page = Image.new("RGB", (columns * (width + _GAP) - _GAP, rows * (height + _GAP) - _GAP), (255, 255, 255))
        for i, picture in enumerate(self._kept):
            page.paste(picture, (i % columns * (width + _GAP), i // columns * (height + _GAP)))
        return as_file(page, "PNG")
