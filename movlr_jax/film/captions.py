"""Texts of films: the instruction and the result around the picture; time, speed and a scale of colours in it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from movlr_jax.film.muscles import WEAKENED, scale

STRIP = 0.1  # height of each of the two strips with texts, as a share of the film's height
_BACK, _TEXT, _FAINT, _ALARM = (30, 36, 45), (245, 247, 250), (165, 174, 186), (255, 120, 100)
_DONE = (130, 220, 140)
_IN_PICTURE = 0.034  # height of the texts in the picture, as a share of its height
_SMALLEST = 8  # px, height of texts
_LINE, _MOST_LINES = 14, 3  # px, least height of a line of a strip that has several; how many it has at most
_VERDICT = re.compile(r"(?:^|; |: )((?:not |no )?(?:achieved|success))$")  # at the end of a measure
_ASKED = re.compile(r" \(asked [^()]*\)")


@dataclass(frozen=True)
class Caption:
    """Texts around a film."""

    asked: str  # the instruction
    name: str = ""  # of the candidate
    measure: str = ""  # the success measure, formatted by the task
    note: str = ""  # small text: the proposer and the judge


@dataclass(frozen=True)
class Reading:
    """What is written into one picture."""

    time: float  # s
    speed: float | None = None  # m/s, over the ground; None for a body that does not travel
    distance: float | None = None  # m, from the start
    lost_s: float | None = None  # s, time at which the simulation has diverged

    def parts(self) -> list[str]:
        """Return the texts, the time first."""
        if self.lost_s is not None:
            return [f"diverged at {self.lost_s:.2f} s"]
        texts = [f"{self.time:.2f} s"]
        texts += [] if self.speed is None else [f"{self.speed:.2f} m/s"]
        return texts + ([] if self.distance is None else [f"{self.distance:.2f} m"])


class Strips:
    """A strip above the picture with the instruction, and one below with verdict, name, note and measures.

    The verdict is always shown in full; measures are shortened so that each value is shown.
    """

    def __init__(self, caption: Caption, width: int, strip: int) -> None:
        lines = max(1, min(_MOST_LINES, strip // _LINE))
        margin, size = max(3, strip // 6 // lines), max(7, round(0.74 * strip / lines))
        room = width - 2 * margin
        small, faint = max(6, round(0.9 * size)), _font(max(6, round(0.8 * size)), False, caption.note)
        head, foot = (Image.new("RGB", (width, strip), _BACK) for _ in range(2))
        centre = [(0.5 + i) * (strip - 2) / lines + 1 for i in range(lines)]
        font = _font(size, True, caption.asked)
        asked = _lines(caption.asked, font, room, lines)
        for i, text in enumerate(asked):
            y = strip / 2 + (i - 0.5 * (len(asked) - 1)) * (strip - 2) / lines
            ImageDraw.Draw(head).text((margin, y), text, fill=_TEXT, font=font, anchor="lm")
        draw, x = ImageDraw.Draw(foot), margin
        found = _VERDICT.search(caption.measure)
        verdict, measured = (found[1], caption.measure[: found.start()]) if found else ("", caption.measure)
        if verdict:
            bold = _font(size, True, verdict)
            fill = _ALARM if verdict.startswith("no") else _DONE
            draw.text((x, centre[0]), verdict, fill=fill, font=bold, anchor="lm")
            x += round(bold.getlength(f"{verdict} "))
        first = [caption.name] if lines > 1 else [caption.name, measured]
        told = " · ".join(text for text in first if text)
        told = f"· {told}" if told and verdict else told
        font = _font(size, True, told) if lines > 1 else _font(small, False, told)
        shown = _fitted(told, font, width - margin - x)
        draw.text((x, centre[0]), shown, fill=_TEXT, font=font, anchor="lm")
        x += round(font.getlength(shown))
        note = _fitted(caption.note, faint, width - margin - x - 2 * margin)
        draw.text((width - margin, centre[0]), note, fill=_FAINT, font=faint, anchor="rm")
        font = _font(small, False, measured)
        for y, text in zip(centre[1:], _measures(measured, font, room, lines - 1), strict=False):
            draw.text((margin, y), text, fill=_TEXT, font=font, anchor="lm")
        self._head, self._foot = np.asarray(head), np.asarray(foot)

    def around(self, picture: np.ndarray) -> np.ndarray:
        """Return `picture` [rows, width, 3] uint8 between the strips."""
        return np.concatenate([self._head, picture, self._foot])


class Display:
    """Time, speed and distance, and the scale of the colours of muscles, in the upper left corner of a picture.

    muscles: whether muscles are coloured by activation. weakened: whether some are marked as weakened.
    """

    def __init__(self, height: int, width: int, *, muscles: bool, weakened: bool) -> None:
        self._size = max(_SMALLEST, round(_IN_PICTURE * height))
        self._font, self._margin = _font(self._size, True), max(2, self._size // 3)
        self._line = round(1.5 * self._size)
        self._width = width
        self._scale = self._legend(weakened) if muscles else None

    def on(self, picture: np.ndarray, reading: Reading) -> np.ndarray:
        """Return a copy of `picture` [rows, width, 3] uint8 with the texts."""
        texts = reading.parts()
        # numbers stay in their places
        columns = [round(6.4 * self._size) if i else 0 for i in range(len(texts))]
        starts = np.cumsum(columns) + self._margin
        width = round(starts[-1] + self._font.getlength(texts[-1]) + self._margin)
        width = max(width, self._scale.width if self._scale else 0)
        height = self._line + (self._scale.height if self._scale else 0)
        box = Image.new("RGB", (min(width, self._width), height), _BACK)
        draw = ImageDraw.Draw(box)
        for text, x in zip(texts, starts, strict=True):
            fill = _ALARM if reading.lost_s is not None else _TEXT
            draw.text((x, self._line / 2), text, fill=fill, font=self._font, anchor="lm")
        if self._scale:
            box.paste(self._scale, (0, self._line))
        shown = picture.copy()
        shown[: box.height, : box.width] = np.asarray(box)[: len(shown)]
        return shown

    def _legend(self, weakened: bool) -> Image.Image:
        font, gap = _font(max(_SMALLEST - 1, round(0.85 * self._size)), False), self._margin
        bar = round(4 * self._size)
        words = ["rest", "active", *(["weakened"] if weakened else [])]
        lengths = [round(font.getlength(word)) for word in words]
        width = sum(lengths) + bar + 4 * gap + (self._size + 3 * gap if weakened else 0)
        legend = Image.new("RGB", (width, self._line), _BACK)
        draw, y = ImageDraw.Draw(legend), self._line / 2
        draw.text((gap, y), words[0], fill=_TEXT, font=font, anchor="lm")
        x, half = 2 * gap + lengths[0], round(0.35 * self._size)
        colours = (255 * scale(np.linspace(0, 1, bar))[:, :3]).astype(np.uint8)
        legend.paste(Image.fromarray(np.repeat(colours[None], 2 * half, axis=0)), (x, round(y) - half))
        x += bar + gap
        draw.text((x, y), words[1], fill=_TEXT, font=font, anchor="lm")
        if weakened:
            x += lengths[1] + 3 * gap
            fill = tuple(round(255 * v) for v in WEAKENED[:3])
            draw.rectangle((x, round(y) - half, x + self._size - 1, round(y) + half - 1), fill=fill)
            draw.text((x + self._size + gap, y), words[2], fill=_TEXT, font=font, anchor="lm")
        return legend


def _measures(text: str, font: ImageFont.FreeTypeFont, room: int, most: int) -> list[str]:
    """Return measures on at most `most` lines of `room` px, shortened so that each has its value.

    What was asked is left out first, then the ends of the words before the values.
    """
    if not most:
        return []
    unasked = _ASKED.sub("", text)
    parts = [part.rpartition(": ") for part in unasked.split("; ")]
    longest = min(max(len(name) for name, _, _ in parts), room)  # no character is narrower than 1 px
    for shown in (text, *(_with_names(parts, n) for n in range(longest, -1, -1))):
        lines = _lines(shown, font, room, most)
        if " ".join(lines) == " ".join(shown.split()):
            return lines
    return _lines(unasked, font, room, most)


def _with_names(parts: Sequence[tuple[str, str, str]], most: int) -> str:
    """Return measures (name, colon, value) with names of at most `most` characters; 0: the values alone."""
    short = [name if len(name) <= most else f"{name[:most].rstrip()}…" for name, _, _ in parts]
    named = [f"{name}{colon}{value}" for name, (_, colon, value) in zip(short, parts, strict=True)]
    return "; ".join(named if most else [value for *_, value in parts])


def _font(size: int, bold: bool, text: str = "") -> ImageFont.FreeTypeFont:
    """Return a font of `size` px: DejaVu Sans, or the font of this system with most of the characters it lacks."""
    import matplotlib  # its font has degree signs on every platform

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    file = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name)
    written = {ord(c) for c in text if not c.isspace()}
    lacking = written - _characters(file)
    if others := [f for f in _system_fonts() if lacking & _characters(f)] if lacking else []:
        file = max(others, key=lambda f: (len(lacking & _characters(f)), len(written & _characters(f))))
    return _loaded(file, size)


@cache
def _loaded(file: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(file, size)


@cache
def _system_fonts() -> list[str]:
    from matplotlib.font_manager import findSystemFonts

    return sorted(findSystemFonts())


@cache
def _characters(file: str) -> frozenset[int]:
    """Return the code points of a font; none if it cannot be drawn in any size, as one of coloured bitmaps."""
    from matplotlib.ft2font import FT2Font

    try:
        _loaded(file, _SMALLEST)
        return frozenset(FT2Font(file).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


def _lines(text: str, font: ImageFont.FreeTypeFont, room: int, most: int) -> list[str]:
    """Return `text` on at most `most` lines of `room` px; the last one is truncated."""
    text = text[: (most + 1) * room]  # no character is narrower than 1 px
    words, lines = [part for word in text.split() for part in _parts(word, font, room)], [""]
    for i, word in enumerate(words):
        longer = f"{lines[-1]} {word}".strip()
        if not lines[-1] or font.getlength(longer) <= room:
            lines[-1] = longer
        elif len(lines) < most:
            lines.append(word)
        else:
            lines[-1] = " ".join([lines[-1], *words[i:]])
            break
    return [_fitted(line, font, room) for line in lines]


def _fitted(text: str, font: ImageFont.FreeTypeFont, room: int) -> str:
    """Return `text` on one line, truncated to `room` px."""
    text = " ".join(text.split())
    if font.getlength(text) <= room:
        return text
    n = _fitting(text, font, room, "…")
    return f"{text[:n]}…" if n else ""


def _parts(word: str, font: ImageFont.FreeTypeFont, room: int) -> Iterator[str]:
    """Yield a word in parts that fit in `room` px, as for a script that has no spaces between words."""
    while word:
        n = max(1, _fitting(word, font, room))
        yield word[:n]
        word = word[n:]


def _fitting(text: str, font: ImageFont.FreeTypeFont, room: int, end: str = "") -> int:
    """Return how many characters of `text`, followed by `end`, fit in `room` px."""
    fitting = bisect_right(range(len(text) + 1), room, key=lambda n: font.getlength(text[:n] + end))
    return max(0, fitting - 1)
