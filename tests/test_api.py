"""The public API, as a script or a notebook uses it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import mujoco
import numpy as np
import pytest
from cli_cases import SUPPORT

import movlr_jax as mj
from movlr_jax._util.registry import Registry
from movlr_jax.config.compose import compose
from movlr_jax.config.overrides import text_of
from movlr_jax.language.registry import JUDGES
from movlr_jax.storage.archive import Archive

QUICK = ("optimizer.mppi.samples=2", "optimizer.horizon_s=0.032")
LEG = SUPPORT / "tiny_task.py"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def leg() -> mj.Task:
    return mj.load_task(LEG, episode_s=0.064)


def small(**more) -> dict:
    return {"candidates": 2, "generations": 1, "films": False, "trials": 1, "confirm": 0, **more}


# Importing.


def test_import_of_any_name_changes_no_environment_variable():
    code = (  # JAX itself sets variables that begin with TF_ and TPU_
        "import os, sys\n"
        "def ours(): return {k: v for k, v in os.environ.items() if not k.startswith(('TF_', 'TPU_'))}\n"
        "before = ours(); import movlr_jax as mj\n"
        "assert 'jax' not in sys.modules and 'mujoco' not in sys.modules\n"
        "assert set(mj.__all__) <= set(dir(mj)) and all(hasattr(mj, name) for name in mj.__all__)\n"
        "mj.register_judge('mine', object)\n"
        "from movlr_jax.film.renderer import renderer; renderer()\n"
        "assert 'mujoco' in sys.modules and ours() == before\n"
        "mj.load_task('stand'); import jax\n"
        "assert jax.config.jax_compilation_cache_dir == os.environ['JAX_COMPILATION_CACHE_DIR']"
    )
    unset = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "TF_"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=unset)
    assert done.returncode == 0, done.stderr


def test_every_public_name_exists_and_says_what_it_is():
    for name in mj.__all__:
        assert name == "__version__" or getattr(mj, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        mj.serch  # noqa: B018


# Tasks.


def test_task_by_name_has_settings_of_command():
    task = mj.load_task("bottle_pour", model="myoarm_r", episode_s=1, tilt_deg=30.0)
    assert isinstance(task.model, mujoco.MjModel)
    assert (task.name, task.adapter.name, task.episode_s) == ("bottle_pour", "myoarm_r", 1.0)
    config = compose(task.origin.overrides)
    assert config.task.settings["tilt_deg"] == 30.0
    assert config.task.settings["bottle_kg"] == compose(["+task=bottle_pour"]).task.settings["bottle_kg"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: mj.run_search("bottle_pour", ["candidates=2"]), "['candidates=2'] is not a setting; give each as"),
        (lambda: mj.evaluate_reward("human", 3), "3 is not a task; give one, its name, or the path of a Python file"),
        (lambda: mj.load_task("bottle_pour", tilt=3), "did you mean 'task.settings.tilt_deg'"),
        (lambda: mj.run_search(), "run_search needs a task, or resume=RUN_DIR"),
        (lambda: mj.run_search("bottle_pour", judge="x"), "there is no judge 'x'; there are: auto, metrics"),
        (lambda: mj.open_run("nowhere"), "there is no run directory nowhere"),
        (lambda: mj.evaluate_reward("nope.py", LEG, *QUICK), "there is no reward 'nope.py'"),
        (lambda: mj.evaluate_reward("", str(LEG), *QUICK), "there is no reward ''"),
        (lambda: mj.run_search(Path("none.py")), "none.py"),
    ],
)  # fmt: skip
def test_mistake_is_sentence_of_command(call, sentence: str):
    with pytest.raises(mj.UserError, match=re.escape(sentence)):
        call()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (3, "3"), (0.5, "0.5"), ("eureka", "eureka"), ("a b's", "'a b\\'s'"),
     ((1, "x"), "[1,x]"),
     ("hand [l], é", "'hand [l], é'"), ("é", "'é'"), ("a\\b${c}\\", "'a\\b\\${c}\\\\'"),
     (Path("/a/b.py"), "/a/b.py"), ("", "''"), ("null", "'null'"), ("Null", "'Null'")],
)  # fmt: skip
def test_values_become_settings(value, text: str):
    assert text_of(value) == text
    if isinstance(value, str) and value:
        assert compose(["+task=bottle_pour", f"run_dir={text}"]).run_dir == value


# Rewards.


def test_reward_as_text_is_measured_and_its_motion_kept(leg: mj.Task):
    source = 'WEIGHTS = {"up": 1.0}\n\n\ndef reward(state, action):\n    return {"up": state.pos("torso")[2]}\n'
    source = source.replace("torso", next(leg.model.body(i).name for i in range(1, leg.model.nbody)))
    result = mj.evaluate_reward(source, leg, *QUICK, seed=3)
    assert result.source == source
    assert set(result.terms) == {"up"}
    assert result.terms["up"]["mean"] == pytest.approx(result.terms["up"]["weighted_mean"])
    assert {"success", "effort"} <= set(result.metrics)
    with np.load(result.trajectory_file) as kept:
        assert {"time", "qpos", "qvel", "act", "ctrl", "touch", "touch_names"} <= set(kept)
        np.testing.assert_array_equal(kept["qpos"], result.trajectory.qpos)
    assert len(result.trajectory.time) == 4  # 0.064 s of steps of 0.016 s
    again = mj.evaluate_reward(source, leg, *QUICK, seed=3, run_dir="elsewhere")
    np.testing.assert_array_equal(again.trajectory.qpos, result.trajectory.qpos)


def test_result_shows_itself_its_film_and_its_trajectory_with_names_of_model(leg: mj.Task):
    result = mj.evaluate_reward("human", leg, *QUICK)
    assert repr(result).startswith(f"RewardResult('{result.trajectory_file}': ")
    assert len(repr(result)) < 1000
    page = result._repr_html_()
    assert "success" in page
    film = result.film()
    assert film.suffix == ".mp4"
    assert film.stat().st_size > 1000
    assert "data:video/mp4;base64," in page
    trajectory = result.trajectory
    frame = trajectory.to_dataframe()
    model = leg.model
    assert len(frame) == len(trajectory.time)
    np.testing.assert_array_equal(frame.index, trajectory.time)
    for j in range(model.njnt):
        joint = model.joint(j)
        np.testing.assert_array_equal(frame[f"q.{joint.name}"], trajectory.qpos[:, joint.qposadr[0]])
        np.testing.assert_array_equal(frame[f"qd.{joint.name}"], trajectory.qvel[:, joint.dofadr[0]])
    for i in range(model.nu):
        np.testing.assert_array_equal(frame[f"ctrl.{model.actuator(i).name}"], trajectory.ctrl[:, i])
        np.testing.assert_array_equal(frame[f"act.{model.actuator(i).name}"], trajectory.act[:, i])
    assert [f"touch.{name}" for name in trajectory.touch_names] == [n for n in frame if n.startswith("touch.")]


# Searches.


def test_search_leaves_what_command_leaves(leg: mj.Task, capfd: pytest.CaptureFixture[str]):
    before = {*threading.enumerate()}
    run = mj.run_search(leg, *QUICK, **small(run_dir="mine"))
    assert run.finished
    told = "success: foot within 5 cm of its goal in the last half second"
    assert capfd.readouterr().err.count(told) == 1, "what a success is, once"
    for thread in {*threading.enumerate()} - before:
        thread.join(10)
        assert not thread.is_alive(), thread.name
    assert run.root == Path("mine")
    assert (run.root / "best.py").read_text() == run.best.source
    assert [c.name for c in run.candidates] == ["g00k00", "g00k01"]
    assert run.report.name == "report.html"
    frame = run.to_dataframe()
    assert list(frame.index) == ["g00k00", "g00k01"]
    assert frame.loc[run.best.name, "effort"] == run.best.metrics["effort"]
    np.testing.assert_array_equal(run.best.trajectory.qpos, mj.open_run("mine").best.trajectory.qpos)
    assert run.best.name in run._repr_html_()
    assert "g00k01" in repr(run) or "g00k00" in repr(run)
    assert repr(run.best).startswith(f"SearchCandidate('{run.best.name}': ")
    assert len(repr(run.best)) < 1000
    longer = mj.run_search(resume="mine", generations=2)
    assert len(longer.candidates) == 4
    assert mj.evaluate_reward("mine", leg, *QUICK).source == longer.best.source


def test_run_as_data_frame_has_rankings_and_weights():
    """The ranking of a program is the last one that has it."""
    programs = {"g00k00": {"reach": 1.0}, "g00k01": {}, "g01k00": {"reach": 2.0, "calm": -0.5}}
    with Archive.create(Path("mine"), "") as archive:
        for name, weights in programs.items():
            g, k = int(name[1:3]), int(name[4:6])
            data = {"name": name, "generation": g, "candidate": k, "source": "", "weights": weights,
                    "terms": {}, "film": None, "parent": "g00k00" if g else None}  # fmt: skip
            outcome = {"metrics": {"error_m": 0.1, "candidate": 7.0}} if weights else {"reason": "it diverged"}
            archive.record("evaluated", {"metrics": {}, "reason": None, **data, **outcome}, g, k)
        empty = mj.open_run("mine").to_dataframe()
        both = {"comparisons": [], "flip_rate": 0.0, "best": "g00k00"}
        first = {"names": ["g00k00"], "strengths": [0.0], "deviation": [0.5], "p_best": [1.0]}
        archive.record("ranked", {**both, **first}, 0)
        second = {"strengths": [-1.5, None], "deviation": [0.1, 0.2], "p_best": [0.25, None]}
        archive.record("ranked", {**both, "names": ["g00k00", "g01k00"], **second}, 1)
    frame = mj.open_run("mine").to_dataframe()
    assert list(frame) == list(empty) == [
        "parent", "reason", "error_m", "candidate",
        "generation", "candidate_in_run", "best", "trials", "successes", "strength", "deviation", "p_best",
        "weight_reach", "weight_calm",
    ]  # fmt: skip
    assert frame["trials"].tolist() == [1, 0, 1], "of a run that recorded no trials"
    assert frame["successes"].isna().all()
    assert frame["generation"].tolist() == [0, 0, 1]
    assert frame["candidate_in_run"].tolist() == [0, 1, 0]
    np.testing.assert_array_equal(frame["candidate"], [7.0, np.nan, 7.0])
    np.testing.assert_array_equal(frame["strength"], [-1.5, np.nan, np.nan])
    np.testing.assert_array_equal(frame["deviation"], [0.1, np.nan, 0.2])
    np.testing.assert_array_equal(frame["p_best"], [0.25, np.nan, np.nan])
    assert frame["best"].tolist() == [True, False, False]
    assert not empty["best"].any()
    np.testing.assert_array_equal(frame["weight_reach"], [1.0, np.nan, 2.0])
    np.testing.assert_array_equal(frame["weight_calm"], [np.nan, np.nan, -0.5])


def test_changed_task_is_one_that_runs(leg: mj.Task):
    def still(state, seconds):
        return state.replace(qvel=np.zeros_like(np.asarray(state.qvel)))

    changed = leg.replace(perturb=still)
    assert leg.named
    assert not changed.named
    given = mj.evaluate_reward("human", changed, *QUICK).trajectory
    free = mj.evaluate_reward("human", leg, *QUICK).trajectory
    assert np.abs(given.qpos - free.qpos).max() > 1e-4
    with pytest.raises(mj.UserError, match="episode_s cannot be set here: the task tiny_kick was changed in Python"):
        mj.evaluate_reward("human", changed, *QUICK, episode_s=0.2)
    assert mj.run_search(changed, *QUICK, **small()).task.course.perturb is still


def test_task_made_in_python_is_searched_and_continued(folder: Path):
    xml = '<mujoco><worldbody><body name="arm"><joint name="j" axis="0 1 0" range="-1 1" limited="true"/>' \
        '<geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/><site name="tip" pos=".3 0 0"/></body></worldbody>' \
        '<actuator><motor joint="j" gear="5" ctrlrange="-1 1"/></actuator></mujoco>'  # fmt: skip
    task = mj.simple_task(
        name="point", model=mujoco.MjSpec.from_string(xml), description="point there",
        goals={"tip_pos": [0.2, 0.0, 0.2]}, episode_s=0.064,
    )  # fmt: skip
    run = mj.run_search(task, *QUICK, **small())
    assert run.root.parent == Path("runs/point")
    for given in ({"episode_s": 1.0}, {"model": "humanoid"}):
        with pytest.raises(mj.UserError, match="cannot be set here: the task point was made in Python"):
            mj.evaluate_reward("human", task, *QUICK, **given)
    assert run.best.trajectory.model is task.model
    assert len(mj.run_search(task, resume=run.root, generations=2).candidates) == 4
    assert len(mj.run_search(task, *QUICK, **small(generations=2), resume=run.root).candidates) == 4
    with pytest.raises(mj.UserError, match="candidates cannot be changed when a run is resumed"):
        mj.run_search(task, resume=run.root, candidates=3)
    with pytest.raises(mj.UserError, match=r"is a search of another task: episode_s was .*, is 0\.128"):
        mj.run_search(replace(task, episode_s=0.128), resume=run.root)
    assert mj.open_run(run.root, task).best.trajectory.model is task.model
    for needs_it in (lambda: mj.run_search(resume=run.root), lambda: mj.open_run(run.root).best.trajectory):
        with pytest.raises(mj.UserError, match=r"'point' of runs/point/.* was made or registered in Python; give it"):
            needs_it()


# Registries.


class Contrary:
    """A judge of three lines."""

    name = "contrary"

    def compare(self, task, a, b):
        return mj.Preference("first" if a.name > b.name else "second", "the later one")


def test_judge_of_three_lines_judges_and_is_gated(leg: mj.Task, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(JUDGES, "_entries", dict(JUDGES._entries))
    mj.register_judge("contrary", Contrary)
    monkeypatch.setattr(
        "movlr_jax.evolution.gates.fault",
        lambda trial: (2, "it fell") if getattr(trial, "name", "") == "g00k01" else (0, ""),
    )
    gated = mj.run_search(leg, *QUICK, **small(judge="contrary", certainty=0.7, seed=1))
    assert gated.best.name == "g00k00"
    assert "it fell" in gated.report.read_text()
    free = mj.run_search(leg, *QUICK, **small(judge="contrary", certainty=0.7, seed=1, gates=False))
    assert free.best.name == "g00k01"


def test_other_packages_bring_entries(monkeypatch: pytest.MonkeyPatch):
    points = [
        EntryPoint("theirs", "json:loads", "movlr_jax.judges"),
        EntryPoint("broken", "json:nothing_of_this_name", "movlr_jax.judges"),
    ]
    monkeypatch.setattr(
        "movlr_jax._util.registry._installed", lambda group, _: {p.name: p for p in points if p.group == group}
    )
    registry: Registry = Registry("judge", "movlr_jax.judges", {"mine": 1})
    import json

    assert list(registry) == ["mine", "theirs", "broken"]
    assert registry["theirs"] is json.loads
    assert len(Registry("critic", "movlr_jax.critics")) == 0
    with pytest.raises(mj.UserError, match="the judge 'broken' of the entry point json:nothing_of_this_name"):
        registry["broken"]
    with pytest.raises(mj.UserError, match="there is no judge 'their'; did you mean 'theirs'"):
        registry.get_or_raise("their")


def test_commands_start_without_what_is_slow_to_import():
    """What only some of them need: together these take five times as long as a command without them."""
    slow = ("mujoco.mjx", "warp", "flax", "brax", "optax", "scipy.stats", "scipy.optimize", "matplotlib", "google")
    code = f"import sys, movlr_jax.cli.search, movlr_jax.cli.report; print([n for n in {slow} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
