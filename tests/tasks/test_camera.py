"""Cameras: what a task's motion leads to is in the picture, also in the air."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
from bodies import PERSON

from movlr_jax.film.renderer import place
from movlr_jax.film.views import Views
from movlr_jax.tasks import Task, simple_task

DRONE = Path(__file__).parents[2] / "benchmarks" / "bodies" / "quadrotor.xml"
WALKER = """<mujoco><worldbody><geom type="plane" size="9 9 .1"/>
  <body name="cart" pos="0 0 .2"><freejoint/><geom type="box" size=".2 .1 .1"/>
    <body name="wheel"><joint name="turn" axis="0 1 0"/><geom size=".1"/></body></body>
  <body name="post" pos="{} 1 .5"><geom size=".05" contype="0" conaffinity="0"/></body></worldbody>
  <actuator><motor joint="turn"/></actuator></mujoco>"""


def made(words: str, xml: str | None = None) -> Task:
    model = str(DRONE) if xml is None else mujoco.MjSpec.from_string(xml)
    return simple_task(name="seen", model=model, description=words)


def offset(task: Task, body: str, *moves: np.ndarray) -> float:
    """Angle of a body from the middle of the view after the free body has moved by `moves` [3] m, in half views."""
    qpos = task.start(np.random.default_rng(0), 1)[0][0].copy()
    data, views = mujoco.MjData(task.model), Views(task.model, task.view.cameras)
    place(task.model, data, qpos)
    views.at(data)
    for move in moves:
        qpos[:3] += move
        place(task.model, data, qpos)
    (camera,) = views.at(data)
    azimuth, elevation = np.deg2rad([camera.azimuth, camera.elevation])
    ahead = np.array([np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)])
    line = data.body(body).xpos - (camera.lookat - camera.distance * ahead)
    return float(np.arccos(ahead @ line / np.linalg.norm(line)) / np.deg2rad(task.model.vis.global_.fovy / 2))


def test_what_flies_and_where_it_goes_stay_in_the_picture():
    task = made("hover at 1 m and go to the red marker")
    up, there = np.array([0.0, 0.0, 0.7]), np.array([0.9, 0.45, 0.0])
    for moves in ((), (up,), (up, 0.5 * there), (up, there)):
        assert offset(task, "drone", *moves) < 1.0
        assert offset(task, "red_marker", *moves) < 1.0
    climbs = made("go to the red marker")
    assert offset(climbs, "drone", np.array([0.0, 0.0, 20.0])) == pytest.approx(offset(climbs, "drone")), (
        "no word says that it climbs, but its motors carry it"
    )


def test_a_place_is_in_the_picture_from_the_start_unless_it_is_far_away():
    near, far = (made("go to the post", WALKER.format(x)) for x in (3, 300))
    assert offset(near, "post") < 1.0
    assert not near.view.cameras[0].vertical
    assert far.view.cameras[0].distance < 12
    assert offset(far, "post", np.array([297.0, 0.0, 0.0])) < 1.0


def test_a_jump_is_followed_if_it_is_high_and_has_room_if_it_is_low():
    low, high, stands = (made(words, PERSON) for words in ("jump by 50 cm", "jump by 4 m", "stand still"))
    assert [task.view.cameras[0].vertical for task in (low, high, stands)] == [False, True, False]
    some = made("jump high", PERSON)
    assert some.view.cameras[0].distance > stands.view.cameras[0].distance
    assert low.view.cameras[0].distance > stands.view.cameras[0].distance


def test_a_pole_that_swings_up_stays_in_the_picture():
    task = simple_task(name="pole", model=str(DRONE.with_name("cartpole.xml")), description="swing up the pole")
    data, (camera,) = mujoco.MjData(task.model), task.view.cameras
    half = np.deg2rad(task.model.vis.global_.fovy / 2)
    for angle in (0.0, np.pi):
        data.joint("hinge").qpos = angle
        mujoco.mj_kinematics(task.model, data)
        tip = data.body("pole").xpos - 0.5 * data.body("pole").xmat.reshape(3, 3)[:, 2]
        assert abs(tip[2] - camera.lookat[2]) < camera.distance * np.tan(half), angle
