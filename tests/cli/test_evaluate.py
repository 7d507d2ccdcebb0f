"""What tells one evaluation from another in the same folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli_cases import LEG as QUICK

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.engine import evaluate as module
from movlr_jax.film.clips import Clip, Film
from movlr_jax.sandbox.vet import Verdict

REWARD = """WEIGHTS = {"up": %s}

def reward(state, action):
    return {"up": jnp.tanh(state.pos("foot")[2])}
"""


@pytest.mark.parametrize(
    ("more", "folders"),
    [
        (["optimizer.mppi.samples=2,3"], ["runs/tiny_kick/evaluate/0", "runs/tiny_kick/evaluate/1"]),
        (["seed=0,1", "run_dir=mine"], ["mine/0", "mine/1"]),
    ],
)
def test_each_job_of_sweep_keeps_its_result(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], folders: list[str]
):
    used: list[str] = []
    monkeypatch.setattr(module.Sandbox, "vet", lambda sandbox, source: Verdict("probe", None, 0.0))
    monkeypatch.setattr(module, "run_and_film", lambda setup, *rest: used.append(str(setup.folder)))
    assert evaluate([*QUICK, *more]) == 0
    assert used == folders


def test_program_is_evaluated_in_several_trials_and_the_middle_one_is_filmed(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """Their seeds are that of the settings and those after it; the measures are means over them.

    The film and its files have the seed of the trial that they show.
    """
    filmed: list[Clip] = []
    monkeypatch.setattr(module, "films_here", lambda *rest: True)
    monkeypatch.setattr(module, "film", lambda clip, *rest: filmed.append(clip) or Film(b"film", b"sheet"))

    def found(*more: str) -> tuple[dict, str]:
        assert evaluate([*QUICK, "reward=initial", "films=true", *more]) == 0
        said = capfd.readouterr()
        return json.loads(said.out.splitlines()[-1]), said.err

    alone = {seed: found(f"run_dir=alone_{seed}", f"seed={seed}")[0] for seed in range(4, 9)}
    clips, others = dict(zip(alone, filmed, strict=True)), []
    for first in (4, 5, 6):
        result, said = found(f"run_dir=from_{first}", f"seed={first}", "trials=3")
        seeds = range(first, first + 3)
        errors = [alone[seed]["object_position_error_m"] for seed in seeds]
        assert len(set(errors)) == 3
        assert result["object_position_error_m"] == pytest.approx(sum(errors) / 3)
        successes = sum(alone[seed]["success"] for seed in seeds)
        assert (result["n"], result["failed"], result["successes"]) == (3, 0, successes)
        low, high = result["interval"]
        assert low <= successes / 3 <= high
        for seed in seeds:
            assert f"  seed {seed}: " in said
        assert f"initial from 3 starts: {successes:.0f} of 3 succeed (" in said
        shown = next(seed for seed, clip in clips.items() if np.array_equal(clip.qpos, filmed[-1].qpos))
        assert result["seed"] == shown
        assert filmed[-1].caption.name == f"initial reward, seed {shown}"
        assert result["trajectory"] == f"from_{first}/initial_seed{shown}.npz"
        assert result["film"] == f"from_{first}/initial_seed{shown}.mp4"
        others.append(shown != first)
    assert any(others)


def test_another_evaluation_does_not_overwrite_trajectory(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    def kept(*more: str) -> str:
        assert evaluate([*QUICK, "run_dir=kept", *more]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])["trajectory"]

    for folder, weight in (("a", 1.0), ("b", 2.0)):
        Path(folder).mkdir()
        Path(folder, "mine.py").write_text(REWARD % weight)
    first = kept("reward=a/mine.py")
    assert first == "kept/mine_seed0.npz"
    data = Path(first).read_bytes()
    other = kept("reward=b/mine.py")
    assert re.fullmatch(r"kept/mine_seed0_[0-9a-f]{8}\.npz", other)
    assert Path(first).read_bytes() == data
    assert (kept("reward=b/mine.py"), kept("reward=a/mine.py")) == (other, first)
    data = Path(first).read_bytes()
    longer = kept("reward=a/mine.py", "episode_s=0.096")
    assert longer not in (first, other), "another setting is another evaluation"
    assert Path(first).read_bytes() == data
