"""A motion from words, on the body and in the scene of a task."""

from __future__ import annotations

import shlex
from pathlib import Path

import mujoco
import numpy as np
import pytest
from moving import block, episode_of
from vetting import refusals

import movlr_jax as mj
from movlr_jax.cli.doctor import main as doctor
from movlr_jax.cli.evaluate import main as evaluate
from movlr_jax.cli.export import main as export
from movlr_jax.cli.read import main as read
from movlr_jax.cli.report import main as report
from movlr_jax.cli.search import main as search
from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import expand, overrides_of
from movlr_jax.engine.compare import ComparisonRequest, searches
from movlr_jax.engine.tasks import check_read, task_of
from movlr_jax.engine.tune import study_settings
from movlr_jax.errors import UserError
from movlr_jax.report.data import read_run
from movlr_jax.report.downloads import commands
from movlr_jax.storage.archive import Archive
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.instruction import folder_name, with_instruction
from movlr_jax.tasks.words.clauses import pointed


@pytest.fixture(scope="module")
def bottle() -> Task:
    return mj.load_task("bottle_pour")


@pytest.fixture(scope="module")
def arm(bottle: Task) -> Task:
    return with_instruction(bottle, "wave with the open hand, the palm to the front.")


@pytest.fixture(scope="module")
def standing() -> Task:
    return mj.load_task("stand", model="myolegs26")


@pytest.fixture(scope="module")
def walker(standing: Task) -> Task:
    return with_instruction(standing, "walk backwards with high knees")


def test_the_words_are_the_description_and_judge_and_gates_decide(arm: Task, walker: Task):
    assert arm.description == "wave with the open hand, the palm to the front"
    for task in (arm, walker):
        assert not task.scoring.success
        assert task.scoring.hold_s == 0.0, "nothing must last, so pictures are evenly spaced"
        assert task.scoring.faults is None
    assert set(arm.goals) == set()
    assert walker.goals["velocity"][0] < 0


def test_settings_of_the_planner_of_a_model_and_words_are_known():
    given = ["model=tiny_muscle", "instruction=wave", "optimizer.space=controls"]
    assert compose(given).optimizer.space == "controls"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_comma_and_an_apostrophe_need_no_quotes():
    words = "lift the left knee, then don't move (2 s)"
    assert compose(["+task=stand", f"instruction={words}"]).instruction == words
    ((job,),) = expand([f"instruction={words}"])
    assert compose(["+task=stand", job]).instruction == words, "its comma is no sweep"
    assert compose(["+task=stand", 'instruction="a, b"']).instruction == "a, b"
    assert compose(["+task=stand", "instruction=null"]).instruction is None
    (word,) = overrides_of({"instruction": "null"})
    assert compose(["+task=stand", word]).instruction == "null", "from Python, it is a word as any other"


@pytest.mark.parametrize(
    "typed", ["lift ${it}, don't drop", "'lift ${it}, don\\'t drop'", r"'lift \${it}, don\'t drop'"]
)
def test_a_dollar_sign_is_one(typed: str):
    ((job,),) = expand([f"instruction={typed}"])
    for given in (f"instruction={typed}", job):
        assert compose(["+task=stand", given]).instruction == "lift ${it}, don't drop"


@pytest.mark.parametrize(("words", "wrong"), [(" ", "is empty"), ("x" * 501, "has 501 char")])
def test_too_few_or_too_many_words_are_refused(words: str, wrong: str):
    with pytest.raises(UserError, match=f"{wrong}.*: describe the motion in a sentence of 1 to 500 characters"):
        task_of(compose(["model=tiny_muscle", f"instruction={words}"]))


def test_words_of_another_encoding_are_refused():
    with pytest.raises(UserError, match="is not UTF-8"):
        mj.load_task(model="tiny_muscle", instruction=b"h\xfcpfe".decode(errors="surrogateescape"))
    assert mj.load_task(model="tiny_muscle", instruction="\u8df3").description == "\u8df3"


def test_the_target_of_the_task_is_not_shown_and_its_physics_stays(bottle: Task, arm: Task):
    target = bottle.model.body("target_bottle").id
    assert (arm.model.geom_rgba[arm.model.geom_bodyid == target, 3] == 0).all()
    assert (bottle.model.geom_rgba[bottle.model.geom_bodyid == target, 3] > 0).all()
    for name in ("nq", "nv", "nu", "ngeom", "nsensordata"):
        assert getattr(arm.model, name) == getattr(bottle.model, name)


def test_sideways_is_away_from_the_body(bottle: Task):
    """Also where no word says on which side the only arm is."""
    task = with_instruction(bottle, "raise the arm sideways")
    assert task.scoring.motion
    aim = task.scoring.motion.clauses[0]
    data = mujoco.MjData(task.model)
    data.qpos[:] = task.start(np.random.default_rng(0), 1)[0][0]
    mujoco.mj_forward(task.model, data)
    away = data.body("humerus_r").xpos - data.body("torso").xpos
    assert aim.row is pointed
    assert np.dot(away, aim["way"]) > 0.1


def test_programs_may_not_read_the_goals_of_the_task(arm: Task):
    assert "jnp.square(action)" in arm.rewards.initial
    (told,) = refusals(
        arm, arm.rewards.initial, arm.rewards.initial.replace("jnp.square(action)", 'state.goal("object_pos")', 1)
    )
    assert "object_pos" in told


def moved(task: Task, metres: float, *, sink: float = 0.0) -> list[np.ndarray]:
    """Postures from the start to `metres` forward, and `sink` lower in the last."""
    begin = task.start(np.random.default_rng(0), 1)[0][0]
    postures = []
    for share in np.linspace(0, 1, 11):
        qpos = begin.copy()
        qpos[0] += share * metres
        postures.append(qpos)
    postures[-1][2] -= sink
    return postures


def test_travel_is_measured_along_the_words_and_a_fall_by_the_walker(walker: Task):
    backwards = walker.scoring.measure(episode_of(walker, moved(walker, -1.0)), walker)
    assert backwards["distance_m"] == pytest.approx(1.0, abs=1e-3)
    assert backwards["fell"] == 0
    assert not backwards.keys() & {"success", "gait_r", "lateral_drift_m"}
    forwards = walker.scoring.measure(episode_of(walker, moved(walker, 1.0)), walker)
    assert walker.scoring.score(backwards) > walker.scoring.score(forwards)
    fallen = walker.scoring.measure(episode_of(walker, moved(walker, -1.0, sink=0.6)), walker)
    assert fallen["fell"] == 1
    assert fallen["upright_fraction"] == pytest.approx(1.0 / walker.episode_s)
    assert walker.scoring.score(fallen) < walker.scoring.score(backwards)


def test_an_object_is_dropped_only_if_the_words_name_it(bottle: Task, arm: Task):
    drink = with_instruction(bottle, "lift the bottle to the mouth and drink")
    sunk = {}
    for task in (arm, drink):
        start = task.start(np.random.default_rng(0), 1)[0][0]
        fallen = start.copy()
        fallen[task.layout.joints["bottle_free"][0]][2] -= 0.2
        sunk[task.description] = task.scoring.measure(episode_of(task, [start, fallen]), task).get("dropped")
    assert list(sunk.values()) == [None, 1.0]


def test_lying_down_is_no_fall(standing: Task):
    task = with_instruction(standing, "crawl forward on hands and knees")
    assert task.course.over is None
    assert "fell" not in task.scoring.measure(episode_of(task, moved(task, 0.2, sink=0.6)), task)


def squatting(task: Task, knee_deg: float) -> np.ndarray:
    """Return a posture [nq] with bent hips, knees and ankles and both feet on the ground."""
    qpos, data = task.start(np.random.default_rng(0), 1)[0][0], mujoco.MjData(task.model)
    heights = []
    for degrees in (0.0, knee_deg):
        for joint, share in (("hip_flexion", 1.0), ("knee_angle", -1.0), ("ankle_angle", 0.4)):
            for side in "rl":
                qpos[task.layout.joints[f"{joint}_{side}"][0]] = np.deg2rad(share * degrees)
        data.qpos[:] = qpos
        mujoco.mj_kinematics(task.model, data)  # pyright: ignore[reportAttributeAccessIssue]
        heights.append(data.body("calcn_r").xpos[2])
    qpos[2] -= heights[1] - heights[0]
    return qpos


def test_a_squat_is_no_fall_but_the_ground_is(standing: Task, walker: Task):
    squat = with_instruction(standing, "squat slowly, then stand up")
    upright = moved(squat, 0.0)
    low, ground = [*upright, squatting(squat, 110.0)], moved(squat, 0.0, sink=0.8)
    assert low[-1][2] < 0.6 * low[0][2]
    assert squat.scoring.measure(episode_of(squat, low), squat)["fell"] == 0
    assert squat.scoring.measure(episode_of(squat, ground), squat)["fell"] == 1
    assert walker.scoring.measure(episode_of(walker, low), walker)["fell"] == 1


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("go2/scene.xml", "<mujoco model='Go 2'/>", "Go_2"),
        ("go2/scene.xml", '<mujoco model="scene"/>', "go2"),
        ("go2/dog.xml", "<mujoco model='Go 2'/>", "dog"),
    ],
)
def test_a_scene_has_the_name_of_its_model_or_folder(tmp_path: Path, file: str, text: str, name: str):
    path = tmp_path / file
    path.parent.mkdir()
    path.write_text(text)
    assert folder_name(str(path)) == name


def test_a_reading_is_printed(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    file = tmp_path / "arm.xml"
    file.write_text(block("xml", "## An arm that touches a ball"))
    assert read(["flex the elbow to 90 degrees", f"model={file}"]) == 0
    assert "elbow bent to 90°" in capfd.readouterr().out
    assert read(["flex the elbow to 90 degrees three times", f"model={file}"]) == 1
    assert "'three times' says nothing that is understood of 'flex'" in capfd.readouterr().err
    assert doctor([f"model={file}", "instruction=flex the elbow to 90 degrees"]) == 0
    shown = capfd.readouterr().out
    assert "2 planned" in shown
    assert "elbow_angle_rad" in shown


def test_words_that_nobody_reads_are_refused_whatever_proposer_is_named(
    elsewhere: Path, capfd: pytest.CaptureFixture[str]
):
    Path("arm.xml").write_text(block("xml", "## An arm that touches a ball"))
    given = ["model=arm.xml", "instruction=flex the elbow to 90 degrees three times"]
    for command, more in ((evaluate, []), (search, ["proposer=scripted"])):
        assert command([*given, *more]) == 2
        assert "'three times' says nothing that is understood of 'flex'" in capfd.readouterr().err
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["arm.xml"]


def test_a_language_model_reads_the_unchanged_sentence(elsewhere: Path):
    Path("arm.xml").write_text(block("xml", "## An arm that touches a ball"))
    given = ["model=arm.xml", "instruction=flex the elbow to 90 degrees three times"]
    task = task_of(compose(given))
    with pytest.raises(UserError, match="three times"):
        check_read(compose(given), task)
    for reads in (["llm=manual"], ["instruction.partial=true"]):
        check_read(compose([*given, *reads]), task)
    with pytest.raises(UserError, match="three times"):  # it writes without the model
        check_read(compose([*given, "llm=manual", "proposer=scripted"]), task)


# A model and an instruction, without a task.

WORDS = "reach the ball with the tip"
QUICK = [
    "candidates=1",
    "generations=1",
    "films=false",
    "trials=1",
    "confirm=0",
    "optimizer.mppi.samples=2",
    "optimizer.horizon_s=0.064",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with the arm of docs/write_a_task.md in it."""
    monkeypatch.chdir(tmp_path)
    Path("arm6.xml").write_text(block("xml", "## An arm that touches a ball"), encoding="utf-8")
    return tmp_path


def test_a_model_and_an_instruction_make_a_task(folder: Path):
    config = compose(["model=arm6.xml", f"instruction={WORDS}."])
    assert (config.model, config.optimizer.name) == (f"{folder}/arm6.xml", "mppi")
    task = task_of(config)
    assert (task.name, task.description, task.episode_s) == ("arm6", WORDS, 3.0)
    assert "ball" in task.rewards.initial
    assert task_of(compose(["model=arm6.xml", f"instruction={WORDS}", "episode_s=0.5"])).episode_s == 0.5
    assert compose(["model=arm6.xml", "instruction=wave", "optimizer=mpc2"]).optimizer.name == "mpc2"


@pytest.mark.parametrize(
    ("model", "name"),
    [("it's my arm (v2.1).xml", "it_s_my_arm_v2.1"), ("...xml", "model"), ("tiny_muscle", "tiny_muscle")],
)
def test_the_task_has_the_name_of_the_model(folder: Path, model: str, name: str):
    if model.endswith(".xml"):
        Path("arm6.xml").rename(model)
    assert task_of(compose([f"model={model}", "instruction=wave"])).name == name


def test_a_search_without_a_task_is_evaluated_and_goes_on_also_where_its_model_has_moved(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    given = ["model=arm6.xml", f"instruction={WORDS}", "episode_s=0.16", *QUICK]
    assert search(given) == 0
    assert "searching a reward for arm6" in capfd.readouterr().err
    (run,) = (folder / "runs" / "arm6").iterdir()
    assert search([*given, f"resume={run}"]) == 0, "the same command continues it"
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert search([f"resume={run}", "generations=2"]) == 0
    with Archive.open(run, write=False) as archive:
        shown = dict(commands(read_run(archive)))
    command = shlex.split(shown["Simulate and film the best program again"])
    capfd.readouterr()
    assert evaluate([*command[3:], "films=false", *QUICK[3:4], *QUICK[5:]]) == 0
    assert '"task": "arm6"' in capfd.readouterr().out
    assert sorted(p.name for p in Path("runs/arm6/evaluate").iterdir())
    assert search([f"resume={run}", "instruction=wave"]) == 2
    assert "instruction cannot be changed when a run is resumed" in capfd.readouterr().err

    monkeypatch.chdir(folder)
    moved = folder / "there" / "arm.xml"
    moved.parent.mkdir()
    Path("arm6.xml").rename(moved)
    assert search([f"resume={run}", "generations=3"]) == 2
    told = f"there is no model file {folder}/arm6.xml, with which {run} began; if it was moved, add model=FILE"
    assert capfd.readouterr().err.startswith(told)
    assert search([f"resume={run}", "generations=3", "model=there/arm.xml"]) == 0
    assert report([str(run)]) == 0
    assert "add model=FILE" in capfd.readouterr().err
    assert report([str(run), f"model={moved}"]) == 0
    assert "left out" not in capfd.readouterr().err
    assert export([str(run), "model=there/arm.xml", "format=csv"]) == 0
    assert search([f"replay={run}", "model=there/arm.xml", "run_dir=again"]) == 0
    assert Path("again/best.py").read_text() == (run / "best.py").read_text()
    moved.write_text(moved.read_text().replace("</mujoco>", "<!-- --></mujoco>"))
    capfd.readouterr()
    assert search([f"resume={run}", "generations=4", "model=there/arm.xml"]) == 2
    assert "was created with other settings: model was" in capfd.readouterr().err


def test_a_sweep_over_models_and_instructions_needs_no_task(folder: Path):
    Path("other.xml").write_text(Path("arm6.xml").read_text())
    words = "'bend the elbow, then straighten it'"
    swept = ["model=arm6.xml,other.xml", f"instruction='raise the forearm',{words}"]
    jobs = [compose(job) for job in expand(swept)]
    assert [(Path(job.model).name, job.instruction) for job in jobs] == [
        (model, said)
        for model in ("arm6.xml", "other.xml")
        for said in ("raise the forearm", "bend the elbow, then straighten it")
    ]
    assert search([swept[0], f"instruction={words}", "episode_s=0.16", *QUICK]) == 0, "without -m"
    assert {path.name for path in Path("runs").iterdir()} == {"arm6", "other"}
    for task in ("arm6", "other"):
        (run,) = Path("runs", task).iterdir()
        with Archive.open(run, write=False) as archive:
            about = archive.get("run") or {}
        assert (about["task"], about["description"]) == (task, "bend the elbow, then straighten it")


def test_studies_and_comparisons_have_folders_of_the_model(folder: Path):
    given = [f"model={folder}/arm6.xml", "instruction=wave"]
    assert study_settings(given).root == Path("runs/arm6/tune/arm6")
    assert study_settings(["+task=stand", given[0]]).root == Path("runs/stand/tune/arm6")
    (config,) = searches(ComparisonRequest(given, ["movlr"]))
    assert str(config.run_dir).startswith("runs/arm6/compare/")


def test_python_needs_no_task_either(folder: Path, monkeypatch: pytest.MonkeyPatch):
    assert mj.load_task(model=Path("arm6.xml"), instruction=WORDS, episode_s=0.16).name == "arm6"
    small = {"candidates": 1, "generations": 1, "films": False, "trials": 1, "confirm": 0}
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    run = mj.run_search(None, *QUICK[-2:], model="../arm6.xml", instruction=WORDS, episode_s=0.16, **small)
    assert run.root.parent == Path("runs/arm6")
    assert mj.run_search(resume=run.root).task.name == "arm6"


NO_TASK = [
    (["model=arm6.xml"], "no task is set; say what model=arm6.xml should do, as in instruction=\"reach the target\","
     " or give +task=NAME, or +task=FILE.py for your own. Available: bottle_pour, "),
    (["instruction=wave"], "no task is set; name the model that should move, as in model=arm.xml, or give +task="),
    (["model=arm6.xml", "instruction="], "instruction='' is empty: describe the motion in a sentence of 1 to 500"),
    (["model=arm7.xml", "instruction=wave"], "there is no model file FOLDER/arm7.xml; did you mean FOLDER/arm6.xml?"),
    (["model=gone/a.xml", "instruction=wave"], "there is no model file FOLDER/gone/a.xml; give its path, absolute or "
     "relative to FOLDER"),
    (["model=tiny_muscel", "instruction=wave"], "there is no model 'tiny_muscel'; did you mean 'tiny_muscle'?"),
    (["model=ball.xml", "instruction=wave"], "the model of the task ball has no actuators, so it cannot"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "sentence"), NO_TASK)
def test_what_is_missing_is_told_in_one_sentence(folder: Path, arguments: list[str], sentence: str):
    Path("ball.xml").write_text("<mujoco><worldbody><body><joint/><geom size='0.1'/></body></worldbody></mujoco>")
    with pytest.raises(UserError) as caught:
        task_of(compose(arguments))
    assert "\n" not in str(caught.value)
    assert str(caught.value).replace(str(folder), "FOLDER").startswith(sentence)


def test_where_another_model_could_be_attached_is_no_part():
    xml = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/><body name="torso" pos="0 0 .5"><freejoint/>
      <geom size=".1"/><site name="arm_attach_r" pos="0 -.1 .1"/>{}
      <body name="leg"><joint name="hip"/><geom type="capsule" size=".02" fromto="0 0 0 0 0 -.4"/></body>
      </body></worldbody><actuator><motor joint="hip"/></actuator></mujoco>"""
    arm = '<body name="arm_r" pos="0 -.1 0"><joint/><geom type="capsule" size=".02" fromto="0 0 0 0 0 -.3"/></body>'

    def refused(more: str) -> str:
        model = mujoco.MjSpec.from_string(xml.format(more))
        motion = simple_task(name="body", model=model, description="raise the right arm").scoring.motion
        return motion.problem if motion else "nothing read"

    assert "'arm' is not a word" in refused("")
    assert refused(arm) == ""
