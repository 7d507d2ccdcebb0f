"""A task of the user's own: the example of docs/write_a_task.md word for word, and mistakes one can make with it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import mujoco
import numpy as np
import pytest
from moving import PAGE, block, episode_of

from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.sandbox.source import parse
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.readout import Readout
from movlr_jax.types import Trajectory

QUICK = ["candidates=2", "generations=1", "episode_s=0.16", "optimizer.mppi.samples=2", "optimizer.horizon_s=0.064"]


def example(language: str) -> str:
    """Return the first block of that language in the page's section on an arm."""
    return block(language, "## An arm that touches a ball")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the two files of the example in it."""
    monkeypatch.chdir(tmp_path)
    Path("arm.xml").write_text(example("xml"), encoding="utf-8")
    Path("touch_ball.py").write_text(example("python"), encoding="utf-8")
    return tmp_path


def own(file: str = "touch_ball.py", *settings: str) -> Task:
    return task_of(compose([f"+task={file}", *settings]))


def refused(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        own(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_example_runs_as_the_page_says_and_resumes_from_anywhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """From the folder that the files are in."""
    command = next(line for line in PAGE.splitlines() if "+task=touch_ball.py" in line).split()
    assert command[:3] == ["python", "-m", "movlr_jax.search"]
    assert search([*command[3:], *QUICK, "trials=1", "films=false"]) == 0
    said = capfd.readouterr().err
    assert "searching a reward for touch_ball" in said
    # with what its author measures
    assert re.search(r" from 8 fresh starts: . of 8 succeed .*, \S+ cm off, tip speed \S+ m/s", said)
    (run,) = Path("runs/touch_ball").iterdir()
    assert '<th class="n">tip speed</th>' in (run / "report.html").read_text()
    assert set(parse((run / "best.py").read_text()).weights) >= {"tip_distance"}
    assert sorted(p.name for p in folder.iterdir()) == ["arm.xml", "runs", "touch_ball.py"]
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert search([f"resume=../{run}", "generations=2"]) == 0
    assert evaluate([f"+task={folder}/touch_ball.py", *QUICK, "films=false", f"reward=../{run}"]) == 0


def test_the_example_measures_what_it_says(folder: Path):
    """The arm is held where MuJoCo itself says how far the tip is from the ball."""
    task = own()
    assert task.episode_s == 2.0
    assert (task.adapter.root, list(task.adapter.planned_joints)) == ("upper_arm", ["shoulder", "elbow"])
    plain = mujoco.MjModel.from_xml_path("arm.xml")
    data = mujoco.MjData(plain)
    data.qpos[:] = [0.2, -0.5]
    mujoco.mj_forward(plain, data)
    expected = np.linalg.norm(data.site("tip").xpos - data.body("ball").xpos)
    assert np.allclose(task.goals["tip_pos"], data.body("ball").xpos)

    metrics = task.scoring.measure(still(task, data.qpos, seconds=1.0), task)
    assert metrics["object_position_error_m"] == pytest.approx(expected, abs=1e-5)
    assert metrics["tip_speed_m_s"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["success"] == 0.0
    qpos, qvel, act = task.start(np.random.default_rng(0), 500)
    assert np.allclose(qpos.mean(axis=0), [0.2, -0.5], atol=0.002)
    assert np.allclose(qpos.std(axis=0), 0.01, atol=0.002)
    assert not qvel.any()
    assert act.shape == (500, 0)


def still(task: Task, qpos: np.ndarray, seconds: float) -> Trajectory:
    """An episode in which the model stays where it is."""
    return episode_of(task, [qpos.copy()] * round(seconds / 0.01), 0.01)


def test_success_is_being_there_and_still(folder: Path):
    """A posture that puts the tip on the ball, found by MuJoCo's kinematics alone."""
    task = own()
    plain = mujoco.MjModel.from_xml_path("arm.xml")
    data = mujoco.MjData(plain)
    best, posture = np.inf, np.zeros(2)
    for shoulder in np.linspace(-2, 2, 81):
        for elbow in np.linspace(-2.6, 0, 53):
            data.qpos[:] = shoulder, elbow
            mujoco.mj_kinematics(plain, data)
            error = float(np.linalg.norm(data.site("tip").xpos - data.body("ball").xpos))
            if error < best:
                best, posture = error, data.qpos.copy()
    assert best < 0.02
    episode = still(task, posture, seconds=1.0)
    assert task.scoring.measure(episode, task)["success"] == 1.0
    assert own("touch_ball.py", "task.settings.tolerance_m=0.0001").scoring.measure(episode, task)["success"] == 0.0


@pytest.mark.slow
def test_the_planner_brings_the_tip_to_the_ball_and_stays(folder: Path, capfd: pytest.CaptureFixture[str]):
    """Under the first program of a search and the page's settings. With constant noise it wanders by 4 to 12 cm."""
    shown = re.search(r"python -m movlr_jax.search (\+task=touch_ball.py)", PAGE)
    assert shown
    assert evaluate([*shown[1].split(), "seed=0,1,2", "films=false"]) == 0
    results = [json.loads(x) for x in capfd.readouterr().out.splitlines() if x.startswith("{")]
    assert len(results) == 3
    for result in results:
        assert result["success"] == 1.0
        assert result["object_position_error_m"] < 0.02


def test_the_file_may_be_anywhere_and_a_run_remembers_it(folder: Path, monkeypatch: pytest.MonkeyPatch):
    elsewhere = folder / "elsewhere" / "deep"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    config = compose(["+task=../../touch_ball.py", "task.settings.tolerance_m=0.5"])
    assert config.task.settings == {"file": str(folder / "touch_ball.py"), "tolerance_m": 0.5}
    assert compose([f"task='{folder}/touch_ball.py'"]) == compose(["+task=own", "file=../../touch_ball.py"])
    assert task_of(config).name == "touch_ball"
    assert config.optimizer.name == "mppi"
    assert compose(["+task=../../touch_ball.py", "optimizer=mpc2"]).optimizer.name == "mpc2"
    assert own("../../touch_ball.py", "episode_s=5").episode_s == 5.0


MISTAKES = [
    ("def task(:\n", "mine.py is not valid Python: line 1: invalid syntax"),
    ("x = 1\n", "mine.py defines no function task(); define one that returns a Task, as `return simple_task(...)`"),
    ("def task():\n    return 3\n", "task() of mine.py returns int, expected Task; use `return simple_task(...)`"),
    ("def task():\n    return {}['a']\n", "mine.py: line 2: KeyError: 'a'"),
    ("import nosuchmodule\n", "mine.py: line 1: ModuleNotFoundError: No module named 'nosuchmodule'"),
    ("def task(h):\n    pass\n", "task() of mine.py needs 'h'; set task.settings.h=..., or give it a default"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), MISTAKES)
def test_a_file_that_is_wrong_is_told(folder: Path, text: str, sentence: str):
    Path("mine.py").write_text(text)
    assert refused("mine.py").replace(f"{folder}/", "") == sentence


# Changes to the example, and what is said of them.
CHANGES = [
    ('"shoulder": 0.2', '"sholder": 0.2', "start: there is no joint 'sholder'; did you mean 'shoulder'?"),
    ('{"shoulder": 0.2, "elbow": -0.5}', "[0.2, -0.5]", "start=[0.2, -0.5]: expected joint -> rad or m, the"),
    ('"shoulder": 0.2', '"shoulder": 90', "is 90 rad, expected -2.094 to 2.094 rad, the joint's range; angles are"),
    ('"tip_pos": "ball"', '"tip_pos": (0.3, 0.6)', "goal 'tip_pos' is [0.3, 0.6], expected 3 finite numbers"),
    ('{"shoulder": 0.2, "elbow": -0.5}', "lambda rng, n: 2 * [np.zeros((n, 2))] + [None]",
     "start of the task touch_ball returns act () for n = 2, expected finite numbers qpos [n, 2], qvel [n, 2], act"),
    ("episode_s=2.0", "episode_s=0.001", "episode_s=0.001 is shorter than one control step of 0.016 s"),
    ('"tip_pos": "ball"', '"tip_pos": "bal"', "goal 'tip_pos': there is no body or site 'bal'; did you mean 'ball'"),
    ('"tip_pos"', '"tipp_pos"', "of a body or site, but there is no body or site 'tipp'; did you mean 'tip'?"),
    ("measure=measure,", "scene=lambda spec: [spec.delete(a) for a in spec.actuators],",
     "the model of the task touch_ball has no actuators, so it cannot be controlled"),
    ("episode_s=2.0,", "start_noise=-0.1,", "start_noise=-0.1: expected a standard deviation in rad, 0 or more"),
    ('name="touch_ball"', 'name="../touch"', "name='../touch': a task name is also a folder name"),
    ("measure=measure,", "mesure=measure,", "touch_ball.py: line 12: TypeError: simple_task() got an unexpected"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "sentence"), CHANGES)
def test_a_task_that_is_wrong_is_told(folder: Path, old: str, new: str, sentence: str):
    path = Path("touch_ball.py")
    path.write_text(path.read_text().replace(old, new, 1))
    assert sentence in refused()


RETURNED = [
    ("score=lambda m: None", "score of the task touch_ball returns None, expected a number"),
    ("diagnose=lambda m: ['too slow']", "diagnose of the task touch_ball returns ['too slow'], expected a list of"),
    ("series=lambda e, t: {'x_m': e.steps.qpos}", "series of the task touch_ball returns {'x_m'"),
    ("faults=lambda e, t: ['it is stiff']", "faults of the task touch_ball returns ['it is stiff'], expected a dict"),
    ("over=lambda s, first: s.qpos[:, -1, 0] > 9", "expected true or false [B, T], here [1, 125]"),
    ("perturb=lambda s, dt: s.replace(qvel=s.qvel[0])", "perturb of the task touch_ball returns SimState"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), RETURNED)
def test_a_function_that_returns_something_else_is_told(folder: Path, change: str, sentence: str):
    with Path("touch_ball.py").open("a") as file:
        file.write(f"\n\nplain = task\n\n\ndef task():\n    return plain().replace({change})\n")
    assert sentence in refused()


READS_MARK = """import jax.numpy as jnp
WEIGHTS = {"near": 1.0}
def reward(state, action):
    return {"near": -jnp.linalg.norm(state.site("tip") - state.goal("mark_pos"))}
"""


@pytest.mark.parametrize(("reward", "human_reward"), [(READS_MARK, None), (None, READS_MARK)])
def test_a_program_of_ones_own_may_read_any_position(folder: Path, reward: str | None, human_reward: str | None):
    task = simple_task(
        name="near",
        model="arm.xml",
        description="come near",
        goals={"mark_pos": (0.3, 0.0, 0.6)},
        reward=reward,
        human_reward=human_reward,
    )
    assert task.rewards.human == READS_MARK
    assert task.layout.goals["mark_pos"] == (3,)


# Changes to functions of the example, and what is said of them before anything is planned.
LATE = [
    ('episode.site("tip")', 'episode.site("tp")', "line 7: there is no site 'tp'; did you mean 'tip'?"),
    ('m["object_pos', 'm["objct_pos', "line 19: there is no measure 'objct_position_error_m'; did you mean"),
    ('    return {', '    return {"speed": velocity, ', "measure of the task touch_ball returns speed="),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "sentence"), LATE)
def test_a_measure_that_fails_is_told_with_its_line_at_the_start(
    folder: Path, capfd: pytest.CaptureFixture[str], old: str, new: str, sentence: str
):
    path = Path("touch_ball.py")
    text = path.read_text()
    path.write_text(text.replace(old, new))
    assert search(["+task=touch_ball.py", *QUICK, "films=false"]) == 2
    (said,) = capfd.readouterr().err.strip().splitlines()
    assert said.startswith(f"{folder}/touch_ball.py: {sentence.strip()}")
    assert not Path("runs").exists()


@pytest.mark.parametrize(("name", "value", "lost"), [("tilt_error_rad", np.deg2rad(12), 2), ("gap_error_m", 0.03, 3)])
def test_an_own_error_lowers_the_default_score_whatever_its_sign(folder: Path, name: str, value: float, lost: float):
    """1 cm counts as much as 6 degrees; measures of other names do not count, nor does the effort of a failure."""
    score = own().scoring.score
    base = {"object_position_error_m": 0.02, "success": 0.0, "effort": 0.1}
    assert score(base) == pytest.approx(-2)
    for signed in (value, -value):
        assert score(base | {name: signed}) == pytest.approx(-2 - lost)
    assert score(base | {name.replace("_error", ""): value}) == pytest.approx(-2)


def test_what_decides_success_is_what_is_announced():
    """The tolerance of a goal does only where nothing of the user does."""
    common = {"name": "kick", "model": "tiny_muscle", "description": "kick", "goals": {"foot_pos": [0.1, 0, 0.2]}}

    def calm(metrics: Mapping[str, float]) -> bool:
        """The foot comes to rest there.

        Not told.
        """
        return metrics["object_position_error_m"] < 0.1

    def judged(episode: Readout) -> dict[str, float]:
        return {"success": float(episode.pos("foot")[-1, 2] > 0.1)}

    within = "foot within 5 cm of its goal in the last half second"
    assert simple_task(**common).scoring.success == within
    assert simple_task(**common, measure=lambda episode: {"end_s": episode.time[-1]}).scoring.success == within
    assert simple_task(**common, measure=judged).scoring.success == "what judged of the task returns"
    assert simple_task(**common, success=calm).scoring.success == "The foot comes to rest there"
    far_m = 2.0
    by_lambda = simple_task(**common, success=lambda m: m["distance_m"] > far_m and not m["fell"]).scoring.success
    assert by_lambda == "distance_m > 2.0 and (not fell)"
    unread = eval("lambda m: True")  # without a file
    assert simple_task(**common, success=unread).scoring.success == "what success of the task returns"


KEYED = """
<mujoco>
  <worldbody>
    <frame pos="0 0 1"><body name="target" mocap="true" pos="0 0 2"><geom size="0.03" contype="0"/></body></frame>
    <body name="arm" pos="0 0 1">
      <joint name="h" axis="0 1 0" range="-120 120" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03"/><site name="tip" pos="0 0 -0.5"/>
    </body>
  </worldbody>
  <actuator><general joint="h" dyntype="filter" dynprm="0.05" ctrlrange="-1 1" gainprm="5"/></actuator>
  <keyframe><key name="swing" qpos="0.5" qvel="3" act="0.7" mpos="0.3 0 0.7"/></keyframe>
</mujoco>
"""


@pytest.mark.parametrize("start", [None, "swing", {"h": 0.2}])
def test_a_start_has_all_of_its_keyframe(start: str | dict[str, float] | None):
    given = mujoco.MjSpec.from_string(KEYED)
    task = simple_task(name="keyed", model=given, description="reach", goals={"tip_pos": "target"}, start=start)
    qpos, qvel, act = task.start(np.random.default_rng(0), 3)
    assert qpos == pytest.approx(0.2 if isinstance(start, dict) else 0.5, abs=0.05)
    assert (qvel == 3.0).all()
    assert act == pytest.approx(0.7)
    assert task.goals["tip_pos"] == pytest.approx([0.3, 0.0, 0.7])
    data = mujoco.MjData(task.model)
    mujoco.mj_forward(task.model, data)
    assert data.body("target").xpos == pytest.approx([0.3, 0.0, 0.7]), "where rewards read it"


def test_a_weld_to_a_body_that_a_keyframe_moves_pulls_as_in_the_file():
    """Its offset is that of the file, although the task begins with the body where the keyframe puts it."""
    xml = """<mujoco><worldbody><body name="hand" mocap="true"/>
      <body name="arm"><joint type="slide" axis="1 0 0" damping="5"/><geom size="0.1"/></body></worldbody>
      <actuator><motor joint="joint0"/></actuator><equality><weld body1="hand" body2="arm"/></equality>
      <keyframe><key mpos="0.3 0 0"/></keyframe></mujoco>""".replace("<joint ", '<joint name="joint0" ')
    task = simple_task(name="welded", model=mujoco.MjSpec.from_string(xml), description="follow")
    data = mujoco.MjData(task.model)
    plain = mujoco.MjModel.from_xml_string(xml)
    expected = mujoco.MjData(plain)
    mujoco.mj_resetDataKeyframe(plain, expected, 0)
    for _ in range(1000):
        mujoco.mj_step(task.model, data)
        mujoco.mj_step(plain, expected)
    assert expected.qpos[0] == pytest.approx(0.3, abs=1e-3)
    assert data.qpos[0] == pytest.approx(expected.qpos[0], abs=1e-6)
