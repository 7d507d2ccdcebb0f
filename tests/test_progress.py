"""Progress lines where there is no terminal."""

import io

import pytest
from rich.console import Console

from movlr_jax import progress
from movlr_jax.progress import Reporter


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
