"""One reward on other tasks: what is asked for, what is run, what is told."""

from __future__ import annotations

import json

import pytest
from cli_cases import SUPPORT

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.transfer import main, read_request
from movlr_jax.engine.transfer import rows_of

TINY = str(SUPPORT / "tiny_task.py")
QUICK = ["episode_s=0.05", "optimizer.mppi.samples=2", "optimizer.horizon_s=0.032", "films=false"]


def test_every_target_with_every_setting_of_its_own_follows_origin():
    request = read_request(
        ["reward=human", "from=flat_walk", "to=rough_walk,slope_walk", "beside=initial", "to.episode_s=1,2",
         "from.episode_s=3", "model=myolegs"]
    )  # fmt: skip
    rows = rows_of(request)
    assert [(row.role, row.task, config.episode_s) for row, config in rows] == [
        ("from", "flat_walk", 3.0),
        ("to", "rough_walk", 1.0),
        ("beside", "rough_walk", 1.0),
        ("to", "rough_walk", 2.0),
        ("beside", "rough_walk", 2.0),
        ("to", "slope_walk", 1.0),
        ("beside", "slope_walk", 1.0),
        ("to", "slope_walk", 2.0),
        ("beside", "slope_walk", 2.0),
    ]
    papers = {row.paper for row, _ in rows if row.role == "to"}
    assert papers == {"2.41 m; learned there 2.76 m", "1.99 m; learned there 2.25 m"}
    assert {row.paper for row, _ in rows if row.role != "to"} == {""}


def test_reward_goes_unchanged_and_one_that_cannot_is_row_with_reason(tmp_path, capsys):
    """The same numbers as evaluate has; a program that speaks of what a target lacks is told of, not lost."""
    reward = tmp_path / "kick.py"
    reward.write_text(
        'WEIGHTS = {"near": 1.0}\n\n\ndef reward(state, action):\n'
        '    return {"near": -jnp.linalg.norm(state.pos("foot") - state.goal("foot_pos"))}\n'
    )
    common = [*QUICK, "trials=2", f"run_dir={tmp_path / 'out'}"]
    status = main([f"reward={reward}", f"from={TINY}", f"to={TINY},humanoid_walk", "seeds=1", *common])
    assert status == 1
    rows = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert [(row["role"], row["task"]) for row in rows] == [
        ("from", "tiny_task"),
        ("to", "tiny_task"),
        ("to", "humanoid_walk"),
    ]
    assert "foot" in rows[2]["reason"]
    timed = ("wall_s_per_sim_s", "physics_steps_per_s")
    first, second = ({n: v for n, v in row["metrics"].items() if n not in timed} for row in rows[:2])
    assert first == second
    assert evaluate([f"+task={TINY}", f"reward={reward}", "seed=1", *common]) == 0
    alone = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert first["object_position_error_m"] == alone["object_position_error_m"]
    written = json.loads((tmp_path / "out" / "transfer.json").read_text())
    assert [row["role"] for row in written] == ["from", "to", "to"]
    assert written[1]["metrics"]["object_position_error_m"] == alone["object_position_error_m"]
    table = (tmp_path / "out" / "transfer.md").read_text().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert "seed 1" in cells[0]
    assert f"{100 * alone['object_position_error_m']:.1f} cm off" in cells[2][cells[0].index("seed 1")]
    assert "foot" in cells[4][cells[0].index("seed 1")]  # the reason
    # what a run has kept is not played again: even the time it took is the same
    kept = sorted((tmp_path / "out").glob("to_tiny_task*/seed1_*.json"))
    kept[0].write_text(json.dumps({"seed": 1, "object_position_error_m": 7.0}))
    assert main([f"reward={reward}", f"from={TINY}", f"to={TINY}", "seeds=1", *common]) == 0
    again = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert again[0]["metrics"] == rows[0]["metrics"]
    assert again[1]["metrics"] == {"object_position_error_m": 7.0}


@pytest.mark.slow
def test_policy_is_validated_in_another_engine_without_training_again(tmp_path, capsys):
    """Native and MJX agree on the leg of the tests, and so do the measures of the same policy in them."""
    small = ["optimizer=ppo", "optimizer.ppo.env_steps=32", "optimizer.ppo.envs=4", "optimizer.ppo.unroll=4",
             "optimizer.ppo.unrolls=1", "optimizer.ppo.minibatches=1", "optimizer.ppo.hidden=[8]",
             "optimizer.ppo.value_hidden=[8]", "optimizer.ppo.starts=2", "episode_s=0.1", "films=false"]  # fmt: skip
    arguments = ["reward=human", f"from={TINY}", "engines=mjx", f"run_dir={tmp_path / 'out'}", *small]
    assert main(arguments) == 0
    native, mjx = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert (native["role"], native["engine"], mjx["role"], mjx["engine"]) == ("from", "native", "engine", "mjx")
    for name in ("object_position_error_m", "effort"):
        assert mjx["metrics"][name] == pytest.approx(native["metrics"][name], rel=1e-3)
    checkpoints = list((tmp_path / "out").glob("*/training/*/checkpoints/*"))
    assert len(checkpoints) == 1
