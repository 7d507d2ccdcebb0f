"""Hands and grippers that are found in models: their digits, and which way they close."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from bodies import BODIES
from mujoco import mjx

from movlr_jax.models.hands import Hand, digit_of, facing, fingers_of, hands_of
from movlr_jax.tasks import simple_task

SHADOW = Path(mjx.__file__).parent / "test_data" / "shadow_hand" / "right_hand.xml"


def found(model: mujoco.MjModel) -> list[Hand]:
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return hands_of(model, data)


@pytest.mark.parametrize(
    ("names", "digit"),
    [
        (["rh_ffmiddle", "rh_FFJ2"], "index"),
        (["robot0:lfmetacarpal"], "little"),
        (["left_hand_middle_0_link"], "middle"),
        (["if_bs"], "index"),
        (["proxph4", "mcp4_flexion"], "ring"),
        (["2distph_r"], "index"),
        (["distal_thumb", "THtip"], "thumb"),
        (["left_spring_link"], ""),
        (["forearm", "wrist"], ""),
    ],
)
def test_digits_are_known_by_the_names_of_their_bodies_and_joints(names: list[str], digit: str):
    assert digit_of(names) == digit


@pytest.mark.skipif(not SHADOW.exists(), reason="this version of mujoco-mjx has no Shadow Hand")
def test_fingers_of_the_shadow_hand_close_towards_its_palm():
    """Its FFJ4 and the like spread the fingers, and do not count; in C MuJoCo the others bring tips to the palm."""
    model = mujoco.MjModel.from_xml_path(str(SHADOW))
    (hand,) = found(model)
    assert (hand.words, hand.jaws) == ("right hand", False)
    assert {digit.name for digit in hand.digits} == {"thumb", "index", "middle", "ring", "little"}
    assert {name for digit in hand.fingers for name, *_ in digit.joints} == {
        f"rh_{finger}FJ{joint}" for finger in "FMRL" for joint in (1, 2, 3)
    }
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    palm = data.body(
        "rh_palm"
    )  # a thing in its hand is at the site for it, in front of the palm and below the fingers
    assert facing(model, data, hand) @ (data.site("grasp_site").xpos - palm.xpos) == pytest.approx(0.035, abs=1e-3)
    apart = []
    for share in (0.0, 0.7):
        data = mujoco.MjData(model)
        for name, straight, bent in (joint for digit in hand.fingers for joint in digit.joints):
            data.joint(name).qpos = straight + share * (bent - straight)
        mujoco.mj_kinematics(model, data)
        tips = data.xipos[[digit.tip for digit in hand.fingers]]
        apart.append(np.linalg.norm(tips - data.body("rh_palm").xipos, axis=1))
    assert (apart[1] < 0.7 * apart[0]).all()


def test_jaws_close_on_each_other():
    (gripper,) = found(mujoco.MjModel.from_xml_string(BODIES["panda"]))
    assert (gripper.words, gripper.jaws) == ("gripper", True)
    assert [digit.joints for digit in gripper.digits] == [
        (("finger_joint1", 0.04, 0.0),),
        (("finger_joint2", 0.04, 0.0),),
    ]


def test_a_hand_is_left_or_right_by_its_shape_where_names_do_not_tell():
    """RF is the ring finger, not the front right one; mirrored, the right hand is a left one."""
    text = BODIES["hand"].replace("ring_", "rf_").replace("index_", "if_").replace("middle_", "mf_")
    mirrored = text.replace(" -0.03 0", " -1 0").replace(" 0.03 0", " -0.03 0").replace(" -1 0", " 0.03 0")
    (right,), (left,) = (
        found(mujoco.MjModel.from_xml_string(of)) for of in (text, mirrored.replace("0.0 0.05 0", "0.0 -0.05 0"))
    )
    assert (right.side, right.shaped, left.shaped) == ("", "right", "left")


def test_each_arm_has_its_gripper():
    """The jaws of both are a left and a right finger; the arms say which gripper is which."""
    jaw = """<body name="{a}/{s}_finger" pos="0 {y} .1"><joint name="{a}/{s}_finger" type="slide" axis="0 {y} 0"
      range="0 .04"/><geom size=".01"/></body>"""
    arm = """<body name="{a}/shoulder" pos="0 {y} 0"><joint name="{a}/waist"/><geom size=".05"/>
      <body name="{a}/gripper" pos="0 0 .2"><joint name="{a}/wrist"/><geom size=".03"/>{jaws}</body></body>"""
    arms = (
        arm.format(a=a, y=y, jaws="".join(jaw.format(a=a, s=s, y=z) for s, z in (("left", 0.05), ("right", -0.05))))
        for a, y in (("left", 0.3), ("right", -0.3))
    )
    hands = found(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{''.join(arms)}</worldbody></mujoco>"))
    assert [hand.words for hand in hands] == ["right gripper", "left gripper"]
    assert [fingers.words for fingers in fingers_of(hands, ["left", "gripper"])] == ["left gripper"]


def test_a_jaw_alone_closes_on_the_hand_that_carries_it():
    """By hand: at zero the jaw points ahead as the fixed one on the hand; opened, it points up."""
    (gripper,) = found(
        mujoco.MjModel.from_xml_string(
            """<mujoco><compiler angle="radian"/><worldbody><body name="arm_1"><joint axis="0 1 0"/>
            <geom size=".05"/><body name="arm_hr2" pos="0 0 .3"><joint axis="0 1 0"/>
            <geom type="capsule" fromto="0 0 0 .2 0 0" size=".02"/>
            <body name="arm_fngr" pos=".05 0 .03"><joint name="f1x" axis="0 1 0" range="-1.57 0"/>
            <geom type="capsule" fromto="0 0 0 .15 0 0" size=".01"/></body></body></body></worldbody></mujoco>"""
        )
    )
    assert (gripper.words, gripper.jaws) == ("gripper", True)
    assert gripper.digits[0].joints == (("f1x", -1.57, 0.0),)


def test_a_finger_bends_in_the_joints_that_are_not_bent_yet():
    key = '<keyframe><key qpos="0 0 0 1.57 0 0 0 0 0 .06 0 .33 1 0 0 0"/></keyframe></mujoco>'
    text = BODIES["hand"].replace("</mujoco>", key)
    task = simple_task(name="own", model=mujoco.MjSpec.from_string(text), description="bend the index finger")
    motion = task.scoring.motion
    assert motion
    assert [name for _, name, _ in motion.named()] == ["index_tip_joint_turned_rad"]


LEGS = """<mujoco><worldbody><body name="base"><freejoint/><geom size=".1"/>{}</body></worldbody></mujoco>"""
LEG = """<body name="{0}_HIP" pos="{1} {2} 0"><joint name="{0}_HFE" axis="0 1 0"/><geom size=".02"/>
<body name="{0}_SHANK" pos="0 0 -.2"><joint name="{0}_KFE" axis="0 1 0"/><geom size=".02"/></body></body>"""


def test_legs_are_no_fingers():
    """The front legs of a robot are LF and RF, as the little and the ring finger of a hand."""
    legs = "".join(LEG.format(n, x, y) for n, x, y in (("LF", 1, 1), ("RF", 1, -1), ("LH", -1, 1), ("RH", -1, -1)))
    assert found(mujoco.MjModel.from_xml_string(LEGS.format(legs))) == []
    assert found(mujoco.MjModel.from_xml_string(BODIES["person"])) == []
    assert found(mujoco.MjModel.from_xml_string(BODIES["quadruped"])) == []


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("fist", ["hand"]),
        ("fingers", ["hand"]),
        ("middle finger", ["middle finger"]),
        ("thumb", ["thumb"]),
        ("left hand", []),  # by its shape, it is a right one
        ("right hand", ["hand"]),
        ("little finger", []),
        ("finger", []),
        ("die", []),
    ],
)
def test_words_name_fingers(words: str, names: list[str]):
    hands = found(mujoco.MjModel.from_xml_string(BODIES["hand"]))
    assert [fingers.words for fingers in fingers_of(hands, words.split())] == names
