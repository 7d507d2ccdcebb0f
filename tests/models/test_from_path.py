"""A model that is known by its path alone: what is read off it, and what is said when it cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import mujoco
import numpy as np
import pytest

from movlr_jax.errors import UserError
from movlr_jax.models import model_adapter, nominal_qpos
from movlr_jax.models.from_path import forward_of, roles_of, with_feet, with_hand
from movlr_jax.models.spec import compile_spec
from movlr_jax.rewards.state import instrument, layout_of
from movlr_jax.tasks import build_task

# As a person would write it: half of it without names, a floor of its own, a keyframe, facing -y. The left ankle
# follows the right one.
BIPED = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.005"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="eye" pos="0 -3 1"/>
    <geom name="ground" type="plane" size="2 2 1" contype="1" conaffinity="1"/>
    <geom name="post" type="box" size="0.1 0.1 0.5" pos="3 3 0.5"/>
    <body name="crate" pos="2 0 0.5" euler="0 0 0.5">
      <freejoint/><geom type="box" size="0.1 0.1 0.1" contype="1"/>
    </body>
    <body name="base_pelvis" pos="0 0 1">
      <joint name="tx" type="slide" axis="1 0 0" range="-5 5" limited="true"/>
      <joint name="tz" type="slide" axis="0 0 1"/>
      <joint name="yaw" axis="0 0 1" range="-1 1" limited="true"/>
      <geom type="capsule" fromto="-0.1 0 0 0.1 0 0" size="0.08" contype="1"/>
      <site name="hook"/>
      <body name="HeadLink" pos="0 0 0.5"><geom size="0.1" contype="1"/></body>
      <body pos="0.1 0 -0.1">
        <joint name="hip_l" axis="1 0 0" range="-1 1" limited="true"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.6" size="0.04"/>
        <site name="from_l" pos="0 0.05 -0.4"/>
        <body name="foot_l" pos="0 0 -0.7">
          <joint name="ankle_l" axis="1 0 0" range="-1 1" limited="true"/>
          <geom name="sole_l" type="capsule" fromto="0 0.05 0 0 -0.15 0" size="0.03"/>
          <site name="to_l" pos="0 0.05 0"/>
        </body>
      </body>
      <body pos="-0.1 0 -0.1">
        <joint name="hip_r" axis="1 0 0" range="-1 1" limited="true"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.6" size="0.04"/>
        <body name="foot_r" pos="0 0 -0.7">
          <joint axis="1 0 0" range="-1 1" limited="true"/>
          <geom name="sole_r" type="capsule" fromto="0 0.05 0 0 -0.15 0" size="0.03"/>
        </body>
      </body>
    </body>
  </worldbody>
  <contact>
    <pair geom1="ground" geom2="sole_l"/>
    <pair geom1="sole_r" geom2="ground"/>
    <pair name="feet" geom1="sole_l" geom2="sole_r"/>
  </contact>
  <tendon><spatial name="calf_l"><site site="from_l"/><site site="to_l"/></spatial></tendon>
  <equality><joint joint1="ankle_l" joint2="hip_l" polycoef="0 -1 0 0 0"/></equality>
  <actuator>
    <muscle tendon="calf_l"/>
    <motor name="swing" joint="hip_l"/>
    <motor joint="hip_r"/>
    <motor joint="tz"/>
  </actuator>
  <sensor><framepos name="seen" objtype="camera" objname="eye"/><jointpos name="angle" joint="hip_l"/></sensor>
  <keyframe>
    <key qpos="1 -1 0.2 1 0 0 0  0.3 0.05 0 0.25 -0.25 -0.5 0"/>
  </keyframe>
</mujoco>
"""


@pytest.fixture
def biped(tmp_path) -> str:
    path = tmp_path / "biped.xml"
    path.write_text(BIPED)
    return str(path)


def test_a_model_of_ones_own_is_read_as_a_person_would(biped):
    adapter = model_adapter(biped)
    assert set(adapter.planned_joints) == {"hip_l", "hip_r"}, "limited, moved by an actuator, not by an equality"
    assert adapter.root == adapter.roles["pelvis"] == "base_pelvis"
    assert adapter.roles["head"] == "HeadLink"
    assert (adapter.roles["left_foot"], adapter.roles["right_foot"]) == ("foot_l", "foot_r")
    assert adapter.forward == (0.0, -1.0, 0.0)
    assert adapter.sites == ("hook",)
    assert adapter.touch["left_foot"] == ("foot_l",)
    assert {"crate", "base_pelvis", "HeadLink"} <= adapter.touch.keys()


def test_a_foot_whose_frame_is_at_its_toes_points_away_from_its_joint():
    """As in walker2d of Gymnasium, whose frame is 10 cm in front of the foot's centre and 20 cm of its ankle."""
    foot = """<body name="foot_left" pos="0.2 0 -0.35"><joint name="ankle" axis="0 -1 0" pos="-0.2 0 0.1"/>
      <geom type="capsule" size="0.06 0.1" pos="-0.1 0 0.1" euler="0 90 0"/></body>"""
    torso = f'<body name="torso" pos="0 0 1"><freejoint/><geom size=".1"/>{foot}</body>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{torso}</worldbody></mujoco>")
    roles = roles_of(model)
    assert roles["left_foot"] == "foot_left"
    assert forward_of(model, model.qpos0, roles) == (1.0, 0.0, 0.0)


def test_a_foot_of_two_bodies_points_where_its_sole_does():
    """As that of a robot whose motors sit behind the ankle: the frame of the first body carries only these."""
    foot = """<body name="{s}_ankle_pitch" pos="0 {y} .1"><joint name="{s}_pitch" axis="0 1 0"/>
      <geom size=".03" pos="-.05 0 0" mass="1" contype="0" conaffinity="0"/>
      <body name="{s}_ankle_roll"><joint name="{s}_roll" axis="1 0 0"/>
        <geom type="box" size=".1 .04 .02" pos=".04 0 -.08" mass=".1"/></body></body>"""
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body name='trunk'><freejoint/><geom size='.1' pos='0 0 .3'/>"
        f"{foot.format(s='left', y=0.1)}{foot.format(s='right', y=-0.1)}</body></worldbody></mujoco>"
    )
    assert forward_of(model, model.qpos0, roles_of(model)) == (1.0, 0.0, 0.0)


LEG = """<body name="{n}" pos="{x} {y} 0"><joint name="{n}_hip" axis="0 1 0" range="-1 1"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03"/>{more}</body>"""
SOLE = """<body name="{n}_faa" pos="0 0 -.3"><joint name="{n}_faa" axis="1 0 0" range="-1 1"/>
<geom type="box" size=".1 .04 .02" pos="0 0 -.04"/></body>"""


@pytest.mark.parametrize(
    ("legs", "found"),
    [
        ({"LL": (0, 0.1), "LR": (0, -0.1)}, {"left_foot": "LL_faa", "right_foot": "LR_faa"}),
        (
            {"one": (0.2, 0.1), "two": (0.2, -0.1), "three": (-0.2, 0.1), "four": (-0.2, -0.1)},
            {"front_left_shank": "one", "front_right_shank": "two",
             "rear_left_shank": "three", "rear_right_shank": "four"},
        ),
        ({"one": (0.2, 0.1), "two": (0.2, -0.1), "three": (-0.2, 0.0)}, {}),
        ({"L_foot": (0, 0.1), "R_foot": (0, -0.1)}, {"left_foot": "L_foot", "right_foot": "R_foot"}),
    ],
)  # fmt: skip
def test_feet_without_names_are_known_by_where_they_are(legs, found):
    limbs = [LEG.format(n=n, x=x, y=y, more=SOLE.format(n=n) if n[0] == "L" and n[1] != "_" else "")
             for n, (x, y) in legs.items()]  # fmt: skip
    motors = "".join(f'<motor joint="{n}_hip"/>' for n in legs)
    model = mujoco.MjModel.from_xml_string(
        f"""<mujoco><compiler angle="radian"/><worldbody><body name="base" pos="0 0 .4"><freejoint/><geom size=".05"/>
        {"".join(limbs)}</body></worldbody><actuator>{motors}</actuator></mujoco>"""
    )
    assert with_feet(model, model.qpos0, roles_of(model)) == found


@pytest.mark.parametrize(("hinges", "roles"), [(6, {"hand": "flange"}), (2, {})])
def test_the_end_of_an_arm_is_its_hand(hinges, roles):
    links = "".join(f'<body name="link{i}" pos="0 0 .2"><joint/><geom size=".05"/>' for i in range(hinges))
    model = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody>{links}<body name='flange' pos='0 0 .1'/>{'</body>' * hinges}</worldbody></mujoco>"
    )
    assert with_hand(model, {}) == roles


def test_its_own_ground_goes_and_its_feet_meet_that_of_the_task(biped):
    spec = model_adapter(biped).load()
    assert [geom.name for geom in spec.worldbody.geoms] == ["post"]
    assert [pair.name for pair in spec.pairs] == ["feet"]
    assert [sensor.name for sensor in spec.sensors] == ["angle"]
    ground = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=1, conaffinity=1)
    ground.name, ground.pos = "task_ground", [0, 0, 0.4]
    model = compile_spec(spec)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    touching = {model.geom(g).name for c in data.contact for g in c.geom}
    assert {"sole_l", "sole_r"} <= touching
    assert not model.nkey
    assert not model.ncam


FRAMED = """
<mujoco>
  <worldbody>
    <frame pos="1 0 1" euler="0 0 90">
      <frame pos="0 1 0"><body name="ball" euler="0 90 0"><freejoint/><geom size="0.1"/></body></frame>
    </frame>
    <replicate count="2" offset="0.5 0 0">
      <body name="stone" pos="1 2 0.1"><freejoint/><geom size="0.1"/></body>
    </replicate>
    <body name="arm" pos="0 0 1">
      <joint name="shoulder" type="ball" pos="0 0 0.1"/><geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03"/>
      <body name="fore" pos="0 0 -0.3">
        <joint name="elbow" axis="0 1 0" range="-90 90"/><geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow" ctrlrange="-1 1"/></actuator>
  KEYFRAME
</mujoco>
"""
_KEY = """<keyframe>
  <key qpos="1 2 3 0.6 0 0.8 0  1 2 0.1 1 0 0 0  4 5 6 0 0 1 0  0.6 0.8 0 0  0.5"/>
</keyframe>"""


@pytest.mark.parametrize("keyframe", ["", _KEY])
def test_bodies_in_frames_and_ball_joints_begin_where_the_file_has_them(tmp_path, keyframe):
    text = FRAMED.replace("KEYFRAME", keyframe)
    (tmp_path / "framed.xml").write_text(text)
    adapter = model_adapter(str(tmp_path / "framed.xml"))
    model, raw = compile_spec(adapter.load()), mujoco.MjModel.from_xml_string(text)
    ours, expected = mujoco.MjData(model), mujoco.MjData(raw)
    ours.qpos[:] = nominal_qpos(model, adapter)
    if keyframe:
        mujoco.mj_resetDataKeyframe(raw, expected, 0)
    for m, data in ((model, ours), (raw, expected)):
        mujoco.mj_kinematics(m, data)
    assert np.allclose(ours.xpos, expected.xpos, atol=1e-9)
    assert np.allclose(ours.xmat, expected.xmat, atol=1e-9)


def test_nothing_ends_its_walk_and_all_is_named(biped):
    adapter = model_adapter(biped)
    spec = adapter.load()
    instrument(spec, root=adapter.root, touch=adapter.touch, sites=adapter.sites)
    model = compile_spec(spec)
    layout = layout_of(model, {})
    assert [bool(model.joint(j).limited[0]) for j in ("tx", "tz", "yaw")] == [False] * 3
    assert model.joint("hip_l").limited[0]
    assert len(layout.joints) == model.njnt
    assert len(layout.muscles) == model.nu
    assert len(layout.bodies) == model.nbody - 1
    assert all([*layout.joints, *layout.muscles, *layout.bodies])
    again = layout_of(compile_spec(adapter.load()), {})
    assert list(again.joints) == list(layout.joints), "the same names each time"


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (("pelvis", "calcn_r", "toes_l"), {"pelvis": "pelvis", "left_toes": "toes_l", "right_foot": "calcn_r"}),
        (("LeftFoot", "RightFoot", "Torso"), {"left_foot": "LeftFoot", "right_foot": "RightFoot", "trunk": "Torso"}),
        (("l_ankle_roll", "left_hand", "right_upper_arm"), {"left_foot": "l_ankle_roll", "left_hand": "left_hand",
                                                          "right_upper_arm": "right_upper_arm"}),
        (("l_el_link", "r_ank_roll_link", "left_elbow_link", "left_radius"),
         {"left_forearm": "left_radius", "right_foot": "r_ank_roll_link"}),
        (("footstool_l", "forehead", "rail"), {}),
    ],
)  # fmt: skip
def test_parts_are_found_by_the_words_in_their_names(names, roles):
    bodies = "".join(f'<body name="{n}"><freejoint/><geom size="0.1"/></body>' for n in names)
    found = roles_of(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"))
    assert roles.items() <= found.items()
    if not roles:
        assert not found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<mujoco><worldbody><body><geom type='sphr'/></body></worldbody></mujoco>", "cannot be read.*sphr.*line 1"),
        ("<mujoco><worldbody><body name='a'><joint/></body></worldbody></mujoco>", "does not compile.*mass"),
        ("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>", "has no actuators"),
        ("<mujoco><include file='gone.xml'/></mujoco>", r"cannot be read.*gone\.xml"),
    ],
)
def test_a_file_that_is_no_model_is_told_on_one_line(tmp_path, text, said):
    path = tmp_path / "bad.xml"
    path.write_text(text)
    with pytest.raises(UserError, match=said) as error:
        model_adapter(str(path))
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing_or_compiled_is_told(tmp_path, biped):
    with pytest.raises(UserError, match=r"no model file .*bipde\.xml; did you mean .*biped\.xml"):
        model_adapter(str(Path(biped).with_name("bipde.xml")))
    (tmp_path / "m.mjb").write_bytes(b"")
    with pytest.raises(UserError, match=r"is a compiled model.*give its XML"):
        model_adapter(str(tmp_path / "m.mjb"))


def test_a_walker_of_which_nothing_collides_has_no_walk(tmp_path):
    leg = """<body name="{s}_foot" pos="0 {y} 1"><joint name="{s}" axis="0 1 0" range="-1 1"/>
      <geom size=".1" contype="0" conaffinity="0"/></body>"""
    path = tmp_path / "limp.xml"
    path.write_text(f"""<mujoco><compiler angle="radian"/><worldbody><body name="pelvis" pos="0 0 1"><freejoint/>
      <geom size=".1" contype="0" conaffinity="0"/>{leg.format(s="left", y=0.1)}{leg.format(s="right", y=-0.1)}</body>
      </worldbody><actuator><motor joint="left"/><motor joint="right"/></actuator></mujoco>""")
    with pytest.raises(UserError, match="no geom of model"):
        build_task("flat_walk", str(path), 1.0, {})


def test_a_model_with_another_axis_up_is_turned_until_z_is_up(tmp_path: Path):
    """The walker that faces -y, in a world turned by -90 degrees about x: y is up, and it faces z."""
    plain = re.sub(r"<keyframe>.*</keyframe>", "", BIPED, flags=re.S)  # it has free bodies in the frame of the world
    turned = plain.replace("<worldbody>", '<worldbody><frame quat="1 -1 0 0">')
    turned = turned.replace("</worldbody>", "</frame></worldbody>")
    turned = turned.replace('<option timestep="0.005"/>', '<option timestep="0.005" gravity="0 -9.81 0"/>')
    models = []
    for name, text in (("upright", plain), ("turned", turned)):
        file = tmp_path / f"{name}.xml"
        file.write_text(text)
        adapter = model_adapter(str(file))
        models.append((adapter.forward, adapter.root, compile_spec(adapter.load())))
    (way, root, upright), (other_way, other_root, other) = models
    assert (way, root) == (other_way, other_root)
    np.testing.assert_array_equal(other.opt.gravity, [0, 0, -9.81])
    poses = []
    for model in (upright, other):
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        poses.append((data.xpos.copy(), data.geom_xmat.copy(), data.site_xpos.copy()))
    for one, two in zip(*poses, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-9)
