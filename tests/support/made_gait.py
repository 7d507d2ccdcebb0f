"""A walker of boxes whose steps are known: episodes as if they had been simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np

from movlr_jax.models import ModelAdapter
from movlr_jax.rewards.state import instrument, layout_of
from movlr_jax.tasks import Task
from movlr_jax.tasks.base import Rewards, Scoring, View
from movlr_jax.tasks.walking import biomechanics
from movlr_jax.types import SimState, Step, Trajectory

DT = 0.01  # s
WEIGHT = 51.0 * 9.81  # N: a trunk of 50 kg and two feet of half a kilogram
AXES = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}
SLIDES = "".join(f'<joint name="{{0}}_{axis}" type="slide" axis="{way}"/>' for axis, way in AXES.items())
XML = f"""
<mujoco><option gravity="0 0 -9.81" timestep="0.001"/><worldbody>
  <geom name="floor" type="plane" size="0 0 1" contype="1" conaffinity="1"/>
  <body name="walker">
    <body name="trunk" pos="0 0 1">{SLIDES.format("trunk")}<geom size="0.1" mass="50" contype="0" conaffinity="0"/>
      <site name="origin" pos="0 0 0.5"/>
      <body name="weight"><joint name="pull" type="slide" axis="0 0 1" range="-1 1" limited="true"/>
        <geom size="0.05" mass="1e-6" contype="0" conaffinity="0"/><site name="insertion"/></body></body>
    <body name="foot_l" pos="0 0 0">{SLIDES.format("left")}
      <geom type="box" size="0.1 0.04 0.02" mass="0.5" conaffinity="0"/></body>
    <body name="foot_r" pos="0 0 0">{SLIDES.format("right")}
      <geom type="box" size="0.1 0.04 0.02" mass="0.5" conaffinity="0"/></body>
  </body></worldbody>
  <tendon><spatial name="rope"><site site="origin"/><site site="insertion"/></spatial></tendon>
  <actuator><muscle name="muscle" tendon="rope" force="100" lengthrange="0.2 0.8"/></actuator>
</mujoco>"""


def good(metrics: dict[str, float]) -> float:
    return metrics["distance_m"]


def walker_of_boxes() -> Task:
    """A walker of boxes: its feet go wherever they are put."""
    adapter = ModelAdapter(
        name="boxes",
        load=lambda: mujoco.MjSpec.from_string(XML),
        root="walker",
        planned_joints=(),
        roles={"pelvis": "trunk", "left_foot": "foot_l", "right_foot": "foot_r"},
        touch={"left_foot": ("foot_l",), "right_foot": ("foot_r",)},
    )
    spec = adapter.load()
    instrument(spec, root=adapter.root, touch=adapter.touch, sites=())
    model = spec.compile()
    return Task(
        name="walk",
        description="walk",
        adapter=adapter,
        model=model,
        layout=layout_of(model, {}),
        goals={},
        episode_s=5.0,
        start=lambda rng, n: (np.zeros((n, model.nq)), np.zeros((n, model.nv)), np.zeros((n, model.na))),
        scoring=Scoring(
            measure=lambda episode, task: {"success": 1.0, "distance_m": 6.0},
            score=good,
            diagnose=biomechanics.biomechanical_needs,
        ),
        rewards=Rewards("", ""),
        view=View(()),
        roles=adapter.roles,
    )


@dataclass(frozen=True)
class Gait:
    """A gait whose measures follow from its numbers. Times in s, lengths in m, angles in rad."""

    seconds: float = 6.0
    stride_s: float = 1.0
    speed: float = 1.2
    width: float = 0.14
    lift: float = 0.08  # how high a foot swings
    stands: tuple[float, float] = (0.6, 0.6)  # share of its cycle that each foot is on the ground
    strikes: tuple[float, float] = (0.2, 0.7)  # when each foot lands first
    ahead: tuple[float, float] = (0.0, 0.0)  # where each lands, from below the trunk
    heading: float = 0.0


def foot(gait: Gait, time: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a foot is [T, 3] in the frame of the path, and whether it stands [T]."""
    cycle = (time - gait.strikes[side] + 1e-9) / gait.stride_s
    landed = gait.speed * (np.floor(cycle) * gait.stride_s + gait.strikes[side]) + gait.ahead[side]
    phase = np.clip((cycle % 1.0 - gait.stands[side]) / (1 - gait.stands[side]), 0.0, 1.0)
    x = landed + phase * gait.speed * gait.stride_s
    z = gait.lift * np.sin(np.pi * phase)
    y = np.full_like(x, gait.width / 2 * (1 if side == 0 else -1))
    return np.stack([x, y, z], axis=-1), phase == 0.0


def walk(task: Task, gait: Gait = Gait()) -> Trajectory:
    """An episode of that gait; where bodies are is C MuJoCo's, the feet carry the weight in turn."""
    model, data = task.model, mujoco.MjData(task.model)
    time = DT * (1 + np.arange(round(gait.seconds / DT)))
    trunk = np.stack([gait.speed * time, 0.02 * np.sin(2 * np.pi * time / gait.stride_s), 0 * time], axis=-1)
    feet, stands = zip(*(foot(gait, time, side) for side in (0, 1)), strict=True)
    c, s = np.cos(gait.heading), np.sin(gait.heading)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    qpos, sensors = np.zeros((len(time), model.nq)), np.zeros((len(time), model.nsensordata), np.float32)
    for name, path in zip(("trunk", "left", "right"), (trunk, *feet), strict=True):
        for axis, values in zip("xyz", (path @ turn.T).T, strict=True):
            qpos[:, model.joint(f"{name}_{axis}").qposadr[0]] = values
    for t, q in enumerate(qpos):
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        sensors[t] = data.sensordata
    for part, standing in zip(biomechanics.FEET, stands, strict=True):
        sensors[:, task.layout.touch[part][0]] = WEIGHT * standing
    return episode(task, time, qpos, sensors)


def episode(task: Task, time: np.ndarray, qpos: np.ndarray, sensors: np.ndarray) -> Trajectory:
    zeros = np.zeros((len(time), task.model.nu), np.float32)
    step = Step(
        time=time.astype(np.float32),
        qpos=qpos.astype(np.float32),
        qvel=np.zeros((len(time), task.model.nv), np.float32),
        act=np.full((len(time), task.model.na), 0.5, np.float32),
        sensors=sensors.astype(np.float32),
        prev_action=zeros,
    )
    final = SimState(**{k: v[-1] for k, v in vars(step).items()}, diverged=np.False_)
    return Trajectory(steps=step, actions=zeros, valid=np.asarray(len(time)), final=final)


def replaced(made: Trajectory, **fields: np.ndarray) -> Trajectory:
    return replace(made, steps=replace(made.steps, **fields))
