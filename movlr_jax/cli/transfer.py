"""`movlr-jax transfer reward=FILE from=T1 to=T2`: one unchanged reward on other tasks.

Evaluates a reward that was found for the task `from`. reward is a file, a run directory, `human` or `initial` (those
of the task `from`). to can name several tasks: to=T2,T3. Settings are name=value for all tasks, to.name=value for the
targets (a value with commas is a sweep, as in to.optimizer=ppo,dynsyn) and from.name=value for the origin.
beside=human, or a file or run directory, also evaluates a reward made for the target. seeds=0,1,2 repeats every row.
engines=mjx,warp evaluates a policy (optimizer=ppo or dynsyn, trained in physics=...) in these engines as well as in
C MuJoCo; `to` is then optional. A run_dir with a saved training continues it.
The last line of stdout is a JSON list of the rows. Films, transfer.json and transfer.md (every seed next to the
figures of the papers) are in the run directory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from movlr_jax.cli import common
from movlr_jax.cli.words import read_words
from movlr_jax.engine import transfer as engine
from movlr_jax.engine.transfer import TransferRequest, TransferRow
from movlr_jax.errors import UserError

SHOWN = (  # metrics shown in the table, if present
    "success",
    "distance_m",
    "mean_speed_m_s",
    "time_to_fall_s",
    "velocity_error_m_s",
    "terrain_level",
    "object_position_error_m",
    "object_orientation_error_rad",
)

_REFUSED: Mapping[str, str] = dict.fromkeys(("task", "seed", "resume"), "transfer takes from=, to= and seeds=")


@dataclass(frozen=True)
class _Words:
    reward: str = ""
    from_: str = ""
    to: tuple[str, ...] = ()
    beside: str = ""
    engines: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)


def main(argv: list[str] | None = None) -> int:
    return common.run_with_arguments(transfer, __doc__, argv)


def transfer(words: Sequence[str]) -> int:
    """Run every row. Return 0, or 1 if a row has no result. Raises UserError."""
    rows: list[TransferRow] = []
    root = Path()
    try:
        for root, rows in engine.transfer(read_request(words)):  # noqa: B007
            pass
    finally:
        if rows:
            show(rows)
    print(f"table: {root / 'transfer.md'}", file=sys.stderr)
    print(json.dumps([asdict(row) for row in rows]), flush=True)
    return int(any(row.reason for row in rows))


def read_request(words: Sequence[str]) -> TransferRequest:
    """Parse the words of the command. Raises UserError."""
    own, settings = read_words(_Words, words, _REFUSED)
    sides: dict[str, list[str]] = {"": [], "from": [], "to": []}
    for setting in settings:
        side, dot, rest = setting.lstrip("+").partition(".")
        mine = dot and side in sides
        sides[side if mine else ""].append(rest if mine else setting)
    for name, value in (("reward", own.reward), ("from", own.from_), ("to", own.to or own.engines)):
        if not value:
            raise UserError(f"{name} is not set; transfer reward=FILE from=TASK to=TASK needs all three")
    return TransferRequest(
        reward=own.reward,
        origin=own.from_,
        targets=own.to,
        shared=sides[""],
        here=sides["from"],
        there=sides["to"],
        beside=own.beside or None,
        seeds=own.seeds,
        engines=own.engines,
    )


def show(rows: Sequence[TransferRow]) -> None:
    """Print the metrics next to the figures of the papers."""
    table = Table(title="one reward, unchanged", title_justify="left")
    measured = [name for name in SHOWN if any(name in row.metrics for row in rows)] or ["result"]
    for heading in ("", "task", "model", "optimizer", "engine", "reward", *measured, "paper"):
        table.add_column(heading)
    for row in rows:
        values = [f"{row.metrics[n]:.3g}" if n in row.metrics else "-" for n in measured]
        if row.reason:
            values = [row.reason, *[""] * (len(measured) - 1)]
        table.add_row(
            row.role, row.task, row.model, row.optimizer, row.engine, Path(row.reward).name, *values, row.paper
        )
    # a log file has no terminal width, so use a fixed one
    Console(stderr=True, width=None if sys.stderr.isatty() else 160).print(table)
