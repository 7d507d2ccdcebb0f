"""The coordinates of the models have OpenSim's meaning, measured with C MuJoCo."""

from __future__ import annotations

from functools import cache

import mujoco
import numpy as np
import pytest

from movlr_jax.biomech.coordinates import Coordinates
from movlr_jax.biomech.opensim import TO_OPENSIM
from movlr_jax.models import ModelAdapter, coordinates_of, follow_couplings, model_adapter
from movlr_jax.models.spec import compile_spec

WALKERS = ("myolegs", "myolegs26", "ms_human_700_legs", "ms_human_700", "musclemimic_fullbody", "humanoid")


@cache
def walker(name: str) -> tuple[mujoco.MjModel, ModelAdapter, Coordinates]:
    adapter = model_adapter(name)
    model = compile_spec(adapter.load())
    return model, adapter, coordinates_of(model, adapter)


def posed(name: str, **values: float) -> mujoco.MjData:
    """The model with all coordinates at zero but these, rad or m."""
    model, _, coordinates = walker(name)
    data = mujoco.MjData(model)
    zero = {c: np.zeros(1) for c in coordinates.names}
    qpos = coordinates.qpos(zero | {c: np.array([v]) for c, v in values.items()})[0]
    data.qpos[:] = follow_couplings(model, qpos)
    mujoco.mj_kinematics(model, data)
    return data


@pytest.mark.parametrize("name", WALKERS)
def test_the_pelvis_is_where_opensim_would_have_it(name: str):
    """R = Rz(tilt) Rx(list) Ry(rotation) at (tx, ty, tz) in OpenSim's ground."""
    expected = np.eye(3)
    turns, moves = np.array([0.2, -0.3, 0.7]), np.array([1.5, 0.9, 0.4])
    for axis, angle in zip((2, 0, 1), turns, strict=True):
        quat, turned = np.zeros(4), np.zeros(9)
        mujoco.mju_axisAngle2Quat(quat, np.eye(3)[axis], angle)
        mujoco.mju_quat2Mat(turned, quat)
        expected = expected @ turned.reshape(3, 3)
    parts = ("tilt", "list", "rotation", "tx", "ty", "tz")
    pose = {f"pelvis_{part}": v for part, v in zip(parts, [*turns, *moves], strict=True)}
    _, adapter, _ = walker(name)
    pelvis = adapter.role("pelvis")
    zero, data = posed(name), posed(name, **pose)
    np.testing.assert_allclose(TO_OPENSIM @ data.body(pelvis).xpos, moves, atol=1e-9)
    relative = data.body(pelvis).xmat.reshape(3, 3) @ zero.body(pelvis).xmat.reshape(3, 3).T
    np.testing.assert_allclose(TO_OPENSIM @ relative @ TO_OPENSIM.T, expected, atol=1e-9)


@pytest.mark.parametrize("name", WALKERS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_leg_coordinates_have_the_signs_and_sizes_of_opensim(name: str, side: str):
    """The knee goes forward in hip flexion and to the midline in adduction; the heel goes back in knee flexion; the
    toes go up in dorsiflexion, to the midline in internal rotation; toes that extend have a negative angle. Thigh and
    shank turn by the angle that is asked for."""
    _, adapter, coordinates = walker(name)
    end, out = side[0], {"right": -1.0, "left": 1.0}[side]  # y of this side

    def place(role: str, **pose: float) -> np.ndarray:
        return posed(name, **pose).body(adapter.role(f"{side}_{role}")).xpos

    def moved(coordinate: str, role: str, by: float = 0.2) -> np.ndarray:
        return place(role, **{f"{coordinate}_{end}": by}) - place(role)

    def turned_deg(coordinate: str, by: float, upper: str, lower: str) -> float:
        x, y = (place(lower, **pose) - place(upper, **pose) for pose in ({}, {f"{coordinate}_{end}": by}))
        return float(np.degrees(np.arccos(x @ y / np.linalg.norm(x) / np.linalg.norm(y))))

    assert moved("hip_flexion", "shank")[0] > 0.03
    assert turned_deg("hip_flexion", np.pi / 6, "thigh", "shank") == pytest.approx(30.0, abs=1.0)
    assert moved("hip_adduction", "shank")[1] * out < -0.03
    assert moved("knee_angle", "foot", np.pi / 3)[0] < -0.2
    assert turned_deg("knee_angle", np.pi / 3, "shank", "foot") == pytest.approx(60.0, abs=6.0)  # some knees glide
    assert moved("ankle_angle", "toes")[2] > 0.01
    if "mtp_angle_r" in coordinates.names:
        assert moved("hip_rotation", "toes")[1] * out < -0.01
        tip = [posed(name, **pose).body(adapter.role(f"{side}_toes")) for pose in ({}, {f"mtp_angle_{end}": 0.2})]
        x_then, x_now = (body.xmat.reshape(3, 3) for body in tip)
        forward = x_then.T @ np.array([1.0, 0.0, 0.0])  # forward in the frame of the toes
        assert (x_now @ forward)[2] < -0.1  # positive: the toes bend down
    else:
        foot = adapter.role(f"{side}_foot")
        turned = posed(name, **{f"hip_rotation_{end}": 0.2}).body(foot).xmat.reshape(3, 3)
        assert turned[1, 0] * out < -0.1


@pytest.mark.parametrize("name", [*WALKERS, "ostrich", "tiny_muscle"])
def test_coordinates_and_positions_are_each_others_inverse(name: str):
    model, _, coordinates = walker(name)
    rng = np.random.default_rng(2)
    qpos = model.qpos0 + rng.uniform(-0.3, 0.3, (20, model.nq))
    for j in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
        quats = qpos[:, model.jnt_qposadr[j] + 3 :][:, :4]
        quats /= np.linalg.norm(quats, axis=1, keepdims=True) * np.sign(quats[:, :1])
    values = coordinates.values(qpos)
    assert len(values) == model.nv  # every degree of freedom has a coordinate, and no name is there twice
    np.testing.assert_allclose(coordinates.qpos(values), qpos, atol=1e-9)


def test_names_are_opensims():
    _, _, whole = walker("ms_human_700")
    assert {"pelvis_ty", "hip_flexion_r", "knee_angle_l", "mtp_angle_r", "elbow_flex_r"} <= set(whole.names)
    angular = whole.angular
    assert angular["pelvis_tilt"]
    assert not angular["pelvis_tx"]
    assert walker("humanoid")[2].of_joints["left_hip_yaw"] == ("hip_rotation_l",)
