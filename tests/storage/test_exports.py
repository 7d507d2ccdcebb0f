"""Episodes as files for other programs: what is written is what is read, on a walker and on an arm."""

from __future__ import annotations

import io
from pathlib import Path

import mujoco
import numpy as np
import pytest
from tables import read_table

from movlr_jax.errors import UserError
from movlr_jax.models import coordinates_of, model_adapter
from movlr_jax.models.spec import compile_spec
from movlr_jax.storage.trajectory import FORMATS, EpisodeRecord

T = 40
CLOSE = 1e-6  # rad, m, N, 1


def episode(name: str) -> EpisodeRecord:
    """A made episode of smooth motions in the ranges of the joints, in float32 as evaluations keep it."""
    adapter = model_adapter(name)
    model = compile_spec(adapter.load())
    rng = np.random.default_rng(0)
    time = np.arange(1, T + 1) * 0.016
    wave = np.sin(2 * np.pi * time[:, None] + rng.uniform(0, 6, model.nv))
    qvel = 0.5 * wave
    qpos = np.repeat(model.qpos0[None], T, axis=0)
    for row, change in zip(qpos, 0.2 * wave, strict=True):
        mujoco.mj_integratePos(model, row, change, 1.0)
    act = rng.uniform(0, 1, (T, model.na))
    values = (time, qpos, qvel, act, rng.uniform(0, 1, (T, model.nu)), rng.uniform(0, 900, (T, 2)))
    single = [v.astype(np.float32) for v in values]
    return EpisodeRecord(*single, ("left_foot", "right_foot"), model, adapter)


@pytest.fixture(scope="module", params=["ms_human_700_legs", "myoarm_r", "myolegs"])
def record(request: pytest.FixtureRequest) -> EpisodeRecord:
    return episode(request.param)


def error(record: EpisodeRecord, values: dict[str, np.ndarray]) -> float:
    """The largest error of the positions, which are those of these coordinates; a quaternion may change its sign."""
    again, model = coordinates_of(record.model, record.adapter).qpos(values), record.model
    kept = record.qpos.astype(float)
    for j in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
        quat = kept[:, model.jnt_qposadr[j] + 3 :][:, :4]
        quat /= np.linalg.norm(quat, axis=1, keepdims=True) * np.where(quat[:, :1] < 0, -1, 1)
    return float(np.abs(again - kept).max())


def test_coordinates_written_as_mot_are_read_back(record: EpisodeRecord, tmp_path: Path):
    (path,) = record.export(tmp_path / "walk.mot")
    lines = path.read_text().splitlines()
    assert "inDegrees=yes" in lines
    assert f"nRows={T}" in lines
    table = read_table(path)
    angular = coordinates_of(record.model, record.adapter).angular
    assert list(table.columns) == list(angular)
    np.testing.assert_allclose(table.time, record.time, atol=CLOSE)
    values = {n: np.deg2rad(v) if angular[n] else v for n, v in table.columns.items()}
    assert error(record, values) < CLOSE


@pytest.mark.parametrize("kind", [k for k in FORMATS if k != "mot"])
def test_states_and_forces_written_are_read_back(record: EpisodeRecord, kind: str, tmp_path: Path):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    files = record.export(tmp_path / f"walk.{kind}")
    columns: dict[str, np.ndarray] = {}
    for file in files:
        table = read_table(file)
        np.testing.assert_allclose(table.time, record.time, atol=CLOSE)
        columns |= table.columns
    states, model = record.states(), record.model
    values = {name: column for name, column in columns.items() if name.endswith("/value")}
    assert len(values) == model.nv
    plain = {name.split("/")[-2]: column for name, column in values.items()}
    assert error(record, plain) < CLOSE
    for name, column in [*states.columns.items(), *record.forces().columns.items()]:
        assert np.abs(columns[name] - column).max() < CLOSE * max(1.0, np.abs(column).max() / 1000), name
    for i in range(model.nu):
        muscle = model.actuator(i).name
        np.testing.assert_allclose(
            columns[f"/forceset/{muscle}/activation"], record.act[:, model.actuator_actadr[i]], atol=CLOSE
        )
        if kind != "sto":
            np.testing.assert_allclose(columns[f"/forceset/{muscle}"], record.ctrl[:, i], atol=CLOSE)
    np.testing.assert_allclose(columns["/contact/left_foot|normal_force"], record.touch[:, 0], rtol=CLOSE)


def test_names_and_signs_are_those_of_opensim():
    record = episode("ms_human_700_legs")
    motion, model = record.motion(), record.model
    knee = record.qpos[:, model.joint("knee_angle_r").qposadr[0]]
    np.testing.assert_allclose(motion.columns["knee_angle_r"], np.rad2deg(knee), atol=1e-4)
    height = record.qpos[:, model.joint("pelvis_ty").qposadr[0]]
    np.testing.assert_allclose(motion.columns["pelvis_ty"], 0.95 + height, atol=1e-6)  # m above the ground
    assert "/jointset/ground_pelvis/pelvis_tilt/speed" in record.states().columns


def test_tensions_are_those_of_mujoco():
    record = episode("ms_human_700_legs")
    model, data = record.model, mujoco.MjData(record.model)
    data.qpos[:], data.qvel[:], data.act[:] = record.qpos[7], record.qvel[7], record.act[7]
    mujoco.mj_forward(model, data)
    forces = record.forces().columns
    for muscle in ("soleus_r", "recfem_l"):
        i = model.actuator(muscle).id
        assert forces[f"/forceset/{muscle}|tendon_force"][7] == pytest.approx(-data.actuator_force[i], rel=1e-9)


@pytest.mark.parametrize(
    ("times", "told"),
    [
        (np.arange(4) / 30, False),
        (np.zeros(1), False),
        # the engine resets the clock of a simulation that diverges, for one control step
        (np.array([0.1, 0.2, -0.01, 0.4]), False),
        (np.array([0.0, 0.1, np.nan, 0.3]), True),
        (np.zeros(4), True),
        (np.arange(4)[::-1], True),
    ],
)
def test_times_that_do_not_increase_are_refused(times: np.ndarray, told: bool):
    model, n, buffer = mujoco.MjModel.from_xml_string("<mujoco/>"), len(times), io.BytesIO()
    arrays = {name: np.zeros((n, 0)) for name in ("qpos", "qvel", "act", "ctrl", "touch")}
    np.savez(buffer, time=times, **arrays, touch_names=np.array([], str))
    if told:
        with pytest.raises(UserError, match="the trajectory has times that"):
            EpisodeRecord.read(buffer.getvalue(), model)
    else:
        np.testing.assert_array_equal(EpisodeRecord.read(buffer.getvalue(), model).time, times)
