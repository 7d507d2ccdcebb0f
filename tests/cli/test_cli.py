"""Settings as people type them, and every mistake: one sentence on stderr, exit status 2, nothing lost."""

from __future__ import annotations

import copy
import csv
import json
import math
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_cases import LEG, TASK, Mistake

import movlr_jax
from movlr_jax._util.settings import plain
from movlr_jax.cli.compare import main as compare
from movlr_jax.cli.compare import read_request
from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.outcome import CLOSED_PIPE, INTERRUPTED
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import expand
from movlr_jax.config.schema import recorded_config
from movlr_jax.engine.compare import ComparisonRequest, searches
from movlr_jax.errors import UserError
from movlr_jax.storage.archive import Archive

pytestmark = pytest.mark.usefixtures("elsewhere")


# Composing.


def test_overrides_land_where_they_are_named():
    config = compose(["task=bottle_pour", "candidates=7", "optimizer.mppi.samples=5", "seed=3",
                      "task.settings.tilt_deg=20", "episode_s=2", "films=false", "run_dir=2026"])  # fmt: skip
    assert (config.candidates, config.optimizer.mppi.samples, config.seed) == (7, 5, 3)
    assert config.task.settings["tilt_deg"] == 20
    assert config.films is False
    assert config.run_dir == "2026"
    assert type(config.episode_s) is float
    assert compose(["+task=bottle_pour", "++seed=3"]) == compose(["task=bottle_pour", "seed=3"])


def test_sweeps_are_every_combination_in_order():
    assert expand([TASK, "seed=0,1", "candidates=2,3"]) == [
        [TASK, "seed=0", "candidates=2"],
        [TASK, "seed=0", "candidates=3"],
        [TASK, "seed=1", "candidates=2"],
        [TASK, "seed=1", "candidates=3"],
    ]
    assert expand([TASK, "seed=range(0,3)"]) == [[TASK, f"seed={i}"] for i in range(3)]
    assert expand(["+task=bottle_pour,other"]) == [["+task=bottle_pour"], ["+task=other"]]
    assert expand([TASK, "task.settings.lift_m=[0.1,0,0]"]) == [[TASK, "task.settings.lift_m=[0.1,0,0]"]]
    assert expand([]) == [[]]


# What is refused before anything happens.

REFUSED = [
    ([], "no task is set; give +task=NAME, or +task=FILE.py for your own, or model=MODEL with instruction=\"...\". "
     "Available: bottle_pour, cube_rotate, "),
    (["+task=reach.yaml"], "there is no task 'reach.yaml'; a task of your own is a .py file (docs/write_a_task.md)"),
    (["+task=arm.xml"], "there is no task 'arm.xml'; to move a model, give model=arm.xml with instruction=\"...\""),
    (["+task=bottle_por"], "there is no task 'bottle_por'; did you mean 'bottle_pour'?"),
    ([TASK, "task.settings.lift=1"], "'task.settings.lift'; did you mean 'task.settings.lift_m'?"),
    ([TASK, "+candidate=4"], "there is no setting 'candidate'; did you mean 'candidates'?"),
    ([TASK, "optimizer=mpc3"], "there is no optimizer 'mpc3'; did you mean 'mpc2' or 'mppi'?"),
    ([TASK, "llm.model=x"], "there is no setting 'llm.model'"),
    ([TASK, "optimizer.mppi.rule=cem", "optimizer.mppi.temperature=1"], "temperature is no setting of"),
    ([TASK, "vlm=gemini", "vlm.base_url=http://a:b@c/"], "vlm.base_url must not contain a user name, password"),
    ([TASK, "llm=gpt"], "there is no llm 'gpt'; there are: gemini, manual, openai_compatible, replay, scripted"),
    ([TASK, "candidates"], "cannot read 'candidates': missing EQUAL at '<EOF>'; write name=value"),
    ([TASK, "=4"], "cannot read the settings"),
    ([TASK, "candidates=${nope}"], "Interpolation key 'nope' not found"),
    ([TASK, "--config-name=x"], "there is no option '--config-name=x'; did you mean --config-dir or --cfg?"),
    (["--task=stand"], "there is no option '--task=stand'; settings have no dashes, as in +task=..."),
    ([TASK, "seconds=1"], "there is no setting 'seconds'; did you mean 'episode_s'?"),
    ([TASK, "replay=nowhere"], "replay=nowhere takes the task from the recording; leave out task=bottle_pour"),
    (["resume=nowhere"], "nowhere is not a run directory of movlr-jax: it has no config.yaml"),
    ([TASK, "seed=0,-1"], "seed=-1: it must be 0 or more"),  # no job of a sweep starts when one is wrong
    ([TASK, "model=myoarm"], "there is no model 'myoarm'; did you mean 'myoarm_r'?"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"), REFUSED, ids=lambda a: "_".join(a[-1:]) if isinstance(a, list) else ""
)
def test_wrong_setting_is_told(mistake: Mistake, elsewhere: Path, arguments: list[str], sentence: str):
    said = mistake(search, *arguments)
    assert sentence in said
    assert list(elsewhere.iterdir()) == []


def test_evaluate_tells_wrong_setting_as_search_does(mistake: Mistake, elsewhere: Path):
    assert mistake(evaluate, TASK, "candidate=4") == mistake(search, TASK, "candidate=4")


VALUES: list[tuple[str, Any, str]] = [
    ("optimizer.mppi.sample", 4, "'optimizer.mppi.sample'; did you mean 'optimizer.mppi.samples'"),
    ("candidates", 0, "candidates=0: it must be 1 or more"),
    ("optimizer.synergy", 1, "optimizer.synergy=1: it must be 0 or more and less than 1"),
    ("optimizer.sim_dt", 0, "optimizer.sim_dt=0: it must be more than 0"),
    ("episode_s", -1, "episode_s=-1.0: it must be a number of s, more than 0 and at most 3600"),
    ("episode_s", 1e9, "episode_s=1000000000.0: it must be a number of s"),
    ("episode_s", 0.001, "episode_s=0.001 is shorter than one control step of 0.016 s"),
    ("candidates", 2.5, "candidates=2.5 is not an integer"),
    ("candidates", True, "candidates=True is not an integer"),
    ("candidates", None, "candidates=None is not an integer"),
    ("episode_s", "long", "episode_s='long' is not a number"),
    ("episode_s", math.nan, "episode_s=nan is not a finite number"),
    ("films", "maybe", "films='maybe' is not true or false"),
    ("run_dir", ["a", "b"], "run_dir=['a', 'b'] is not a string"),
    ("optimizer.mppi", 5, "optimizer.mppi is 5, expected the name of a rule or a group of settings"),
    ("optimizer.muscle.law", "cubic", "'cubic'; there are: linear, product"),
    ("physics", "gpu", "there is no physics 'gpu'; there are: auto, native, mjx, warp"),
    ("llm.name", "openai_compatible", "llm=openai_compatible needs a model name; set llm.model=NAME"),
    ("llm", {"name": "gemini", "key_env": "sk-123"}, "llm.key_env must be the NAME of an environment variable"),
    ("tracker", {"name": "mlflow", "uri": "http://a:s3cr3t@c/"}, "tracker.uri must not contain a user name"),
    ("tracker", {"name": "mlflow", "uri": "mysql+pymysql://a:s3cr3t@c/d"}, "MLFLOW_TRACKING_URI"),
    ("workers", {"name": "ray", "address": "ray://a:s3cr3t@c:10001"}, "workers.address must not contain a user name"),
    ("vlm.name", "replay", "vlm=replay needs a run to replay; set vlm.run=RUN_DIR"),
    ("optimizer", {"name": "ppo", "ppo": {"minibatches": 5}}, "minibatches=5 does not divide the 256 pieces"),
    ("optimizer", {"name": "ppo", "ppo": {"observe": ["qvle"]}}, "optimizer.ppo.observe 'qvle'; did you mean 'qvel'"),
    ("optimizer", {"name": "ppo", "ppo": {"hidden": [8, "x"]}}, "optimizer.ppo.hidden[1]='x' is not an integer"),
    ("optimizer", {"name": "ppo", "ppo": {"action": "torque"}}, "there is no optimizer.ppo.action 'torque'"),
]


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return plain(compose([TASK]))


@pytest.mark.parametrize(("name", "value", "sentence"), VALUES)
def test_wrong_value_is_told(settings: dict[str, Any], name: str, value: Any, sentence: str):
    """Of settings that are composed already: the check is the same."""
    values = group = copy.deepcopy(settings)
    *groups, last = name.split(".")
    for part in groups:
        group = group[part]
    group[last] = value
    with pytest.raises(UserError, match=re.escape(sentence)) as told:
        recorded_config(values)
    assert "s3cr3t" not in str(told.value)


def test_every_trial_of_program_counts_for_budget_of_comparison():
    given = [TASK, "candidates=2", "generations=3", "trials=3", "episode_s=1", "run_dir=run"]
    # 13 trials of one generation with the final, 10 of each further one
    (config,) = searches(ComparisonRequest(given, ["movlr"], sim_s=23.0))
    assert (config.candidates, config.generations) == (2, 2)
    (config,) = searches(ComparisonRequest(given, ["movlr"], sim_s=22.0))
    assert (config.candidates, config.generations) == (2, 1)
    (config,) = searches(ComparisonRequest(given, ["movlr"]))
    assert (config.candidates, config.generations) == (2, 3)


def test_methods_are_compared_over_seeds(elsewhere: Path, capfd, mistake: Mistake):
    common = [*LEG[1:], "trials=2", "confirm=2"]
    given = [LEG[0], *common, "methods=[movlr,human]", "seeds=3,5", "candidates=2", "generations=1", "run_dir=both"]
    assert compare(given) == 0
    said = capfd.readouterr()
    rows = json.loads(said.out.splitlines()[-1])
    assert [(r["method"], r["seed"]) for r in rows] == [("movlr", 3), ("human", 3), ("movlr", 5), ("human", 5)]
    with (elsewhere / "both" / "compare.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(r["object_position_error_m"]) for r in table] == pytest.approx(
        [r["metrics"]["object_position_error_m"] for r in rows]
    )
    scores = [r["score"] for r in rows if r["method"] == "movlr"]
    mean, deviation = sum(scores) / 2, abs(scores[0] - scores[1]) / math.sqrt(2)
    assert f"{mean:.3g} ± {deviation:.2g}" in said.err
    assert "over 2 seeds" in " ".join(said.err.split())
    with Archive.open(Path("both/human/seed3"), write=False) as archive:
        claim = (archive.get("confirmed") or {})["claims"]["g00k00"]
    assert claim["n"] == 2
    assert rows[1]["success"] == claim["successes"] / 2, "what was confirmed is compared"
    assert rows[1]["metrics"]["object_position_error_m"] == claim["metrics"]["object_position_error_m"]
    assert (rows[1]["programs"], rows[1]["sim_s"]) == (1, pytest.approx(2 * 0.064))
    alone = movlr_jax.run_search(LEG[0].partition("=")[2], *common, candidates=2, generations=1, seed=5)
    assert alone.best.source == movlr_jax.open_run("both/movlr/seed5").best.source
    before = {path: path.stat().st_mtime_ns for path in elsewhere.glob("both/*/*/run.db")}
    assert len(before) == 4
    assert compare(given) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}
    for wrong in ("seed=1", "seed=0,1"):
        assert "compare takes seeds=0,1,2" in mistake(compare, *given, wrong)


def test_comparison_of_task_from_words_leaves_out_hand_written_reward(capfd, mistake: Mistake):
    given = [*LEG, "instruction=lift the foot"]
    assert [config.method.name for config in searches(read_request(given))] == ["movlr", "eureka", "harmon"]
    assert capfd.readouterr().err.count("human is left out: a task from words has no hand-written reward") == 1
    assert "needs a hand-written reward" in mistake(compare, *given, "methods=[human]")


def test_mistake_from_shell_is_one_line_too(elsewhere: Path):
    command = [sys.executable, "-m", "movlr_jax", "evaluate", TASK, "reward=nope.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith("there is no reward 'nope.py': give a file, a run directory, or")
    assert list(elsewhere.iterdir()) == []


def test_output_that_nobody_reads_ends_command_quietly(elsewhere: Path):
    """As in `evaluate --help | head -1`."""
    child = subprocess.Popen(
        [sys.executable, "-m", "movlr_jax.evaluate", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    assert child.stderr.read() == ""
    assert child.wait() == CLOSED_PIPE


def test_ctrl_c_while_command_starts_is_one_word(elsewhere: Path):
    """When NumPy is imported, long before anything of the command itself runs."""
    child = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "movlr_jax.search", TASK],
        stderr=subprocess.PIPE,
        text=True,
        # a shell that runs the tests in the background ignores it for all its children
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert child.stderr is not None
    assert any("numpy" in line for line in iter(child.stderr.readline, ""))
    child.send_signal(signal.SIGINT)
    rest = child.stderr.read()
    assert child.wait(60) == INTERRUPTED
    assert [line for line in rest.splitlines() if not line.startswith("import time:")] == ["interrupted"]


@pytest.mark.parametrize("module", ["movlr_jax.search", "movlr_jax.__main__"])
def test_ctrl_c_after_command_has_ended_does_nothing(elsewhere: Path, module: str):
    """As while Python shuts down, where it would be a traceback."""
    code = f"""
import os, signal, sys
from {module} import main
sys.argv = ["movlr-jax", *["search"] * ("__main__" in main.__module__), "resume=nowhere"]
status = main()
os.kill(os.getpid(), signal.SIGINT)
sys.exit(status)
"""
    child = subprocess.run(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    assert child.returncode == 2
    assert child.stderr.count("\n") == 1
    assert "nowhere" in child.stderr
