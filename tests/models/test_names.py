"""Sides and places in names, as people and other programs write them."""

from __future__ import annotations

import mujoco
import pytest

import movlr_jax as mj
from movlr_jax.models.from_path import roles_of
from movlr_jax.models.names import part_of, place_of, side_of, words_of, words_of_all
from movlr_jax.tasks.words.clauses import raised as up


@pytest.mark.parametrize(
    ("name", "place", "side", "part"),
    [
        ("FL_calf", "front", "left", "calf"),
        ("LF_FOOT", "front", "left", "foot"),
        ("HL_hip", "rear", "left", "hip"),
        ("LM_leg", "middle", "left", "leg"),
        ("wheel_lr", "rear", "left", "wheel"),
        ("BackLeftFoot", "rear", "left", "foot"),
        ("lfoot", "", "left", "foot"),
        ("handR", "", "right", "hand"),
        ("thigh.L.001", "", "left", "thigh"),
        ("mixamorig:LeftFoot", "", "left", "foot"),
        ("walker/robot/rfemur", "", "right", "femur"),
        ("left_arm:palm", "", "left", "palm"),
        ("robot/FL/foot", "front", "left", "foot"),
        ("leftshoulder", "", "left", "shoulder"),
        ("Bip01_R_Foot", "", "right", "bip foot"),
        ("linker Fuß", "", "left", "foot"),
        ("fuss_rechts", "", "right", "foot"),
        ("vorderes_linkes_Bein", "front", "left", "leg"),
        ("Rad_hinten_rechts", "rear", "right", "wheel"),
        ("LeftUpperArm", "", "left", "upper arm"),
        # no side and no place
        ("lower_back", "", "", "lower back"),
        ("shoulder", "", "", "shoulder"),
        ("reel", "", "", "reel"),
        ("middle_finger", "", "", "middle finger"),
    ],
)
def test_a_name_says_side_place_and_part(name: str, place: str, side: str, part: str):
    words = words_of(name)
    assert (place_of(words), side_of(words), " ".join(part_of(words))) == (place, side, part)


def test_a_code_is_a_place_only_where_the_model_has_several():
    """LF and RF of a body with two legs are its left and right foot."""
    assert words_of_all(["LF_foot", "RF_foot"]) == {"LF_foot": ["left", "foot"], "RF_foot": ["right", "foot"]}
    assert words_of_all(["LF_foot", "LH_foot"])["LF_foot"] == ["front", "left", "foot"]


# Whole bodies.

_LIMB = """<body name="{thigh}" pos="{x} {y} 0"><joint axis="0 1 0" range="-60 60"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.2" size=".03"/>
  <body name="{foot}" pos="0 0 -.2"><joint name="{foot}_j" axis="0 1 0" range="-60 60"/><geom size=".04"/>
  </body></body>"""


def body_of(*feet: str, thigh: str = "{0}_x") -> mujoco.MjSpec:
    """A trunk with legs that end in bodies of these names, and a head."""
    places = [(0.2, 0.1), (0.2, -0.1), (-0.2, 0.1), (-0.2, -0.1)]
    legs = [
        _LIMB.format(thigh=thigh.format(foot), foot=foot, x=x, y=y)
        for foot, (x, y) in zip(feet, places, strict=False)
    ]
    motors = "".join(f'<position joint="{foot}_j" kp="9" inheritrange="1"/>' for foot in feet)
    return mujoco.MjSpec.from_string(
        f'<mujoco><worldbody><geom type="plane" size="9 9 1"/><body name="trunk" pos="0 0 .24"><freejoint/>'
        f'<geom type="box" size=".2 .1 .05"/><body name="head" pos=".3 0 .1"><geom size=".05"/></body>'
        f"{''.join(legs)}</body></worldbody><actuator>{motors}</actuator></mujoco>"
    )


def raised(words: str, *feet: str) -> list[str]:
    """Return the bodies whose height the words ask for."""
    task = mj.simple_task(name="t", model=body_of(*feet), description=words)
    assert task.scoring.motion
    return [clause["part"].place for clause in task.scoring.motion.clauses if clause.row is up]


FOUR = [("FL_foot", "FR_foot", "RL_foot", "RR_foot"), ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT")]


@pytest.mark.parametrize("feet", FOUR)
def test_each_of_four_feet_is_found(feet: tuple[str, ...]):
    front_left, front_right, rear_left, rear_right = feet
    assert raised("raise the front right foot", *feet) == [front_right]
    assert raised("lift the left hind leg", *feet) == [rear_left]
    assert raised("raise the right rear paw", *feet) == [rear_right]
    assert raised("raise the hind legs", *feet) == [rear_left, rear_right]
    assert raised("raise the left feet", *feet) == [front_left, rear_left]
    assert raised("raise the right foot", *feet) == [], "there are two"
    roles = roles_of(body_of(*feet).compile())
    assert "left_foot" not in roles, "a body with four feet is no biped"
    assert roles["rear_left_foot"] == rear_left


TWO = [("lfoot", "rfoot"), ("LF_foot", "RF_foot")]


@pytest.mark.parametrize("feet", TWO)
def test_the_right_foot_is_not_the_left_one(feet: tuple[str, str]):
    left, right = feet
    assert raised("raise the right foot", *feet) == [right]
    assert raised("lift the left leg", *feet) == [left]
    assert raised("raise both feet and jump", *feet) == [left, right]
    assert roles_of(body_of(*feet).compile())["right_foot"] == right


@pytest.mark.parametrize(
    ("words", "feet", "missing"),
    [
        ("raise the right foot", ("left_foot",), "the right foot, which this model does not have; it has: left foot"),
        ("lift the hind leg", ("lfoot", "rfoot"), "the rear leg, which this model does not have"),
        ("lift the middle leg", FOUR[0], "the middle leg, which this model does not have; it has: front left leg"),
    ],
)  # fmt: skip
def test_a_side_or_place_that_is_not_there_is_an_error(words: str, feet: tuple[str, ...], missing: str):
    task = mj.simple_task(name="t", model=body_of(*feet), description=words)
    assert task.scoring.motion
    assert missing in task.scoring.motion.problem


def test_the_only_foot_is_on_no_side():
    assert raised("raise the right foot", "foot") == []
    assert raised("raise the foot", "foot") == ["foot"]
