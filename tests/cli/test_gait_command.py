"""The command gait on a stored walk with locked knees, and on what does not walk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gait_corpus import motions
from PIL import Image

from movlr_jax.cli.gait import main as gait
from movlr_jax.tasks import build_task
from movlr_jax.tasks.walking.walker import FEET

pytestmark = pytest.mark.usefixtures("elsewhere")
WALK = "flat_walk-ms_human_700_legs-locked_knees-policy0"


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An episode of a policy of the package, in the format of `evaluate`."""
    stored = next(motion for motion in motions() if motion.key == WALK)
    model, n = build_task("flat_walk", stored.model, 10.0, {}).model, len(stored.time)
    path = tmp_path_factory.mktemp("walk") / "walk.npz"
    np.savez(
        path,
        time=stored.time,
        qpos=stored.qpos.astype(np.float32),
        qvel=np.zeros((n, model.nv), np.float32),
        act=np.full((n, model.na), 0.05, np.float32),
        ctrl=np.zeros((n, model.nu), np.float32),
        touch=stored.force.astype(np.float32),
        touch_names=np.array(FEET),
    )
    return path


def test_it_tells_how_body_walks(walk: Path, capfd: pytest.CaptureFixture[str]):
    assert gait([str(walk), "+task=flat_walk", "model=ms_human_700_legs", "out=pictures"]) == 0
    said = capfd.readouterr()
    (line,) = said.out.splitlines()
    found = json.loads(line)
    assert found["task"] == "flat_walk"
    assert list(found["faults"]) == ["locked_knees"]
    assert found["metrics"]["success"] == 0
    assert found["metrics"]["knee_swing_deg"] < 5
    assert set(found["curves"]["legs"]) == {"left", "right"}
    assert len(found["curves"]["legs"]["left"]["angles"]["knee_flexion"]["mean"]) == 51
    assert "knees stay locked" in said.err
    assert "knee flexion in swing (deg)" in said.err
    with Image.open(found["picture"]) as picture:
        assert picture.width >= 600
        # people's band and two legs: more than axes and text
        assert len(picture.convert("RGB").getcolors(2**24) or []) > 200


def test_what_has_no_feet_is_told(run: Path, capfd: pytest.CaptureFixture[str]):
    assert gait([str(run)]) == 2
    assert "needs the touch parts left_foot and right_foot" in capfd.readouterr().err
    assert gait([]) == 2
    assert "gait takes one run directory or trajectory, not 0" in capfd.readouterr().err
    assert gait(["absent.npz"]) == 2
    assert "no run directory or trajectory absent.npz" in capfd.readouterr().err
