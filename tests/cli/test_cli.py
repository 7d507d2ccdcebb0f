"""Settings as people type them, and every mistake: one sentence on stderr, exit status 2, nothing lost."""

from __future__ import annotations

import csv
import json
import math
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from cli_cases import LEG, TASK, Mistake

import movlr_jax
from movlr_jax.cli.compare import main as compare
from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.outcome import CLOSED_PIPE, INTERRUPTED
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import expand
from movlr_jax.engine.compare import ComparisonRequest, searches
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
    ([TASK, "candidate=4"], "there is no setting 'candidate'; did you mean 'candidates'?"),
    ([TASK, "+candidate=4"], "there is no setting 'candidate'; did you mean 'candidates'?"),
    ([TASK, "optimizer.mppi.sample=4"], "'optimizer.mppi.sample'; did you mean 'optimizer.mppi.samples'"),
    ([TASK, "optimizer=mpc3"], "there is no optimizer 'mpc3'; did you mean 'mpc2' or 'mppi'?"),
    ([TASK, "candidates=0"], "candidates=0: it must be 1 or more"),
    ([TASK, "seed=-1"], "seed=-1: it must be 0 or more"),
    ([TASK, "optimizer.mppi.adapt=2"], "optimizer.mppi.adapt=2: it must be 0 or more and at most 1"),
    ([TASK, "optimizer.synergy=1"], "optimizer.synergy=1: it must be 0 or more and less than 1"),
    ([TASK, "optimizer.sim_dt=0"], "optimizer.sim_dt=0: it must be more than 0"),
    ([TASK, "episode_s=-1"], "episode_s=-1.0: it must be a number of s, more than 0 and at most 3600"),
    ([TASK, "episode_s=1e9"], "episode_s=1000000000.0: it must be a number of s, more than 0 and at most 3600"),
    ([TASK, "episode_s=0.001"], "episode_s=0.001 is shorter than one control step of 0.016 s"),
    ([TASK, "candidates=2.5"], "candidates=2.5 is not an integer"),
    ([TASK, "candidates=many"], "candidates='many' is not an integer"),
    ([TASK, "candidates=true"], "candidates=True is not an integer"),
    ([TASK, "candidates=null"], "candidates=None is not an integer"),
    ([TASK, "episode_s=long"], "episode_s='long' is not a number"),
    ([TASK, "episode_s=nan"], "episode_s=nan is not a finite number"),
    ([TASK, "films=maybe"], "films='maybe' is not true or false"),
    ([TASK, "run_dir=[a,b]"], "run_dir=['a', 'b'] is not a string"),
    ([TASK, "optimizer.mppi=5"], "optimizer.mppi is 5, expected the name of a rule or a group of settings"),
    ([TASK, "optimizer.muscle.law=cubic"], "'cubic'; there are: linear, product"),
    ([TASK, "physics=gpu"], "there is no physics 'gpu'; there are: auto, native, mjx, warp"),
    ([TASK, "method=eurika"], "there is no method 'eurika'; did you mean 'eureka' or 'eureka_adapted'?"),
    ([TASK, "llm.model=x"], "there is no setting 'llm.model'"),
    ([TASK, "llm=openai_compatible"], "llm=openai_compatible needs a model name; set llm.model=NAME"),
    ([TASK, "llm=gemini", "llm.key_env=sk-123"], "llm.key_env must be the NAME of an environment variable"),
    ([TASK, "vlm=gemini", "vlm.base_url=http://a:b@c/"], "vlm.base_url must not contain a user name, password"),
    ([TASK, "tracker=mlflow", "tracker.uri=http://a:s3cr3t@c/"], "tracker.uri must not contain a user name"),
    ([TASK, "tracker=mlflow", "tracker.uri=mysql+pymysql://a:s3cr3t@c/d"], "MLFLOW_TRACKING_URI"),
    ([TASK, "workers=ray", "workers.address=ray://a:s3cr3t@c:10001"], "workers.address must not contain a user name"),
    ([TASK, "vlm=replay"], "vlm=replay needs a run to replay; set vlm.run=RUN_DIR"),
    ([TASK, "ranking=elo"], "there is no ranking 'elo'; there are: active, round_robin, knockout, paper"),
    ([TASK, "llm=gpt"], "there is no llm 'gpt'; there are: gemini, manual, openai_compatible, replay, scripted"),
    ([TASK, "candidates"], "cannot read 'candidates': missing EQUAL at '<EOF>'; write name=value"),
    ([TASK, "candidates='4"], "write name=value"),
    ([TASK, "=4"], "cannot read the settings"),
    ([TASK, "candidates=${nope}"], "Interpolation key 'nope' not found"),
    ([TASK, "--config-name=x"], "there is no option '--config-name=x'; did you mean --config-dir or --cfg?"),
    (["--task=stand"], "there is no option '--task=stand'; settings have no dashes, as in +task=..."),
    ([TASK, "--llm.model", "x"], "there is no option '--llm.model'; settings have no dashes, as in llm.model=..."),
    ([TASK, "seconds=1"], "there is no setting 'seconds'; did you mean 'episode_s'?"),
    ([TASK, "resume=nowhere", "seed=3", "run_dir=x"], "there is no run directory nowhere"),
    ([TASK, "replay=nowhere"], "replay=nowhere takes the task from the recording; leave out task=bottle_pour"),
    (["resume=nowhere"], "nowhere is not a run directory of movlr-jax: it has no config.yaml"),
    ([TASK, "certainty=0.4"], "certainty=0.4: it must be 0.5 or more and less than 1"),
    ([TASK, "starts=3"], "there is no setting 'starts'"),
    ([TASK, "seed=0,-1"], "seed=-1: it must be 0 or more"),  # no job of a sweep starts when one is wrong
    ([TASK, "optimizer=ppo", "optimizer.ppo.minibatches=5"], "minibatches=5 does not divide the 256 pieces"),
    ([TASK, "optimizer=ppo", "optimizer.ppo.observe=[qvle]"], "optimizer.ppo.observe 'qvle'; did you mean 'qvel'"),
    ([TASK, "optimizer=ppo", "optimizer.ppo.hidden=[8,x]"], "optimizer.ppo.hidden[1]='x' is not an integer"),
    ([TASK, "optimizer=dynsyn", "optimizer.ppo.action=torque"], "there is no optimizer.ppo.action 'torque'"),
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


def test_every_trial_of_program_counts_for_budget_of_comparison(elsewhere: Path, capsys):
    given = [TASK, "candidates=2", "generations=3", "trials=3", "episode_s=1", "run_dir=run"]
    # 13 trials of one generation with the final, 10 of each further one
    (config,) = searches(ComparisonRequest(given, ["movlr"], sim_s=23.0))
    assert (config.candidates, config.generations) == (2, 2)
    (config,) = searches(ComparisonRequest(given, ["movlr"], sim_s=22.0))
    assert (config.candidates, config.generations) == (2, 1)
    (config,) = searches(ComparisonRequest(given, ["movlr"]))
    assert (config.candidates, config.generations) == (2, 3)

    assert compare([*LEG, "methods=[human]", "trials=2", "confirm=2", "run_dir=run"]) == 0
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])
    with Archive.open(Path("run/human"), write=False) as archive:
        claim = (archive.get("confirmed") or {})["claims"]["g00k00"]
    assert claim["n"] == 2
    assert row["success"] == claim["successes"] / 2, "what was confirmed is compared"
    error = "object_position_error_m"
    assert row["metrics"][error] == claim["metrics"][error]
    seconds = 2 * 0.064
    assert (row["programs"], row["sim_s"]) == (1, pytest.approx(seconds))


def test_methods_are_compared_over_seeds(elsewhere: Path, capfd, mistake: Mistake):
    given = [*LEG, "methods=[movlr,human]", "seeds=3,5", "candidates=2", "generations=1", "run_dir=both"]
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
    alone = movlr_jax.run_search(LEG[0].partition("=")[2], *LEG[1:], candidates=2, generations=1, seed=5)
    assert alone.best.source == movlr_jax.open_run("both/movlr/seed5").best.source
    before = {path: path.stat().st_mtime_ns for path in elsewhere.glob("both/*/*/run.db")}
    assert len(before) == 4
    assert compare(given) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}
    for wrong in ("seed=1", "seed=0,1"):
        assert "compare takes seeds=0,1,2" in mistake(compare, *given, wrong)


def test_comparison_of_task_from_words_leaves_out_hand_written_reward(elsewhere: Path, capfd, mistake: Mistake):
    given = [*LEG, "instruction=lift the foot"]
    assert compare([*given, "run_dir=words"]) == 0
    said = capfd.readouterr()
    assert [r["method"] for r in json.loads(said.out.splitlines()[-1])] == ["movlr", "eureka", "harmon"]
    left_out = "human is left out: a task from words has no hand-written reward"
    assert said.err.count(left_out) == 1
    assert compare([*given, "run_dir=words"]) == 0
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
