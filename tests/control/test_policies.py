"""The policies of the package walk, as the commands of the README let them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("brax", reason="the extra ppo is not installed")

from movlr_jax.commands.evaluate import main as evaluate


@pytest.mark.parametrize(
    "task",
    [
        "flat_walk",
        *(pytest.param(task, marks=pytest.mark.slow) for task in ("slope_walk", "left_turn", "injured_walk")),
    ],
)
def test_a_policy_of_the_package_walks_from_a_start_it_has_not_seen(task: str, tmp_path: Path, capsys):
    """Six seconds: a planner falls in most of them. Knees bend: an earlier policy covered its distance without."""
    settings = [f"+task={task}", "model=ms_human_700_legs", "optimizer=ppo", "reward=human", "seed=11"]
    assert evaluate([*settings, "episode_s=6", "films=false", f"run_dir={tmp_path}"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out.splitlines()[-1])
    assert not result["fell"]
    assert result["distance_m"] > (1.0 if task == "left_turn" else 3.0)
    assert result["knee_swing_deg"] > 50.0
    assert result["gait_r"] > 0.75
    assert result["symmetry"] > 0.8
    assert f"the policy {task}_ms_human_700_legs runs unchanged" in said.err
