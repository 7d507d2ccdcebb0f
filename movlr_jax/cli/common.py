"""Code shared by the commands: settings through Hydra, and user errors as one sentence with exit status 2."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from movlr_jax.cli.outcome import CLOSED_PIPE, INTERRUPTED, end_at_once, run_one
from movlr_jax.errors import UserError, path_errors


def entry_point(module: str) -> Callable[..., int]:
    """Return the `main` of a command. It sets the environment before it imports `module`, which imports JAX."""

    def main(argv: Sequence[str] | None = None) -> int:
        try:
            with ends_at_once(process=argv is None):
                from movlr_jax.engine.environment import prepare_environment

                prepare_environment()
                if isinstance(sys.stdout, io.TextIOWrapper):  # prints paths that are not UTF-8 as they are
                    sys.stdout.reconfigure(errors="surrogateescape")
                status = importlib.import_module(module).main(argv)
            if sys.stdout:  # None if it was closed before the start
                sys.stdout.flush()
        except BrokenPipeError:
            if not _unread():
                raise  # the pipe of something else, such as an encoder
            return CLOSED_PIPE
        return status

    return main


@contextlib.contextmanager
def ends_at_once(process: bool) -> Iterator[None]:
    """Let Ctrl-C end the process at once, until `interruptible` lets it end work in order.

    As an exception, it would be a traceback of imports, or be lost in a callback of one of them.
    process: Whether the process ends with the block, so that Ctrl-C comes too late from then on.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    signal.signal(signal.SIGINT, end_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN if process else signal.default_int_handler)


def _unread() -> bool:
    """Return whether nobody reads what the process prints any more, as after `| head`; if so, drop the rest."""
    closed = False
    for stream in filter(None, (sys.stdout, sys.stderr)):
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        if poll.poll(0):  # a pipe without a reader is in error
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            closed = True
    return closed


def run(command: Callable[..., int], argv: Sequence[str] | None = None, *, numbered: bool = False) -> int:
    """Compose the settings of each job in `argv` and run `command` on each. Return the exit status.

    `command` takes a `config.Config`. With -m, Hydra's sweeper and launcher run the jobs (`cli.sweep`). Without
    it, a value with commas is a sweep as well: the jobs run one after another in this process. If one job fails with
    a user error, the others still run.

    numbered: `command` also takes the number of a job of such a sweep, as `job`. Without run_dir, it has to choose a
    folder for each.
    """
    from movlr_jax.cli import arguments as reading
    from movlr_jax.config.compose import compose_all
    from movlr_jax.config.help import help_text
    from movlr_jax.config.overrides import expand
    from movlr_jax.engine.environment import prepare_physics

    try:
        given = reading.read(sys.argv[1:] if argv is None else argv)
        if given.help:
            print(help_text(given.overrides))
            return 0
        if given.multirun or given.cfg or given.info or given.hydra_help or given.shell_completion:
            from movlr_jax.cli import sweep

            return sweep.sweep(command, given) if given.multirun else sweep.show(given)
        jobs = expand(given.overrides)
        with path_errors():
            configs = compose_all(jobs, given.config_dir)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    for config in configs:
        prepare_physics(config.physics)
    status = 0
    for number, (job, config) in enumerate(zip(jobs, configs, strict=True)):
        this = command
        if len(jobs) > 1:
            print(f"job {number + 1} of {len(jobs)}: {' '.join(job)}", file=sys.stderr)
            if config.run_dir:  # one folder per job, numbered as by Hydra
                config = dataclasses.replace(config, run_dir=str(Path(config.run_dir) / str(number)))
            elif numbered:
                this = partial(command, job=number)
        status = max(status, run_one(this, config))
        if status == INTERRUPTED:
            break
    return status


def run_with_arguments(
    command: Callable[[list[str]], int], about: str | None, argv: Sequence[str] | None = None
) -> int:
    """Run a `command` that parses its arguments itself; --help prints `about`. Return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & {*arguments}:
        print(about)
        return 0
    return run_one(command, arguments)
