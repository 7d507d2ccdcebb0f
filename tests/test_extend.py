"""The parts of docs/extend.md, each one file of a package outside the tree, found by its entry points."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import movlr_jax as mj
from movlr_jax.control.mpc.rules import RULES
from movlr_jax.language.registry import JUDGES

ROOT = Path(__file__).parents[1]
LEG = ROOT / "tests" / "support" / "tiny_task.py"
PAGE = (ROOT / "docs" / "extend.md").read_text()
QUICK = [
    "optimizer.mppi.samples=4",
    "optimizer.horizon_s=0.08",
    "episode_s=0.1",
    "candidates=2",
    "generations=1",
    "trials=1",
    "confirm=0",
    "films=false",
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package of the page."""
    root = tmp_path_factory.mktemp("site")
    (root / "my_parts").mkdir()
    (root / "my_parts" / "__init__.py").touch()
    for text in re.findall(r"```python\n(# my_parts/.*?)```", PAGE, re.DOTALL):
        (root / text.splitlines()[0].removeprefix("# ")).write_text(text)
    shutil.copy(ROOT / "assets" / "models" / "tiny_muscle.xml", root / "my_parts" / "leg.xml")
    (toml,) = re.findall(r"```toml\n.*?(\[project\.entry-points.*?)```", PAGE, re.DOTALL)
    about = root / "my_parts-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my_parts\nVersion: 1.0\n")
    entries = re.sub(r'\[project\.entry-points\."(.*)"\]', r"[\1]", toml).replace('"', "")
    (about / "entry_points.txt").write_text(entries)
    return root


def command(package: Path, *words: str, status: int = 0) -> str:
    """Run a command with the package installed. Return what it prints."""
    environment = {**os.environ, "PYTHONPATH": f"{package}:{os.environ.get('PYTHONPATH', ROOT)}"}
    done = subprocess.run(
        [sys.executable, "-m", "movlr_jax", *words], capture_output=True, text=True, env=environment
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_a_search_uses_all_five_with_their_settings(package: Path, tmp_path: Path):
    for name in ("judge", "rule", "law", "model", "task"):
        assert len((package / "my_parts" / f"{name}.py").read_text().splitlines()) <= 40, name
    (words,) = re.findall(r"```bash\nmovlr-jax (search .*?)```", PAGE, re.DOTALL)
    said = command(package, *words.replace("\\\n", "").split(), *QUICK, f"run_dir={tmp_path / 'run'}")
    settings = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert settings["task"]["settings"]["height_m"] == 0.3
    assert settings["model"] == "my_leg"
    assert settings["judge"] == {"name": "effort", "tie": 0.1}
    rule, muscle = settings["optimizer"]["mppi"], settings["optimizer"]["muscle"]
    assert (rule["rule"], rule["share"], rule["samples"]) == ("towards_best", 0.8, 4)
    assert muscle == {"law": "square", "gain": 60.0, "hold": True}
    assert "report: " in said
    assert "effort judge (no vision model)" in (tmp_path / "run" / "report.html").read_text()
    resumed = ["search", f"resume={tmp_path / 'run'}"]
    assert "report: " in command(package, *resumed)


def test_help_shows_names_and_settings_of_a_part(package: Path):
    words = ["+task=kick", "judge=effort", "optimizer=mppi", "optimizer.mppi.rule=towards_best"]
    said = command(package, "search", *words, "--help")
    assert "auto, effort, metrics" in said
    assert re.search(r"^judge \(effort\):\n  tie: 0.02 +# share by which efforts", said, re.MULTILINE)
    assert re.search(r"^    share: 0.5 +# share of the way", said, re.MULTILINE)


@pytest.fixture
def parts(package: Path, monkeypatch: pytest.MonkeyPatch):
    """The module of the rule and that of the judge, imported without an entry point."""
    monkeypatch.syspath_prepend(package)
    for registry in (JUDGES, RULES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    from my_parts import judge, rule  # pyright: ignore[reportMissingImports]

    return judge, rule


def test_objects_are_taken_in_python(parts, tmp_path: Path):
    judge, rule = parts
    words = [word for word in QUICK if "samples" not in word]
    given = {"judge": judge.LowestEffort(tie=0.5), "planner": rule.TowardsBest(samples=4, share=0.7)}
    run = mj.run_search(LEG, *words, run_dir=tmp_path / "run", **given)
    settings = yaml.safe_load((run.root / "config.yaml").read_text())
    assert settings["judge"]["tie"] == 0.5
    assert settings["optimizer"]["mppi"]["share"] == 0.7
    given = {"run_dir": tmp_path / "named", "planner": "towards_best"}
    named = yaml.safe_load((mj.run_search(LEG, *QUICK, **given).root / "config.yaml").read_text())
    sigmas = [found["optimizer"]["mppi"]["sigma"] for found in (settings, named)]
    assert sigmas == [0.2, 0.2], "the noise of the optimizer, for the object and for its name"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"planner": 3}, "planner=3 is no PlanningRule"),
        ({"judge": object}, "judge=object is a class; give an object of it"),
        ({"judge": object()}, "has no method compare"),
        ({"muscle": "linear"}, "there is no setting 'optimizer.muscle.law'"),
        ({"planner": "best_of"}, "there is no optimizer.mppi.rule 'best_of'"),
        ({"planner": None}, "planner=None is no PlanningRule"),
    ],
)
def test_objects_of_another_kind_are_refused(given: dict, sentence: str):
    with pytest.raises(mj.UserError, match=sentence):
        mj.run_search(LEG, *QUICK, **given)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            lambda a: a.metrics["efort"],
            r"bad judge, comparing g00k0\d and .*, failed in .*line \d+: KeyError: 'efort'",
        ),
        (lambda a: True, "bad judge, comparing .*returned True, expected a Preference"),
    ],
)
def test_a_mistake_in_a_judge_ends_in_a_sentence(tmp_path: Path, answer: Callable, sentence: str):
    with pytest.raises(ValueError, match="winner='a': expected first, second, tie, none"):
        mj.Preference("a", "x")  # pyright: ignore[reportArgumentType]
    methods = {"name": "bad judge", "compare": lambda self, task, a, b: answer(a)}
    judge = type("BadJudge", (), methods)()
    with pytest.raises(mj.UserError, match=sentence):
        mj.run_search(LEG, *QUICK, run_dir=tmp_path / "run", judge=judge)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda them: them[0].metrics["efort"], r"bad critic, describing 2 motions, failed in .*KeyError: 'efort'"),
        (lambda them: [{}], "bad critic described 1 of 2 motions, expected one each"),
    ],
)
def test_a_mistake_in_a_describing_critic_ends_in_a_sentence(tmp_path: Path, answer: Callable, sentence: str):
    methods = {
        "name": "bad critic",
        "criticise": lambda self, task, best: mj.Critique(success=False),
        "describe": lambda self, task, candidates: answer(candidates),
    }
    critic = type("BadCritic", (), methods)()
    with pytest.raises(mj.UserError, match=sentence):
        mj.run_search(LEG, *QUICK, run_dir=tmp_path / "run", critic=critic)


@pytest.mark.parametrize(
    ("share", "told"),
    [("x", r"optimizer\.mppi\.share='x' is not a number"),
     (2.0, r"optimizer\.mppi\.share=2: it must be more than 0 and at most 1")],
)  # fmt: skip
def test_settings_of_a_part_are_checked(parts, share: object, told: str):
    _, rule = parts
    with pytest.raises(mj.UserError, match=told):
        mj.run_search(LEG, planner=rule.TowardsBest(share=share))
