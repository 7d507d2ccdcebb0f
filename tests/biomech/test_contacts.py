"""Contacts of flexes, which have no geom."""

from __future__ import annotations

import mujoco
import pytest

from movlr_jax.biomech.contacts import contact_bodies

CLOTH = """<mujoco><worldbody>
  <body name="arm" pos="0 0 0.6"><joint name="lift" axis="0 1 0" range="-120 120"/>
    <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="1"/></body>
  <body name="holder" pos="0.15 0 0.63">
    <flexcomp name="towel" type="grid" count="COUNT" spacing="0.06 0.06 0.06" radius="0.02" mass="0.2" DOF>
      <contact selfcollide="none"/></flexcomp></body>
  <body name="lamp" pos="2 2 1"><freejoint/><geom type="sphere" size="0.1" mass="0.2"/></body>
</worldbody></mujoco>"""


@pytest.mark.parametrize(
    ("dof", "count"), [("full", "5 5 1"), ("full", '3 3 3" dim="3'), ("trilinear", '3 3 3" dim="3')]
)
def test_a_contact_of_a_flex_is_that_of_its_own_bodies(dof: str, count: str):
    model = mujoco.MjModel.from_xml_string(CLOTH.replace("DOF", f'dof="{dof}"').replace("COUNT", count))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.ncon
    assert (data.contact.geom < 0).any()
    names = {model.body(body).name for body in contact_bodies(model, data).ravel()}
    assert "arm" in names
    assert "lamp" not in names
    assert all(name.startswith("towel") or name == "arm" for name in names), names


def test_no_contact_has_no_bodies():
    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    assert contact_bodies(model, mujoco.MjData(model)).shape == (0, 2)
