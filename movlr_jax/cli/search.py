"""`python -m movlr_jax.search +task=NAME`: evolve a reward program for a task."""

from __future__ import annotations

from movlr_jax.cli import common
from movlr_jax.cli.outcome import STATUS
from movlr_jax.config.schema import Config


def search(config: Config) -> int:
    """Run the search command. Return its exit status. Raises UserError."""
    from movlr_jax.engine.search import run_search  # slow to import, and --help does not need it
    from movlr_jax.sandbox.warm import start_ahead

    start_ahead()
    return STATUS[run_search(config)[1]]


def main(argv: list[str] | None = None) -> int:
    return common.run(search, argv)
