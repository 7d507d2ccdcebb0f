"""What is changed in a model so that MJX takes it, and that nothing else is."""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import version

import jax
import mujoco
import numpy as np
import pytest
from cli_cases import SUPPORT
from mujoco import mjx
from mujoco.mjx._src import collision_driver

from movlr_jax._util.machine import xla_knows
from movlr_jax.cli.transfer import main as transfer
from movlr_jax.config.compose import compose
from movlr_jax.engine.environment import prepare_environment, prepare_physics
from movlr_jax.engine.tasks import task_of
from movlr_jax.physics.mjx_model import (
    ContactCounts,
    fit_for_jax,
    flatten_tree,
    limit_contacts,
    near_pairs,
    probe_contacts,
    reads_wrap_points,
    warp_sizes,
    without_wrap_points,
)

BALLS = '<geom name="floor" type="plane" size="9 9 1"/>' + "".join(
    f'<body name="b{i}" pos="{0.3 * i} 0 0.06"><freejoint/>'
    f'<geom name="g{i}" type="sphere" size="0.05" contype="1" conaffinity="1"/></body>'
    for i in range(8)
)
MIXED = """
<mujoco>
  <option iterations="100" ls_iterations="50"/>
  <asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body pos="0 0 1"><freejoint/><geom name="egg" type="ellipsoid" size="0.1 0.3 0.2" margin="0.01"/></body>
    <body pos="0 2 1"><freejoint/><geom name="box" type="box" size="0.1 0.1 0.1"/></body>
    <body pos="2 0 1"><freejoint/><geom name="rock" type="mesh" mesh="m" margin="0.02"/></body>
  </worldbody>
</mujoco>
"""

LEG = SUPPORT / "tiny_task.py"


def pairs(model: mujoco.MjModel) -> set[tuple[int, int]]:
    return {(int(a), int(b)) for a, b, _ in collision_driver.geom_pairs(model)}


def test_a_model_that_mjx_takes_is_left_alone(tiny):
    model = tiny.model
    kept = model.opt.iterations
    fitted, changes = fit_for_jax(model)
    assert model.opt.iterations == kept, "the model that was given is not touched"
    assert pairs(fitted) == pairs(model)
    assert [change.split(" ")[1] for change in changes] == ["solver"]
    again, none = fit_for_jax(fitted)
    assert none == ()
    assert again.opt.iterations == fitted.opt.iterations


def test_shapes_that_mjx_cannot_collide_are_told_and_fit_inside_what_they_were():
    model = mujoco.MjModel.from_xml_string(MIXED)
    fitted, changes = fit_for_jax(model)
    mjx.put_model(fitted)  # raises NotImplementedError on the model as it was
    egg = fitted.geom("egg")
    assert egg.type == mujoco.mjtGeom.mjGEOM_CAPSULE
    np.testing.assert_allclose([egg.size[0], egg.size[0] + egg.size[1]], [0.15, 0.3])  # as long as the egg
    turned = np.zeros(3)
    mujoco.mju_rotVecQuat(turned, np.array([0.0, 0.0, 1.0]), egg.quat)
    np.testing.assert_allclose(np.abs(turned), [0, 1, 0], atol=1e-9)  # along its longest axis, y
    assert fitted.geom("rock").margin == 0
    assert pairs(fitted) == pairs(model)
    text = " ".join(changes)
    assert all(word in text for word in ("egg", "rock", "capsules", "margin", "100 with 50"))


CHAIN = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body pos="0 0 .1" euler="0 10 20"><geom type="box" size=".05 .05 .05"/>
      <body name="shelf" pos=".1 0 0" euler="30 0 0"><geom size=".03" pos="0 0 .2"/>
        <body pos="0 .1 .3"><joint axis="0 1 0" stiffness="1"/><geom size=".03" pos=".1 0 0"/></body>
      </body>
    </body>
    <body pos="0 1 .5"><freejoint/><geom type="box" size=".1 .1 .1"/>
      <body name="rim" pos=".1 0 0" euler="40 0 0"><geom size=".03" pos="0 0 .1"/>
        <body name="tube" pos="0 .1 0" euler="0 50 0"><geom size=".04" pos=".1 0 0"/>
          <body pos="0 0 .1"><joint axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom type="box" size=".1 .1 .1"/>
            <body name="tip" pos=".05 0 .1" euler="0 0 60"><site name="end" pos="0 .1 0"/><geom size=".03"/></body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <sensor>
    <framepos objtype="site" objname="end"/><framelinvel objtype="body" objname="tip"/>
    <subtreecom body="rim"/><subtreelinvel body="rim"/><framepos objtype="body" objname="shelf"/>
    <framequat objtype="body" objname="tip"/><frameangacc objtype="body" objname="tube"/>
  </sensor>
</mujoco>
"""


def depths(model: mujoco.MjModel) -> list[int]:
    found = [0]
    for parent in model.body_parentid[1:]:
        found.append(found[parent] + 1)
    return found


def test_bodies_without_joints_are_carried_directly_and_move_as_before():
    model = mujoco.MjModel.from_xml_string(CHAIN)
    flat = mujoco.MjModel.from_xml_string(CHAIN)
    flatten_tree(flat)
    assert depths(model) == [0, 1, 2, 3, 1, 2, 3, 4, 5]
    assert depths(flat) == [0, 1, 1, 1, 1, 2, 3, 3, 4]  # rim stays in between: its subtree is measured
    a, b = mujoco.MjData(model), mujoco.MjData(flat)
    a.qvel[:] = b.qvel[:] = np.random.default_rng(0).standard_normal(model.nv)
    touched = 0
    for _ in range(400):
        mujoco.mj_step(model, a)
        mujoco.mj_step(flat, b)
        touched += a.ncon
        np.testing.assert_allclose(b.sensordata, a.sensordata, atol=1e-9, rtol=1e-9)
        np.testing.assert_allclose(b.xquat, a.xquat, atol=1e-9)
    assert touched
    np.testing.assert_allclose(b.qpos, a.qpos, atol=1e-9)
    np.testing.assert_allclose(b.qvel, a.qvel, atol=1e-9)


NUMBER, LIMIT = '<numeric name="init_qpos" data="0 0 0.55"/>', '<numeric name="max_contact_points" data="7"/>'


@pytest.mark.parametrize(("own", "contacts"), [("", 24), (NUMBER, 24), (NUMBER + LIMIT, 7)])
def test_nearest_contacts_are_solved_whatever_numbers_a_model_has(own: str, contacts: int):
    """MJX reads the n-th number of all where the n-th name's is meant: the ant of Gymnasium had no contacts."""
    text = f"<mujoco><custom>{own}</custom><worldbody>{BALLS}</worldbody></mujoco>"
    model = mujoco.MjModel.from_xml_string(text)
    put, said = limit_contacts(mjx.put_model(model))
    assert mjx.make_data(put)._impl.ncon == contacts
    if not own:
        assert said == "of 36 possible contacts, only the 24 nearest of each kind are in the solver"
        assert mjx.make_data(model)._impl.ncon == 36


CART = """<mujoco>{option}<worldbody><body name="cart"><joint name="slider" type="slide" axis="1 0 0" damping="1"/>
  <geom size=".1" contype="0" conaffinity="0"/><site name="skin" size="1"/>
  <body name="pole" pos="0 0 .1"><joint name="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .6"
  size=".02" contype="0" conaffinity="0"/></body></body></worldbody>
  <actuator><motor joint="slider" ctrlrange="-1 1"/></actuator>
  <sensor><touch site="skin"/><jointpos joint="hinge"/></sensor></mujoco>"""


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ('<option solver="PGS"><flag energy="enable"/></option>', ("the solver is Newton, because MJX has no PGS",)),
        (
            '<option integrator="implicitfast" viscosity="0.1"/>',
            ("the integrator is euler, because implicitfast has no drag of fluids there",),
        ),
        ('<option integrator="implicit"/>', ("the integrator is implicitfast, because MJX has no implicit",)),
    ],
    ids=["energy and PGS", "fluid", "implicit"],
)
def test_what_mjx_lacks_is_left_out(option: str, said: tuple[str, ...]):
    """Models of Gymnasium and dm_control use these. Nothing can touch here, and sensors of touch are 0."""
    model = mujoco.MjModel.from_xml_string(CART.format(option=option))
    fitted, changes = fit_for_jax(model)
    assert [change for change in changes if "iterations" not in change] == list(said)
    put, _ = limit_contacts(mjx.put_model(fitted))
    data, exact = mjx.make_data(put).replace(qvel=np.array([0.1, 0.5])), mujoco.MjData(model)
    exact.qvel[:] = 0.1, 0.5
    step = jax.jit(lambda d: mjx.step(put, d))
    for _ in range(10):
        data = step(data)
        mujoco.mj_step(model, exact)
    np.testing.assert_allclose(data.qpos, exact.qpos, rtol=1e-3)
    np.testing.assert_allclose(data.sensordata, exact.sensordata, atol=1e-3)
    assert data.sensordata[0] == 0.0


def test_limits_of_warp_come_from_what_a_limp_body_does(tiny):
    probe = probe_contacts(tiny.model, tiny.states(2))
    assert probe.contacts >= 1
    assert probe.rows > probe.contacts
    assert warp_sizes(ContactCounts(3, 20), 100) == {"naconmax": 1400, "njmax": 72}
    assert warp_sizes(ContactCounts(3, 20, pairs=5), 100) == {"naconmax": 1800, "njmax": 72}


def test_near_pairs_are_those_whose_spheres_meet():
    """By hand: balls of 5 cm, two that overlap, one 1 cm above the floor, one 2 cm above, one within its margin."""
    balls = "".join(
        f'<body pos="{x} 0 {z}"><freejoint/><geom size="0.05" margin="{margin}"/></body>'
        for x, z, margin in ((0, 1, 0), (0.08, 1, 0), (1, 0.04, 0), (2, 0.07, 0), (3, 0.07, 0.03))
    )
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><worldbody><geom type="plane" size="9 9 1"/>{balls}</worldbody></mujoco>'
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    pairs = np.array([pair[:2] for pair in collision_driver.geom_pairs(model)])
    assert len(pairs) == 15
    assert near_pairs(model, data, pairs) == 3
    assert near_pairs(model, data, pairs[:, ::-1]) == 3


def test_commands_set_what_mjx_needs_where_the_user_has_not(monkeypatch, tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    monkeypatch.setattr("os.environ", environment)
    prepare_environment()
    has_flag = jax.__version_info__ < (0, 11)
    assert environment.get("XLA_FLAGS") == ("--xla_cpu_use_fusion_emitters=false" if has_flag else None)
    assert environment["JAX_COMPILATION_CACHE_DIR"].startswith(f"{tmp_path}/movlr-jax/compiled-")
    assert "PJRT_NPROC" not in environment, "native physics computes as it did"
    prepare_physics("native")
    assert "PJRT_NPROC" not in environment
    prepare_physics("mjx")
    assert int(environment["PJRT_NPROC"]) >= 16

    own = {"MOVLR_COMPILE_CACHE": "off", "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=true"}
    monkeypatch.setattr("os.environ", own)
    prepare_environment()
    assert "JAX_COMPILATION_CACHE_DIR" not in own
    assert own["XLA_FLAGS"] == "--xla_cpu_use_fusion_emitters=true"


@pytest.mark.parametrize("physics", ["auto", "native"])
@pytest.mark.parametrize("own", ["", "--xla_gpu_temp_buffer_use_separate_color=false"])
def test_temporary_arrays_have_memory_of_their_own_where_warp_may_run(monkeypatch, physics: str, own: str):
    """Warp's graphs contain their addresses; with a program that moves them, each rollout is captured anew."""
    environment = {"XLA_FLAGS": own, "HOME": os.environ["HOME"]}
    monkeypatch.setattr("os.environ", environment)
    prepare_physics(physics)
    may_run = physics in ("auto", "warp") and importlib.util.find_spec("warp")
    known = xla_knows("xla_gpu_temp_buffer_use_separate_color")
    added = "--xla_gpu_temp_buffer_use_separate_color=true" if may_run and known else ""
    assert environment["XLA_FLAGS"] == (own or added)


@pytest.mark.parametrize("physics", ["native", "mjx"])
def test_every_command_that_builds_a_task_sets_what_its_physics_needs(monkeypatch, physics):
    monkeypatch.delenv("PJRT_NPROC")
    task_of(compose([f"+task={LEG}", f"physics={physics}"]))
    assert ("PJRT_NPROC" in os.environ) == (physics == "mjx")


def test_a_transfer_sets_what_its_engines_need(monkeypatch, capsys):
    monkeypatch.delenv("PJRT_NPROC")
    assert transfer(["reward=nowhere.py", f"from={LEG}", "engines=mjx"]) == 2
    assert "there is no reward 'nowhere.py'" in capsys.readouterr().err
    assert int(os.environ["PJRT_NPROC"]) >= 16


def test_xla_is_asked_once_whether_it_knows_a_flag(monkeypatch, tmp_path):
    """An unknown flag would abort the process; a known one is kept as known for this version of jaxlib."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert xla_knows("xla_cpu_multi_thread_eigen")
    assert not xla_knows("xla_cpu_no_such_flag")
    kept = {path.name: path.read_text() for path in (tmp_path / "movlr-jax" / "xla-flags").iterdir()}
    number = version("jaxlib")
    assert kept == {f"xla_cpu_multi_thread_eigen-{number}": "yes", f"xla_cpu_no_such_flag-{number}": "no"}
    monkeypatch.setattr("subprocess.run", None)  # from here on nobody is asked
    assert xla_knows("xla_cpu_multi_thread_eigen")
    assert not xla_knows("xla_cpu_no_such_flag")


CABLE = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <site name="top" pos="-0.1 0 1"/>
    <geom name="pulley" type="cylinder" size="0.05 0.1" pos="0 0 0.8" euler="90 0 0" contype="0" conaffinity="0"/>
    <body pos="0 0 0.6"><joint name="swing" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 -0.2" size="0.02"/><site name="end" pos="0.3 0 -0.2"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="cable" stiffness="200"><site site="top"/><geom geom="pulley"/><site site="end"/></spatial>
  </tendon>
  <sensor><gyro site="end"/></sensor>
</mujoco>
"""


@pytest.mark.parametrize("reader", ["nothing", "armature", "sleep", "force"])
def test_who_reads_the_points_of_tendons(reader: str):
    model = mujoco.MjModel.from_xml_string(CABLE)
    if reader == "armature":
        model.tendon_armature[0] = 0.1
    elif reader == "sleep":
        model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_SLEEP
    elif reader == "force":
        model.sensor_type[0] = mujoco.mjtSensor.mjSENS_FORCE
    assert reads_wrap_points(model) == (reader != "nothing")


@pytest.mark.slow
def test_a_step_of_warp_without_points_of_tendons_is_the_same_to_the_bit():
    pytest.importorskip("warp", reason="the extra warp is not installed")
    from mujoco.mjx.third_party import mujoco_warp

    model, ends = mujoco.MjModel.from_xml_string(CABLE), []
    without = without_wrap_points(model, mjx.put_model(model, impl="warp"))
    for drawn in (True, False):
        put = mujoco_warp.put_model(model)
        if not drawn:
            put.tendon_num.assign(without.tendon_num)
        data = mujoco_warp.make_data(model, nworld=2)
        for _ in range(50):
            mujoco_warp.step(put, data)
        # two sites, and both ends of the contact
        assert data.ten_wrapnum.numpy().tolist() == [[4 * drawn]] * 2
        ends.append(np.concatenate([data.qpos.numpy(), data.qvel.numpy(), data.ten_length.numpy()]))
    assert abs(ends[0][0, 0]) > 0.1
    np.testing.assert_array_equal(*ends)
    model.tendon_armature[0] = 0.1
    assert without_wrap_points(model, without) is without
