"""Export of the episodes of evaluations and searches as files for other programs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_cases import LEG, Mistake
from tables import read_table

from movlr_jax._util.resources import resource_dir
from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.export import main as export
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import options
from movlr_jax.config.recipe import read_recipe
from movlr_jax.engine.export import settings_of_policy

pytestmark = pytest.mark.usefixtures("elsewhere")
POLICIES = sorted(path.stem for path in (resource_dir("assets") / "policies").glob("*.npz"))
KEPT = Path("runs/tiny_kick/evaluate/human_seed3.npz")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trajectory of an evaluation of a task from a file."""
    folder = tmp_path_factory.mktemp("evaluated")
    assert evaluate([*LEG, "reward=human", "seed=3", f"run_dir={folder}"]) == 0
    return folder / KEPT.name


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a search of two programs."""
    run = tmp_path_factory.mktemp("searched") / "run"
    assert search([*LEG, "candidates=2", f"run_dir={run}"]) == 0
    return run


def test_evaluation_becomes_motion_of_opensim_but_one_of_others_asks(
    evaluated: Path, mistake: Mistake, capfd: pytest.CaptureFixture[str]
):
    assert export([str(evaluated), "format=mot", "out=files"]) == 0
    assert capfd.readouterr().out.splitlines() == ["files/human_seed3.mot"]
    table = read_table(Path("files/human_seed3.mot"))
    with np.load(evaluated) as kept:
        np.testing.assert_allclose(table.columns["height"], kept["qpos"][:, 0], atol=1e-6)  # m
        np.testing.assert_allclose(np.deg2rad(table.columns["knee"]), kept["qpos"][:, 2], atol=1e-6)
    shutil.copytree(evaluated.parent, "theirs")
    assert "task.settings.file=" in mistake(export, f"theirs/{evaluated.name}")


@pytest.mark.parametrize(
    ("more", "names"),
    [(["candidate=all"], ["g00k00.mot", "g00k01.mot"]), (["candidate=g00k01"], ["g00k01.mot"]), ([], None)],
    ids=["all", "one", "best"],
)
def test_run_is_exported_into_its_folder(
    searched: Path, more: list[str], names: list[str] | None, capfd: pytest.CaptureFixture[str]
):
    capfd.readouterr()
    assert export([str(searched), *more]) == 0  # the run knows its task file
    written = capfd.readouterr().out.splitlines()
    if names:
        assert written == [str(searched / "export" / name) for name in names]
    assert len(written) == len(names or "1")
    assert all(len(read_table(Path(path)).time) == 4 for path in written)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_of_package_is_exported_by_its_name(name: str):
    config = settings_of_policy(name, "", [])
    assert config.optimizer.name == ("dynsyn" if name == "bottle_pour_myoarm_r" else "ppo")
    assert config.optimizer.ppo.init == name
    assert name.startswith(config.task.name) or (config.task.name, name[:9]) == ("flat_walk", "slow_walk")
    assert name.endswith(f"_{config.model}") or config.model == name.partition("_")[0]
    if name in options("recipe"):
        settings = read_recipe(name).settings
        assert (settings["task"], settings["model"]) == (config.task.name, config.model)
