"""Parents of search=bank: drawn by their probability of being the best (Thompson sampling), from different elites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from movlr_jax.language.base import Evaluation
from movlr_jax.tasks.base import SHARED

_CELLS = 3  # of each behaviour, with equal numbers of motions
_BEHAVIOURS = ("gait_r", "distance_m", "object_position_error_m", "object_rotation_error_rad")


def drawn_parents(
    history: Sequence[Evaluation], ranked: Mapping[str, Any], n: int, islands: int, rng: np.random.Generator
) -> list[Evaluation]:
    """Return the parents of n programs. With several islands, these take turns.

    The chance of a program is the posterior probability that it is the best of its island, or of all with one island.
    ranked: the record of the last ranking.
    """
    known = {e.name: e for e in history if not e.failed}
    chance = dict(zip(ranked["names"], ranked["p_best"], strict=True))
    able = [(known[name], p) for name, p in chance.items() if name in known and p is not None]
    if not able:
        return []
    kinds = [able]
    if islands > 1:
        strength = dict(zip(ranked["names"], ranked["strengths"], strict=True))
        best = elites([e for e, _ in able], {name: s for name, s in strength.items() if s is not None})
        kinds = [[(e, 1.0)] for e in best[:islands]]
    parents = []
    for i in range(n):
        candidates, weights = zip(*kinds[i % len(kinds)], strict=True)
        share = np.array(weights) + 1e-6  # nobody is impossible
        parents.append(candidates[int(rng.choice(len(candidates), p=share / share.sum()))])
    return parents


def elites(motions: Sequence[Evaluation], strength: Mapping[str, float]) -> list[Evaluation]:
    """Return the strongest motion of each kind, the strongest first (as MAP-Elites, Mouret and Clune 2015).

    A kind is a cell of a grid over two behaviours: how the task is done (gait, distance or error) and the effort. Its
    lines are quantiles, so they need no ranges and move with the motions found.
    """
    cells: dict[tuple[int, ...], Evaluation] = {}
    measures = np.array(behaviours([e.metrics for e in motions]))
    ranks = measures.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    for e, cell in zip(motions, ranks * _CELLS // max(len(motions), 1), strict=True):
        holder = cells.get(tuple(cell))
        if holder is None or strength[e.name] > strength[holder.name]:
            cells[tuple(cell)] = e
    return sorted(cells.values(), key=lambda e: (-strength[e.name], e.name))


def behaviours(measured: Sequence[Mapping[str, float]]) -> list[tuple[float, float]]:
    """Return how each motion does its task, by one measure that all have, and its effort."""
    first = measured[0] if measured else {}
    shared = [name for name in first if all(name in metrics for metrics in measured)]
    names = [n for n in _BEHAVIOURS if n in shared] or [n for n in shared if n not in ("success", *SHARED)]
    return [(metrics[names[0]] if names else 0.0, metrics.get("effort", 0.0)) for metrics in measured]
