"""The family tree of a run: a node for each program, generations from left to right, its film in the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from movlr_jax._util.quantities import summary
from movlr_jax.report.data import Run

WIDTH, HEIGHT = 168, 132  # px of a node
ACROSS, DOWN = 62, 18  # px between nodes
HEAD = 30  # px above the nodes, for the numbers of the generations
PAPER = (680, 900)  # px of a printed page, which a tree is scaled to


def family_tree(run: Run) -> dict[str, Any] | None:
    """Return nodes, edges, size and scale on paper of the tree, or None if no program has been evaluated."""
    if not run.candidates:
        return None
    best = run.best.name if run.best else None
    line = run.ancestry(best)
    columns = {g: i for i, g in enumerate(sorted({c.generation for c in run.candidates.values()}))}
    nodes, taken = dict[str, dict[str, Any]](), dict.fromkeys(columns.values(), 0)
    for c in run.candidates.values():
        column, came = columns[c.generation], run.claims[c.name]
        outcome = came.text() if came.n > 1 else summary(c.metrics)
        kind = "best" if c.name == best else "ancestor" if c.name in line else "other"
        nodes[c.name] = {
            "name": c.name,
            "x": column * (WIDTH + ACROSS),  # px, of its left upper corner
            "y": HEAD + taken[column] * (HEIGHT + DOWN),
            "film": c.film,
            "outcome": f"failed: {c.reason}"[:200] if c.failed else outcome,
            "kind": "failed" if c.failed else kind,
            "parent": c.parent,
        }
        taken[column] += 1
    edges = [
        {"path": _edge(nodes[n["parent"]], n), "chosen": n["name"] in line and n["parent"] in line}
        for n in nodes.values()
        if n["parent"] in nodes
    ]
    width = len(columns) * (WIDTH + ACROSS) - ACROSS
    height = HEAD + max(taken.values()) * (HEIGHT + DOWN) - DOWN
    return {
        "nodes": list(nodes.values()),
        "edges": sorted(edges, key=lambda edge: edge["chosen"]),  # the line of the best on top
        "heads": [(g, i * (WIDTH + ACROSS)) for g, i in columns.items()],
        "width": width,
        "height": height,
        "fit": round(min(1.0, PAPER[0] / width, PAPER[1] / height), 3),
        "node": (WIDTH, HEIGHT),
    }


def _edge(parent: Mapping[str, Any], child: Mapping[str, Any]) -> str:
    """Return the path of a curve from the right side of the parent to the left side of the child."""
    x0, y0, x1, y1 = parent["x"] + WIDTH, parent["y"] + HEIGHT // 2, child["x"], child["y"] + HEIGHT // 2
    if x1 < x0:  # both in one generation
        return f"M{x0} {y0}C{x0 + 40} {y0} {x0 + 40} {y1} {x0} {y1}"
    middle = (x0 + x1) // 2
    return f"M{x0} {y0}C{middle} {y0} {middle} {y1} {x1} {y1}"
