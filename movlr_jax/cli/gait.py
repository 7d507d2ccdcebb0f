"""`movlr-jax gait RUN_DIR_OR_TRAJECTORY`: compare how a body walks with people.

RUN_DIR is a run directory: its best program is analysed, candidate=g01k02 another one, candidate=all every one.
TRAJECTORY is an npz file of a run or of `evaluate`. Prints a table on stderr and a JSON object per episode on stdout:
metrics, faults (locked knees, shuffling, ...) and curves. Draws the curves over the gait cycle, with people's behind
them, as NAME_gait.png in out=DIR: by default the folder of the trajectory, or RUN_DIR/gait.
The task comes from the settings next to the trajectory; +task=NAME model=... names it if there are none. trust=true
runs the Python file of a recorded task.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from typing import Any

from movlr_jax.cli import common
from movlr_jax.cli.words import EpisodeWords, read_episodes
from movlr_jax.engine.gait import analysed
from movlr_jax.report.gait import picture, table
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.storage.writing import write_atomically as write

NO_STRIDES = "no leg completes a stride after the first two, so there are no curves"


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(gait, __doc__, argv)


def gait(words: list[str]) -> int:
    """Analyse the episodes, print and draw them. Raises UserError."""
    request, _ = read_episodes("gait runs/flat_walk/TIME", EpisodeWords, words)
    task = request.task()
    for name, states, folder in list(request.episodes("gait")):
        record = EpisodeRecord.read(states, task.model, task.adapter)
        found = analysed(record, task)
        print("\n".join(text(name, found)), file=sys.stderr, flush=True)
        if found["curves"]:
            figure = picture(found["curves"], f"{task.name}, {task.adapter.name}: {name}")
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=150)
            found["picture"] = str(write(folder / f"{name}_gait.png", buffer.getvalue()))
        print(json.dumps({"name": name, "task": task.name, "model": task.adapter.name, **found}), flush=True)
    return 0


def text(name: str, found: dict[str, Any]) -> list[str]:
    """Return the analysis of one episode as lines of text."""
    metrics, curves = found["metrics"], found["curves"]
    facts = [
        *([f"{metrics['distance_m']:.2f} m"] if "distance_m" in metrics else []),
        *(["it fell"] if metrics.get("fell") else []),
        *(["success" if metrics["success"] else "no success"] if "success" in metrics else []),
    ]
    lines = [f"{name}: {', '.join(facts)}" if facts else name]
    lines += [f"  fault: {sentence} ({fault})" for fault, sentence in found["faults"].items()]
    if not curves:
        return [*lines, f"  {NO_STRIDES}"]
    speed = curves["speed_class"].replace("_", " ")
    lines.append(f"  {curves['speed_m_s']:.2f} m/s, compared with people at a {speed} speed")
    lines.append(f"  {'':44}{'left':>9}{'right':>9}{'people':>12}")
    for label, values, people in table(curves):
        lines.append(f"  {label:44}{_cells(values)}{people:>12}")
    return lines


def _cells(values: Sequence[float | None]) -> str:
    if len(values) == 1:
        return f"{values[0]:>18.3g}"
    return "".join(f"{'-':>9}" if value is None else f"{value:>9.3g}" for value in values)
