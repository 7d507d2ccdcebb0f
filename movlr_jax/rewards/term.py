"""Entries of the library of reward terms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

_LONGEST = 48  # characters


@dataclass(frozen=True)
class Term:
    """A named expression, its usual initial weight, and its kind.

    Kinds: place, turn, hold (objects); upright, height, balance, forward, straight, gait (walkers);
    jump, up, down, turning, joint, part (any body that moves); steady, economy; spare (not asked for by the task).
    """

    name: str
    kind: str
    weight: float
    expression: str


def identifier(name: str) -> str:
    """Convert `name` to a valid term name, short enough for a suffix."""
    return re.sub(r"\W|^(?=\d)", "_", name)[:_LONGEST]


def quoted(name: str) -> str:
    """Return a name as source text, in double quotes. It may contain quotes, backslashes and line ends."""
    return json.dumps(name, ensure_ascii=False)  # escapes that Python reads in the same way


def tuple_of(names: Iterable[str]) -> str:
    """Return a tuple of names as source text."""
    return "(" + "".join(f"{quoted(name)}, " for name in names).rstrip() + ")"


def array_of(values: Sequence[float] | np.ndarray) -> str:
    """Return the expression of an array [n] with four digits."""
    return f"jnp.array([{', '.join(f'{v + 0.0:.4g}' for v in np.round(values, 4))}])"


def along(vector: str, way: Sequence[float]) -> str:
    """Return an expression for the component of `vector`, an expression, along `way` [3]."""
    parts = [(c, f"{vector}[{i}]") for i, c in enumerate(way) if abs(c) > 1e-6]
    if len(parts) == 1 and abs(abs(parts[0][0]) - 1.0) < 1e-6:
        return parts[0][1] if parts[0][0] > 0 else f"-{parts[0][1]}"
    return f"({' + '.join(f'{c:.5g} * {part}' for c, part in parts)})"


def entry(matrix: str, row: Sequence[float], column: Sequence[float]) -> str:
    """Return an expression for row^T M column of a 3 x 3 `matrix`, an expression, and two unit vectors [3]."""
    ends = [(i, np.sign(way[i])) for way in (row, column) for i in range(3) if abs(way[i]) > 1 - 1e-6]
    if len(ends) == 2:
        (i, a), (j, b) = ends
        return f"{'' if a * b > 0 else '-'}{matrix}[{i}, {j}]"
    return f"jnp.dot({array_of(row)}, {matrix} @ {array_of(column)})"


def axis_text(way: Sequence[float]) -> str:
    """Return a direction [3] as text: "+x" for an axis, or its numbers."""
    for i, name in enumerate("xyz"):
        if abs(way[i]) > 1 - 1e-6:
            return f"{'+' if way[i] > 0 else '-'}{name}"
    return f"({', '.join(f'{c:.2g}' for c in way)})"
