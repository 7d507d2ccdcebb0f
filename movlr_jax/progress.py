"""One live line per stage on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from movlr_jax.errors import printable

Tick = Callable[[int, int], None]  # (done, total)


_stop = threading.Event()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM (a cluster that takes its machine back) end the block with KeyboardInterrupt.

    An exception raised by a signal is lost when it strikes inside a destructor or a callback from C. So the wish
    is remembered, and every step of progress asks for it again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(*_: object) -> None:
        _stop.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        _stop.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_if_asked() -> None:
    """Raises KeyboardInterrupt when somebody asked to stop and nobody heard."""
    if _stop.is_set():
        raise KeyboardInterrupt


def _stoppable(tick: Tick) -> Tick:
    def checked(done: int, total: int) -> None:
        stop_if_asked()
        tick(done, total)

    return checked


class Reporter:
    """Says what is going on, how far it is, how fast, and how long it will take."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False, emoji=False)

    @contextlib.contextmanager
    def stage(self, what: str, rate: Callable[[], str] = lambda: "") -> Iterator[Tick]:
        """A stage named `what`; yields a function to call with (done, total). `rate` says how fast it goes."""
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
        """Lines at every quarter of a stage that takes longer than a few seconds."""
        said = 0

        def tick(done: int, total: int) -> None:
            nonlocal said
            elapsed, quarter = time.monotonic() - started, 4 * done // max(total, 1)
            if elapsed > 5 and said < quarter < 4:
                said = quarter
                left = elapsed * (total - done) / max(done, 1)
                self.say(f"  {what}: {25 * quarter} % {rate()} about {left:.0f} s left")

        return tick
