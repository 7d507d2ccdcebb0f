"""Training by a recipe: stages follow one another, an interrupted training goes on, the policy is measured."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("brax", reason="the extra ppo is not installed")

from cli_cases import SUPPORT, Mistake

from movlr_jax.cli.train import main as train
from movlr_jax.config.recipe import Recipe
from movlr_jax.engine import train as engine
from movlr_jax.models import model_adapter
from movlr_jax.storage.layout import POLICY

RECIPE = f"""
settings:
  task: {SUPPORT / "tiny_task.py"}
  optimizer: ppo
  episode_s: 0.2
  optimizer.ppo.envs: 4
  optimizer.ppo.unroll: 5
  optimizer.ppo.unrolls: 2
  optimizer.ppo.minibatches: 2
  optimizer.ppo.hidden: [8]
  optimizer.ppo.value_hidden: [8]
stages:
  - {{name: first, optimizer.ppo.env_steps: 80}}
  - {{name: second, optimizer.ppo.learning_rate: 1.0e-3, optimizer.ppo.env_steps: 40}}
"""

STILL = '''"""Hold still."""

WEIGHTS = {"still": 1.0}


def reward(state, action):
    return {"still": -jnp.sum(state.qvel**2)}
'''


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE)
    return path


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as held:
        return {name: held[name] for name in held.files}


def test_stages_follow_one_another_and_are_not_repeated(recipe: Path, tmp_path: Path, capfd, mistake: Mistake):
    root = tmp_path / "run"
    command = [f"+recipe={recipe}", f"run_dir={root}", "starts=2", "seed=3"]
    assert train(command) == 0
    out, err = capfd.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert [e["start"] for e in result["episodes"]] == [0, 1]
    assert result["episodes"][0] != result["episodes"][1]
    assert "stage 1 of 2: first" in err
    assert "stage 2 of 2: second, 40 control steps to go, about" in err
    assert json.loads((root / "evaluation.json").read_text()) == result
    assert "train needs a task or a recipe" in mistake(train)
    assert "optimizer=mppi trains nothing" in mistake(train, f"+task={SUPPORT / 'tiny_task.py'}", "optimizer=mppi")
    capfd.readouterr()
    for folder, points in (("00_first", 2), ("01_second", 1)):
        curve = json.loads((root / "stages" / folder / "curves.json").read_text())
        assert len(curve["env_steps"]) == points
    assert (root / "curves.png").read_bytes()[:4] == b"\x89PNG"
    first, second, last = (
        arrays(path) for path in (*sorted(root.glob("stages/*/policy_k00.npz")), root / "policy.npz")
    )
    assert all(np.array_equal(second[name], last[name]) for name in second)
    kernels = [name for name in first if "kernel" in name]
    assert kernels
    assert any(not np.array_equal(first[name], second[name]) for name in kernels)

    (root / "stages" / "01_second" / "policy_k00.npz").unlink()
    assert train(command) == 0  # goes on after the first stage
    err = capfd.readouterr().err
    assert "stage 1 of 2" not in err
    assert "stage 2 of 2" in err
    again = arrays(root / "policy.npz")
    assert all(np.array_equal(again[name], last[name]) for name in last)

    settings = root / "stages" / "01_second" / "config.yaml"
    older = [line for line in settings.read_text().splitlines() if not line.lstrip().startswith("spread:")]
    settings.write_text("\n".join(older))  # of a version without this option
    assert train(command) == 0
    err = mistake(train, *command, "optimizer.ppo.epochs=2")
    assert "was trained with other settings: optimizer.ppo.epochs was 4, is 2" in err
    assert "task.settings.forward_m was None, is 0.2" in mistake(train, *command, "+task.settings.forward_m=0.2")


def test_policy_of_a_task_is_trained_in_rounds_until_all_trials_succeed(tmp_path: Path, capfd, monkeypatch):
    """The foot of the tiny task is not lifted within 80 control steps, so all rounds run; it is confirmed, and
    exported."""
    monkeypatch.setattr(engine, "_STEPS", 40)
    monkeypatch.setattr(engine, "_ROUNDS", {name: (1, how) for name, (_, how) in engine._ROUNDS.items()})
    small = [line.strip().replace(": ", "=") for line in RECIPE.splitlines() if line.startswith("  optimizer.ppo")]
    command = [f"+task={SUPPORT / 'tiny_task.py'}", "episode_s=0.2", *small, f"run_dir={tmp_path}", "starts=2"]
    command += ["films=false"]
    assert train(command) == 0
    out, err = capfd.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert (result["n"], result["policy"]) == (2, str(tmp_path / "policy.npz"))
    assert result["interval"][0] <= result["successes"] / 2 <= result["interval"][1]
    assert bool(result.get("onnx")) == (find_spec("onnx") is not None)
    assert all(Path(path).is_file() for path in (result["trajectory"], *result.get("onnx", ())))
    assert "stage 1 of 2: train, at most 80 control steps to go" in err
    assert re.search(r"00_train: 0 of 8 .*\n.*with the noise of the training: 0 of 8 .*\n.*stage 2 of 2: settle", err)
    settings = [(tmp_path / "stages" / name / "config.yaml").read_text() for name in ("00_train", "01_settle")]
    assert [re.findall(r"entropy: (.*)", text) for text in settings] == [["0.005"], ["-0.01"]]
    kept = (tmp_path / "policy.npz").read_bytes()
    assert kept in [path.read_bytes() for path in tmp_path.glob("stages/*/policy_k00.npz")]
    command[-2] = "starts=0"
    assert train(command) == 0
    assert "stage 1" not in capfd.readouterr().err, "what is trained is not trained again"
    assert (tmp_path / "policy.npz").read_bytes() == kept
    begin, second = tmp_path / "policy.npz", tmp_path / "second"
    assert train([*command, f"run_dir={second}", f"optimizer.ppo.init={begin}"]) == 0
    stages = [(second / "stages" / name / "config.yaml").read_text() for name in ("00_train", "01_settle")]
    begun = [re.findall(r" init: (.*)", text)[0] for text in stages]
    assert begun == [str(begin), str(second / "stages" / "00_train" / POLICY)]


def test_task_with_a_number_of_control_steps_is_trained_in_one_round(tmp_path: Path, monkeypatch):
    stages: list[tuple[str, int]] = []

    def seen(recipe: Recipe, *_: object) -> None:
        stages.extend((stage.name, stage.steps) for stage in recipe.stages)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "_best_policy", seen)
    assert train([f"+task={SUPPORT / 'tiny_task.py'}", "optimizer.ppo.env_steps=80", f"run_dir={tmp_path}"]) == 130
    assert stages == [("train", 80)]


@pytest.mark.slow
def test_stages_of_edited_file_are_not_reused(recipe: Path, tmp_path: Path, mistake: Mistake):
    files = {name: tmp_path / name for name in ("still.py", "kick.py", "begin.npz", "leg.xml")}
    files["still.py"].write_text(STILL)
    files["kick.py"].write_text((SUPPORT / "tiny_task.py").read_text().replace("tiny_muscle", "leg.xml"))
    files["leg.xml"].write_text(model_adapter("tiny_muscle").load().to_xml())
    recipe.write_text(RECIPE.replace(str(SUPPORT / "tiny_task.py"), str(files["kick.py"])))
    first = [f"+recipe={recipe}", "starts=0", f"reward={files['still.py']}"]
    assert train([*first, f"run_dir={tmp_path / 'before'}"]) == 0
    files["begin.npz"].write_bytes((tmp_path / "before" / "policy.npz").read_bytes())
    command = [*first, f"run_dir={tmp_path / 'run'}", f"optimizer.ppo.init={files['begin.npz']}"]
    assert train(command) == 0
    assert train(command) == 0
    stages = tmp_path / "run" / "stages"
    task = f"task={files['kick.py']}"
    for path, setting in {
        files["still.py"]: f"reward={files['still.py']}",
        files["kick.py"]: task,
        files["begin.npz"]: f"optimizer.ppo.init={files['begin.npz']}",
        files["leg.xml"]: f"the model of {task}",
    }.items():
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        told = mistake(train, *command)
        assert told.startswith(
            f"{stages / '00_first'} was trained with other settings: the content of {setting} has changed; "
            "give another run_dir"
        )
        path.write_bytes(before)


@pytest.mark.slow
def test_checkpoint_that_cannot_be_read_is_told(recipe: Path, tmp_path: Path, mistake: Mistake):
    command = [f"+recipe={recipe}", "starts=0", f"run_dir={tmp_path / 'run'}"]
    assert train(command) == 0
    stage = tmp_path / "run" / "stages" / "01_second"
    (stage / POLICY).unlink()
    for file in stage.glob("checkpoints/**/d/*"):
        file.write_bytes(file.read_bytes()[:20])
    told = mistake(train, *command, alone=False)
    assert re.search(rf"the checkpoint {re.escape(str(stage))}\S* cannot be read \(.*\); remove \S+ to train", told)
