"""The policies of the package do what they are for, as the commands of the README let them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.models import ms_human, ostrich


@pytest.mark.parametrize(
    "task",
    [
        "flat_walk",
        *(pytest.param(task, marks=pytest.mark.slow) for task in ("slope_walk", "left_turn", "injured_walk")),
    ],
)
def test_a_policy_of_the_package_walks_from_a_start_it_has_not_seen(task: str, tmp_path: Path, capsys):
    """Six seconds: a planner falls in most of them; ten for a turn, which begins after four. Knees bend: an earlier
    policy covered its distance without."""
    ms_human.folder()
    episode, distance = ("10", 4.0) if task == "left_turn" else ("6", 3.0)
    settings = [f"+task={task}", "model=ms_human_700_legs", "optimizer=ppo", "reward=human", "seed=11"]
    assert evaluate([*settings, f"episode_s={episode}", "films=false", f"run_dir={tmp_path}"]) == 0
    said = capsys.readouterr()
    result = json.loads(said.out.splitlines()[-1])
    assert not result["fell"]
    assert result["distance_m"] > distance
    assert result["knee_swing_deg"] > 50.0
    assert result["gait_r"] > 0.75
    assert result["symmetry"] > 0.8
    assert f"the policy {task}_ms_human_700_legs runs unchanged" in said.err


@pytest.mark.parametrize(
    ("task", "metric", "least", "most"),
    [
        pytest.param("humanoid_turn", "past_door_m", 0.3, 10.0, marks=pytest.mark.slow),
        pytest.param("humanoid_stairs", "terrain_level", 2.0, 6.0, marks=pytest.mark.slow),
        ("humanoid_straight_leg", "stance_knee_rad", 0.1, 0.262),
    ],
)
def test_a_policy_of_the_robot_does_its_task(
    task: str, metric: str, least: float, most: float, tmp_path: Path, capsys
):
    """In a randomised world, with a push at 8 s."""
    settings = [f"+task={task}", "optimizer=ppo", f"optimizer.ppo.init={task}", "optimizer.ppo.env_steps=0"]
    settings += ["task.settings.randomise=true", "reward=human", "seed=11", "films=false"]
    assert evaluate([*settings, f"run_dir={tmp_path}"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not result["fell"]
    assert result["symmetry"] > 0.8
    assert least <= result[metric] <= most


def test_the_policy_of_the_arm_lifts_the_bottle_and_tips_it(tmp_path: Path, capsys):
    settings = ["+task=bottle_pour", "optimizer=dynsyn", "optimizer.ppo.init=bottle_pour_myoarm_r"]
    settings += ["optimizer.ppo.env_steps=0", "reward=human", "seed=11", "films=false", f"run_dir={tmp_path}"]
    assert evaluate(settings) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not result["dropped"]
    assert result["success"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "model", "folder"),
    [("ostrich_walk", "ostrich", ostrich.folder), ("flat_walk", "ms_human_700", ms_human.folder)],
)
def test_a_policy_of_a_downloaded_model_walks(task: str, model: str, folder, tmp_path: Path, capsys):
    folder()
    settings = [f"+task={task}", f"model={model}", "optimizer=ppo", "reward=human", "seed=11", "episode_s=6"]
    assert evaluate([*settings, "films=false", f"run_dir={tmp_path}"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not result["fell"]
    assert result["distance_m"] > 3.0
    assert result["symmetry"] > 0.8
    assert result["alternation"] > 0.9  # the feet strike in turn
    assert result["foot_clearance_m"] > 0.05
    assert result["trunk_tilt_deg"] < 15.0
