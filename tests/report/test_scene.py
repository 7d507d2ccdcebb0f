"""The 3-D scene of a report: what it stores is what MuJoCo computes, and what cannot be shown is said."""

from __future__ import annotations

import base64
import gzip
import io
import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
from test_report import archive_of, steps
from tiny_task import task as tiny_task

from movlr_jax.engine.report import write_with_task
from movlr_jax.report import page as report
from movlr_jax.report.scene import Episode, export_scene
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import Camera, View

FRAMES, STEP_S = 31, 1 / 30


@pytest.fixture(scope="module")
def task() -> Task:
    return tiny_task()


@pytest.fixture(scope="module")
def states(task: Task) -> bytes:
    """The leg stands, then bends while its muscles contract one after the other."""
    model, t = task.model, np.arange(FRAMES) * STEP_S
    data = mujoco.MjData(model)
    qpos = np.tile(data.qpos, (FRAMES, 1))
    bent = np.clip(t - 0.3, 0, None)
    qpos[:, model.joint("hip").qposadr[0]] = 1.2 * bent
    qpos[:, model.joint("knee").qposadr[0]] = 1.8 * bent
    qpos[:, model.joint("height").qposadr[0]] = -0.001
    act = np.clip(np.sin(3 * t[:, None] - 0.4 * np.arange(model.na)), 0, 1)
    arrays = {"time": t, "qpos": qpos, "qvel": np.zeros((FRAMES, model.nv)), "act": act, "ctrl": act}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays, touch=np.zeros((FRAMES, 0)), touch_names=np.array([], str))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def record(task: Task, states: bytes) -> EpisodeRecord:
    return EpisodeRecord.read(states, task.model, task.adapter)


def unpacked(data: bytes) -> tuple[dict[str, Any], Any]:
    """Return the head of a scene, and a function that returns an array of it as float, [frames, ...] if of frames."""
    raw = gzip.decompress(data)
    length = struct.unpack("<I", raw[:4])[0]
    head = json.loads(raw[4 : 4 + length])

    def array(name: str) -> np.ndarray:
        place = head["arrays"][name]
        shape, kind = place["shape"], np.dtype(place["type"]).newbyteorder("<")
        values = np.frombuffer(raw, kind, int(np.prod(shape)), 4 + length + place["at"]).reshape(shape)
        if "step" in place:
            return np.array(place["low"]) + np.array(place["step"]) * values
        if f"{name}_step" not in head["arrays"]:
            return values
        levels = np.cumsum(values.astype(np.uint64), axis=1) % 2**16
        return array(f"{name}_low") + levels.T * array(f"{name}_step")

    return head, array


def test_bodies_tendons_and_joints_are_where_mujoco_has_them(task: Task, record: EpisodeRecord):
    head, array = unpacked(export_scene(task, [Episode("g00k00", "Best", record)]))
    model, data = task.model, mujoco.MjData(task.model)
    pos, quat = array("pos0").reshape(FRAMES, -1, 3), array("quat0").reshape(FRAMES, -1, 4)
    paths, starts = (array("paths0").reshape(FRAMES, -1, 3), np.concatenate([t["starts"] for t in head["tendons"]]))
    ends = np.append(np.flatnonzero(starts)[1:], len(starts))
    assert head["bodies"][:2] == ["world", "pelvis"]
    assert len(head["episodes"][0]["times"]) == FRAMES
    for f in range(FRAMES):
        data.qpos[:] = record.qpos[f]
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(pos[f], data.xpos, atol=1e-4)
        np.testing.assert_allclose(np.abs((quat[f] * data.xquat).sum(axis=-1)), 1, atol=1e-4)
        for i, (a, b) in enumerate(zip(np.flatnonzero(starts), ends, strict=True)):
            straight = np.linalg.norm(np.diff(paths[f, a:b], axis=0), axis=1).sum()
            # the arc around the knee is longer than its chord
            assert straight == pytest.approx(data.ten_length[i], abs=3e-3)
            assert straight < data.ten_length[i] + 2e-4
    knee = [j["name"] for j in head["joints"]].index("knee")
    degrees = np.rad2deg(record.qpos[:, model.joint("knee").qposadr[0]])
    np.testing.assert_allclose(array("joints0")[:, knee], degrees, atol=0.01)
    np.testing.assert_allclose(array("act0"), record.act, atol=1e-4)


def test_something_far_or_fast_does_not_blur_the_rest():
    n, t = 90, np.arange(90) / 30
    bodies = """
      <body name="leg"><joint name="lift" type="slide" axis="0 0 1"/><geom size=".1"/></body>
      <body name="wheel"><joint name="spin" axis="0 1 0"/><geom size=".1"/></body>
      <body name="ball"><freejoint/><geom size=".05" contype="0" conaffinity="0"/></body>"""
    floor = '<body pos="0 0 -1"><geom type="plane" size="5 5 .1" contype="0" conaffinity="0"/></body>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{floor}{bodies}</worldbody></mujoco>")
    qpos = np.zeros((n, model.nq))
    qpos[:, 0], qpos[:, 1], qpos[:, 2], qpos[:, 5] = 0.05 * np.sin(3 * t), 200 * t, 4000 * t, 1
    empty = (np.zeros((n, model.nv)), np.zeros((n, 0)), np.zeros((n, 0)), np.zeros((n, 0)))
    camera = Camera((0, 0, 1), 3.0, 90.0, 0.0)
    made: Any = SimpleNamespace(model=model, view=View([camera]))
    shot = EpisodeRecord(t, qpos, *empty, (), model)
    head, array = unpacked(export_scene(made, [Episode("g00k00", "Best", shot)]))
    leg = head["bodies"].index("leg")
    np.testing.assert_allclose(array("pos0").reshape(n, -1, 3)[:, leg, 2], qpos[:, 0], atol=6e-5)
    joints = {joint["name"]: column for joint, column in zip(head["joints"], array("joints0").T, strict=True)}
    np.testing.assert_allclose(joints["lift"], qpos[:, 0], atol=6e-5)
    np.testing.assert_allclose(joints["spin"], np.rad2deg(qpos[:, 1]), atol=0.3)  # of 34,000 degrees
    assert head["ground"] == -1


def test_contact_forces_point_away_from_the_ground(task: Task, record: EpisodeRecord):
    head, array = unpacked(export_scene(task, [Episode("g00k00", "Best", record)]))
    assert head["episodes"][0]["contacts"] == [["world", "foot"]]
    assert head["ground"] == 0
    force, where = array("force0"), array("where0")
    model, data = task.model, mujoco.MjData(task.model)
    data.qpos[:], data.act[:], data.ctrl[:] = record.qpos[0], record.act[0], record.ctrl[0]
    mujoco.mj_forward(model, data)
    pushed = data.qfrc_constraint[model.joint("height").dofadr[0]]  # N upwards on the sliding pelvis
    assert pushed > 1
    assert force[0, 2] == pytest.approx(pushed, rel=1e-2)
    assert where[0, 2] == pytest.approx(0, abs=0.02)
    assert np.abs(force[-1]).max() < 0.1, "the bent leg has left the ground"


def test_an_episode_that_diverges_ends_there(task: Task, record: EpisodeRecord):
    qpos = np.array(record.qpos)
    qpos[20:] = np.nan
    lost = EpisodeRecord(**{**vars(record), "qpos": qpos})
    head, array = unpacked(export_scene(task, [Episode("g00k00", "Best", lost)]))
    assert len(head["episodes"][0]["times"]) == 20
    assert np.isfinite(array("pos0")).all()


def test_the_page_has_the_scene_muscles_and_joints(tmp_path: Path, task: Task, states: bytes):
    with archive_of(tmp_path / "r", steps()) as archive:
        for path in ("gen_02/k01.npz", "gen_00/k00.npz"):
            archive.put(path, states)
        text = report.write_report(archive, task).read_text()
        assert report.write_report(archive, task).read_text() == text
    assert "First program, g00k00" in text
    data = text.partition('id="scene-data">')[2].partition("<")[0]
    head, _ = unpacked(base64.b64decode(data))
    assert [e["name"] for e in head["episodes"]] == ["g02k01", "g00k00"]
    assert "activation of 7 muscles over time" in text
    assert "Joint angles (2)" in text
    assert "limits 0 to 115" in text  # of the knee, degrees


def test_a_page_without_the_scene_is_there_before_the_task_is_built(tmp_path: Path, task: Task, states: bytes):
    with archive_of(tmp_path / "r", steps()) as archive:
        for path in ("gen_02/k01.npz", "gen_00/k00.npz"):
            archive.put(path, states)
    before = []

    def build() -> Task:
        before.append((tmp_path / "r" / "report.html").read_text())
        return task

    path, left_out = write_with_task(tmp_path / "r", build, lambda page: before.append(page))
    assert not left_out
    assert before[0] == path
    assert "reload the page" in before[1]
    assert 'id="scene-data"' not in before[1]
    text = path.read_text()
    assert "reload the page" not in text
    assert 'id="scene-data"' in text


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (b"no arrays", "cannot be read"),
        (None, "not in the run directory"),
        ({"qpos": np.zeros((FRAMES, 2))}, "of another model"),
        ({"time": np.full(FRAMES, np.nan)}, "the trajectory has times"),
    ],
)
def test_a_trajectory_that_cannot_be_shown_is_said(tmp_path: Path, task: Task, states: bytes, arrays, said: str):
    if isinstance(arrays, dict):
        buffer = io.BytesIO()
        np.savez(buffer, **{**dict(np.load(io.BytesIO(states))), **arrays})
        arrays = buffer.getvalue()
    with archive_of(tmp_path / "r", steps()) as archive:
        if arrays:
            archive.put("gen_02/k01.npz", arrays)
        text = report.write_report(archive, task).read_text()
    assert "Left out: the 3-D view, because" in text
    assert said in text
    assert "scene-data" not in text
