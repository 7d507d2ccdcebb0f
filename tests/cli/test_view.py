"""The command view: which motion, where it is shown, and how it plays."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from replayed import replay_of

from movlr_jax.cli import view as command
from movlr_jax.cli.view import main
from movlr_jax.film import muscles, viewer


def test_it_plays_in_real_time_at_speed_and_again():
    replay = replay_of()
    assert (replay.now, replay.length) == (0.0, pytest.approx(1.0))
    assert not replay.advance(0.05), "the next state has not come"
    assert replay.advance(0.06)
    assert replay.data.qpos[0] == pytest.approx(0.1)
    assert replay.model.tendon_rgba[0] == pytest.approx(muscles.scale(np.array(0.1)))
    replay.speed = 2.0
    replay.advance(0.2)
    assert replay.now == pytest.approx(0.5)
    replay.advance(10.0)
    assert replay.now == 0.0


def test_keys_pause_step_and_change_speed():
    replay = replay_of()
    replay.key(viewer._SPACE)
    assert not replay.advance(1.0)
    replay.key(viewer._RIGHT)
    replay.key(viewer._RIGHT)
    replay.key(viewer._LEFT)
    assert replay.step == 1
    replay.key(viewer._LEFT)
    replay.key(viewer._LEFT)
    assert replay.step == 10, "the last one is before the first"
    for _ in range(9):
        replay.key(viewer._UP)
    assert replay.speed == 2.0
    for _ in range(9):
        replay.key(viewer._DOWN)
    assert replay.speed == 0.1
    replay.key(viewer._SPACE)
    assert replay.playing


def test_second_word_names_candidate(tmp_path: Path):
    request, own = command.read_view([str(tmp_path), "g01k03", "in=window"])
    assert (request.candidate, own.in_) == ("g01k03", "window")
    assert command.read_view([str(tmp_path)])[0].candidate == "best"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["HERE", "in=paper"], "in=paper: it must be one of auto, window, browser"),
        (["HERE", "port=http"], "port='http' is not an integer"),
        (["HERE", "candidate=all"], "view shows one motion; name a candidate, as in candidate=g01k03"),
        ([], "view takes one run directory or trajectory, not 0"),
        (["nowhere"], "there is no run directory or trajectory nowhere"),
    ],
)
def test_mistakes_are_told_in_sentence(arguments: list[str], said: str, tmp_path: Path, capsys):
    assert main([a.replace("HERE", str(tmp_path)) for a in arguments]) == 2
    assert capsys.readouterr().err.startswith(said)


def test_missing_display_and_package_are_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setattr(command, "has_display", lambda: False)
    monkeypatch.setitem(sys.modules, "mjviser", None)
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "view without a display, or with in=browser, needs the package 'mjviser', which is not installed; "
        "pip install 'movlr-jax[view]'\n"
    )
