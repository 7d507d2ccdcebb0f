"""MotionVL's comparison: three variants, short training for candidates, full training for the winner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_cases import SUPPORT

from movlr_jax.cli.compare import main as compare
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.evolution.vet import rescaled
from movlr_jax.storage.archive import Archive

TINY = str(SUPPORT / "tiny_task.py")
PPO = ["optimizer=ppo", "optimizer.ppo.env_steps=32", "optimizer.ppo.envs=4", "optimizer.ppo.unroll=4",
       "optimizer.ppo.unrolls=1", "optimizer.ppo.minibatches=1", "optimizer.ppo.hidden=[8]",
       "optimizer.ppo.value_hidden=[8]", "optimizer.ppo.starts=2", "episode_s=0.1", "films=false",
       "trials=2", "confirm=1"]  # fmt: skip


def test_the_three_variants_differ_in_who_writes_and_who_watches():
    base, llm, vlm, whole = (
        compose(["+task=humanoid_walk", f"method={name}"]) for name in ("rl_base", "rl_llm", "rl_llm_vlm", "motionvl")
    )
    assert (base.candidates, base.generations, base.method.start) == (1, 1, "human")
    for config in (llm, vlm, whole):
        assert (config.candidates, config.generations) == (10, 5)
        assert config.method.temperature == 0.3
        assert config.method.final_training == pytest.approx(1000 / 300, rel=0.01)
    assert (llm.method.feedback, llm.method.judge) == ("statistics", "score")
    assert vlm.method.feedback == whole.method.feedback == "descriptors"
    assert (llm.method.start, vlm.method.start) == ("canonical", "canonical")
    assert base.method.final_training == llm.method.final_training
    assert llm.method.weights == vlm.method.weights == whole.method.weights == (0.0, 1.0)
    assert base.method.weights is None, "the hand-written reward stays as it is"


def test_the_first_program_is_the_canonical_one_and_the_others_are_made_of_it(tmp_path, capsys):
    run = tmp_path / "run"
    settings = ["episode_s=0.05", "optimizer.mppi.samples=2", "optimizer.horizon_s=0.032", "films=false"]
    settings += ["trials=1", "confirm=0"]
    reward = tmp_path / "hand.py"
    reward.write_text(HAND)
    task = tmp_path / "task.py"
    task.write_text(Path(TINY).read_text().replace("episode_s=0.1", f'human_reward="{reward}", episode_s=0.1'))
    arguments = [f"+task={task}", "method=rl_llm", "candidates=3", "generations=1", f"run_dir={run}", *settings]
    assert search(arguments) == 0
    with Archive.open(run, write=False) as archive:
        sources = archive.get("proposed", 0)["sources"]
    assert sources[0] == HAND
    assert all("near" in source for source in sources)  # which the task's initial reward has not
    assert len(set(sources)) == 3


HAND = '''"""Bring the foot to the mark."""

WEIGHTS = {"near": 2.0}


def reward(state, action):
    return {"near": -jnp.linalg.norm(state.pos("foot") - state.goal("foot_pos"))}
'''


@pytest.mark.slow
def test_the_winner_is_trained_in_full_once_and_that_is_what_a_comparison_counts(tmp_path, capsys):
    run = tmp_path / "compare"
    assert compare([f"+task={TINY}", "methods=[rl_base]", f"run_dir={run}", *PPO]) == 0
    (row,) = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    with Archive.open(run / "rl_base", write=False) as archive:
        full, short = archive.get("full"), archive.get("evaluated", 0, 0)
        assert len(archive.events("full")) == 1
        trained = archive.events("trials")
    assert [e.generation for e in trained] == [0, -1], "the look, and the confirmation"
    first, second = trained[0].data["programs"]["g00k00"].values()
    assert first["metrics"] != second["metrics"], "each trial is a training of its own"
    assert [len(trial["learning"]["env_steps"]) for trial in (first, second)] == [2, 2]
    assert full["env_steps"] == round(3.33 * 32)
    # batches of 16 steps: 2 of them short, 7 in full
    assert [len(data["learning"]["env_steps"]) for data in (short, full)] == [2, 7]
    assert json.loads((run / "rl_base" / "full.json").read_text())["metrics"] == full["metrics"]
    assert row["success"] == full["metrics"]["success"]
    assert full["metrics"] != short["metrics"]


PROGRAM = 'WEIGHTS = {weights}\n\n\ndef reward(state, action):\n    return {{"a": 1.0, "b": state.time}}\n'


@pytest.mark.parametrize(
    ("weights", "limits", "expected"),
    [
        ('{"a": 200.0, "b": 50.0}', (0.0, 1.0), '{"a": 1, "b": 0.25}'),
        ('{"a": 0.5, "b": 1.0}', (0.0, 1.0), '{"a": 0.5, "b": 1.0}'),  # as it was written
        ('{"a": 200.0, "b": 50.0}', None, '{"a": 200.0, "b": 50.0}'),
        ('{"a": -4.0, "b": 1.0}', (0.0, 2.0), '{"a": -2, "b": 0.5}'),  # no scale makes it positive
    ],
)
def test_a_given_program_keeps_the_ratios_of_its_weights(weights: str, limits, expected: str):
    assert rescaled(PROGRAM.format(weights=weights), limits) == PROGRAM.format(weights=expected)


def test_a_given_program_that_is_not_python_is_left_to_vetting():
    assert rescaled("x = = 1", (0.0, 1.0)) == "x = = 1"
