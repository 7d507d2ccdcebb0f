"""Bodies that move freely: the leg of docs/write_a_task.md, four legs under a ball, and bodies that slide."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import mujoco
import numpy as np

from movlr_jax.biomech.gait.criteria import GaitCriteria
from movlr_jax.tasks import Task
from movlr_jax.types import SimState, Step, Trajectory

PAGE = (Path(__file__).parent.parent.parent / "docs" / "write_a_task.md").read_text(encoding="utf-8")


def block(language: str, heading: str = "## A body that moves") -> str:
    """Return the first block of that language in a section of the page."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE[PAGE.index(heading) :], re.S)
    assert found
    return found.group(1)


HOPPER = block("xml")

_LEG = """<body name="leg{i}" pos="{x} {y} 0" euler="0 0 {yaw}"><joint name="hip{i}" axis="0 0 1" range="-40 40"/>
  <geom type="capsule" fromto="0 0 0 0.2 0 0" size="0.04" mass="0.3"/>
  <body name="shin{i}" pos="0.2 0 0"><joint name="knee{i}" axis="0 1 0" range="20 80"/>
  <geom type="capsule" fromto="0 0 0 0.35 0 0" size="0.04" mass="0.3"/></body></body>"""
_LEGS = ((0.1, 0.1, 45), (-0.1, 0.1, 135), (-0.1, -0.1, 225), (0.1, -0.1, 315))

CRAWLER = f"""<mujoco><option timestep="0.004"/><default><joint damping="0.5" armature="0.2"/>
<geom friction="1.2" contype="1" conaffinity="0"/></default>
<worldbody><geom name="floor" type="plane" size="20 20 1" contype="0" conaffinity="1"/>
<body name="hub" pos="0 0 0.45"><freejoint name="free"/><geom size="0.15" mass="3"/>
{"".join(_LEG.format(i=i, x=x, y=y, yaw=yaw) for i, (x, y, yaw) in enumerate(_LEGS))}
</body></worldbody><actuator>
{"".join(f'<motor joint="{j}{i}" gear="25" ctrlrange="-1 1"/>' for i in range(4) for j in ("hip", "knee"))}
</actuator><keyframe><key name="home" qpos="0 0 0.45 1 0 0 0 {"0 0 " * 4}"/></keyframe></mujoco>"""


# settings of a walking task in which any motion counts as walking
ANY_MOTION = {f.name: None for f in fields(GaitCriteria) if f.name != "legs"}


def episode_of(task: Task, postures: Sequence[np.ndarray], dt: float = 0.1) -> Trajectory:
    """An episode whose sensors C MuJoCo measures at given postures [T, nq], at rest."""
    data, model = mujoco.MjData(task.model), task.model
    sensors = []
    for qpos in postures:
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        sensors.append(data.sensordata.copy())
    t = len(postures)
    steps = Step(
        time=np.arange(t) * dt,
        qpos=np.array(postures),
        qvel=np.zeros((t, model.nv)),
        act=np.zeros((t, model.na)),
        sensors=np.array(sensors, np.float32),
        prev_action=np.zeros((t, model.nu), np.float32),
    )
    last = {name: np.asarray(value)[-1:] for name, value in vars(steps).items()}
    return Trajectory(
        steps=steps,
        actions=np.zeros((t, model.nu), np.float32),
        valid=np.asarray(t),
        final=SimState(**last, diverged=np.zeros(1, bool)),
    )
