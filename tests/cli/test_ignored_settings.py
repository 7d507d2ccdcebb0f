"""Settings that would be accepted and change nothing are refused; those that have another name now are read on."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_cases import LEG, Mistake

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.search import main as search
from movlr_jax.cli.train import main as train
from movlr_jax.cli.transfer import main as transfer

pytestmark = pytest.mark.usefixtures("elsewhere")

SWEEP = "is not used: it belongs to a sweep; add -m"
REMOVED = "settings cannot be removed; give another value, as in"
IGNORED = [
    ("hydra.run.dir=out", "hydra.run.dir is not used: give run_dir=..., the folder of the results"),
    ("+hydra.sweep.dir=out", f"hydra.sweep.dir {SWEEP}"),
    ("hydra.sweep.subdir=x", f"hydra.sweep.subdir {SWEEP}"),
    (
        "hydra.job.chdir=true",
        "hydra.job.chdir is not used: commands run in the current folder; change to another folder first",
    ),
    ("hydra/launcher=basic", f"hydra/launcher {SWEEP}"),
    ("~llm", f"~llm: {REMOVED} llm=scripted"),
    ("~optimizer.knots", f"~optimizer.knots: {REMOVED} optimizer.knots=..."),
    ("~vlm=metrics", f"~vlm: {REMOVED} vlm=metrics"),
    ("+env=CartpoleBalance", "env=CartpoleBalance works only with +task=playground"),
    ("+file=x.py", "file=x.py works only with +task=own"),
]


@pytest.mark.parametrize(("setting", "sentence"), IGNORED)
def test_a_setting_that_would_change_nothing_is_refused(mistake: Mistake, setting: str, sentence: str):
    for command in (search, evaluate):
        assert mistake(command, "+task=bottle_pour", setting) == sentence
    if "=" in setting:
        assert (
            mistake(transfer, "from=flat_walk", "to=rough_walk", "reward=human", setting, alone=False)
            == sentence
        )
    assert not list(Path().iterdir())


def test_a_tracker_is_refused_where_nothing_is_tracked(mistake: Mistake):
    given = "tracker=tensorboard"
    assert mistake(evaluate, "+task=bottle_pour", "reward=initial", given) == (
        "tracker=tensorboard is not used: only a search is shown in a tracker; give tracker=none"
    )
    assert mistake(train, "+recipe=flat_walk_legs", given) == (
        "tracker= is not supported here: only a search is shown in a tracker"
    )
    assert not list(Path().iterdir())


def test_a_resumed_run_refuses_them_too(mistake: Mistake):
    assert search([*LEG, "run_dir=run"]) == 0
    assert mistake(search, "resume=run", "~llm").startswith("~llm: settings cannot be removed")
    assert mistake(search, "resume=run", "hydra.run.dir=x").startswith("hydra.run.dir is not used")
