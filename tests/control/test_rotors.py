"""Bodies that their motors carry through the air, and limbs that swing: what plans set out from and how they vary."""

from __future__ import annotations

import mujoco
import numpy as np

from movlr_jax.models.motors import carrying, mixed, swing_s

ROTORS = """<mujoco><worldbody><geom type="plane" size="9 9 .1"/><body name="drone" pos="0 0 .5"><freejoint/>
  <geom type="box" size=".1 .1 .03" mass="{mass}"/><site name="a" pos=".1 .1 0"/><site name="b" pos="-.1 .1 0"/>
  <site name="c" pos="-.1 -.1 0"/><site name="d" pos=".1 -.1 0"/></body></worldbody><actuator>
  <motor site="a" gear="0 0 1 0 0 .02" ctrlrange="0 8"/><motor site="b" gear="0 0 1 0 0 -.02" ctrlrange="0 8"/>
  <motor site="c" gear="0 0 1 0 0 .02" ctrlrange="0 8"/><motor site="d" gear="0 0 1 0 0 -.02" ctrlrange="0 8"/>
</actuator></mujoco>"""
POLE = """<mujoco><worldbody><body><joint name="cart" type="slide" axis="1 0 0"/><geom size=".1" mass="1"/>
  <body><joint name="hinge" axis="0 1 0"/><geom pos="0 0 -.5" size=".001" mass=".2"/></body></body></worldbody>
  <actuator><motor joint="cart" ctrlrange="-5 5"/></actuator></mujoco>"""


def test_rotors_hover_with_a_quarter_of_the_weight_each():
    """By hand: 1 kg needs 9.81 N, of four rotors; eight newtons each cannot carry 4 kg."""
    light, heavy = (mujoco.MjModel.from_xml_string(ROTORS.format(mass=m)) for m in (1, 4))
    found = carrying(light, light.qpos0)
    assert found is not None
    np.testing.assert_allclose(found, 9.81 / 4, rtol=1e-5)
    assert carrying(heavy, heavy.qpos0) is None


def test_noise_of_rotors_accelerates_a_body_alike_upwards_and_around_its_axes():
    """In C MuJoCo, the accelerations under random controls around hovering spread as much in each direction."""
    model = mujoco.MjModel.from_xml_string(ROTORS.format(mass=1))
    data, rest = mujoco.MjData(model), carrying(model, model.qpos0)
    noise = (
        0.1 * np.random.default_rng(0).standard_normal((4000, 4)) @ mixed(model, model.qpos0, np.full(4, 8.0)) * 8.0
    )
    found = []
    for control in rest + noise:
        data.ctrl[:] = control
        mujoco.mj_forward(model, data)
        found.append(data.qacc.copy())
    up, *around = np.std(found, axis=0)[2:]
    np.testing.assert_allclose(around, up, rtol=0.05)


def test_a_bar_of_a_closed_chain_is_no_pendulum():
    """As the passive bars of a gripper: both bars hang freely, but a connection holds them."""
    bar = """<body name="{n}" pos="{x} 0 1"><joint name="{n}" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.5" size=".02"/></body>"""
    text = f"""<mujoco><worldbody><body name="base"><geom size=".1"/><body name="slider">
      <joint name="j" type="slide"/><geom size=".1"/>{bar.format(n="one", x=0)}{bar.format(n="two", x=0.2)}
      </body></body></worldbody>
      <equality><connect body1="one" body2="two" anchor="0 0 -.5"/></equality>
      <actuator><motor joint="j" ctrlrange="-9 9"/></actuator></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    assert swing_s(model, model.qpos0) == 0.0
    model.eq_active0[:] = 0
    assert swing_s(model, model.qpos0) > 1.0
    geared = text.replace('<connect body1="one" body2="two" anchor="0 0 -.5"/>', '<joint joint1="one" joint2="two"/>')
    model = mujoco.MjModel.from_xml_string(geared)
    assert swing_s(model, model.qpos0) == 0.0


def test_a_pole_swings_as_long_as_a_pendulum():
    """By hand: 0.2 kg at 0.5 m, 2 pi sqrt(l / g); a motor that drives the pole and can hold it leaves none."""
    model = mujoco.MjModel.from_xml_string(POLE)
    np.testing.assert_allclose(swing_s(model, model.qpos0), 2 * np.pi * np.sqrt(0.5 / 9.81), rtol=1e-3)
    driven = POLE.replace("</actuator>", '<motor joint="hinge" ctrlrange="-5 5"/></actuator>')
    model = mujoco.MjModel.from_xml_string(driven)
    assert swing_s(model, model.qpos0) == 0.0
