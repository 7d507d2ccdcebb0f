"""Every default is said once; what was tuned for a task and model is shown and can be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_cases import QUICK
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from movlr_jax._util.resources import resource_dir
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.config.defaults import store_defaults
from movlr_jax.config.help import help_text

pytestmark = pytest.mark.usefixtures("elsewhere")
FILES = sorted(
    p for group in ("optimizer", "llm", "vlm", "task") for p in (resource_dir("conf") / group).glob("*.yaml")
)


def leaves(values: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(values, dict):
        return {prefix[:-1]: values}
    return {k: v for name, value in values.items() for k, v in leaves(value, f"{prefix}{name}.").items()}


@pytest.mark.parametrize("file", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_file_of_conf_holds_no_copy_of_default(file: Path):
    """What it sets differs from the node that it starts from, or is not in it."""
    store_defaults()
    values = yaml.safe_load(file.read_text())
    starts_from = [d for d in values.pop("defaults", []) if isinstance(d, str) and d.endswith("_schema")]
    nodes = [ConfigStore.instance().load(f"{file.parent.name}/{name}.yaml").node for name in starts_from]
    known = leaves(OmegaConf.to_container(nodes[0])) if nodes else {}
    if file.parent.name != "task" or nodes:
        assert known, "the node holds the defaults"
    assert [name for name, value in leaves(values).items() if name in known and known[name] == value] == []


def test_tuned_settings_lie_beneath_experiment_file_that_is_named_first(tmp_path: Path):
    (tmp_path / "experiment").mkdir()
    text = "model: ms_human_700\noptimizer: {mppi: {samples: 5}}\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}")
    config = compose(["+experiment=mine", "+task=stand"], tmp_path)
    assert (config.model, config.optimizer.mppi.samples, config.optimizer.replan_every) == ("ms_human_700", 5, 4)
    assert "optimizer.mppi.samples" not in config.tuned_settings


def test_search_says_what_was_tuned(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    assert search([*QUICK, f"run_dir={tmp_path / 'run'}"]) == 0
    said = "tuned for this task and model: optimizer.mppi.density=0.3 (tuned=false ignores"
    assert said in capfd.readouterr().err
    kept = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert kept["tuned"] is True
    assert kept["tuned_settings"] == {"optimizer.mppi.density": 0.3}
    assert "Tuned for this task and model" in (tmp_path / "run" / "report.html").read_text()


def test_help_has_every_setting_with_its_default_and_meaning():
    text = help_text()
    for line in (
        "candidates: 4",
        "tuned: true",
        "sandbox: confined",
        "samples: 0",
        "temperature: 0.02",
        "judge: vlm",
    ):
        assert line in text
    assert "true: use the settings tuned for this task and model" in text
    assert "K, programs per generation" in text
