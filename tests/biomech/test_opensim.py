"""OpenSim's files and the conventions of its coordinates, against C MuJoCo and files written by hand."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from movlr_jax.biomech.coordinates import Coordinates
from movlr_jax.biomech.opensim import Table, coordinates_in, parse_storage, read_storage, storage_text
from movlr_jax.errors import UserError

OLD = """normal.mot
nRows=2
nColumns=3
inDegrees=yes
# written by hand
endheader
time knee_angle_r   pelvis_tx
  0.0     60.0      0.25
  0.1     30.0      0.50
"""
STATES = """states
version=3
nColumns=3
nRows=2
inDegrees=no
DataType=double
OpenSimVersion=4.5
endheader
time\t/jointset/walker_knee_r/knee_angle_r/value\t/jointset/walker_knee_r/knee_angle_r/speed
0\t0.5\t1
0.5\t1.0\t1
"""
SIMM = """name walk
datacolumns 2
datarows 3
otherdata 1
range 0 1
endheader
time\thip_flexion_r
0\t10
1\t20
"""


def test_headers_of_all_versions_are_read():
    old, states, simm = parse_storage(OLD), parse_storage(STATES), parse_storage(SIMM)
    assert old.in_degrees
    assert simm.in_degrees  # SIMM has no other unit
    assert not states.in_degrees
    assert (old.name, simm.name) == ("normal.mot", "walk")
    np.testing.assert_array_equal(old.coordinate("knee_angle_r"), [60.0, 30.0])
    np.testing.assert_array_equal(old.time, [0.0, 0.1])
    np.testing.assert_array_equal(states.coordinate("knee_angle_r"), [0.5, 1.0])
    assert coordinates_in(states.columns) == {"knee_angle_r": "/jointset/walker_knee_r/knee_angle_r/value"}


def test_the_comment_of_a_header_says_the_unit():
    said = OLD.replace("inDegrees=yes", "Angles are in degrees.")
    assert parse_storage(said).in_degrees
    assert not parse_storage(said.replace("degrees", "radians")).in_degrees


def test_peculiarities_of_files_of_opensim_itself():
    """Repeated times where an integration step began again, repeated names of forces, wrong counts."""
    table = parse_storage("x\nnRows=9\nendheader\ntime\tf\tf\n0\t1\t2\n0\t3\t4\n1\t5\t6\n")
    np.testing.assert_array_equal(table.time, [0.0, 1.0])
    assert {name: column.tolist() for name, column in table.columns.items()} == {"f": [3, 5], "f#2": [4, 6]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("time,a\n0,1\n", "no line endheader"),
        ("x\nendheader\ntime\ta\n0\t1\n1\n", "row 2 has 1 values, expected 2"),
        ("x\nendheader\ntime\ta\n0\tb\n", "row 1: could not convert"),
        ("x\nendheader\ntime\ta\n1\t1\n0\t1\n", "time decreases"),
    ],
)
def test_what_is_no_motion_file_is_refused_in_one_sentence(text: str, why: str, tmp_path: Path):
    path = tmp_path / "walk.mot"
    path.write_text(text)
    with pytest.raises(UserError, match=why) as error:
        read_storage(path)
    assert "walk.mot is not a .mot or .sto file of OpenSim" in str(error.value)
    assert "\n" not in str(error.value)


def test_text_and_table_are_the_same():
    rng = np.random.default_rng(0)
    columns = {"knee_angle_r": rng.normal(0, 100, 50), "/forceset/soleus_r/activation": rng.uniform(0, 1, 50)}
    table = Table(np.arange(50) * 0.016, columns, in_degrees=True, name="two\nlines")
    again = parse_storage(storage_text(table))
    assert (again.in_degrees, again.name) == (True, "two lines")
    np.testing.assert_allclose(again.time, table.time, atol=1e-9)
    assert list(again.columns) == list(columns)
    for name, column in columns.items():
        np.testing.assert_allclose(again.columns[name], column, atol=1e-8)


# A body that leans forward by 30 degrees turns about MuJoCo's +y, its left side; tilt is positive backward. One that
# leans to its right turns about +x, as list does. One that turns left turns about up, as rotation does.
@pytest.mark.parametrize(
    ("axis", "degrees", "expected"),
    [
        ((0, 1, 0), 30, (-30, 0, 0)),
        ((1, 0, 0), 20, (0, 20, 0)),
        ((0, 0, 1), 50, (0, 0, 50)),
        ((0, 0, -1), 170, (0, 0, -170)),
    ],
)
def test_hand_set_orientations_of_a_free_body(
    axis: tuple[int, int, int], degrees: float, expected: tuple[float, float, float]
):
    coordinates = Coordinates(free_box(), pelvis="root")
    quat = np.zeros(4)
    mujoco.mju_axisAngle2Quat(quat, np.array(axis, float), np.deg2rad(degrees))
    qpos = np.array([[1.0, 2.0, 3.0, *quat]])
    values = coordinates.values(qpos)
    turns = np.rad2deg([values[f"pelvis_{part}"][0] for part in ("tilt", "list", "rotation")])
    np.testing.assert_allclose(turns, expected, atol=1e-9)
    # forward stays x, up becomes y, and a body 2 m to the left is at z = -2 m
    moves = [values[f"pelvis_{part}"][0] for part in ("tx", "ty", "tz")]
    np.testing.assert_allclose(moves, [1.0, 3.0, -2.0], atol=1e-12)
    np.testing.assert_allclose(coordinates.qpos(values), qpos, atol=1e-9)


def free_box() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(
        """<mujoco><worldbody><body name="box"><freejoint name="root"/>
        <geom size=".1 .2 .3" type="box"/></body></worldbody></mujoco>"""
    )


def test_every_orientation_can_be_inverted():
    rng = np.random.default_rng(1)
    quats = rng.normal(size=(500, 4))
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    quats *= np.where(quats[:, :1] < 0, -1, 1)
    qpos = np.concatenate([rng.normal(size=(500, 3)), quats], axis=1)
    coordinates = Coordinates(free_box())
    again = coordinates.qpos(coordinates.values(qpos))
    np.testing.assert_allclose(again, qpos, atol=1e-9)
    assert list(coordinates.names) == [f"root_{p}" for p in ("tilt", "list", "rotation", "tx", "ty", "tz")]


def test_speeds_are_the_derivatives_of_the_values():
    """A free body spinning in C MuJoCo without gravity, by central differences."""
    model = free_box()
    model.opt.gravity[:] = 0
    model.opt.timestep = 1e-4
    data = mujoco.MjData(model)
    data.qvel[:] = [0.3, -0.2, 0.1, 1.0, -0.7, 2.0]
    qpos, qvel = [], []
    for _ in range(2000):
        mujoco.mj_step(model, data)
        qpos.append(data.qpos.copy())
        qvel.append(data.qvel.copy())
    coordinates = Coordinates(model)
    values = coordinates.values(np.array(qpos))
    speeds = coordinates.speeds(np.array(qpos), np.array(qvel))
    for name, value in values.items():
        np.testing.assert_allclose(np.gradient(value, 1e-4)[1:-1], speeds[name][1:-1], atol=2e-3)
