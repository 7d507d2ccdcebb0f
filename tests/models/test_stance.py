"""Noise that moves a body over its feet: what its rows do to the feet, in the kinematics of C MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from movlr_jax.control.targets import target_box
from movlr_jax.models.stance import crouched, over_feet
from movlr_jax.tasks.words import clauses
from movlr_jax.tasks.words.reading import read
from movlr_jax.tasks.words.scene import Scene

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
        f"<mujoco><default><joint range='-90 90'/></default><worldbody><body name='hips' pos='0 0 .72'>{base}"
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


@pytest.mark.parametrize("depth", [0.05, 0.2])
def test_crouch_by_a_depth_bends_the_knees_of_equal_segments_as_trigonometry_says(depth: float):
    model = biped()
    found = crouched(model, model.qpos0, depth)
    knee = 2 * np.arccos(1 - depth / 0.6)  # two segments of 0.3 m, straight at the start
    assert [found["l_knee"], found["r_knee"]] == pytest.approx([knee, knee], abs=0.02)
    assert [found["l_pitch"], found["l_ankle_pitch"]] == pytest.approx([-knee / 2, -knee / 2], abs=0.02)


def test_crouch_deeper_than_the_legs_can_bend_is_none():
    assert crouched(biped(), biped().qpos0, 0.58) == {}
    assert crouched(biped(""), biped("").qpos0, 0.05) == {}, "it does not float"


def test_plans_with_sparse_noise_may_bend_legs_as_far_as_a_crouch_needs():
    model = biped()
    knee, deepest = 1 + JOINTS.index("knee"), crouched(model, model.qpos0)["l_knee"]  # after the arm
    assert deepest > 1.5
    for sparse, most in ((True, deepest), (False, 1.0)):
        _, high, _ = target_box(model, model.qpos0, lambda qpos: np.zeros(model.nu), 1.0, sparse)
        assert high[knee] == pytest.approx(most, abs=1e-3)


@pytest.mark.parametrize(("bent", "term"), [(0.0, True), (0.8, False)])
def test_squat_from_straight_legs_has_a_term_for_their_joints(bent: float, term: bool):
    model, data = biped(), mujoco.MjData(biped())
    for joint, share in (("pitch", -0.5), ("knee", 1.0), ("ankle_pitch", -0.5)):
        for side in "lr":
            data.joint(f"{side}_{joint}").qpos[0] = share * bent
    data.qpos[2] -= 0.6 * (1 - np.cos(bent / 2))
    at = Scene(model, data.qpos.copy(), model.body(1).name, (1.0, 0.0, 0.0), {}, ())
    (squat,) = (clause for clause in read("squat", at).clauses if clause.row is clauses.squat)
    assert ("legs" in [t.name for t in squat.measure.terms]) == term


@pytest.mark.parametrize("base", ["", "<joint name='x' type='slide'/>"])
def test_body_that_does_not_float_keeps_its_noise(base: str):
    model = biped(base)
    mixing = np.eye(model.nu)
    np.testing.assert_array_equal(over_feet(model, model.qpos0, np.ones(model.nu), mixing), mixing)
