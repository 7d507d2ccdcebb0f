"""Recorded motions in rewards: made files of known functions, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from cli_cases import LEG, Mistake

import movlr_jax as mj
from movlr_jax.api import _configured
from movlr_jax.biomech.opensim import Table, storage_text
from movlr_jax.cli.search import main as search
from movlr_jax.engine.tasks import task_of
from movlr_jax.errors import UserError
from movlr_jax.evolution.evaluation import make_probe
from movlr_jax.physics.native import NativePhysics
from movlr_jax.rewards.program import Scorer
from movlr_jax.rewards.state import State
from movlr_jax.sandbox.source import parse
from movlr_jax.sandbox.trace import load
from movlr_jax.sandbox.vet import Sandbox
from movlr_jax.tasks import Task, simple_task
from movlr_jax.tasks.readout import Readout
from movlr_jax.tasks.reference import with_reference
from movlr_jax.types import Step

READS = '''"""Read the recorded motion."""

WEIGHTS = {"hip": 1.0, "knee": 1.0, "at_start": 1.0}


def reward(state, action):
    return {
        "hip": state.reference("hip"),
        "knee": state.reference("knee"),
        "at_start": state.initial.reference("knee"),
    }
'''


def made(path: Path, columns: dict[str, np.ndarray], time: np.ndarray, in_degrees: bool = True) -> Path:
    path.write_text(storage_text(Table(time, columns, in_degrees)))
    return path


@pytest.fixture
def ramp(tmp_path: Path) -> Path:
    """From 2 s on, the hip goes from 10 to 30 degrees in 2 s; the knee is at 0, 90, 0 degrees after 0, 1, 2 s."""
    columns = {"hip": np.array([10.0, 20.0, 30.0]), "knee": np.array([0.0, 90.0, 0.0])}
    return made(tmp_path / "ramp.mot", columns, np.array([2.0, 3.0, 4.0]))


def leg(**more) -> Task:
    return simple_task(name="leg", model="tiny_muscle", description="move the leg", **more)


def steps(task: Task, times: list[float]) -> Step:
    """States at these times, for one simulation; all but the time are zero. [1, 1, T, ...]"""
    n, sizes = len(times), task.layout.sizes
    zeros = {
        name: np.zeros((1, 1, n, sizes[size]), np.float32)
        for name, size in (
            ("qpos", "nq"), ("qvel", "nv"), ("act", "na"), ("sensors", "nsensordata"), ("prev_action", "nu"),
        )
    }  # fmt: skip
    return Step(time=np.array(times, np.float32)[None, None], **zeros)


def read(task: Task, source: str, times: list[float], begun: float = 0.0) -> dict[str, np.ndarray]:
    """Return term -> [T] of a program at these times of an episode that began at `begun`."""
    states = steps(task, [begun + t for t in times])
    initial = replace(jax.tree.map(lambda x: x[:, :, 0], states), time=np.full((1, 1), begun, np.float32))
    actions = np.zeros((1, 1, len(times), task.model.nu), np.float32)
    scores = Scorer(task.layout, task.data)([load(parse(source))], states, actions, initial)
    return {name: np.asarray(value)[0] for name, value in scores.terms[0].items()}


def test_a_program_reads_the_motion_at_its_time(ramp: Path):
    """The first row is the start of the episode; between rows it is interpolated; after the last it holds."""
    terms = read(with_reference(leg(), ramp), READS, [0.0, 0.25, 1.0, 1.5, 2.0, 9.0], begun=5.0)
    np.testing.assert_allclose(np.rad2deg(terms["hip"]), [10.0, 12.5, 20.0, 25.0, 30.0, 30.0], rtol=1e-5)
    np.testing.assert_allclose(np.rad2deg(terms["knee"]), [0.0, 22.5, 90.0, 45.0, 0.0, 0.0], atol=1e-4)
    np.testing.assert_array_equal(terms["at_start"], np.zeros(6))


def test_by_phase_the_file_is_one_stride_that_repeats(ramp: Path):
    """At 0.5 strides per s the stride takes 2 s, whatever the times in the file; here they are 4 s long."""
    columns = {"hip": np.array([10.0, 20.0, 10.0]), "knee": np.array([0.0, 90.0, 0.0])}
    stride = made(ramp, columns, np.array([0.0, 2.0, 4.0]))
    task = with_reference(leg(goals={"stride_frequency": 0.5}), stride, by="phase")
    terms = read(task, READS, [0.0, 0.5, 1.0, 1.75, 2.5, 21.0])
    np.testing.assert_allclose(np.rad2deg(terms["hip"]), [10.0, 15.0, 20.0, 12.5, 15.0, 20.0], rtol=1e-5)
    np.testing.assert_allclose(np.rad2deg(terms["knee"]), [0.0, 45.0, 90.0, 22.5, 45.0, 90.0], atol=1e-3)


def test_a_measure_reads_what_rewards_read(ramp: Path):
    task, times = with_reference(leg(), ramp), [0.25, 1.5, 9.0]
    episode = jax.tree.map(lambda x: x[0, 0], steps(task, times))
    knee = Readout(task.layout, episode, task.data).reference("knee")
    assert isinstance(knee, np.ndarray)
    np.testing.assert_allclose(knee, read(task, READS, times)["knee"], atol=1e-6)
    with pytest.raises(UserError, match=r"episode.reference: this task has no recorded motion"):
        Readout(task.layout, episode, task.goals).reference("knee")


def test_another_motion_of_the_same_length_compiles_nothing(ramp: Path, tmp_path: Path):
    """The motion is data, as the goals are."""
    task, program = with_reference(leg(), ramp), load(parse(READS))
    states = steps(task, [0.0, 1.0])
    initial = jax.tree.map(lambda x: x[:, :, 0], states)
    actions = np.zeros((1, 1, 2, task.model.nu), np.float32)
    scorer = Scorer(task.layout, task.data)
    first = scorer([program], states, actions, initial).terms[0]["hip"]
    twice = made(tmp_path / "twice.mot", {"hip": np.array([20.0, 40.0, 60.0]), "knee": np.zeros(3)}, np.arange(3.0))
    other = with_reference(leg(), twice)
    assert other.layout.data == task.layout.data
    scorer.goals = {name: np.asarray(value) for name, value in other.data.items()}
    second = scorer([program], states, actions, initial).terms[0]["hip"]
    assert scorer.traces == 1
    np.testing.assert_allclose(second, 2 * first, rtol=1e-6)


def test_signs_zeros_and_the_pelvis_are_those_of_the_model(tmp_path: Path):
    """Knees of this model flex with a negative angle; its root is a free joint, whose quaternion is interpolated."""
    task = mj.load_task("flat_walk", model="myolegs26")
    parts = {f"pelvis_{part}": np.zeros(2) for part in ("list", "rotation", "tx", "tz")}
    columns = {"knee_angle_r": np.array([0.0, 60.0]), "pelvis_tilt": np.array([-20.0, 20.0]), **parts}
    columns["pelvis_ty"] = np.array([0.9, 1.0])
    path = made(tmp_path / "walk.mot", columns, np.array([0.0, 1.0]))
    task = with_reference(task, path)
    assert set(task.layout.references) == {"root", "knee_angle_r"}
    step = jax.tree.map(lambda x: x[0, 0, 0], steps(task, [0.5]))
    start = replace(step, time=np.float32(0.0))
    state = State(task.layout, step, task.data, start)
    assert np.rad2deg(state.reference("knee_angle_r")) == pytest.approx(-30.0, rel=1e-5)
    root = np.asarray(state.reference("root"))
    assert root.shape == np.shape(state.q("root"))
    np.testing.assert_allclose(root[:3], [0.0, 0.0, 0.95], atol=1e-6)
    np.testing.assert_allclose(root[3:], task.model.qpos0[3:7], atol=1e-6)  # halfway, it is upright
    assert np.rad2deg(state.initial.reference("knee_angle_r")) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(
    ("columns", "in_degrees", "by", "why"),
    [
        ({"hip": [0.0, np.nan]}, True, "time", "values that are not finite"),
        (
            {"knee": [-5.0, -60.0, -40.0]},
            True,
            "time",
            "knee is outside of its range .* -60 to -5 degrees, expected 0 to",
        ),
        ({"hip": [0.0, 1.0]}, True, "phase", "needs a task with the goal 'stride_frequency', which leg lacks"),
        ({"hip": [0.0, 1.0]}, True, "fase", "there is no reference_by 'fase'; did you mean 'phase'"),
    ],
)
def test_motions_that_cannot_be_used(
    columns: dict[str, list[float]], in_degrees: bool, by: str, why: str, tmp_path: Path
):
    values = {name: np.array(column) for name, column in columns.items()}
    path = made(tmp_path / "x.mot", values, np.arange(float(len(*values.values()))), in_degrees)
    with pytest.raises(UserError, match=why):
        with_reference(leg(), path, by)


@pytest.mark.parametrize("with_motion", [True, False])
def test_the_sandbox_knows_the_joints_of_the_motion(ramp: Path, with_motion: bool):
    task = with_reference(leg(), ramp) if with_motion else leg()
    physics = NativePhysics(task.model, task.layout, sim_dt=0.002, ctrl_dt=0.016, threads=1)
    sandbox = Sandbox(make_probe(task, physics, 0))
    try:
        accepted, rejected = sandbox.vet(READS), sandbox.vet(READS.replace('"knee")', '"kneee")'))
        if not with_motion:
            assert "this task has no recorded motion" in str(accepted.message)
            return
        assert accepted.message is None
        assert "there is no joint in the recorded motion 'kneee'; did you mean 'knee'" in str(rejected.message)
    finally:
        sandbox.close()
        physics.close()


def test_a_search_with_a_reference_runs(ramp: Path, tmp_path: Path, mistake: Mistake):
    run = tmp_path / "run"
    assert search([*LEG, "candidates=4", f"reference={ramp}", f"run_dir={run}"]) == 0
    sources = [path.read_text() for path in sorted(run.glob("gen_00/*.py"))]
    assert any("state.reference(" in source for source in sources)
    assert mj.open_run(run).task.layout.references  # built again from the settings of the run
    assert "there is no file" in mistake(search, *LEG, f"reference={tmp_path / 'none.mot'}")
    assert "there is no reference_by 'fase'" in mistake(search, *LEG, f"reference={ramp}", "reference_by=fase")


def test_a_search_under_another_reference_or_instruction_is_not_that_of_the_task_at_hand():
    task = mj.load_task("flat_walk", model="myolegs26", reference="people")
    for given in ({"reference": "steps"}, {"instruction": "march in place"}):
        config, built = _configured(task, (), given)
        again = task_of(config)  # what a resumed search builds
        assert built is not None
        assert built.description == again.description
        assert built.data.keys() == again.data.keys()
        assert all(np.array_equal(built.data[name], value) for name, value in again.data.items())
