"""A motion that the command view can show: a bar that turns, with one muscle."""

from __future__ import annotations

from types import SimpleNamespace

import mujoco
import numpy as np

from movlr_jax.film.viewer import Replay
from movlr_jax.rewards.state import layout_of
from movlr_jax.storage.trajectory import EpisodeRecord
from movlr_jax.tasks.base import Camera, View

ARM = """
<mujoco>
  <worldbody>
    <body name="bar" pos="0 0 1">
      <joint name="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/>
      <site name="on_bar" pos=".3 0 0"/>
    </body>
    <site name="on_floor" pos=".3 0 0"/>
  </worldbody>
  <tendon><spatial name="cord"><site site="on_bar"/><site site="on_floor"/></spatial></tendon>
  <actuator><muscle name="cord" tendon="cord" lengthrange=".5 1.5"/></actuator>
</mujoco>
"""


def replay_of(steps: int = 11, **changes: object) -> Replay:
    """The bar turns by 1 rad in 1 s, one state each 0.1 s; its muscle becomes active."""
    model = mujoco.MjModel.from_xml_string(ARM)
    ramp = np.linspace(0.0, 1.0, steps)[:, None]
    record = EpisodeRecord(
        time=0.1 * np.arange(1, steps + 1),
        qpos=ramp,
        qvel=np.ones_like(ramp),
        act=ramp,
        ctrl=ramp,
        touch=np.zeros((steps, 0)),
        touch_names=(),
        model=model,
    )
    view = View((Camera((0.0, 0.0, 1.0), 2.0, 90.0, -10.0),))
    task = SimpleNamespace(model=model, view=view, layout=layout_of(model, {}))
    return Replay(task, record, "g00k00: turn", **changes)  # pyright: ignore
