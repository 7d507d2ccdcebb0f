"""Servos that are set so that they carry the load at a posture hold it; compared with C MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from bodies import QUADRUPED

from movlr_jax.models.actuators import servo_controls
from movlr_jax.models.load import load_of, weak_servos, with_load

ARM = """<mujoco><worldbody><body name="link"><joint name="j" axis="0 1 0" damping="1"/>
<geom type="capsule" fromto="0 0 0 1 0 0" size=".02" mass="2"/></body></worldbody>
<actuator><position joint="j" kp="100" gear="2"/></actuator></mujoco>"""
KNEES = "0 -.4 .8"  # of each leg, rad


def dog(ahead: float = 0.0) -> mujoco.MjModel:
    """Return a body of 6 kg, `ahead` m of its middle, on four legs that springs of 40 N m/rad hold."""
    joints = [f"{leg}_{joint}_joint" for leg in ("FL", "FR", "RL", "RR") for joint in ("hip", "thigh", "calf")]
    servos = "".join(f'<position joint="{joint}" kp="40" kv="2"/>' for joint in joints)
    key = f'<keyframe><key qpos="0 0 .39 1 0 0 0 {" ".join([KNEES] * 4)} 1 0 .1 1 0 0 0"/></keyframe>'
    text = QUADRUPED.split("<actuator>")[0].replace("-150 30", "-150 90")
    text = text.replace('mass="6"', f'mass="6" pos="{ahead} 0 0"')
    return mujoco.MjModel.from_xml_string(f"{text}<actuator>{servos}</actuator>{key}</mujoco>")


def sag(model: mujoco.MjModel, qpos: np.ndarray, controls: np.ndarray) -> float:
    """Return how far the joints of servos are from `qpos` [nq] after 2 s, rad."""
    data, at = mujoco.MjData(model), model.jnt_qposadr[model.actuator_trnid[:, 0]]
    data.qpos[:], data.ctrl[:] = qpos, controls
    mujoco.mj_step(model, data, nstep=round(2.0 / model.opt.timestep))
    return float(np.abs(data.qpos[at] - qpos[at]).max())


def test_an_arm_gives_way_by_its_torque_over_its_stiffness():
    """By hand: 2 kg at 0.5 m pull with 9.81 N m, and 100 x 2 x 2 N m/rad hold them, positive downwards."""
    model = mujoco.MjModel.from_xml_string(ARM)
    assert load_of(model, model.qpos0) == pytest.approx([-9.81 / 400 * 2], rel=1e-3)
    assert sag(model, model.qpos0, servo_controls(model, model.qpos0)) > 0.02
    assert (
        sag(model, model.qpos0, with_load(model, model.qpos0, lambda q: servo_controls(model, q))(model.qpos0)) < 1e-3
    )


def test_legs_carry_the_body():
    model = dog()
    qpos = model.key_qpos[0]
    assert sag(model, qpos, servo_controls(model, qpos)) > 0.04
    assert sag(model, qpos, with_load(model, qpos, lambda q: servo_controls(model, q))(qpos)) < 0.02


def test_controls_of_a_keyframe_that_are_not_its_posture_stay():
    model = dog()
    own = servo_controls(model, model.key_qpos[0]) + 0.1
    np.testing.assert_array_equal(with_load(model, model.key_qpos[0], lambda q: own)(model.key_qpos[0]), own)


def test_feet_that_cannot_carry_the_body_carry_nothing():
    """Its legs are all on one side of its centre of mass, so that it tips over."""
    model = dog(ahead=0.6)
    assert not load_of(model, model.key_qpos[0]).any()


def test_servos_that_cannot_hold_the_body_are_named():
    """A servo of 1 N m/rad gives way by forty times as much as one of 40, under the same torque."""
    model = dog()
    qpos = model.key_qpos[0]
    assert not weak_servos(model, qpos)
    most = float(np.abs(load_of(model, qpos)).max())
    model.actuator_gainprm[:, 0], model.actuator_biasprm[:, 1] = 1.0, -1.0
    said = weak_servos(model, qpos)
    assert "actuator 2" in said
    assert f"at least {40 * most:.2g} times" in said
    assert sag(model, qpos, servo_controls(model, qpos)) > 0.5
