"""Progress reports: one live line per stage on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from movlr_jax.errors import printable

Tick = Callable[[int, int], None]  # (done, total)
SILENT_S = 120.0  # s, longest time without a line about work that takes long

_AGAIN_S = 1.0  # after which a second request is one of its own, and not an echo of the first

_stop = threading.Event()


@contextlib.contextmanager
def interruptible(at_once: Callable[[], object] | None = None) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM (a cluster that preempts the job) end the block with KeyboardInterrupt.

    An exception raised by a signal handler is lost inside a destructor or a callback from C, where Python prints it
    and goes on. The request is therefore remembered, every progress update checks for it, and nothing is printed.
    at_once: called at a second Ctrl-C, by whoever does not want to wait for the end of what the first one has begun.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = -_AGAIN_S

    def request_stop(number: int, _: object) -> None:
        nonlocal asked
        before, asked = asked, time.monotonic()
        if _stop.is_set() and asked - before < _AGAIN_S:
            return  # a terminal and a parent process may both send one
        if _stop.is_set() and at_once and number == signal.SIGINT:
            at_once()
        _stop.set()
        raise KeyboardInterrupt

    unraisable = sys.unraisablehook

    def lose_quietly(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            unraisable(lost)

    sys.unraisablehook = lose_quietly
    with _handling(request_stop):
        try:
            yield
        finally:
            sys.unraisablehook = unraisable
            _stop.clear()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of a short block, as for code whose threads do not expect them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    try:
        with _handling(lambda number, _: came.append(number)):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


@contextlib.contextmanager
def _handling(handler: Callable[[int, object], object]) -> Iterator[None]:
    """Let `handler` get Ctrl-C and SIGTERM during a block."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def stop_if_asked() -> None:
    """Raise KeyboardInterrupt if a stop was requested and the first exception was lost."""
    if _stop.is_set():
        raise KeyboardInterrupt


def _stoppable(tick: Tick) -> Tick:
    def checked(done: int, total: int) -> None:
        stop_if_asked()
        tick(done, total)

    return checked


class _Messages(Console):
    """Prints to stderr. A closed pipe ends the command as one of stdout does."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Reporter:
    """Reports the current stage, its progress, its speed and the time left."""

    def __init__(self, console: Console | None = None):
        self.console = console or _Messages(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False, emoji=False)

    @contextlib.contextmanager
    def stage(self, what: str, rate: Callable[[], str] = lambda: "") -> Iterator[Tick]:
        """Report a stage named `what`; yields a function to call with (done, total). `rate` returns its speed."""
        stop_if_asked()
        started = time.monotonic()
        if not self.console.is_terminal:
            yield _stoppable(self._plain(what, rate, started))
            self.say(f"  {what}: done in {time.monotonic() - started:.1f} s {rate()}".rstrip())
            return
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as bar:
            task = bar.add_task(what, total=None, rate="")
            yield _stoppable(lambda done, total: bar.update(task, completed=done, total=total, rate=rate()))
            total = bar.tasks[0].total or 1
            bar.update(task, completed=total, total=total, rate=rate())

    def _plain(self, what: str, rate: Callable[[], str], started: float) -> Tick:
        """Print a line at every quarter of a stage that takes longer than 5 s, and every SILENT_S.

        The time left counts from the first call on, since what it reports as done may come from a checkpoint.
        """
        printed, told, since, before = 0, started, started, 0

        def tick(done: int, total: int) -> None:
            nonlocal printed, told, since, before
            now, quarter = time.monotonic(), 4 * done // max(total, 1)
            if (now - started > 5 and printed < quarter < 4) or (now - told > SILENT_S and done < total):
                printed, told = quarter, now
                left = (now - since) * (total - done) / max(done - before, 1)
                self.say(f"  {what}: {100 * done // max(total, 1)} % {rate()} about {left:.0f} s left")
            if since == started:
                since, before = now, done

        return tick
