"""Progress lines where there is no terminal, and requests to stop."""

import io
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from rich.console import Console

from movlr_jax._util import progress
from movlr_jax._util.progress import Reporter


@pytest.mark.parametrize(
    ("calls", "line"),
    [
        # (time in s, done) of 100: 10 s for each hundredth
        pytest.param([(0.0, 0), (250.0, 25)], "train: 25 %  about 750 s left", id="from nothing"),
        # 60 of 100 come from a checkpoint, and 15 take 150 s
        pytest.param([(2.0, 60), (152.0, 75)], "train: 75 %  about 250 s left", id="resumed"),
        # the first call comes late, and nothing else is known
        pytest.param([(40.0, 50)], "train: 50 %  about 40 s left", id="the first call"),
        # no quarter ends, but two minutes have passed
        pytest.param([(0.0, 0), (121.0, 11)], "train: 11 %  about 979 s left", id="long without a quarter"),
    ],
)
def test_the_time_left_counts_what_this_process_has_done(monkeypatch, calls, line):
    now = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console = Console(file=io.StringIO(), force_terminal=False, width=200)
    with Reporter(console).stage("train") as tick:
        for at, done in calls:
            now = 1000.0 + at
            tick(done, 100)
    assert line in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_ctrl_c_that_a_destructor_loses_is_quiet_and_ends_the_next_step(monkeypatch):
    class Dying:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    with progress.interruptible():
        dying = Dying()
        del dying
        with pytest.raises(KeyboardInterrupt):
            progress.stop_if_asked()
    assert not lost
    assert sys.unraisablehook == lost.append


def test_a_second_ctrl_c_does_not_wait_for_what_the_first_began():
    script = textwrap.dedent("""
        import sys, time
        from movlr_jax.cli.outcome import run_one

        def command(given):
            try:
                print("begun", flush=True)
                time.sleep(60)
            except KeyboardInterrupt:
                print("ending", flush=True)
                time.sleep(60)

        sys.exit(run_one(command, None))
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "ending\n"
    child.send_signal(signal.SIGINT)  # at the same time as the first: not another one
    time.sleep(1.2)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=10)
    assert (child.returncode, said) == (130, "interrupted\n")
