"""The coordinates of the models have OpenSim's meaning, measured with C MuJoCo."""

from __future__ import annotations

from functools import cache

import mujoco
import numpy as np
import pytest

from movlr_jax.biomech.coordinates import Coordinates
from movlr_jax.biomech.opensim import TO_OPENSIM, rotations_of
from movlr_jax.models import ModelAdapter, coordinates_of, model_adapter
from movlr_jax.models.spec import compile_spec

WALKERS = (
    "myolegs",
    "myolegs26",
    "ms_human_700_legs",
    "ms_human_700",
    "musclemimic_fullbody",
    "humanoid",
)


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
    data.qpos[:] = coordinates.qpos(zero | {c: np.array([v]) for c, v in values.items()})[0]
    mujoco.mj_kinematics(model, data)
    return data


@pytest.mark.parametrize("name", WALKERS)
def test_the_pelvis_is_where_opensim_would_have_it(name: str):
    """R = Rz(tilt) Rx(list) Ry(rotation) at (tx, ty, tz) in OpenSim's ground."""
    turns, moves = np.array([0.2, -0.3, 0.7]), np.array([1.5, 0.9, 0.4])
    parts = ("tilt", "list", "rotation", "tx", "ty", "tz")
    pose = {f"pelvis_{part}": v for part, v in zip(parts, [*turns, *moves], strict=True)}
    _, adapter, _ = walker(name)
    pelvis = adapter.role("pelvis")
    zero, data = posed(name), posed(name, **pose)
    np.testing.assert_allclose(TO_OPENSIM @ data.body(pelvis).xpos, moves, atol=1e-9)
    relative = data.body(pelvis).xmat.reshape(3, 3) @ zero.body(pelvis).xmat.reshape(3, 3).T
    np.testing.assert_allclose(TO_OPENSIM @ relative @ TO_OPENSIM.T, rotations_of(turns), atol=1e-9)


@pytest.mark.parametrize("name", WALKERS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_signs_of_the_legs(name: str, side: str):
    """The knee goes forward in hip flexion and to the midline in adduction; the heel goes back in knee flexion; the
    toes go up in dorsiflexion, to the midline in internal rotation; toes that extend have a negative angle."""
    _, adapter, coordinates = walker(name)
    end, out = side[0], {"right": -1.0, "left": 1.0}[side]  # y of this side

    def moved(coordinate: str, role: str) -> np.ndarray:
        body = adapter.role(f"{side}_{role}")
        return posed(name, **{f"{coordinate}_{end}": 0.2}).body(body).xpos - posed(name).body(body).xpos

    assert moved("hip_flexion", "shank")[0] > 0.03
    assert moved("hip_adduction", "shank")[1] * out < -0.03
    assert moved("knee_angle", "foot")[0] < -0.03
    toes = "toes" if "mtp_angle_r" in coordinates.names else None
    if toes:
        assert moved("ankle_angle", toes)[2] > 0.01
        assert moved("hip_rotation", toes)[1] * out < -0.01
        tip = [posed(name, **pose).body(adapter.role(f"{side}_toes")) for pose in ({}, {f"mtp_angle_{end}": 0.2})]
        x_then, x_now = (body.xmat.reshape(3, 3) for body in tip)
        forward = x_then.T @ np.array([1.0, 0.0, 0.0])  # forward in the frame of the toes
        assert (x_now @ forward)[2] < -0.1  # positive: the toes bend down
    else:
        foot = adapter.role(f"{side}_foot")
        turned = posed(name, **{f"ankle_angle_{end}": 0.2}).body(foot).xmat.reshape(3, 3)
        assert turned[2, 0] > 0.1
        turned = posed(name, **{f"hip_rotation_{end}": 0.2}).body(foot).xmat.reshape(3, 3)
        assert turned[1, 0] * out < -0.1


@pytest.mark.parametrize("name", [*WALKERS, "myoarm_r", "ostrich", "tiny_muscle", "myotorso"])
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


def test_knees_that_flex_with_a_negative_angle_are_turned_round():
    model, _, coordinates = walker("myolegs26")
    qpos = model.qpos0.copy()
    qpos[model.joint("knee_angle_r").qposadr[0]] = -1.0
    assert coordinates.values(qpos[None])["knee_angle_r"][0] == pytest.approx(1.0)
