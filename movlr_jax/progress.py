"""One live line per stage on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Tick = Callable[[int, int], None]  # (done, total)


class Reporter:
    """Says what is going on, how far it is, how fast, and how long it will take."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)

    @contextlib.contextmanager
    def stage(self, what: str, rate: Callable[[], str] = lambda: "") -> Iterator[Tick]:
        """A stage named `what`; yields a function to call with (done, total). `rate` says how fast it goes."""
        started = time.monotonic()
        if not self.console.is_terminal:
            yield self._plain(what, rate, started)
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
            yield lambda done, total: bar.update(task, completed=done, total=total, rate=rate())
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
