"""`movlr-jax read "SENTENCE" model=FILE`: print how a sentence is read on a model, without a language model.

Each clause is a row: its order, what is asked, its measure and what counts as a success. The exit status is 1 if the
sentence is not understood as a whole; the message says which word is not, and which sentences would be.
With +task=NAME the body and scene are those of a task.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from movlr_jax.cli import common
from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import overrides_of
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.tasks.words.sentence import Sentence

NOT_READ = 1  # exit status


def read(arguments: list[str]) -> int:
    """Print the reading of a sentence. Return 0, or 1 if it is not understood as a whole. Raises UserError."""
    words = [argument for argument in arguments if "=" not in argument]
    settings = [argument for argument in arguments if "=" in argument]
    if len(words) != 1:
        raise UserError('give one sentence in quotes, as in movlr-jax read "walk forward 2 m" model=robot.xml')
    return show_reading(words[0], settings)


def show_reading(instruction: str, settings: Sequence[str]) -> int:
    """Print the reading of a sentence on the model or task of the settings, as `read`. Raises UserError."""
    task = task_of(compose([*settings, *overrides_of({"instruction": instruction})]))
    sentence = task.scoring.motion
    assert sentence is not None  # a task with an instruction has no places to reach
    if sentence.problem:
        print(sentence.problem, file=sys.stderr)
    if sentence.asks or not sentence.problem:
        Console().print(table(sentence, task.adapter.name), markup=False)
    return NOT_READ if sentence.problem else 0


def table(sentence: Sentence, model: str) -> Table:
    """Return the clauses of a sentence as a table."""
    shown = Table(title=f"{sentence.description!r} on {model}", title_justify="left")
    for column in ("order", "asked", "measure", "success"):
        shown.add_column(column)
    for row in sentence.table():
        shown.add_row(*row)
    if sentence.unread:
        shown.caption = f"not read: {', '.join(sentence.unread)}"
    return shown


def main(argv: Sequence[str] | None = None) -> int:
    return common.run_with_arguments(read, __doc__, argv)
