"""What the commands share: settings through Hydra, and mistakes answered with a sentence and exit status 2."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from movlr_jax.commands.environment import prepare_environment, prepare_physics
from movlr_jax.errors import UserError

_FLAGS = ("-m", "--multirun")
INTERRUPTED = 130  # exit status, as a shell gives it after Ctrl-C


def entry_point(module: str) -> Callable[..., int]:
    """Return the `main` of a command, which sets the environment before it imports `module` and, with it, JAX."""

    def main(argv: Sequence[str] | None = None) -> int:
        prepare_environment()
        return importlib.import_module(module).main(argv)

    return main


def run(command: Callable[[Any], int], argv: Sequence[str] | None = None) -> int:
    """Composes the settings of each job in `argv` and runs `command` on them. Returns the exit status.

    `command` takes a `config.Config`. A value with commas sweeps, one job after another, as Hydra's -m does;
    a job that ends in a mistake of the user's does not keep the others from running.
    """
    from movlr_jax.config.compose import compose, expand
    from movlr_jax.config.help import help_text

    arguments = _arguments(argv, help_text)
    if arguments is None:
        return 0
    overrides = [a for a in arguments if a not in _FLAGS]
    try:
        jobs = expand(overrides)
        configs = [compose(job) for job in jobs]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for config in configs:
        prepare_physics(config.physics)
    status = 0
    for number, (job, config) in enumerate(zip(jobs, configs, strict=True)):
        if len(jobs) > 1:
            print(f"job {number + 1} of {len(jobs)}: {' '.join(job)}", file=sys.stderr)
            if config.run_dir:  # each job its own folder, numbered as Hydra numbers them
                config = dataclasses.replace(config, run_dir=str(Path(config.run_dir) / str(number)))
        status = max(status, run_one(command, config))
        if status == INTERRUPTED:
            break
    return status


def run_own(command: Callable[[list[str]], int], about: str | None, argv: Sequence[str] | None = None) -> int:
    """Runs a `command` that reads its arguments itself; --help prints what it is `about`. Returns the exit status."""
    arguments = _arguments(argv, lambda: about)
    return 0 if arguments is None else run_one(command, arguments)


def _arguments(argv: Sequence[str] | None, about: Callable[[], str | None]) -> list[str] | None:
    """`argv`, or those of the process; None where they ask for help, which is then printed."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not any(a in ("-h", "--help") for a in arguments):
        return arguments
    print(about())
    return None


def run_one(
    command: Callable[[Any], int], given: Any, tell: Callable[[str], object] = lambda text: None
) -> int:
    """Runs `command` on what it is given; a user's mistake is printed, and told. Returns the exit status."""
    from movlr_jax.progress import interruptible

    try:
        with interruptible():
            return command(given)
    except UserError as error:
        print(error, file=sys.stderr)
        tell(str(error))
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
