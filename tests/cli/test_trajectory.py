"""The trajectory that an evaluation leaves behind, for analysis elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_cases import LEG

from movlr_jax.cli.evaluate import main as evaluate

pytestmark = pytest.mark.usefixtures("elsewhere")
VIOLENT = ["optimizer.sim_dt=3", "optimizer.ctrl_dt=3", "optimizer.plan_dt=3", "episode_s=30"]


def test_evaluation_keeps_trajectory_of_simulation_that_is_lost(capfd: pytest.CaptureFixture[str]):
    """Without films, where its film would be."""
    assert evaluate([*LEG, *VIOLENT, "reward=human", "seed=3"]) == 2
    said = capfd.readouterr()
    result = json.loads(said.out.strip().splitlines()[-1])
    assert result["trajectory"] == "runs/tiny_kick/evaluate/human_seed3.npz"
    assert f"trajectory: {result['trajectory']}" in said.err
    with np.load(result["trajectory"]) as file:
        kept = dict(file)
    steps = 10
    assert {name: value.shape for name, value in kept.items()} == {
        "time": (steps,),
        "qpos": (steps, 3),
        "qvel": (steps, 3),
        "act": (steps, 7),
        "ctrl": (steps, 7),
        "force": (steps, 7),
        "touch": (steps, 1),
        "touch_names": (1,),
    }
    assert list(kept["touch_names"]) == ["foot"]
    np.testing.assert_allclose(np.diff(kept["time"]), 3.0, rtol=1e-5)
