"""`python -m movlr_jax.search +task=NAME`: evolve a reward program for a task."""

from __future__ import annotations

from movlr_jax.cli import common
from movlr_jax.cli.outcome import INTERRUPTED, UNJUDGED
from movlr_jax.config.schema import Config
from movlr_jax.engine.search import run_search
from movlr_jax.sandbox.warm import start_ahead

_STATUS = {"finished": 0, "budget spent": 0, "unjudged": UNJUDGED, "interrupted": INTERRUPTED}


def search(config: Config) -> int:
    """Run the search command. Return its exit status. Raises UserError."""
    start_ahead()
    return _STATUS[run_search(config)[1]]


def main(argv: list[str] | None = None) -> int:
    return common.run(search, argv)
