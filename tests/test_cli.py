"""Settings as people type them, and every mistake: one sentence on stderr, exit status 2, nothing lost."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import pytest
import yaml

from movlr_jax.archive import Archive
from movlr_jax.cli import compose, expand
from movlr_jax.config import OptimizerConfig
from movlr_jax.control.build import build_planner
from movlr_jax.errors import UserError
from movlr_jax.evaluate import main as evaluate
from movlr_jax.models.spec import compile_spec
from movlr_jax.report import main as report
from movlr_jax.search import main as search
from movlr_jax.tasks import build_task

TASK = "+task=bottle_pour"
QUICK = [TASK, "candidates=1", "generations=1", "episode_s=0.064", "optimizer.mppi.samples=2",
         "optimizer.horizon_s=0.032", "films=false"]  # fmt: skip

Main = Callable[[list[str]], int]
Mistake = Callable[..., str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own: what it does not name lands there, or nowhere."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mistake(capfd: pytest.CaptureFixture[str]) -> Mistake:
    """Runs a command in this process; returns what it complained of, in one line, and checks its status."""

    def run(command: Main, *arguments: str, alone: bool = True) -> str:
        capfd.readouterr()
        assert command(list(arguments)) == 2
        said = capfd.readouterr().err
        assert "Traceback" not in said
        assert "Error:" not in said
        lines = said.strip().splitlines()
        if alone:
            assert len(lines) == 1, said
        return lines[-1]

    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole search, small as can be; tests take copies."""
    run = tmp_path_factory.mktemp("search") / "run"
    assert search([*QUICK, "generations=2", f"run_dir={run}"]) == 0
    return run


def copy_of(run: Path, to: str = "copy") -> Path:
    return Path(shutil.copytree(run, Path.cwd() / to))


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


# Composing.


def test_defaults_are_those_of_conf():
    config = compose([TASK])
    assert (config.task.name, config.model, config.episode_s) == ("bottle_pour", "myoarm_r", 3.0)
    assert config.candidates >= 4
    assert config.generations >= 3
    assert config.optimizer.mppi.samples >= 32
    assert (config.run_dir, config.resume) == (None, None)
    assert config.task.settings["lift_m"] == [0.0, 0.06, 0.10]
    defaults = OptimizerConfig()
    assert config.optimizer.muscle == defaults.muscle
    assert (config.optimizer.sim_dt, config.optimizer.plan_dt) == (defaults.sim_dt, defaults.plan_dt)


def test_overrides_land_where_they_are_named():
    config = compose(["task=bottle_pour", "candidates=7", "optimizer.mppi.samples=5", "seed=3",
                      "task.settings.tilt_deg=20", "episode_s=2", "films=false", "run_dir=2026"])  # fmt: skip
    assert (config.candidates, config.optimizer.mppi.samples, config.seed) == (7, 5, 3)
    assert config.task.settings["tilt_deg"] == 20
    assert config.films is False
    assert config.run_dir == "2026"
    assert type(config.episode_s) is float
    assert compose(["+task=bottle_pour", "++seed=3"]) == compose(["task=bottle_pour", "seed=3"])


def test_settings_tuned_for_a_task_on_a_model_lie_beneath_what_the_user_sets():
    tuned = compose(["+task=stand", "model=ms_human_700"]).optimizer
    assert (tuned.replan_every, tuned.mppi.samples, tuned.mppi.keep) == (4, 12, 3)
    assert (
        compose(["+task=stand", "model=ms_human_700", "optimizer.mppi.samples=5"]).optimizer.mppi.samples == 5
    )
    assert compose(["+task=stand"]).optimizer.mppi.samples == 32
    assert compose(["+task=stand", "model=ms_human_700", "optimizer=mppi"]).optimizer.mppi.samples == 32


def test_what_was_tuned_on_flat_ground_serves_the_other_walks():
    walks = ("flat_walk", "rough_walk", "slope_walk", "injured_walk", "left_turn")
    flat, *others = (compose([f"+task={walk}", "model=ms_human_700_legs"]).optimizer for walk in walks)
    assert flat != compose(["+task=flat_walk"]).optimizer
    assert all(other == flat for other in others)


def test_an_optimizer_brings_its_own_settings():
    mpc2, mppi = compose([TASK]).optimizer, compose([TASK, "optimizer=mppi", "optimizer.knots=3"]).optimizer
    assert (mpc2.name, mppi.name, mppi.knots) == ("mpc2", "mppi", 3)
    assert mppi.mppi != mpc2.mppi


def test_composing_does_not_depend_on_the_folder_or_what_came_before(elsewhere: Path):
    first = compose([TASK, "seed=1"])
    compose([TASK, "candidates=9", "optimizer=mppi"])
    (elsewhere / "conf").mkdir()
    (elsewhere / "conf" / "config.yaml").write_text("candidates: 99\n")
    assert compose([TASK, "seed=1"]) == first


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


def test_help_names_tasks_and_settings(capsys: pytest.CaptureFixture[str]):
    for command in (search, evaluate):
        assert command(["--help"]) == 0
        text = capsys.readouterr().out
        for word in ("bottle_pour", "mpc2, mppi", "candidates: 4", "samples: 32", "run_dir"):
            assert word in text


# What is refused before anything happens.

REFUSED = [
    ([], "no task is named; give +task=NAME, or +task=FILE.py for your own. There are: bottle_pour, cube_rotate, "),
    (["+task=bottle_por"], "there is no task 'bottle_por'; did you mean 'bottle_pour'?"),
    (["task=flat_wlak"], "there is no task 'flat_wlak'; did you mean 'flat_walk'"),
    ([TASK, "candidate=4"], "there is no setting 'candidate'; did you mean 'candidates'?"),
    ([TASK, "+candidate=4"], "there is no setting 'candidate'; did you mean 'candidates'?"),
    ([TASK, "optimizer.mppi.sample=4"], "'optimizer.mppi.sample'; did you mean 'optimizer.mppi.samples'"),
    ([TASK, "optimizer=mppi", "optimizer.knot=4"], "'optimizer.knot'; did you mean 'optimizer.knots'"),
    ([TASK, "task.settings.tilt=4"], "'task.settings.tilt'; did you mean 'task.settings.tilt_deg'"),
    ([TASK, "optimizer=mpc3"], "there is no optimizer 'mpc3'; did you mean 'mpc2' or 'mppi'?"),
    ([TASK, "candidates=0"], "candidates=0: it must be 1 or more"),
    ([TASK, "generations=-1"], "generations=-1: it must be 1 or more"),
    ([TASK, "seed=-1"], "seed=-1: it must be 0 or more"),
    ([TASK, "optimizer.knots=0", "optimizer=mppi"], "optimizer.knots=0: it must be 1 or more"),
    ([TASK, "optimizer.mppi.elites=-1"], "optimizer.mppi.elites=-1: it must be 0 or more"),
    ([TASK, "optimizer.mppi.adapt=2"], "optimizer.mppi.adapt=2: a share must be 1 or less"),
    ([TASK, "optimizer.synergy=1"], "optimizer.synergy=1: a correlation of noise must be less than 1"),
    ([TASK, "optimizer.sim_dt=0"], "optimizer.sim_dt=0: it must be more than 0"),
    ([TASK, "episode_s=0.001"], "episode_s=0.001 is shorter than one control step of 0.016 s"),
    ([TASK, "candidates=2.5"], "candidates=2.5 is not a whole number"),
    ([TASK, "candidates=many"], "candidates='many' is not a whole number"),
    ([TASK, "candidates=true"], "candidates=True is not a whole number"),
    ([TASK, "candidates=null"], "candidates=None is not a whole number"),
    ([TASK, "candidates="], "candidates='' is not a whole number"),
    ([TASK, "episode_s=long"], "episode_s='long' is not a number"),
    ([TASK, "episode_s=nan"], "episode_s=nan is not a finite number"),
    ([TASK, "films=maybe"], "films='maybe' is not true or false"),
    ([TASK, "run_dir=[a,b]"], "run_dir=['a', 'b'] is not a text"),
    ([TASK, "optimizer.mppi=5"], "optimizer.mppi is 5, expected a group of settings"),
    ([TASK, "optimizer.muscle.law=cubic"], "'cubic'; there are: linear, product"),
    ([TASK, "physics=gpu"], "there is no physics 'gpu'; there are: auto, native, mjx, warp"),
    ([TASK, "method=eurika"], "there is no method 'eurika'; did you mean 'eureka'?"),
    ([TASK, "llm.model=x"], "there is no setting 'llm.model'"),
    ([TASK, "llm=openai_compatible"], "llm=openai_compatible needs a model; give llm.model=NAME"),
    ([TASK, "llm=gemini", "llm.key_env=sk-123"], "llm.key_env is the NAME of an environment variable"),
    ([TASK, "vlm=gemini", "vlm.base_url=http://a:b@c/"], "vlm.base_url must not carry a name, password"),
    ([TASK, "vlm=replay"], "vlm=replay needs the run to replay; give vlm.run=RUN_DIR"),
    ([TASK, "ranking=elo"], "there is no ranking 'elo'; there are: active, round_robin, knockout, paper"),
    ([TASK, "llm=gpt"], "there is no llm 'gpt'; there are: gemini, manual, openai_compatible, replay, scripted"),
    ([TASK, "candidates"], "Error parsing override 'candidates'; write name=value"),
    ([TASK, "candidates='4"], "write name=value"),
    ([TASK, "=4"], "cannot read the settings"),
    ([TASK, "candidates=${nope}"], "Interpolation key 'nope' not found"),
    ([TASK, "--config-name=x"], "there is no option '--config-name=x'; settings are given as name=value"),
    ([TASK, "resume=nowhere", "seed=3", "run_dir=x"], "there is no run directory nowhere"),
    (["resume=nowhere"], "nowhere is no run directory of movlr-jax: it has no config.yaml"),
    ([TASK, "seed=0,-1"], "seed=-1: it must be 0 or more"),  # no job of a sweep starts when one is wrong
    ([TASK, "optimizer=ppo", "optimizer.ppo.envs=0"], "optimizer.ppo.envs=0: it must be 1 or more"),
    ([TASK, "optimizer=ppo", "optimizer.ppo.minibatches=5"], "minibatches=5 does not divide the 256 pieces"),
    ([TASK, "optimizer=ppo", "optimizer.ppo.observe=[qvle]"], "optimizer.ppo.observe 'qvle'; did you mean 'qvel'"),
    ([TASK, "optimizer=ppo", "optimizer.ppo.hidden=[8,x]"], "optimizer.ppo.hidden[1]='x' is not a whole number"),
    ([TASK, "optimizer=dynsyn", "optimizer.ppo.action=torque"], "there is no optimizer.ppo.action 'torque'"),
    ([TASK, "model=myoarm"], "there is no model 'myoarm'; did you mean 'myoarm_r'?"),
]  # fmt: skip
# These are found where the task, or the planner, is built.
REFUSED_LATER = [
    (["model=tiny_muscle"], "model 'tiny_muscle' has no part for the role 'palm_site', which this task needs"),
    (["+task.settings.tilt=4"], "there is no setting 'task.settings.tilt'; did you mean 'task.settings.tilt_deg'"),
    (["task.settings.tilt_deg=much"], "task.settings.tilt_deg='much' is not a number"),
    (["task.settings.lift_m=[0,0]"], "task.settings.lift_m=[0, 0] is not a list of 3 values"),
    (["task.settings.lift_m=[0,0,up]"], "task.settings.lift_m[2]='up' is not a number"),
    (["task.settings.bottle_kg=-1"], "task.settings.bottle_kg=-1: it must be more than 0"),
    (["task.settings.hold_s=0"], "task.settings.hold_s=0: it must be more than 0"),
    (["task.settings=5"], "task.settings is 5, expected a group of settings"),
    (["optimizer.name=mcp2"], "there is no optimizer 'mcp2'; did you mean 'mpc2'"),
    (["optimizer.sim_dt=0.003"], "ctrl_dt is 0.016 s, which is no whole multiple of the simulation step 0.003 s"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"), REFUSED, ids=lambda a: "_".join(a[-1:]) if isinstance(a, list) else ""
)
def test_a_wrong_setting_is_told(mistake: Mistake, elsewhere: Path, arguments: list[str], sentence: str):
    said = mistake(search, *arguments)
    assert sentence in said
    assert list(elsewhere.iterdir()) == []
    if not any("resume" in a for a in arguments):
        assert mistake(evaluate, *arguments) == said


@pytest.mark.parametrize(
    ("arguments", "sentence"), REFUSED_LATER, ids=lambda a: a[0] if isinstance(a, list) else ""
)
def test_a_setting_that_the_task_refuses_leaves_no_run(
    mistake: Mistake, elsewhere: Path, arguments: list[str], sentence: str
):
    assert sentence in mistake(search, TASK, *arguments, "run_dir=run")
    assert list(elsewhere.iterdir()) == []


def test_evaluate_does_not_resume(mistake: Mistake):
    assert mistake(evaluate, *QUICK, "resume=run") == (
        "resume goes on with a search; to evaluate its best program give reward=run"
    )


def test_every_command_says_it_from_a_shell_too(elsewhere: Path):
    """As a person runs them: one line, no traceback, nothing on stdout, status 2."""
    said = {
        ("search", "+task=bottle_por"): "there is no task 'bottle_por'; did you mean 'bottle_pour'?",
        (
            "evaluate",
            TASK,
            "reward=nope.py",
        ): "there is no reward 'nope.py': give a file, a run directory, or",
        ("report", "nowhere"): "there is no run directory nowhere; runs are kept under runs/<task>/<time>/",
    }
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    begun = [
        subprocess.Popen([sys.executable, "-m", f"movlr_jax.{command}", *arguments], **pipes)
        for command, *arguments in said
    ]
    for child, sentence in zip(begun, said.values(), strict=True):
        out, told = child.communicate()
        assert child.returncode == 2
        assert told.startswith(sentence), told
        assert len(told.splitlines()) == 1
        assert out == ""
    assert list(elsewhere.iterdir()) == []


def test_a_missing_model_package_is_told(elsewhere: Path):
    script = "import sys; sys.modules['myo_sim'] = None; from movlr_jax.search import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", script, *QUICK], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "this model comes with the package myo-sim, which is not installed here; pip install myo-sim"
    )
    assert list(elsewhere.iterdir()) == []


def test_a_model_without_muscles_needs_another_optimizer():
    spec = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body name="cart"><joint name="x" type="slide"/><geom size="0.1"/></body></worldbody>'
        '<actuator><motor name="push" joint="x" ctrllimited="true" ctrlrange="-1 1"/></actuator></mujoco>'
    )
    bottle = build_task("bottle_pour", "myoarm_r", 1.0, {})
    adapter = replace(bottle.adapter, planned_joints=("x",), synergies=(), posture={})
    task = replace(bottle, model=compile_spec(spec), adapter=adapter)
    with pytest.raises(UserError) as caught:
        build_planner(OptimizerConfig(), task)
    assert str(caught.value) == (
        "optimizer=mpc2 drives muscles, and this model has 0 muscles among its 1 actuators (not muscles: push); "
        "use optimizer=mppi, which plans over any actuator"
    )


# Rewards that people wrote.

REWARDS = [
    ("x = = 1", "the program is not Python: line 1: invalid syntax"),
    (
        'WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return {"a": state.pos("botle")[0]}\n',
        "line 3: there is no body 'botle'; did you mean 'bottle'",
    ),
    ('WEIGHTS = {"a": 1.0}\ndef reward(state, action):\n    return 3\n', "reward returns a int, expected a dict"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "sentence"), REWARDS, ids=["syntax", "name", "int"])
def test_a_reward_that_is_wrong_is_told(mistake: Mistake, elsewhere: Path, source: str, sentence: str):
    Path("mine.py").write_text(source)
    said = mistake(evaluate, *QUICK, "reward=mine.py", alone=False)
    assert said.startswith(f"reward mine.py: {sentence}")
    assert list(elsewhere.iterdir()) == [elsewhere / "mine.py"]


def test_a_reward_that_cannot_be_read_is_told(mistake: Mistake, elsewhere: Path):
    Path("mine.py").write_bytes(b"\xff\xfe\x00")
    assert "cannot read the reward 'mine.py': 'utf-8' codec" in mistake(evaluate, *QUICK, "reward=mine.py")
    Path("empty").mkdir()
    said = mistake(evaluate, *QUICK, "reward=empty")
    assert said == "empty has no best.py; it is no run directory, or no generation of it is done"
    assert "there is no reward 'humn'" in mistake(evaluate, *QUICK, "reward=humn")


def test_a_diverging_simulation_is_told(mistake: Mistake, capfd: pytest.CaptureFixture[str]):
    """Steps of 3 s: no model survives that. MuJoCo's own warnings stay out of sight and out of the folder."""
    violent = [*QUICK, "optimizer.sim_dt=3", "optimizer.ctrl_dt=3", "optimizer.plan_dt=3", "episode_s=30"]
    said = mistake(search, *violent, "run_dir=run", alone=False)
    assert said.startswith("every program of generation 0 failed")
    assert "the simulation diverged" in said
    assert Path("run/report.html").is_file()
    with Archive.open(Path("run"), write=False) as archive:
        evaluated = archive.get("evaluated", 0, 0)
    assert evaluated
    assert "the simulation diverged" in evaluated["reason"]

    assert evaluate([*violent, "reward=human"]) == 2
    captured = capfd.readouterr()
    assert captured.err.strip().splitlines()[-1].startswith("reward human: the simulation diverged")
    assert json.loads(captured.out.strip().splitlines()[-1])["diverged_fraction"] == 1.0
    assert "WARNING" not in captured.err
    assert [path.name for path in Path().iterdir()] == ["run"]


# Places that cannot be written.


@pytest.mark.parametrize("place", ["file", "file/run", "/proc/movlr"])
def test_a_place_that_cannot_be_written_is_told(mistake: Mistake, elsewhere: Path, place: str):
    Path("file").write_text("not a folder")
    assert mistake(search, *QUICK, f"run_dir={place}").startswith(f"cannot write {place}: ")
    assert contents(elsewhere) == {"file": b"not a folder"}


def test_a_run_directory_is_not_written_over(mistake: Mistake, finished: Path):
    run = copy_of(finished)
    before = contents(run)
    said = mistake(search, *QUICK, f"run_dir={run}")
    assert (
        said
        == f"the run directory {run} is not empty; choose another run_dir=..., or go on with resume={run}"
    )
    assert contents(run) == before


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A small disk of its own, mounted; call it with a size to make it, or to make it larger."""
    folder, mounted = tmp_path / "disk", []

    def sized(size: str) -> Path:
        folder.mkdir(exist_ok=True)
        how = f"remount,size={size}" if mounted else f"size={size}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", how, "tmpfs", str(folder)], capture_output=True)
        if done.returncode:
            pytest.skip("no file system can be mounted here")
        mounted.append(size)
        return folder

    yield sized
    if mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_loses_nothing(mistake: Mistake, disk: Callable[[str], Path], finished: Path):
    """The search ends where the disk does; with more room it goes on from there, and ends as if there had been
    enough of it from the start."""
    root = disk("140k") / "run"
    said = mistake(search, *QUICK, "generations=2", f"run_dir={root}", alone=False)
    assert said.startswith((f"cannot write {root}", f"cannot write the record in {root}"))
    assert "make room or choose another run_dir=..., then go on with resume=" in said
    assert not list(root.rglob("*.part")), "half a file takes room that is needed"
    disk("64m")
    assert search([f"resume={root}"]) == 0
    assert results(root) == results(finished)


def test_a_disk_too_full_to_begin_is_told(mistake: Mistake, disk: Callable[[str], Path]):
    assert mistake(search, *QUICK, f"run_dir={disk('8k') / 'run'}").startswith("cannot write ")


def test_no_room_for_a_film_is_told(
    mistake: Mistake, disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capfd
):
    """Films are encoded in the folder for temporary files: the numbers are printed even so."""
    monkeypatch.setattr(tempfile, "tempdir", str(disk("4k")))
    films = [a for a in QUICK if not a.startswith("films")]
    assert evaluate([*films, "reward=initial"]) == 2
    captured = capfd.readouterr()
    said = captured.err.strip().splitlines()[-1]
    if "no films: " in captured.err:
        pytest.skip("nothing draws here")
    assert said.startswith("no film: ")
    assert "No space left on device; make room in" in said
    assert "object_position_error_m" in json.loads(captured.out.strip().splitlines()[-1])


def results(run: Path) -> list[dict]:
    """What a run found, without times."""
    with Archive.open(run, write=False) as archive:
        evaluated = archive.events("evaluated")
    return [{k: v for k, v in e.data.items() if k != "timing"} for e in evaluated]


# Runs that are resumed, reported and evaluated.


def harm(run: Path, kind: str) -> Path:
    db, config = run / "run.db", run / "config.yaml"
    if kind in ("empty", "text", "foreign", "cut"):
        for ending in ("-wal", "-shm"):
            Path(f"{db}{ending}").unlink(missing_ok=True)
    if kind == "empty":
        db.write_bytes(b"")
    elif kind == "text":
        db.write_text("no database" * 1000)
    elif kind == "cut":
        db.write_bytes(db.read_bytes()[: db.stat().st_size // 2])
    elif kind == "foreign":
        db.unlink()
        with sqlite3.connect(db) as other:
            other.execute("CREATE TABLE holidays (place TEXT)")
        other.close()
    elif kind == "no db":
        db.unlink()
    elif kind == "no config":
        config.unlink()
    elif kind == "config is no yaml":
        config.write_text("a: [1,\n b")
    elif kind == "config is a list":
        config.write_text("- a\n")
    elif kind == "config of another version":
        config.write_text(config.read_text() + "nonsense: 3\n")
    return run


@pytest.mark.parametrize(
    ("kind", "resumed", "reported"),
    [
        ("empty", "was not written by movlr-jax", "was not written by movlr-jax"),
        ("text", "is broken (file is not a database)", "is broken (file is not a database)"),
        ("cut", "is broken", "is broken"),
        ("foreign", "was not written by movlr-jax", "was not written by movlr-jax"),
        ("no db", "is no run directory of movlr-jax: it has no run.db", "is no run directory of movlr-jax"),
        ("no config", "is no run directory of movlr-jax: it has no config.yaml", None),
        ("config is no yaml", "config.yaml is broken", None),
        ("config is a list", "config.yaml is broken", None),
        ("config of another version", "there is no setting 'nonsense'", None),
    ],
)
def test_a_broken_or_foreign_run_is_told(
    mistake: Mistake, finished: Path, kind: str, resumed: str, reported: str | None
):
    run = harm(copy_of(finished), kind)
    before = contents(run)
    assert resumed in mistake(search, f"resume={run}")
    if reported:
        assert reported in mistake(report, str(run))
        assert contents(run) == before
    else:
        assert report([str(run)]) == 0


def test_a_run_whose_record_is_gone_is_still_a_reward(finished: Path, capsys: pytest.CaptureFixture[str]):
    run = harm(copy_of(finished), "text")
    assert evaluate([*QUICK, f"reward={run}"]) == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["reward"] == str(run / "best.py")


def test_only_what_does_not_make_it_another_run_may_change(mistake: Mistake, finished: Path):
    run = copy_of(finished)
    said = mistake(search, f"resume={run}", "seed=1")
    assert (
        said == "seed cannot be set when a run is resumed, only generations, films, max_calls, max_cost_usd; "
        "start a new run for it"
    )
    said = mistake(search, *QUICK, "seed=1", f"resume={run}")
    assert said == f"{run} was made with other settings: seed was 0, is 1; start a new run for those"
    assert search([f"resume={run}", "generations=3"]) == 0
    assert len(results(run)) == 3
    assert results(run)[:2] == results(finished)
    best = (run / "best.py").read_text()
    said = mistake(search, f"resume={run}", "generations=1")
    assert said == f"generations=1: {run} has 3 generations already; give 3 or more"
    assert (run / "best.py").read_text() == best
    assert yaml.safe_load((run / "config.yaml").read_text())["generations"] == 2, "as it was begun"


def test_a_run_that_lost_a_file_says_which(mistake: Mistake, finished: Path):
    """A film needs the recorded motion: gone, or changed by somebody."""
    run = copy_of(finished)
    states = run / "gen_00" / "k00.npz"
    whole = states.read_bytes()
    with Archive.open(run, write=False) as archive:
        assert archive.read("gen_00/k00.npz") == whole
        states.write_bytes(whole[:-100])
        with pytest.raises(UserError, match="was changed since it was written"):
            archive.read("gen_00/k00.npz")
    states.unlink()
    said = mistake(search, f"resume={run}", "films=true", alone=False)
    if "no films: " in said:
        pytest.skip("nothing draws here")
    assert said == f"{states} is missing; bring it back, or resume with films=false"


def test_one_process_at_a_time(mistake: Mistake, finished: Path):
    run = copy_of(finished)
    with Archive.open(run):
        assert f"another process is working in {run}" in mistake(search, f"resume={run}")


# Sweeps.


def seeds(run: Path) -> Sequence[int]:
    with Archive.open(run, write=False) as archive:
        about, finish = archive.get("run"), archive.get("finished")
    assert about
    assert finish
    return about["seed"]


def test_a_sweep_runs_every_job_in_a_folder_of_its_own(capfd: pytest.CaptureFixture[str]):
    assert search(["-m", *QUICK, "seed=0,1", "run_dir=sweep"]) == 0
    assert [seeds(Path("sweep") / name) for name in ("0", "1")] == [0, 1]
    said = capfd.readouterr().err
    assert "job 1 of 2" in said
    assert "job 2 of 2" in said


def test_a_job_that_fails_does_not_keep_the_others_from_running(mistake: Mistake, capfd):
    """The mass of one is refused where the task is built; -m may be left out."""
    assert search([*QUICK, "task.settings.bottle_kg=-1,0.3"]) == 2
    said = capfd.readouterr().err
    assert "task.settings.bottle_kg=-1: it must be more than 0" in said
    assert "Traceback" not in said
    (run,) = (Path("runs") / "bottle_pour").iterdir()
    assert seeds(run) == 0
