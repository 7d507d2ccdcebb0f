"""The command view: which motion, where it is shown, and how it plays."""

from __future__ import annotations

import numpy as np
import pytest
from replayed import replay_of

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
