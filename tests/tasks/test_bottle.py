"""The bottle task: its numbers by hand, its start by MuJoCo, the rewards that come with it by the sandbox."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from grasping import CTRL_DT, MODELS, built, episode, held, sound_starts, still, triangles
from vetting import refusals

from movlr_jax.errors import UserError
from movlr_jax.sandbox.source import parse
from movlr_jax.tasks import Task, build_task
from movlr_jax.tasks.base import Camera, fill_reward, shared_metrics
from movlr_jax.tasks.hand.grasp import MAGENTA, body_frame, score
from movlr_jax.tasks.stage import add_tube_mesh


@pytest.fixture(scope="module")
def task() -> Task:
    return built("bottle_pour", "myoarm_r")


@pytest.fixture(scope="module", params=MODELS)
def any_task(request: pytest.FixtureRequest) -> Task:
    return built("bottle_pour", request.param)


def test_the_target_is_where_its_outline_stands(any_task: Task):
    """And 6 cm to the left of where the bottle starts and 10 cm above, leaning 50 degrees to the left."""
    task, frame = any_task, body_frame(any_task.adapter)
    at = task.model.body("target_bottle").id
    np.testing.assert_allclose(task.goals["object_pos"], task.model.body_pos[at], atol=1e-6)
    np.testing.assert_allclose(task.goals["object_quat"], task.model.body_quat[at], atol=1e-6)
    lean = np.deg2rad(50.0)
    axis = frame.T @ task.goals["object_rot"][:, 2]  # forward, left, up
    np.testing.assert_allclose(axis, [0, np.sin(lean), np.cos(lean)], atol=1e-6)
    first = task.model.joint("bottle_free").qposadr[0]
    began = task.start(np.random.default_rng(0), 1)[0][0, first : first + 3]
    np.testing.assert_allclose(frame.T @ (task.goals["object_pos"] - began), [0.0, 0.06, 0.10], atol=1e-6)


def test_the_outline_is_around_the_bottle_and_touches_nothing(any_task: Task):
    """At the target, every point of the outline is on or outside the bottle, and at most 4 mm away from it."""
    model = any_task.model
    look, outline = model.geom("bottle_look"), model.geom("target_look")
    assert not model.geom_contype[outline.id]
    assert not model.geom_conaffinity[outline.id]
    np.testing.assert_allclose(outline.rgba, MAGENTA)
    bottle, wire = (triangles(model, geom).reshape(-1, 3) for geom in (look, outline))
    np.testing.assert_allclose([bottle[:, 2].min(), bottle[:, 2].max()], [-0.1, 0.1], atol=1e-6)
    side = wire[(wire[:, 2] > -0.095) & (wire[:, 2] <= 0.03)]
    gap = np.hypot(*side[:, :2].T) - 0.03
    assert gap.min() > -1e-4
    assert 0.003 < gap.max() < 0.004
    neck = wire[wire[:, 2] > 0.085]
    assert np.hypot(*neck[:, :2].T).max() < 0.02, "its narrow end is where the neck of the bottle is"


def test_a_tube_is_closed_and_faces_outward():
    """Pappus: a section of 1.5 sqrt(3) r^2, a hexagon, around a circle of radius 1 has 2 pi times that volume."""
    spec, turn = mujoco.MjSpec(), np.linspace(0, 2 * np.pi, 201)
    circle = np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=-1)
    add_tube_mesh(spec, "tube", [(circle, np.array([0.0, 0.0, 1.0]))], 0.1)
    spec.worldbody.add_geom(name="tube", type=mujoco.mjtGeom.mjGEOM_MESH, meshname="tube")
    model = spec.compile()
    a, b, c = np.moveaxis(triangles(model, model.geom("tube")), 1, 0)
    volume = np.einsum("ni,ni->", np.cross(a, b), c) / 6
    assert volume == pytest.approx(2 * np.pi * 1.5 * np.sqrt(3) * 0.1**2, rel=1e-3)


def seen(camera: Camera, points: np.ndarray) -> np.ndarray:
    """Positions [n, 2] (right, up) of `points` [n, 3] m in a square view of 45 degrees with edges at -1 and 1."""
    azimuth, elevation = np.deg2rad([camera.azimuth, camera.elevation])
    ahead = np.array([*(np.cos(elevation) * np.array([np.cos(azimuth), np.sin(azimuth)])), np.sin(elevation)])
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
    offset = np.asarray(points) - (np.array(camera.lookat) - camera.distance * ahead)
    across = np.stack([offset @ right, offset @ np.cross(right, ahead)], axis=-1)
    return across / (offset @ ahead)[:, None] / np.tan(np.deg2rad(22.5))


@pytest.mark.parametrize("name", ["bottle_pour", "cube_rotate"])
@pytest.mark.parametrize("model", MODELS)
def test_the_close_up_shows_fingers_and_object_large(name: str, model: str):
    """At the start, in both views: the distance from the thumb's tip to the others' in shares of the picture."""
    task = built(name, model)
    data = mujoco.MjData(task.model)
    data.qpos[:] = task.start(np.random.default_rng(0), 1)[0][0]
    mujoco.mj_kinematics(task.model, data)
    fingers = ("thumb", "index", "middle", "ring", "little")
    tips = [data.site(task.roles[f"{finger}_site"]).xpos for finger in fingers]
    points = np.array([*tips, data.body(task.roles["object"]).xpos])
    far, (near,) = task.view.cameras[0], task.view.more_cameras
    assert np.abs(seen(near, points)).max() < 0.7
    spans = [np.ptp(seen(camera, points), axis=0).max() for camera in (far, near)]
    assert spans[1] > 1.3 * spans[0]
    assert spans[1] > 0.4  # a fifth of the width
    assert near.track == task.roles["hand"]
    forward_left = body_frame(task.adapter)[:, :2].T  # the camera is in front of the body and left of the hand
    azimuth = np.deg2rad(near.azimuth)
    assert (forward_left @ -np.array([np.cos(azimuth), np.sin(azimuth), 0.0]) > 0.5).all()


@pytest.mark.parametrize(("axis", "degrees"), [((0, 0, 1), 0.0), ((1, 0, 0), 20.0), ((0.3, -0.5, 0.8), -75.0)])
def test_errors_worked_by_hand(task: Task, axis, degrees: float):
    """3 cm away along a diagonal, and turned about any axis: 0.03 m and that many radians."""
    offset = 0.03 * np.array([1.0, -2.0, 2.0]) / 3.0
    pos, quat = still(task, offset, degrees, axis)
    for sign in (1, -1):  # a quaternion and its negative are one orientation
        metrics = task.scoring.measure(episode(task, pos, sign * quat), task)
        assert metrics["object_position_error_m"] == pytest.approx(0.03, abs=1e-6)
        assert metrics["object_orientation_error_rad"] == pytest.approx(abs(np.deg2rad(degrees)), abs=1e-3)
        assert metrics["success"] == float(abs(degrees) <= 30)


@pytest.mark.parametrize(
    ("centimetres", "degrees", "success"), [(4.99, 29.9, 1.0), (5.01, 0.0, 0.0), (0.0, 30.1, 0.0)]
)
def test_success_is_both_within_bounds(task: Task, centimetres: float, degrees: float, success: float):
    metrics = task.scoring.measure(episode(task, *still(task, (0, 0, -centimetres / 100), degrees)), task)
    assert metrics["success"] == success


def test_bounds_are_settings():
    """Of both errors, and where a thing is held: one that need not be lifted may be set down."""
    settings = {"success_position_m": 0.01, "success_orientation_rad": 0.1, "lift_m": (0.1, 0.0, 0.0)}
    strict = build_task("bottle_pour", "myoarm_r", 3.0, settings)
    assert strict.scoring.measure(episode(strict, *still(strict, (0, 0.009, 0), 5)), strict)["success"] == 1.0
    assert strict.scoring.measure(episode(strict, *still(strict, (0, 0.011, 0), 5)), strict)["success"] == 0.0
    assert strict.scoring.measure(episode(strict, *still(strict, (0, 0.009, 0), 6)), strict)["success"] == 0.0
    pos, quat = still(strict, steps=3)
    pos[:, 2] = strict.goals["object_pos"][2] + np.array([0.0, 0.06, 0.0])
    assert strict.scoring.measure(episode(strict, pos, quat), strict)["dropped"] == 0.0


def test_the_worst_of_the_last_half_second_counts(task: Task):
    """31 steps of 16 ms: a bottle that passes through its target, or leaves it in time, has not arrived."""
    held = 31
    pos, quat = still(task)
    pos[: -held - 1] += [0.3, 0, 0]  # far away, but before
    assert task.scoring.measure(episode(task, pos, quat), task)["success"] == 1.0
    for wrong in (-held, -1):
        away = pos.copy()
        away[wrong] += [0.08, 0, 0]
        metrics = task.scoring.measure(episode(task, away, quat), task)
        assert metrics["success"] == 0.0
        assert metrics["object_position_error_m"] == pytest.approx(0.08, abs=1e-6)
    short = episode(task, *still(task, steps=3))  # shorter than hold_s: all of it counts
    assert task.scoring.measure(short, task)["success"] == 1.0


HEIGHTS = {  # of the bottle's centre above its start, cm
    "carried": ([0, 2, 6, 10, 10], 0.0),
    "never lifted": ([0, 0, 1, 0, 0], 0.0),
    "still on its way": ([0, 1, 3, 5, 4], 0.0),
    "let go": ([0, 4, 9, 2, 0], 1.0),
    "on its side": ([0, 0, -2, -6, -7], 1.0),
    "leaning on the table": ([0, 0, -1, -2, -2], 0.0),
    "off the table": ([0, 3, -20, -60, -75], 1.0),
}


@pytest.mark.parametrize("course", HEIGHTS)
def test_a_dropped_bottle_is_told(task: Task, course: str):
    centimetres, dropped = HEIGHTS[course]
    pos, quat = still(task, steps=len(centimetres))
    pos[:, 2] = task.goals["object_pos"][2] - 0.10 + 0.01 * np.array(centimetres)
    assert task.scoring.measure(episode(task, pos, quat), task)["dropped"] == dropped


def test_the_score_orders_episodes():
    def ended(centimetres: float, degrees: float, success: float = 0.0) -> float:
        return score({"object_position_error_m": centimetres / 100, "success": success,
                      "object_orientation_error_rad": float(np.deg2rad(degrees))})  # fmt: skip

    assert ended(0, 0) == pytest.approx(0)
    assert ended(3, 12) == pytest.approx(-5)  # 1 cm as much as 6 degrees
    assert ended(4.9, 29, success=1) > ended(5.1, 0)


def test_shared_measures_worked_by_hand(task: Task):
    """Activations of 0.5: effort 0.25. Actions that rise by 0.016 a step of 16 ms: 1 per second, squared 1."""
    made = episode(task, *still(task, steps=5), act=0.5)
    actions = np.repeat(CTRL_DT * np.arange(5.0)[:, None], task.model.nu, axis=1)
    metrics = shared_metrics(replace(made, actions=actions), task, CTRL_DT)
    assert metrics["effort"] == pytest.approx(0.25)
    assert metrics["smoothness"] == pytest.approx(1.0)
    assert metrics["diverged_fraction"] == 0.0
    assert shared_metrics(replace(made, valid=np.asarray(3)), task, CTRL_DT)["diverged_fraction"] == 1.0


# The start.


def test_the_hand_is_around_the_bottle_and_not_inside_it(any_task: Task):
    """For many seeds: nothing deeper than 1 mm, the bottle upright, every finger within 4 cm of its skin."""
    sound_starts(any_task, 40)
    model, data = any_task.model, mujoco.MjData(any_task.model)
    for q in any_task.start(np.random.default_rng(0), 40)[0]:
        data.qpos[:] = q
        mujoco.mj_kinematics(model, data)
        axis, centre = data.body("bottle").xmat.reshape(3, 3)[:, 2], data.body("bottle").xpos
        np.testing.assert_allclose(axis, [0, 0, 1], atol=1e-9)
        for finger in ("thumb", "index", "middle", "ring", "little"):
            tip = data.site(any_task.roles[f"{finger}_site"]).xpos
            assert np.linalg.norm((tip - centre)[:2]) - 0.03 < 0.04, finger


def test_held_by_its_muscles_nothing_moves_for_half_a_second(any_task: Task):
    task, layout = any_task, any_task.layout
    start, state = held(task, 4)
    moved = np.asarray(state.sensors) - start.sensors
    palm = layout.sites[task.roles["palm_site"]]
    bottle = layout.blocks["pos"] + 3 * layout.bodies["bottle"]
    assert np.linalg.norm(moved[:, palm : palm + 3], axis=1).max() < 0.02
    assert np.linalg.norm(moved[:, bottle : bottle + 3], axis=1).max() < 0.005
    upright = layout.blocks["quat"] + 4 * layout.bodies["bottle"]
    tilt = 2 * np.arccos(np.clip(np.abs(state.sensors[:, upright]), 0, 1))
    assert np.rad2deg(tilt).max() < 3.0
    assert np.abs(state.qvel).max() < 0.5


# What comes with the task.


def test_its_rewards_are_sound(any_task: Task):
    """On either model they read only what there is, and every number is finite."""
    rewards = any_task.rewards.initial, any_task.rewards.human
    assert not any("$" in source for source in rewards)
    assert all(parse(source).description for source in rewards)
    assert refusals(any_task, *rewards) == []


def test_a_reward_for_a_role_that_a_model_lacks_says_so(task: Task):
    assert fill_reward('state.site("$palm_site")', task.roles) == 'state.site("S_grasp_r")'
    assert fill_reward("costs 5 $$", {}) == "costs 5 $"
    with pytest.raises(UserError, match=r"no role 'palm_sight'.*'palm_site'"):
        fill_reward('state.site("$palm_sight")', task.roles)
    with pytest.raises(UserError, match=r"write \$\$ for a plain \$"):
        fill_reward("costs 5 $", task.roles)
