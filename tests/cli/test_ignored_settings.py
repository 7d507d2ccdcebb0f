"""Settings that would be accepted and change nothing are refused; those that have another name now are read on."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_cases import Mistake

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.search import main as search
from movlr_jax.cli.train import main as train
from movlr_jax.cli.transfer import main as transfer

pytestmark = pytest.mark.usefixtures("elsewhere")

UNUSED = "is not used: of Hydra's own settings, only those of hydra/launcher, hydra/sweeper and hydra.sweep are"
REMOVED = "settings cannot be removed; give another value, as in"
IGNORED = [
    *((setting, f"{setting.lstrip('+').partition('=')[0]} {UNUSED}") for setting in (
        "hydra.run.dir=out", "+hydra.sweep.dir=out", "hydra.job.chdir=true", "hydra/launcher=basic")),
    ("~llm", f"~llm: {REMOVED} llm=..."),
    ("~vlm=metrics", f"~vlm: {REMOVED} vlm=..."),
    ("+env=CartpoleBalance", "env=CartpoleBalance works only with +task=playground"),
    ("+file=x.py", "file=x.py works only with +task=own"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "sentence"), IGNORED)
def test_setting_that_would_change_nothing_is_refused(mistake: Mistake, setting: str, sentence: str):
    assert mistake(search, "+task=bottle_pour", setting).startswith(sentence)
    if "=" in setting:
        said = mistake(transfer, "from=flat_walk", "to=rough_walk", "reward=human", setting, alone=False)
        assert said.startswith(sentence)
    assert not list(Path().iterdir())


def test_tracker_is_refused_where_nothing_is_tracked(mistake: Mistake):
    given = "tracker=tensorboard"
    assert mistake(evaluate, "+task=bottle_pour", "reward=initial", given) == (
        "tracker=tensorboard is not used: only a search is shown in a tracker; give tracker=none"
    )
    assert mistake(train, "+recipe=flat_walk_legs", given) == (
        "tracker= is not supported here: only a search is shown in a tracker"
    )
    assert not list(Path().iterdir())
