"""Noise that moves a body over its feet: what its rows do to the feet, in the kinematics of C MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from movlr_jax.models.stance import over_feet

JOINTS = ("yaw", "roll", "pitch", "knee", "ankle_pitch", "ankle_roll")
LEG = """<body pos="0 {y} -.05"><joint name="{s}_yaw" axis="0 0 1"/><joint name="{s}_roll" axis="1 0 0"/>
  <joint name="{s}_pitch" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".04"/>
  <body pos="0 0 -.3"><joint name="{s}_knee" axis="0 1 0" range="-5 120"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03"/>
    <body name="{s}_foot" pos="0 0 -.3"><joint name="{s}_ankle_pitch" axis="0 1 0"/>
      <joint name="{s}_ankle_roll" axis="1 0 0"/><geom type="box" pos=".03 0 -.05" size=".1 .05 .02"/></body>
  </body></body>"""
ARM = """<body pos="0 .2 .3"><joint name="arm" axis="0 1 0"/>
  <geom type="capsule" fromto="0 0 0 .2 0 0" size=".03"/></body>"""


def biped(base: str = "<freejoint/>") -> mujoco.MjModel:
    """Return a body on two stretched legs of six servos each, with one arm."""
    names = ["arm", *(f"{side}_{joint}" for side in "lr" for joint in JOINTS)]
    servos = "".join(f'<position joint="{name}" kp="100" ctrlrange="-2 2"/>' for name in names)
    legs = LEG.format(s="l", y=0.1) + LEG.format(s="r", y=-0.1)
    return mujoco.MjModel.from_xml_string(
        f"<mujoco><default><joint range='-90 90'/></default><worldbody><body pos='0 0 .72'>{base}"
        f"<geom type='box' size='.1 .15 .1'/>{ARM}{legs}</body></worldbody><actuator>{servos}</actuator></mujoco>"
    )


def feet(model: mujoco.MjModel, change: np.ndarray) -> np.ndarray:
    """Return the left foot seen from the right one [12], after a change of joints [nu]."""
    data = mujoco.MjData(model)
    data.qpos[model.jnt_qposadr[model.actuator_trnid[:, 0]]] += change
    mujoco.mj_kinematics(model, data)
    (left, l_rot), (right, r_rot) = (
        (data.body(f"{side}_foot").xpos, data.body(f"{side}_foot").xmat.reshape(3, 3)) for side in "lr"
    )
    return np.concatenate([r_rot.T @ (left - right), (r_rot.T @ l_rot).ravel()])


def test_six_rows_of_legs_leave_the_feet_where_they_are_to_each_other():
    model = biped()
    span, few = np.full(model.nu, 4.0), 0.02
    mixing = over_feet(model, model.qpos0, span, 0.1 * np.eye(model.nu))
    np.testing.assert_array_equal(mixing[0], 0.1 * np.eye(model.nu)[0])  # the arm
    before = feet(model, np.zeros(model.nu))
    apart = []
    for row in mixing[1:]:
        after = feet(model, few * row * span)
        apart.append(np.abs(after - before).max())
    # the rows are those of bent legs, so feet move a little; single joints turn a foot or move it by centimetres
    assert max(apart[:6]) < 0.25 * min(apart[6:])
    assert (np.count_nonzero(mixing[7:], axis=1) == 1).all()
    assert np.linalg.cond(mixing[1:, 1:]) < 50
    np.testing.assert_allclose(np.abs(mixing[1:]).max(axis=1), 0.05, rtol=1e-6)


def test_one_row_bends_hips_knees_and_ankles_alike_so_that_the_body_goes_down():
    model = biped()
    mixing = over_feet(model, model.qpos0, np.ones(model.nu), np.eye(model.nu))
    row = mixing[3].reshape(-1)[1:].reshape(2, 6)  # up
    pitch, knee, ankle = row[0, [2, 3, 4]] / row[0, 3]
    np.testing.assert_allclose([pitch, knee, ankle], [-0.5, 1.0, -0.5], atol=0.02)
    np.testing.assert_allclose(row[0], row[1], atol=1e-3)


@pytest.mark.parametrize("base", ["", "<joint name='x' type='slide'/>"])
def test_body_that_does_not_float_keeps_its_noise(base: str):
    model = biped(base)
    mixing = np.eye(model.nu)
    np.testing.assert_array_equal(over_feet(model, model.qpos0, np.ones(model.nu), mixing), mixing)
